"""Slices: `tensor[...]` against NumPy, static shapes, assignment, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.arrays import table
from weft_testing.evaluate import Evaluator, evaluate

import weft_graph
from weft_graph.ir.builder import constant, constant_of, convert_to_tensor, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import array, shapes, slicing, state
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims

assert weft_graph


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


# ----------------------------------------------------------------------------------- fuzz

BOUND = st.one_of(st.none(), st.integers(-7, 7))
STEP = st.one_of(st.none(), st.integers(-3, 3).filter(bool))
RANGE = st.builds(slice, BOUND, BOUND, STEP)


@st.composite
def indexed(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape of rank up to 4, and an index that fits it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    used = draw(st.integers(0, len(shape)))
    items: list[Any] = []
    ellipsis = draw(st.booleans())
    front = draw(st.integers(0, used)) if ellipsis else used
    axes = [*range(front), *range(len(shape) - (used - front), len(shape))]
    for axis in axes:
        if shape[axis] and draw(st.booleans()):
            items.append(draw(st.integers(-shape[axis], shape[axis] - 1)))
        else:
            items.append(draw(RANGE))
    if ellipsis:
        items.insert(front, Ellipsis)
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return shape, tuple(items)


def reference(x: np.ndarray[Any, Any], key: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    return x[key if Ellipsis in key else (*key, ...)]


@given(indexed())
def test_getitem_is_numpys_basic_indexing(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, key = case
    x = table(*shape)
    wanted = reference(x, key)
    y = convert_to_tensor(x)[key]
    assert y.dims == wanted.shape
    got = evaluate(y)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, wanted)


@given(indexed(), st.data())
def test_static_shapes_are_never_wrong(
    case: tuple[tuple[int, ...], tuple[Any, ...]], data: st.DataObject
) -> None:
    shape, key = case
    x = table(*shape)
    wanted = reference(x, key)
    hidden = tuple(None if data.draw(st.booleans()) else n for n in shape)
    fed = array.placeholder(dtypes.float32, hidden)
    feeds: dict[Output, Any] = {fed: x}

    def bound(value: Any) -> Any:
        if not isinstance(value, int) or not data.draw(st.booleans()):
            return value
        tensor = array.placeholder(dtypes.int32, ())
        feeds[tensor] = np.int32(value)
        return tensor

    def hide(item: Any) -> Any:
        if isinstance(item, slice):
            return slice(bound(item.start), bound(item.stop), bound(item.step))
        return bound(item)

    y = fed[tuple(hide(item) for item in key)]
    assert compatible_dims(y.dims, wanted.shape)
    assert y.dims is not None and len(y.dims) == wanted.ndim
    np.testing.assert_array_equal(evaluate(y, feeds), wanted)


@given(indexed())
def test_strings_stay_arrays(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, key = case
    x = table(*shape).astype(str).astype(object)
    x = np.vectorize(str.encode, otypes=[object])(x) if x.size else x
    y = evaluate(constant_of(x)[key])
    wanted = reference(x, key)
    assert isinstance(y, np.ndarray) and y.shape == wanted.shape
    assert y.tolist() == wanted.tolist()


@given(indexed())
def test_the_gradient_puts_back_what_was_taken(
    case: tuple[tuple[int, ...], tuple[Any, ...]],
) -> None:
    shape, key = case
    x = table(*shape)
    y = convert_to_tensor(x)[key]
    node = y.node
    masks = {k: v for k, v in node.attrs.items() if k.endswith("_mask")}
    dy = reference(x, key) + 1
    back = out(
        "StridedSliceGrad",
        [np.array(shape, np.int32), *node.inputs[1:], dy],
        masks,
    )
    wanted = np.zeros(shape, np.float32)
    wanted[key if Ellipsis in key else (*key, ...)] = dy
    np.testing.assert_array_equal(evaluate(back), wanted)


# ------------------------------------------------------------------------------ behavior


def test_slices_are_views() -> None:
    x = np.arange(10.0)
    y = evaluate(constant_of(x)[2:5])
    assert np.shares_memory(x, y)


def test_tensors_as_indices() -> None:
    x = constant(table(4, 5))
    i = constant(2)
    long = constant(3, dtypes.int64)
    np.testing.assert_array_equal(evaluate(x[i, long]), table(4, 5)[2, 3])
    np.testing.assert_array_equal(evaluate(x[i:, :long]), table(4, 5)[2:, :3])
    np.testing.assert_array_equal(evaluate(x[constant(-1)]), table(4, 5)[-1])
    small = convert_to_tensor(np.int8(1))
    np.testing.assert_array_equal(evaluate(x[small]), table(4, 5)[1])


def test_sizes_of_shapes_flow_into_slices() -> None:
    x = array.placeholder(dtypes.float32, (None, 6))
    n = shapes.shape(x)[1]
    y = array.placeholder(dtypes.float32, (10,))
    assert y[: n // 2].dims == (3,)


def test_one_mask_is_a_boolean_mask() -> None:
    x = constant(table(4))
    mask = np.array([True, False, True, False])
    assert evaluate(x[mask]).tolist() == [0, 2]
    assert evaluate(x[x > 1.0]).tolist() == [2, 3]


@pytest.mark.parametrize("key", [1.5, "a", (0, 1.0), slice(0, 2.5), (True, 0), [[1, 2]]])
def test_other_keys_are_refused(key: Any) -> None:
    with pytest.raises(errors.InvalidTypeError, match="indexed by"):
        constant(table(3, 3))[key]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (5, r"slice index 5 of axis 0 .* size 3"),
        ((0, -5), r"slice index -5 of axis 1 .* size 4"),
        ((0, 0, 0), r"indexes 3 axes, got shape \[3,4\] of rank 2"),
        (slice(0, 2, 0), r"strides\[0\] must not be 0"),
        ((..., ...), "one ellipsis"),
    ],
)
def test_bad_indices_are_refused_when_built(key: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        constant(table(3, 4))[key]
    assert caught.value.op_type == "StridedSlice" and "test_slicing.py" in str(caught.value.line)


def test_bad_indices_are_refused_when_run() -> None:
    x = array.placeholder(dtypes.float32, None)
    for key, message in ((5, "slice index 5 of axis 0"), ((0, 0, 0), "indexes 3 axes")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            evaluate(x[key], {x: table(3, 4)})
    i = array.placeholder(dtypes.int32, ())
    with pytest.raises(errors.InvalidArgumentError, match="slice index 3 of axis 0"):
        evaluate(x[i], {x: table(3, 4), i: np.int32(3)})
    step = x[::i]
    with pytest.raises(errors.InvalidArgumentError, match="must not be 0"):
        evaluate(step, {x: table(3, 4), i: np.int32(0)})


def test_strided_slice_by_name() -> None:
    x = table(3, 4)
    y = slicing.strided_slice(x, [0, 1], [3, 3], [2, 1])
    np.testing.assert_array_equal(evaluate(y), x[0:3:2, 1:3])
    y = slicing.strided_slice(x, [1, 0], [0, 0], end_mask=3, shrink_axis_mask=1)
    np.testing.assert_array_equal(evaluate(y), x[1])


def test_slice_by_name() -> None:
    x = constant(table(3, 4))
    y = slicing.slice(x, [1, 0], [-1, 2])
    assert y.dims == (2, 2)
    np.testing.assert_array_equal(evaluate(y), table(3, 4)[1:, :2])
    n = array.placeholder(dtypes.int32, ())
    y = slicing.slice(x, [0, n], [2, 1])
    assert y.dims == (2, 1)
    with pytest.raises(errors.InvalidArgumentError, match=r"begin\[0\] \+ size\[0\]"):
        slicing.slice(x, [2, 0], [2, 1])
    with pytest.raises(errors.InvalidArgumentError, match="must be inside size 4"):
        evaluate(y, {n: np.int32(4)})


def test_negative_begins_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"begin\[0\] must be in"):
        slicing.slice(table(3), [-1], [1])


# ------------------------------------------------------------------------------ assignment


def test_assignment_to_slices_of_a_variable() -> None:
    variable = out("VariableV2", (), {"shape": (3, 4), "dtype": dtypes.float32})
    start = state.assign(variable, table(3, 4))
    key = (slice(0, 2), 1)
    change = slicing.strided_slice_assign(variable, key, np.array([7, 8], np.float32))
    run = Evaluator()
    before = run.run(start)
    after = run.run(change)
    wanted = table(3, 4)
    wanted[key] = [7, 8]
    np.testing.assert_array_equal(after, wanted)
    np.testing.assert_array_equal(before, table(3, 4))


def test_an_assignment_must_fit() -> None:
    variable = out("VariableV2", (), {"shape": (3, 4), "dtype": dtypes.float32})
    with pytest.raises(errors.InvalidArgumentError, match=r"slice's shape \[2,4\]"):
        slicing.strided_slice_assign(variable, slice(0, 2), table(3))
