"""Summary functions: names and tags, collections, execution and errors."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import weft as wf
from weft_graph.ir.builder import out
from weft_io import summary
from weft_tensor import errors


@pytest.fixture(autouse=True)
def graph() -> Any:
    with wf.Graph().as_default() as graph:
        yield graph


def run(value: wf.Tensor, feeds: Any = None) -> summary.Summary:
    with wf.Session() as session:
        return summary.Summary.FromString(session.run(value, feeds))


def tags(value: wf.Tensor) -> list[str]:
    return [v.tag for v in run(value).value]


# ------------------------------------------------------------------------- names and tags


def test_nodes_have_tensorflows_names(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [], name="x")
    with wf.name_scope("outer"):
        summary.scalar("loss", x)
        summary.scalar("loss", x, family="fam")
        summary.scalar("a b:c", x, family="f m")
        summary.scalar("/lead", 3.0)
        summary.histogram(None, [1.0, 2.0])  # type: ignore[arg-type]
        summary.histogram("h", [1.0, 2.0])
    zeros = wf.constant(np.zeros([2, 3, 3, 1], np.float32), name="zeros")
    summary.image("im", zeros)
    summary.audio("au", wf.constant(np.zeros([2, 5], np.float32), name="zeros"), 44100)
    summary.text("t", wf.constant(["a", "b"]))
    summary.tensor_summary("ts", wf.constant(3), "d", display_name="n", family="z")
    summary.tensor_summary("ts", wf.constant(True))
    merged = summary.merge_all()
    summary.merge([merged], name="m!x")
    assert [(node.name, node.type) for node in graph.get_operations()] == [
        ("x", "Placeholder"),
        ("outer/loss/tags", "Const"),
        ("outer/loss", "ScalarSummary"),
        ("outer/fam/loss/tags", "Const"),
        ("outer/fam/loss", "ScalarSummary"),
        ("outer/f_m/a_b_c/tags", "Const"),
        ("outer/f_m/a_b_c", "ScalarSummary"),
        ("outer/lead/tags", "Const"),
        ("outer/lead/values", "Const"),
        ("outer/lead", "ScalarSummary"),
        ("outer/HistogramSummary/tag", "Const"),
        ("outer/HistogramSummary/values", "Const"),
        ("outer/HistogramSummary", "HistogramSummary"),
        ("outer/h/tag", "Const"),
        ("outer/h/values", "Const"),
        ("outer/h", "HistogramSummary"),
        ("zeros", "Const"),
        ("im/tag", "Const"),
        ("im", "ImageSummary"),
        ("zeros_1", "Const"),
        ("au/sample_rate", "Const"),
        ("au/tag", "Const"),
        ("au", "AudioSummaryV2"),
        ("Const", "Const"),
        ("t/tag", "Const"),
        ("t/serialized_summary_metadata", "Const"),
        ("t", "TensorSummaryV2"),
        ("Const_1", "Const"),
        ("z/ts/tag", "Const"),
        ("z/ts/serialized_summary_metadata", "Const"),
        ("z/ts", "TensorSummaryV2"),
        ("Const_2", "Const"),
        ("ts/tag", "Const"),
        ("ts/serialized_summary_metadata", "Const"),
        ("ts", "TensorSummaryV2"),
        ("Merge/MergeSummary", "MergeSummary"),
        ("m_x/m_x", "MergeSummary"),
    ]
    with wf.Session() as session:
        message = summary.Summary.FromString(session.run(merged, {x: 2.0}))
    assert [value.tag for value in message.value] == [
        "outer/loss",
        "fam/outer/fam/loss",
        "f_m/outer/f_m/a_b_c",
        "outer/lead",
        "outer/HistogramSummary",
        "outer/h",
        "im/image/0",
        "im/image/1",
        "au/audio/0",
        "au/audio/1",
        "t",
        "z/z/ts",
        "ts",
    ]
    assert message.value[10].metadata.plugin_data.plugin_name == "text"
    assert message.value[11].metadata.display_name == "n"
    assert message.value[11].metadata.summary_description == "d"


def test_equal_names_are_told_apart() -> None:
    assert tags(summary.scalar("a", 1.0)) == ["a"]
    assert tags(summary.scalar("a", 1.0)) == ["a_1"]
    assert tags(summary.scalar("a", 1.0, family="f")) == ["f/f/a"]
    assert tags(summary.scalar("a", 1.0, family="f")) == ["f/f/a_1"]


def test_one_output_has_no_number() -> None:
    images = np.zeros([3, 2, 2, 1], np.uint8)
    assert tags(summary.image("i", images, max_outputs=1)) == ["i/image"]
    assert tags(summary.image("j", images, max_outputs=2)) == ["j/image/0", "j/image/1"]
    sounds = np.zeros([1, 2], np.float32)
    assert tags(summary.audio("s", sounds, 1.0, max_outputs=1)) == ["s/audio"]
    assert tags(summary.audio("t", sounds, 1.0)) == ["t/audio/0"]


def test_a_name_is_required() -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match="requires a name"):
        summary.scalar(None, 1.0)  # type: ignore[arg-type]


def test_the_graph_of_the_tensor_is_used(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.Graph().as_default() as other:
        a = summary.scalar("a", x)
    assert a.graph is graph
    assert graph.get_collection(wf.GraphKeys.SUMMARIES) == [a]
    assert other.get_operations() == []


# ---------------------------------------------------------------------------- collections


def test_collections() -> None:
    a = summary.scalar("a", 1.0)
    b = summary.scalar("b", 1.0, collections=["mine", "yours"])
    c = summary.text("c", "words", collections=[])
    assert wf.get_collection(wf.GraphKeys.SUMMARIES) == [a]
    assert wf.get_collection("mine") == wf.get_collection("yours") == [b]
    merged = summary.merge([a, b, c], collections=["all"])
    assert wf.get_collection("all") == [merged]
    assert tags(merged) == ["a", "b", "c"]


def test_merge_all_of_a_collection_and_a_scope() -> None:
    assert summary.merge_all() is None
    summary.scalar("a", 1.0)
    with wf.name_scope("in"):
        summary.scalar("b", 1.0)
        summary.scalar("c", 1.0, collections=["other"])
    everything, scoped = summary.merge_all(), summary.merge_all(scope="in")
    assert everything is not None and scoped is not None
    assert tags(everything) == ["a", "in/b"]
    assert tags(scoped) == ["in/b"]
    other = summary.merge_all("other", name="named")
    assert other is not None and other.name == "named/named:0"
    assert tags(other) == ["in/c"]


# --------------------------------------------------------------------------------- values


def test_numbers_are_told_as_float32() -> None:
    def value(number: Any) -> float:
        return run(summary.scalar("a", number)).value[0].simple_value

    assert value(0.1) == np.float32(0.1)
    assert np.isnan(value(float("nan")))
    assert value(np.float64(1e300)) == float("inf")
    assert value(np.uint64(2**64 - 1)) == 2.0**64


def test_a_tag_that_is_fed_and_a_shape_that_is_unknown() -> None:
    tag = wf.placeholder(wf.string, [])
    number = wf.placeholder(wf.float32)
    node = out("ScalarSummary", [tag, number])
    (value,) = run(node, {tag: "späť", number: 4.0}).value
    assert (value.tag, value.simple_value) == ("späť", 4.0)
    with pytest.raises(wf.errors.InvalidArgumentError, match=r"the same shape, got \[\] and \[1\]"):
        run(node, {tag: "a", number: [4.0]})
    with pytest.raises(wf.errors.InvalidArgumentError, match="UTF-8"):
        run(node, {tag: b"\xff", number: 4.0})


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize(
    ("bad", "message"), [("nan", "NaN in"), ("inf", "infinity in"), ("-inf", "infinity in")]
)
def test_a_histogram_of_what_is_not_finite(size: int, bad: str, message: str) -> None:
    values = np.zeros(size, np.float32)
    values[1] = float(bad)
    with pytest.raises(wf.errors.InvalidArgumentError, match=f"{message} the histogram of weights"):
        run(summary.histogram("weights", values))


def test_floating_images_are_scaled_each_by_itself() -> None:
    images = np.array([[[[0.0], [4.0]]], [[[0.0], [8.0]]]], np.float32)
    values = run(summary.image("a", images)).value
    first, second = [
        np.asarray(Image.open(io.BytesIO(v.image.encoded_image_string))) for v in values
    ]
    assert first.tolist() == second.tolist() == [[0, 255]]
    assert (values[0].image.height, values[0].image.width, values[0].image.colorspace) == (1, 2, 1)


def test_text_may_be_given_as_it_is() -> None:
    (value,) = run(summary.text("a", [["b", "c"]])).value
    assert value.tensor.string_val == [b"b", b"c"]
    assert [dim.size for dim in value.tensor.tensor_shape.dim] == [1, 2]


def test_metadata_are_the_callers() -> None:
    metadata = summary.SummaryMetadata(display_name="before")
    node = summary.tensor_summary("a", 1, summary_metadata=metadata, display_name="after")
    assert metadata.display_name == "before"
    assert run(node).value[0].metadata.display_name == "after"


def test_arrays_keep_their_types_and_lists_get_the_default() -> None:
    def element(node: wf.Tensor) -> Any:
        return node.op.inputs[1].dtype

    for kind in (np.uint8, np.float16, np.float64):
        assert element(summary.image("a", np.zeros([1, 1, 1, 1], kind))) == kind
    assert element(summary.image("a", np.zeros([1, 1, 1, 1], np.int32))) == wf.float32
    assert element(summary.image("a", [[[[1]]]])) == wf.float32
    for kind in (np.uint8, np.int64, np.float64):
        assert element(summary.histogram("a", np.zeros(1, kind))) == kind
        assert element(summary.scalar("a", kind(1))) == kind


# -------------------------------------------------------------------------------- refusals

ZEROS = np.zeros([2, 2, 2, 1], np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: summary.scalar("a", True), "bool"),
        (lambda: summary.scalar("a", "text"), "string"),
        (lambda: summary.histogram("a", 1j), "complex"),
        (lambda: summary.text("a", 1), "requires strings"),
        (lambda: summary.image("a", wf.zeros([1, 1, 1, 1], wf.int32)), "int32"),
        (lambda: summary.audio("a", wf.zeros([1, 1], wf.float64), 1.0), "float64"),
    ],
)
def test_element_types(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(errors.InvalidTypeError, match=message):
        make()


def test_numbers_of_outputs_are_positive() -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match="max_images must be at least 1"):
        summary.image("a", ZEROS, max_outputs=0)
    with pytest.raises(wf.errors.InvalidArgumentError, match="N must be at least 1"):
        summary.merge([])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: out("HistogramSummary", [["a"], [1.0]]), "tag must have rank 0"),
        (lambda: summary.image("a", ZEROS[0]), r"got \[2,2,1\]"),
        (lambda: summary.image("a", np.zeros([1, 2, 2, 2], np.float32)), r"got \[1,2,2,2\]"),
        (lambda: summary.image("a", np.zeros([1, 0, 2, 1], np.float32)), "at least|from 1"),
        (lambda: image_with(np.array([1, 2], np.uint8)), "each of 3 channels, got 2"),
        (lambda: image_with(np.array([1, 2, 3], np.int32)), "uint8, got int32"),
        (lambda: image_with(np.zeros([1, 3], np.uint8)), r"vector of uint8.*\[1,3\]"),
        (lambda: summary.audio("a", np.zeros(2, np.float32), 1.0), r"got \[2\]"),
        (lambda: summary.audio("a", np.zeros([1, 2], np.float32), 0.0), "above 0.*got 0.0"),
        (lambda: summary.audio("a", np.zeros([1, 2], np.float32), [1.0, 2.0]), "one number"),
        (lambda: summary.audio("a", np.zeros([1, 2, 0], np.float32), 1.0), "channels must be"),
        (lambda: summary.merge([b"\xff"]), "serialized Summary"),
        (lambda: summary.merge([summary.scalar("a", 1.0)] * 2), "two summaries have the tag 'a'"),
        (lambda: out("TensorSummaryV2", ["a", 1, [b""]]), "rank 0"),
        (lambda: out("TensorSummaryV2", ["a", 1, b"abc"]), "serialized SummaryMetadata"),
    ],
)
def test_what_only_running_shows(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(wf.errors.InvalidArgumentError, match=message):
        run(make())


def image_with(color: Any) -> wf.Tensor:
    images = np.zeros([1, 2, 2, 3], np.float32)
    return out("ImageSummary", ["a", images], {"bad_color": color})


def test_bad_colors_are_only_for_floating_images() -> None:
    images = np.zeros([1, 2, 2, 3], np.uint8)
    attrs = {"bad_color": np.array([1, 2], np.uint8)}
    run(out("ImageSummary", ["a", wf.constant(images)], attrs))


def test_empty_batches_are_empty_summaries() -> None:
    with wf.Session() as session:
        assert session.run(summary.image("a", ZEROS[:0])) == b""
        assert session.run(summary.audio("a", np.zeros([0, 2], np.float32), 1.0)) == b""


def test_values_without_tags_merge() -> None:
    part = summary.Summary(value=[summary.Summary.Value()]).SerializeToString()
    assert len(run(summary.merge([part, part])).value) == 2


# ------------------------------------------------------------------------------ old graphs


def test_the_description_in_a_node() -> None:
    node = wf.NodeDef(op="TensorSummary", name="a")
    node.attr["description"].s = b'{"typeHint": "hint"}'
    assert summary.get_summary_description(node).type_hint == "hint"
    node.attr["description"].s = b"{"
    with pytest.raises(wf.errors.InvalidArgumentError, match="description of a"):
        summary.get_summary_description(node)
    with pytest.raises(wf.errors.InvalidArgumentError, match="got Const"):
        summary.get_summary_description(wf.NodeDef(op="Const"))


def test_graphs_with_summaries_go_through_graph_def() -> None:
    summary.image("a", ZEROS)
    message = wf.get_default_graph().as_graph_def()
    with wf.Graph().as_default() as again:
        for node in message.node:
            node.attr.pop("bad_color", None) if node.op == "ImageSummary" else None
        wf.import_graph_def(message, name="")
        assert tags(again.get_tensor_by_name("a:0")) == ["a/image/0", "a/image/1"]
