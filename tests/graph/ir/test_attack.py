"""Regressions found by attacking graphs: names, scopes, copies, devices, registries, passes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_graph.ir.op_signature import AttrDef


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


# ------------------------------------------------------------------------ names


@pytest.mark.parametrize("name", ["a\\b", "a\n", "a\\b/"])
def test_names_with_backslashes_and_newlines_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        wf.constant(1.0, name=name)
    with pytest.raises(errors.InvalidArgumentError), wf.name_scope(name):
        pass


def test_logical_operators_and_matmul_are_named_as_tensorflow_names_them() -> None:
    a, b = wf.constant(True), wf.constant(False)
    m = wf.constant([[1.0]])
    names = [t.op.name for t in (a & b, a | b, a ^ b, m @ m)]
    assert names == ["and", "or", "xor", "matmul"]
    i = wf.constant(1)
    assert [t.op.name for t in (i & 1, i | 1, i ^ 1)] == ["and_1", "or_1", "xor_1"]


def test_strings_add_with_the_operator_as_in_tensorflow() -> None:
    assert (wf.constant("a") + "b").op.type == "Add"


def test_a_name_that_is_no_string_is_a_type_error(graph: wf.Graph) -> None:
    with pytest.raises(TypeError):
        graph.get_tensor_by_name(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        graph.get_operation_by_name(None)  # type: ignore[arg-type]


def test_a_finalized_graph_and_a_closed_session_raise_runtime_errors_too(graph: wf.Graph) -> None:
    """TensorFlow raises RuntimeError for both, and programs catch that."""
    y = wf.constant(1.0)
    session = wf.Session()
    session.close()
    with pytest.raises(RuntimeError):
        session.run(y)
    graph.finalize()
    with pytest.raises(RuntimeError):
        wf.constant(1.0)


# ------------------------------------------------------------------------ scopes


def test_indexed_slices_can_be_control_inputs() -> None:
    slices = wf.IndexedSlices(wf.constant([[1.0]]), wf.constant([0]))
    with wf.control_dependencies([slices]):
        assert wf.no_op().control_inputs == [slices.values.op]


def test_an_open_index_inside_does_not_lift_the_index_outside() -> None:
    with wf.device("/device:GPU:1"), wf.device("/device:GPU:*"):
        assert wf.constant(1.0).device == "/device:GPU:1"


def test_device_specs_are_changed_in_place_as_in_tensorflow() -> None:
    spec = wf.DeviceSpec(job="ps")
    spec.task = 1
    assert spec.to_string() == "/job:ps/task:1"


def test_unfeedable_tensors_are_no_collection(graph: wf.Graph) -> None:
    graph.prevent_feeding(wf.constant(1.0))
    assert graph.get_all_collection_keys() == []


# ------------------------------------------------------------------------ edits


def test_control_outputs_follow_edits(graph: wf.Graph) -> None:
    first, second = wf.no_op(), wf.no_op()
    with wf.control_dependencies([first]):
        nodes = [wf.no_op() for _ in range(100)]
    for node in reversed(nodes):
        graph.set_control_inputs(node, [second, second], reason="test")
    assert first.control_outputs == []
    assert second.control_outputs == nodes[::-1]
    graph.check_integrity()


# ------------------------------------------------------------------------ attributes


def test_integer_attributes_refuse_fractions_of_every_float_type() -> None:
    with pytest.raises(errors.InvalidArgumentError):
        AttrDef("n", "int").check(np.float32(1.5))


def test_float_attributes_refuse_strings() -> None:
    with pytest.raises(errors.InvalidArgumentError):
        AttrDef("x", "float").check("1.5")
