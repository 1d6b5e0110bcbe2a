"""Stacks: order, limits, errors, and release of popped values."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.evaluate import HostDevice
from weft_testing.loading import load_family

from weft_autodiff.gradients.backprop import gradients
from weft_exec.kernels.registry import find_kernel
from weft_exec.kernels.stack import WORTH_SWAPPING
from weft_exec.resources.tensor_arrays import BoundedStack, Stack
from weft_exec.session.session import Session
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import control_dependencies
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import resource_state
from weft_graph.ops.array import placeholder
from weft_graph.ops.stack import stack_close_v2, stack_pop_v2, stack_push_v2, stack_v2
from weft_graph.ops.tensor_array import tensor_array_v3
from weft_tensor import dtypes, errors

ROWS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in load_family("stack").STACK_CASES
    for dtype in case.dtypes
]


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as found:
        yield found


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def values(shape: tuple[int, ...], dtype: str) -> Any:
    numbers = np.random.default_rng(len(shape)).integers(1, 100, shape)
    if dtype != "string":
        return numbers.astype(dtypes.as_dtype(dtype).numpy)
    return np.array([b"%d" % n for n in numbers.reshape(-1)], object).reshape(shape)


def in_turn(handle: Output, pushed: list[Any], pops: int, **options: Any) -> list[Output]:
    """Pushes one after the other, then pops."""
    last: list[Output] = []
    popped: list[Output] = []
    for value in pushed:
        with control_dependencies(last):
            last = [stack_push_v2(handle, value, **options)]
    for _ in range(pops):
        with control_dependencies(last):
            last = [stack_pop_v2(handle, pushed[0].dtype)]
        popped += last
    return popped


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_the_last_comes_off_first(case: Any, dtype: str) -> None:
    arrays = [values(shape, dtype) for shape in case.shapes]
    inputs = [placeholder(dtypes.as_dtype(dtype), array.shape) for array in arrays]
    handle = stack_v2(case.max_size, dtypes.as_dtype(dtype))
    popped = in_turn(handle, inputs, case.pops)
    results = run(popped, dict(zip(inputs, arrays, strict=True)))
    for got, want in zip(results, arrays[::-1], strict=False):
        got = np.asarray(got, want.dtype)
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)
    if case.name == "large":
        assert not any(map(np.shares_memory, results, arrays[::-1]))


def test_a_push_passes_its_value_on(graph: Graph) -> None:
    handle = stack_v2(-1, dtypes.float32)
    pushed = stack_push_v2(handle, [1.0, 2.0])
    assert pushed.dims == (2,) and pushed.dtype is dtypes.float32
    np.testing.assert_array_equal(run(pushed), [1, 2])
    assert stack_pop_v2(handle, dtypes.float32).dims is None


def test_a_full_stack_names_itself_and_its_size() -> None:
    one = convert_to_tensor([1.0])
    popped = in_turn(stack_v2(1, dtypes.float32, "narrow"), [one, one], 1)
    with pytest.raises(errors.InvalidArgumentError, match=r"'narrow' is full: its max_size is 1"):
        run(popped)


def test_nothing_goes_on_a_stack_of_size_0() -> None:
    pushed = stack_push_v2(stack_v2(0, dtypes.float32), 1.0)
    with pytest.raises(errors.InvalidArgumentError, match="max_size is 0"):
        run(pushed)


@pytest.mark.parametrize("max_size", (-1, 5))
def test_an_empty_stack_names_itself(max_size: int) -> None:
    one = convert_to_tensor([1.0])
    handle = stack_v2(max_size, dtypes.float32, name="bare")
    popped = in_turn(handle, [one], 2)
    with pytest.raises(errors.InvalidArgumentError, match="'bare' is empty") as caught:
        run(popped)
    assert caught.value.op.type == "StackPopV2"


def test_a_closed_stack_is_empty() -> None:
    handle = stack_v2(-1, dtypes.float32)
    with control_dependencies([stack_push_v2(handle, 1.0)]):
        closed = stack_close_v2(handle)
    with control_dependencies([closed]):
        popped = stack_pop_v2(handle, dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match="is empty"):
        run(popped)
    run(closed)


def test_each_step_has_a_stack_of_its_own() -> None:
    handle = stack_v2(1, dtypes.float32)
    value = placeholder(dtypes.float32, ())
    (popped,) = in_turn(handle, [value], 1)
    with Session() as session:
        assert [session.run(popped, {value: float(i)}) for i in range(3)] == [0, 1, 2]


def test_the_element_type_is_checked_where_the_stack_is_known() -> None:
    handle = out("Identity", [stack_v2(-1, dtypes.float32, name="floats")])
    with pytest.raises(errors.InvalidTypeError, match=r"'floats' holds float32, .* used as int32"):
        stack_push_v2(handle, 1)
    with pytest.raises(errors.InvalidTypeError, match=r"'floats' holds float32, .* used as string"):
        stack_pop_v2(handle, dtypes.string)


def test_other_handles_are_refused() -> None:
    for handle in (
        resource_state.var_handle_op(dtypes.float32, ()),
        tensor_array_v3(1, dtypes.float32)[0],
    ):
        with pytest.raises(errors.InvalidTypeError, match="requires the handle of a stack"):
            stack_push_v2(handle, 1.0)
        with pytest.raises(errors.InvalidTypeError, match="requires the handle of a stack"):
            stack_pop_v2(handle, dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match="max_size must have rank 0"):
        stack_v2([1], dtypes.float32)


def test_where_the_stack_is_not_known_a_step_checks() -> None:
    handle = placeholder(dtypes.resource, ())
    device: Any = HostDevice()

    def kernel(output: Output) -> Any:
        entry = find_kernel(output.node, "CPU")
        assert entry is not None
        return entry.make(output.node, device)

    floats = kernel(stack_v2(-1, dtypes.float32, "floats"))(np.int32(-1))
    push, pop = (
        kernel(stack_push_v2(handle, 1.0)),
        kernel(stack_pop_v2(handle, dtypes.float32)),
    )
    pushed = np.ones(3, np.float32)
    assert push(floats, pushed) is pushed
    assert pop(floats) is pushed
    wrong = kernel(stack_pop_v2(handle, dtypes.int32))
    with pytest.raises(errors.InvalidTypeError, match="requires a stack of int32, got"):
        wrong(floats)
    array = kernel(tensor_array_v3(1, dtypes.float32)[0])(np.int32(1))[0]
    with pytest.raises(errors.InvalidTypeError, match="requires a stack of float32, got"):
        push(array, pushed)


def test_a_pop_lets_go_of_the_value() -> None:
    stack = Stack("s", dtypes.float32)
    value = np.ones(3, np.float32)
    alive = weakref.ref(value)
    stack.append(value)
    del value
    assert alive() is not None
    stack.pop()
    gc.collect()
    assert alive() is None


@given(st.lists(st.one_of(st.none(), st.integers())), st.integers(0, 5))
def test_a_bounded_stack_is_a_list_with_a_limit(steps: list[int | None], limit: int) -> None:
    stack = BoundedStack("s", dtypes.int32, limit)
    model: list[int] = []
    for step in steps:
        if step is None and model:
            assert stack.pop() == model.pop()
        elif step is not None and len(model) < limit:
            stack.append(step)
            model.append(step)
        elif step is not None:
            with pytest.raises(errors.InvalidArgumentError):
                stack.append(step)
        assert list(stack) == model


def test_the_gradient_of_a_push_is_that_of_the_value_it_passes_on() -> None:
    x = placeholder(dtypes.float32, ())
    handle = stack_v2(-1, dtypes.float32)
    y = stack_push_v2(handle, x * x)
    (grad,) = gradients(y, [x])
    assert run(grad, {x: 3.0}) == 6
    assert gradients(stack_pop_v2(handle, dtypes.float32), [x]) == [None]


class _OnDevice(np.ndarray):
    """An array that is not the host's."""


class _Accelerator:
    """The part of an array module that swapping needs."""

    @staticmethod
    def asnumpy(value: Any) -> Any:
        return np.array(value)

    @staticmethod
    def asarray(value: Any) -> Any:
        return np.asarray(value).view(_OnDevice)


@pytest.mark.parametrize("swap", (False, True))
@pytest.mark.parametrize("size", (4, WORTH_SWAPPING))
def test_large_values_wait_on_the_host_where_asked_to(swap: bool, size: int) -> None:
    device: Any = HostDevice()
    device.xp = _Accelerator
    handle = stack_v2(-1, dtypes.float32)
    pushing = stack_push_v2(handle, np.ones(size, np.float32), swap_memory=swap)
    made = []
    for output in (handle, pushing, stack_pop_v2(handle, dtypes.float32)):
        entry = find_kernel(output.node, "GPU")
        assert entry is not None
        made.append(entry.make(output.node, device))
    state = made[0](np.int32(-1))
    value = _Accelerator.asarray(np.arange(size, dtype=np.float32))
    assert made[1](state, value) is value
    assert (type(state.resource[0]) is np.ndarray) is (swap and value.nbytes > WORTH_SWAPPING)
    back = made[2](state)
    assert type(back) is _OnDevice
    np.testing.assert_array_equal(back, value)
