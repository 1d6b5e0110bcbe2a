"""Constants of variants in messages, against the bytes that TensorFlow 2.21 writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph import proto
from weft_graph.ir.builder import create
from weft_graph.messages.tensor_proto import make_ndarray
from weft_graph.serialize.value import value_from_bytes
from weft_graph.serialize.writer import graph_to_bytes
from weft_tensor import errors

RAGGED = (
    b"3\n\x13RaggedTensorVariant\x1a\r\x08\t\x12\x04\x12\x02\x08\x03R\x03\x00\x01\x03"
    b"\x1a\r\x08\t\x12\x04\x12\x02\x08\x03R\x03\x01\x02\x03"
)
ROWS = (
    b'"#\n\x13RaggedTensorVariant\x1a\x0b\x08\t\x12\x04\x12\x02\x08\x01R\x01\x01'
    b"\n\x13RaggedTensorVariant\x1a\x0c\x08\t\x12\x04\x12\x02\x08\x02R\x02\x02\x03"
)
SPARSE = (
    b'&$"\n\x12tensorflow::Tensor\x1a\x10\x08\t\x12\x08\x12\x02\x08\x01\x12\x02\x08\x02R\x02\x00\x01'
    b"\n\x12tensorflow::Tensor\x1a\x0e\x08\x01\x12\x04\x12\x02\x08\x01*\x04\x00\x00\xa0@"
    b"\n\x12tensorflow::Tensor\x1a\x0c\x08\t\x12\x04\x12\x02\x08\x02R\x02\x01\x02"
)
DATASET = b"#\n!tensorflow::DatasetVariantWrapper"
OPTIONAL = b"(\n\x1atensorflow::data::Optional\x12\x01\x01\x1a\x07\x08\x03\x12\x00:\x01\x01"


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default() as graph:
        yield graph


def tensor(content: bytes, *sizes: int) -> proto.TensorProto:
    message = proto.TensorProto(dtype=proto.DT_VARIANT, tensor_content=content)
    message.tensor_shape.SetInParent()
    for size in sizes:
        message.tensor_shape.dim.add(size=size)
    return message


def imported(value: proto.TensorProto, dtype: int = proto.DT_VARIANT) -> wf.Tensor:
    graph = wf.GraphDef()
    node = graph.node.add(name="c", op="Const")
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.CopyFrom(value)
    (output,) = wf.import_graph_def(graph, return_elements=["c:0"], name="")
    return output


def again(output: wf.Tensor) -> wf.Tensor:
    """The same output, imported from the GraphDef of its graph."""
    written = output.graph.as_graph_def()
    value = written.node[0].attr["value"].tensor
    assert value.dtype == proto.DT_VARIANT and value.variant_val and not value.tensor_content
    (result,) = wf.import_graph_def(written, return_elements=[output.name], name="again")
    return result


def run(fetches: Any) -> Any:
    with wf.Session() as session:
        return session.run(fetches)


def ragged_of(variant: wf.Tensor, inner: int) -> list[Any]:
    attrs = {
        "input_ragged_rank": inner,
        "output_ragged_rank": 1,
        "Tvalues": wf.int64,
        "Tsplits": wf.int64,
    }
    splits, values = run(list(create("RaggedTensorFromVariant", [variant], attrs).outputs))
    return [splits.tolist(), values.tolist()]


@pytest.mark.parametrize("change", [lambda output: output, again])
def test_rows_of_a_ragged_tensor(change: Any) -> None:
    variant = change(imported(tensor(ROWS, 2)))
    assert variant.dtype is wf.variant and variant.shape.as_list() == [2]
    assert ragged_of(variant, 0) == [[0, 1, 3], [1, 2, 3]]


@pytest.mark.parametrize("change", [lambda output: output, again])
def test_a_sparse_tensor(change: Any) -> None:
    variant = change(imported(tensor(SPARSE, 3)))
    parts = create("DeserializeSparse", [variant], {"dtype": wf.float32}).outputs
    assert [part.tolist() for part in run(list(parts))] == [[[0, 1]], [5.0], [1, 2]]


def test_a_whole_ragged_tensor() -> None:
    variant = make_ndarray(tensor(RAGGED)).item()
    assert [each.tolist() for each in variant.splits] == [[0, 1, 3]]
    assert variant.values.tolist() == [1, 2, 3]


def test_no_variants() -> None:
    assert run(wf.shape(imported(tensor(b"", 0)))).tolist() == [0]


def test_serialized_tensors() -> None:
    rows = wf.serialize_many_sparse(wf.SparseTensor([[0, 1]], [5.0], [1, 2]), out_type=wf.variant)
    parsed = wf.parse_tensor(wf.serialize_tensor(rows), wf.variant)
    parts = create("DeserializeSparse", [parsed], {"dtype": wf.float32}).outputs
    assert run(parts[1]).tolist() == [5.0]


def variants(type_name: str, *parts: proto.TensorProto) -> proto.TensorProto:
    message = tensor(b"")
    message.variant_val.add(type_name=type_name, tensors=parts)
    return message


def numbers(*values: int) -> proto.TensorProto:
    return wf.make_tensor_proto(np.array(values, np.int64))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (tensor(DATASET), TypeError, "'tensorflow::DatasetVariantWrapper' cannot be read"),
        (tensor(OPTIONAL), TypeError, "'tensorflow::data::Optional' cannot be read; supported"),
        (variants(""), TypeError, "'\\(none\\)' cannot be read"),
        (variants("tensorflow::Tensor", tensor(b"", 0)), TypeError, "nested variants"),
        (variants("tensorflow::Tensor"), ValueError, "needs a tensor, got 0"),
        (variants("RaggedTensorVariant"), ValueError, "needs a tensor, got 0"),
        (tensor(b""), ValueError, "requires 1 variants and variant_val has 0"),
        (tensor(b"\x01\xff"), ValueError, "not a VariantTensorDataProto"),
        (tensor(b"\x09\xff"), ValueError, "strings of 9 bytes are required"),
        *[
            (variants("RaggedTensorVariant", splits, numbers(7, 8)), ValueError, "must be int32 or")
            for splits in (
                numbers(0, 3),
                numbers(1, 2),
                numbers(0, 3, 2),
                numbers(),
                wf.make_tensor_proto([0.0, 2.0]),
                wf.make_tensor_proto([[0], [2]], wf.int64),
            )
        ],
    ],
)
def test_what_cannot_be_read_is_named(
    value: proto.TensorProto, kind: type[Exception], message: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        imported(value)
    assert isinstance(caught.value, kind)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (tensor(ROWS, 2), proto.DT_STRING, "value must be of string, got an element <"),
        (tensor(ROWS, 2), proto.DT_FLOAT, "value must be of float32, got object"),
        (wf.make_tensor_proto(["a"]), proto.DT_VARIANT, "must be of variant, got an element b'a'"),
        (wf.make_tensor_proto(["a"]), proto.DT_RESOURCE, "must be of resource, got an element"),
    ],
)
def test_the_type_of_a_constant_is_that_of_its_value(
    value: proto.TensorProto, dtype: int, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        imported(value, dtype)


def test_variants_of_other_processes_are_refused() -> None:
    with pytest.raises(TypeError, match="variants cannot be sent between processes"):
        value_from_bytes(tensor(ROWS, 2).SerializeToString())
    graph = imported(tensor(ROWS, 2)).graph
    with pytest.raises(
        errors.InvalidArgumentError, match="tensors of variant cannot be serialized"
    ):
        graph_to_bytes(graph)


def test_what_cannot_be_written_is_named() -> None:
    dataset = wf.data.experimental.to_variant(wf.data.Dataset.range(3))
    with pytest.raises(TypeError, match=r"RangeSource cannot be written .* ragged tensors"):
        run(wf.serialize_tensor(dataset))


@pytest.mark.parametrize("value", [1, [], "a", object(), np.zeros(0, object)])
def test_python_values_become_no_variants(value: Any) -> None:
    with pytest.raises(TypeError):
        wf.constant(value, wf.variant)
