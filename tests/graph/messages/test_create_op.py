"""`Graph.create_op`, and the versions of graphs."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft_tensor import errors


def message(**fields: Any) -> Any:
    return wf.AttrValue(**fields)


def test_attributes_are_values_or_messages() -> None:
    with wf.Graph().as_default() as graph, wf.Session() as session:
        a = graph.create_op("Const", [], attrs={"value": 2.0, "dtype": wf.float32}).outputs[0]
        b = graph.create_op(
            "Cast",
            [a],
            [wf.int32],
            name="b",
            attrs={"DstT": message(type=wf.int32.as_datatype_enum)},
        )
        assert b.name == "b" and b.type == "Cast"
        joined = graph.create_op("ConcatV2", [[1], [2], [3], 0])
        counted = graph.create_op("Pack", [a, a, a], attrs={"N": 3, "axis": message(i=0)})
        values = session.run([b.outputs[0], joined.outputs[0], counted.outputs[0]])
    assert [v.tolist() for v in values] == [2, [1, 2, 3], [2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    ("op", "inputs", "types", "wanted"),
    [
        ("Neg", [], None, "takes the inputs x"),
        ("Neg", [1.0, 2.0], None, "takes the inputs x"),
        ("Neg", [1.0], [wf.int32], "the types float32"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, inputs: Any, types: Any, wanted: str) -> None:
    with wf.Graph().as_default() as graph, pytest.raises(errors.InvalidArgumentError, match=wanted):
        graph.create_op(op, inputs, types)


def test_a_graph_is_as_old_as_what_was_imported() -> None:
    with wf.Graph().as_default() as graph:
        assert graph.graph_def_versions.producer == wf.GRAPH_DEF_VERSION
        wf.import_graph_def(wf.GraphDef(versions={"producer": 21, "min_consumer": 3}))
        assert (graph.graph_def_versions.producer, graph.graph_def_versions.min_consumer) == (21, 3)
        wf.import_graph_def(wf.GraphDef(versions={"producer": 30}))
        assert graph.as_graph_def().versions.producer == 21
        with pytest.raises(errors.InvalidArgumentError, match="version -1"):
            wf.import_graph_def(wf.GraphDef(versions={"producer": -1}))
        with pytest.raises(errors.InvalidTypeError, match="input_map must map"):
            wf.import_graph_def(wf.GraphDef(), input_map=[wf.constant(1)])  # type: ignore[arg-type]


def test_the_results_of_a_raw_op_have_its_names() -> None:
    with wf.Graph().as_default():
        ends = wf.raw_ops.Switch(data=1, pred=True)
        assert ends.output_true is ends[1] and isinstance(ends, tuple)


def test_shapes_turn_into_messages() -> None:
    sizes = [dim.size for dim in wf.TensorShape([2, None]).as_proto().dim]
    assert sizes == [2, -1] and wf.TensorShape(None).as_proto().unknown_rank
