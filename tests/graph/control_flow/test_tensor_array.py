"""The TensorArray class: arguments, names, static shapes, placement and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from weft_graph.control_flow.tensor_array import TensorArray, rebuild
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.graph import Graph
from weft_graph.ops import resource_state, tensor_array as ops
from weft_graph.ops.array import placeholder
from weft_graph.ops.stack import stack_v2
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as found:
        yield found


def floats(size: Any = 3, **options: Any) -> TensorArray:
    return TensorArray(dtypes.float32, size, **options)


def unknown(*dims: int | None) -> Any:
    return placeholder(dtypes.float32, dims)


# --------------------------------------------------------------------------- the object


def test_properties() -> None:
    ta = TensorArray("float32", size=3)
    assert (ta.dtype, ta.dynamic_size, ta.element_shape.dims) == (dtypes.float32, False, None)
    assert ta.handle.dtype is dtypes.resource and ta.handle.dims == ()
    assert ta.flow.dtype is dtypes.float32 and ta.flow.dims == ()
    assert ta.handle.node is ta.flow.node and ta.handle.node.type == "TensorArrayV3"
    assert repr(ta) == "<weft.TensorArray 'TensorArray:0' element_shape=<unknown> dtype=float32>"
    for method in ("__len__", "__iter__", "__getitem__"):
        assert not hasattr(ta, method)


def test_attributes() -> None:
    plain = floats().handle.node.attrs
    assert plain["dtype"] is dtypes.float32 and plain["element_shape"] is None
    assert (plain["clear_after_read"], plain["identical_element_shapes"]) == (True, True)
    assert (plain["dynamic_size"], plain["tensor_array_name"]) == (False, "")
    other = floats(
        dynamic_size=True,
        clear_after_read=False,
        infer_shape=False,
        element_shape=[None, 2],
        tensor_array_name="named",
    ).handle.node.attrs
    assert (other["clear_after_read"], other["identical_element_shapes"]) == (False, False)
    assert (other["dynamic_size"], other["tensor_array_name"]) == (True, "named")
    assert other["element_shape"] == (None, 2)


NAMES: list[tuple[Callable[[TensorArray], Any], str]] = [
    (lambda ta: ta.write(0, 1.0).flow, "TensorArrayWrite/TensorArrayWriteV3"),
    (lambda ta: ta.write(0, 1.0, name="w").flow, "w/w"),
    (lambda ta: ta.read(0), "TensorArrayReadV3"),
    (lambda ta: ta.read(0, name="r"), "r"),
    (lambda ta: ta.stack(), "TensorArrayStack/TensorArrayGatherV3"),
    (lambda ta: ta.stack("s"), "s/s"),
    (lambda ta: ta.gather([0]), "TensorArrayGatherV3"),
    (lambda ta: ta.concat("c"), "c"),
    (
        lambda ta: ta.unstack([1.0, 2.0]).flow,
        "TensorArrayUnstack/TensorArrayScatter/TensorArrayScatterV3",
    ),
    (lambda ta: ta.unstack([1.0], "u").flow, "u/u/u"),
    (lambda ta: ta.scatter([0], [1.0]).flow, "TensorArrayScatter/TensorArrayScatterV3"),
    (lambda ta: ta.split([1.0], [1, 0, 0]).flow, "TensorArraySplit/TensorArraySplitV3"),
    (lambda ta: ta.grad("x").flow, "TensorArrayGrad/TensorArrayGradV3"),
    (lambda ta: ta.close("n"), "n"),
]


@pytest.mark.parametrize(("use", "name"), NAMES)
def test_names(use: Callable[[TensorArray], Any], name: str) -> None:
    found = use(floats(infer_shape=False))
    assert getattr(found, "node", found).name == name


def test_the_name_of_the_array(graph: Graph) -> None:
    assert floats(name="bar").handle.name == "bar:0"
    with graph.name_scope("scope"):
        assert floats(name="bar").handle.name == "scope/bar:0"
        assert floats().handle.name == "scope/TensorArray:0"


def test_changes_give_new_objects_of_the_same_array() -> None:
    ta = floats()
    written = ta.write(0, [1.0, 2.0])
    assert written is not ta and written.handle is ta.handle and written.flow is not ta.flow
    assert ta.element_shape.as_list() == written.element_shape.as_list() == [2]
    same = written.identity()
    assert same.flow.node.type == "Identity" and same.flow.node.inputs == (written.flow,)


def test_rebuild_changes_only_the_flow() -> None:
    ta = TensorArray(dtypes.int32, 4, dynamic_size=True, infer_shape=False, element_shape=[None])
    flow = convert_to_tensor(0.0)
    found = rebuild(ta, flow)
    assert type(found) is TensorArray
    assert found.flow is flow and found.handle is ta.handle
    assert found.dtype is ta.dtype and found.dynamic_size
    assert found.element_shape.as_list() == [None]
    inferring = floats()
    rebuild(inferring, flow).write(0, [1.0])
    assert inferring.element_shape.as_list() == [1]
    with pytest.raises(errors.InvalidArgumentError):
        rebuild(inferring, flow).write(0, [1.0, 2.0])


def test_around_an_existing_handle() -> None:
    ta = floats()
    other = TensorArray(dtypes.float32, handle=ta.handle, flow=ta.flow)
    assert other.handle is ta.handle and other.flow is ta.flow
    assert other.size().node.type == "TensorArraySizeV3"


@pytest.mark.parametrize(
    "more",
    (
        {"size": 1},
        {"element_shape": [1]},
        {"dynamic_size": False},
        {"clear_after_read": False},
        {"tensor_array_name": "x"},
    ),
)
def test_a_handle_excludes_what_makes_an_array(more: dict[str, Any]) -> None:
    ta = floats()
    (name,) = more
    with pytest.raises(ValueError, match=f"either a handle or {name}"):
        TensorArray(dtypes.float32, handle=ta.handle, flow=ta.flow, **more)


def test_arguments_that_are_missing_or_wrong() -> None:
    ta = floats()
    with pytest.raises(ValueError, match="requires a size"):
        TensorArray(dtypes.float32)
    with pytest.raises(ValueError, match="requires a flow"):
        TensorArray(dtypes.float32, handle=ta.handle)
    with pytest.raises(TypeError, match="must be an output, got 1"):
        TensorArray(dtypes.float32, handle=1, flow=ta.flow)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="at least 0, got -1"):
        floats(-1)
    with pytest.raises(errors.InvalidTypeError, match="cannot hold values of type resource"):
        TensorArray(dtypes.resource, 1)
    with pytest.raises(errors.InvalidArgumentError, match="size must have rank 0"):
        floats([1])
    with pytest.raises(TypeError, match="int32"):
        floats(1.5)


# --------------------------------------------------------------------------- static shapes


def test_shapes_are_inferred_from_writes() -> None:
    ta = floats(5)
    assert ta.read(0).dims is None and ta.stack().dims is None and ta.concat().dims is None
    ta.write(0, unknown(None, 3))
    assert ta.element_shape.as_list() == [None, 3]
    assert ta.read(0).dims == (None, 3)
    assert ta.stack().dims == (5, None, 3) and ta.concat().dims == (None, 3)
    ta.write(1, unknown(2, None))
    assert ta.element_shape.as_list() == [2, 3]
    assert ta.gather([1, 2]).dims == (2, 2, 3)
    assert ta.stack().dims == (5, 2, 3) and ta.concat().dims == (10, 3)
    assert ta.grad("g").read(0).dims == (2, 3)


def test_shapes_are_inferred_from_rows_and_pieces() -> None:
    ta = floats(2)
    ta.unstack(unknown(None, 3))
    assert ta.element_shape.as_list() == [3]
    ta = floats(2)
    ta.scatter([0], unknown(1, 4))
    assert ta.element_shape.as_list() == [4]
    ta = floats(2)
    ta.split(unknown(4, 2), [2, 2])
    assert ta.element_shape.as_list() == [2, 2] and ta.stack().dims == (2, 2, 2)
    ta = floats(2)
    ta.split(unknown(4, 2), placeholder(dtypes.int32, (2,)))
    assert ta.element_shape.as_list() == [None, 2] and ta.concat().dims == (None, 2)
    ta.unstack(placeholder(dtypes.float32))
    assert ta.element_shape.as_list() == [None, 2]


def test_sizes_that_are_not_known() -> None:
    n = placeholder(dtypes.int32, ())
    for ta in (floats(n), floats(3, dynamic_size=True)):
        ta.write(0, [1.0])
        assert ta.stack().dims == (None, 1) and ta.concat().dims == (None,)
    assert floats(n).size() is n
    assert floats(3).size().node.type == "Const"


def test_without_inference_only_what_is_declared_counts() -> None:
    ta = floats(2, infer_shape=False)
    ta.write(0, [1.0]).write(1, [1.0, 2.0])
    assert ta.element_shape.dims is None and ta.stack().dims is None
    ta = floats(2, infer_shape=False, element_shape=[None])
    ta.write(0, [1.0]).write(1, [1.0, 2.0])
    assert ta.element_shape.as_list() == [None] and ta.stack().dims == (2, None)


def test_contradictions_are_errors_while_the_graph_is_built() -> None:
    ta = floats(3).write(0, [1.0])
    for use in (
        lambda: ta.write(1, [1.0, 2.0]),
        lambda: ta.unstack([[1.0, 2.0]]),
        lambda: ta.scatter([0], [[1.0, 2.0]]),
        lambda: ta.split([1.0, 2.0, 3.0], [0, 1, 2]),
    ):
        with pytest.raises(ValueError, match=r"shape \[1\], got \[.\]; pass infer_shape=False"):
            use()
    declared = floats(3, infer_shape=False, element_shape=[2, None])
    with pytest.raises(ValueError, match=r"shape \[2,\?\], got \[1\]$"):
        declared.write(0, [1.0])


def test_the_declared_shape_reaches_bare_ops() -> None:
    handle, flow = ops.tensor_array_v3(3, dtypes.float32, [2, None])
    assert ops.tensor_array_read_v3(handle, 0, flow, dtypes.float32).dims == (2, None)
    gathered = ops.tensor_array_gather_v3(handle, [0], flow, dtypes.float32, [None, 4])
    assert gathered.dims == (1, 2, 4)
    value, lengths = ops.tensor_array_concat_v3(handle, flow, dtypes.float32, [4])
    assert value.dims == (None, 4) and lengths.dims == (None,)
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2,\?\], got \[3\]"):
        ops.tensor_array_write_v3(handle, 0, [1.0, 2.0, 3.0], flow)
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2,\?\], got \[\?\]"):
        ops.tensor_array_split_v3(handle, [1.0], placeholder(dtypes.int64), flow)


# --------------------------------------------------------------------------- refusals


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "type": (
        lambda: floats().write(0, convert_to_tensor(1)),
        r"requires values of float32, got .*int32",
    ),
    "type of a constant": (
        lambda: floats().write(0, "x"),
        "requires values of float32, got .*string",
    ),
    "index of another type": (
        lambda: floats().write(convert_to_tensor(np.int64(0)), 1.0),
        "index.*int32",
    ),
    "index no integer": (lambda: floats().read(0.5), "expected int32, got 0.5"),
    "rank of the index": (lambda: floats().read([0]), r"index must have rank 0, got shape \[1\]"),
    "rank of the indices": (
        lambda: floats().gather(0),
        r"indices must have rank 1, got shape \[\]",
    ),
    "rows": (lambda: floats().scatter([0], [1.0, 2.0]), "must agree, got 2 and 1"),
    "rows of a scalar": (lambda: floats().scatter([0], 1.0), r"rank at least 1, got shape \[\]"),
    "unstack a scalar": (lambda: floats().unstack(1.0), "unstack requires rank at least 1"),
    "split a scalar": (lambda: floats().split(1.0, [1, 0, 0]), r"rank at least 1, got shape \[\]"),
    "sum of lengths": (lambda: floats().split([1.0], [1, 1, 0]), r"got \[1, 1, 0\] with the sum 2"),
    "negative length": (lambda: floats().split([1.0], [2, -1, 0]), r"got \[2, -1, 0\]"),
    "lengths": (lambda: floats().split([1.0], [[1]]), r"lengths must have rank 1"),
    "concat rank 0": (lambda: floats(element_shape=[]).concat(), "rank 0 cannot be concatenated"),
    "type of a handle": (
        lambda: ops.tensor_array_read_v3(floats(name="f").handle, 0, 0.0, dtypes.int32),
        "'f' holds float32, but it is used as int32",
    ),
    "stack": (
        lambda: ops.tensor_array_read_v3(stack_v2(-1, dtypes.float32), 0, 0.0, dtypes.float32),
        "requires the handle of a TensorArray, got that of .*StackV2",
    ),
    "variable": (
        lambda: ops.tensor_array_read_v3(
            resource_state.var_handle_op(dtypes.float32, ()), 0, 0.0, dtypes.float32
        ),
        "requires the handle of a TensorArray, got that of .*VarHandleOp",
    ),
    "flow": (
        lambda: ops.tensor_array_size_v3(floats().handle, [0.0]),
        r"flow_in must have rank 0, got shape \[1\]",
    ),
    "prepended shape": (
        lambda: ops.tensor_array_grad_with_shape(floats().handle, 0.0, 3, "g"),
        "shape_to_prepend must have rank 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_errors_while_the_graph_is_built(name: str) -> None:
    use, message = REFUSED[name]
    with pytest.raises(errors.InvalidArgumentError, match=message):
        use()


# --------------------------------------------------------------------------- placement


def test_the_first_write_decides_on_the_place(graph: Graph) -> None:
    with graph.device("/device:GPU:1"):
        ta = floats()
    assert ta.handle.node.device == ""
    with graph.device("/device:GPU:0"):
        first, second = unknown(2), unknown(2)
    written = ta.write(0, first).write(1, second)
    for node in (written.flow.node, written.flow.node.inputs[3].node):
        assert set(node.colocation) == {"TensorArray", first.node.name}
        assert node.device == first.node.device
    assert written.read(0).node.colocation == ("TensorArray",)
    assert written.stack().node.colocation == ("TensorArray",)


def test_or_the_scope_does(graph: Graph) -> None:
    with graph.device("/device:GPU:1"):
        ta = floats(colocate_with_first_write_call=False)
        value = unknown(2)
    written = ta.write(0, value)
    assert ta.handle.node.device.endswith("GPU:1")
    assert written.flow.node.colocation == ("TensorArray",)
    assert written.flow.node.device == ta.handle.node.device
