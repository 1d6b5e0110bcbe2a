"""TensorArrays in a session: values of every type, errors, lifetime; and their state alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.evaluate import HostDevice, evaluate
from weft_testing.loading import load_family

from weft_exec.kernels.registry import find_kernel
from weft_exec.resources.tensor_arrays import TensorArrayState
from weft_exec.session.session import Session
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.default_graph import control_dependencies
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import tensor_array as ops
from weft_graph.ops.array import placeholder, placeholder_with_default
from weft_graph.ops.stack import stack_v2
from weft_tensor import dtypes, errors

ROWS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in load_family("tensor_array").ARRAY_CASES
    for dtype in case.dtypes
]


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as found:
        yield found


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def floats(size: Any, **options: Any) -> TensorArray:
    return TensorArray(dtypes.float32, size, **options)


def same(got: Any, want: Any, dtype: str) -> None:
    if dtype == "string":
        got, want = np.asarray(got, object), np.asarray(want, object)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


# --------------------------------------------------------------------------- values


@pytest.mark.parametrize("known", (True, False))
@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_values(case: Any, dtype: str, known: bool) -> None:
    arrays = case.arrays(dtype, np.random.default_rng(1))
    element = dtypes.as_dtype(dtype)
    inputs = [placeholder(element, array.shape if known else None) for array in arrays]
    outputs = case.build(*inputs)
    point = dict(zip(inputs, arrays, strict=True))
    wanted = case.expected(*arrays)
    for got, want in zip(run(outputs, point), wanted, strict=True):
        same(got, want, dtype)
    evaluate(outputs, point)  # checks the static shapes


def test_large_results_come_from_the_pool() -> None:
    device: Any = HostDevice()
    value = np.arange(40_000, dtype=np.float32).reshape(4, 100, 100)
    ta = floats(4, clear_after_read=False).unstack(value)
    state, _ = _kernel(ta.handle, device)(np.int32(4))
    state.resource.scatter(range(4), list(value))
    for output in (ta.stack(), ta.concat()):
        before = device.pooled
        made = _kernel(output, device)
        inputs = [state, np.arange(4, dtype=np.int32), np.float32(0)]
        result = made(*inputs) if len(output.node.inputs) == 3 else made(state, np.float32(0))[0]
        assert device.pooled == before + 1
        np.testing.assert_array_equal(result.reshape(value.shape), value)


def _kernel(output: Output, device: Any, kind: str = "CPU") -> Any:
    entry = find_kernel(output.node, kind)
    assert entry is not None
    return entry.make(output.node, device)


def test_elements_are_not_copied() -> None:
    device: Any = HostDevice()
    value = np.ones((3, 100), np.float32)
    ta = floats(4, clear_after_read=False, infer_shape=False)
    handle, flow = _kernel(ta.handle, device)(np.int32(4))
    ta = ta.write(0, value).unstack(value[:2])
    write, read = _kernel(ta.write(3, value).flow, device), _kernel(ta.read(0), device)
    write(handle, np.int32(3), value, flow)
    assert read(handle, np.int32(3), flow) is value
    _kernel(ta.flow, device)(handle, np.array([0, 1], np.int32), value[:2], flow)
    assert np.shares_memory(read(handle, np.int32(1), flow), value)


def test_fetched_and_fed_arrays_belong_to_the_caller() -> None:
    fed = np.ones((50, 50), np.float32)
    x = placeholder(dtypes.float32, (50, 50))
    c = constant(np.full((50, 50), 2, np.float32))
    ta = floats(4).write(0, x).write(1, c)
    row = floats(50).unstack(x).read(3)
    got = run([ta.read(0), ta.read(1), row, c], {x: fed})
    for result in got:
        result += 1
    assert (fed == 1).all()
    assert (run([c])[0] == 2).all()


def test_each_step_has_an_array_of_its_own() -> None:
    x = placeholder(dtypes.float32, ())
    read = floats(1).write(0, x).read(0)
    with Session() as session:
        assert [session.run(read, {x: float(i)}) for i in range(3)] == [0, 1, 2]


def test_the_size() -> None:
    n = placeholder(dtypes.int32, ())
    grown = floats(n, dynamic_size=True).write(4, 1.0)
    sizes = [floats(3).size(), floats(n).size(), grown.size(), grown.grad("g").size()]
    assert run(sizes, {n: 2}) == [3, 2, 5, 5]
    assert all(type(size) is np.int32 for size in run(sizes, {n: 2}))


# --------------------------------------------------------------------------- errors


def fed(*values: Any) -> list[Output]:
    """Values of which the graph does not know the shape."""
    return [placeholder_with_default(np.array(v, np.float32), None) for v in values]


def after(waits: Any, make: Callable[[], Any]) -> Any:
    with control_dependencies([waits]):
        return make()


def _read_twice() -> Any:
    ta = floats(2).write(1, 1.0)
    return after(ta.read(1), lambda: ta.read(1))


def _write_after_read() -> Any:
    ta = floats(2).write(1, 1.0)
    return after(ta.read(1), lambda: ta.write(1, 1.0).flow)


def _write_after_zeros(clear: bool) -> Any:
    ta = floats(2, element_shape=[], clear_after_read=clear)
    return after(ta.read(1), lambda: ta.write(1, 1.0).flow)


def _use_closed(use: Callable[[TensorArray], Any]) -> Any:
    ta = TensorArray(dtypes.float32, 2, dynamic_size=True, tensor_array_name="shut")
    return after(ta.close(), lambda: use(ta))


def _fed_shapes() -> Any:
    a, b = fed([1.0], [1.0, 2.0])
    return floats(2).write(0, a).write(1, b).flow


def _ragged(use: Callable[[TensorArray], Any]) -> Any:
    a, b = fed([1.0], [1.0, 2.0])
    return use(floats(2, infer_shape=False).write(0, a).write(1, b))


def _fed_split(value: Any, lengths: Any, **options: Any) -> Any:
    (whole,) = fed(value)
    sizes = placeholder_with_default(np.array(lengths, np.int64), (None,))
    return floats(2, infer_shape=False, **options).split(whole, sizes).flow


def _fed_scatter(rows: Any, indices: Any) -> Any:
    (value,) = fed(rows)
    places = placeholder_with_default(np.array(indices, np.int32), None)
    return floats(3, infer_shape=False).scatter(places, value).flow


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "write twice": (
        lambda: floats(2, tensor_array_name="once").write(0, 1.0).write(0, 2.0).flow,
        r"element 0 of the TensorArray 'once' has been written already",
    ),
    "write beyond": (lambda: floats(3).write(3, 1.0).flow, r"index 3 .*\[0, 3\).*dynamic_size"),
    "write before": (
        lambda: floats(3, dynamic_size=True).write(-1, 1.0).flow,
        r"index -1 to write is not in \[0, 3\)",
    ),
    "read beyond": (lambda: floats(3).read(3), r"index 3 to read is not in \[0, 3\)"),
    "read before": (lambda: floats(3).read(-1), r"index -1 to read is not in \[0, 3\)"),
    "read twice": (_read_twice, "element 1 .* twice.*clear_after_read=False"),
    "write after read": (_write_after_read, "element 1 .* has been read already"),
    "write after zeros": (lambda: _write_after_zeros(True), "element 1 .* has been read already"),
    "write after kept zeros": (
        lambda: _write_after_zeros(False),
        "element 1 .* has been read already",
    ),
    "never written": (lambda: floats(3).read(1), "element 1 .* never written.*element_shape"),
    "never written, some of the shape": (
        lambda: floats(3, element_shape=[None, 2]).read(1),
        r"element 1 .* never written.*\[\?,2\]",
    ),
    "never written, several shapes": (
        lambda: floats(3, infer_shape=False).write(0, [1.0]).read(1),
        "element 1 .* never written",
    ),
    "shapes that differ": (_fed_shapes, r"element 1 .* \[1\], got \[2\]; pass infer_shape=False"),
    "declared shape": (
        lambda: floats(2, element_shape=[None, 2]).write(1, fed([1.0])[0]).flow,
        r"element 1 .* must have shape \[\?,2\], got \[1\]",
    ),
    "stack of several shapes": (
        lambda: _ragged(lambda ta: ta.stack()),
        r"the same shape, got \[1\] at 0 and \[2\] at 1",
    ),
    "concat of several shapes": (
        lambda: (
            floats(2, infer_shape=False)
            .write(0, fed([[1.0]])[0])
            .write(1, fed([[1.0, 2.0]])[0])
            .concat()
        ),
        r"except at axis 0, got shapes \[1,1\] at 0 and \[1,2\] at 1",
    ),
    "concat of rank 0": (
        lambda: floats(1, infer_shape=False).write(0, fed(1.0)[0]).concat(),
        "rank 0 cannot be concatenated \\(element 0 is one",
    ),
    "stack of nothing": (lambda: floats(0).stack(), "fully known element_shape, got <unknown>"),
    "concat of nothing": (
        lambda: floats(0, element_shape=[1, None]).concat(),
        r"fully known element_shape_except0, got \[\?\]",
    ),
    "gather beyond": (lambda: floats(3).unstack([1.0, 2.0, 3.0]).gather([0, 3]), "index 3 to read"),
    "gather twice": (lambda: floats(2).unstack([1.0, 2.0]).gather([1, 1]), "element 1 .* twice"),
    "gather at a matrix": (
        lambda: floats(2).gather(placeholder_with_default(np.zeros((1, 1), np.int32), None)),
        r"indices must have rank 1, got shape \[1,1\]",
    ),
    "scatter twice": (lambda: _fed_scatter([1.0, 2.0], [2, 2]), "element 2 .* written already"),
    "scatter before": (lambda: _fed_scatter([1.0], [-1]), "index -1 to write"),
    "scatter too few": (lambda: _fed_scatter([1.0], [0, 1]), r"each of 2 indices, got shape \[1\]"),
    "scatter a scalar": (lambda: _fed_scatter(1.0, [0]), r"each of 1 indices, got shape \[\]"),
    "unstack too many": (lambda: floats(2).unstack([1.0, 2.0, 3.0]).flow, "index 2 to write"),
    "split short": (lambda: _fed_split([1.0, 2.0], [1, 0]), r"\[2\], got \[1, 0\] with the sum 1"),
    "split backwards": (lambda: _fed_split([1.0], [2, -1]), r"got \[2, -1\] with the sum 1"),
    "split a scalar": (lambda: _fed_split(1.0, [1, 0]), "rank 0 cannot be split"),
    "split into too many": (
        lambda: _fed_split([1.0], [1, 0, 0]),
        "one entry for each element .* has 2, got 3",
    ),
    "split into too few": (
        lambda: _fed_split([1.0], [1], dynamic_size=True),
        "one entry for each element .* has 2, got 1",
    ),
    "size": (
        lambda: floats(placeholder_with_default(np.int32(-3), ())).flow,
        "at least 0, got -3",
    ),
    "closed read": (lambda: _use_closed(lambda ta: ta.read(0)), "'shut' has been closed"),
    "closed write": (lambda: _use_closed(lambda ta: ta.write(0, 1.0).flow), "'shut' has been"),
    "closed size": (lambda: _use_closed(lambda ta: ta.size()), "'shut' has been closed"),
    "closed gradient": (lambda: _use_closed(lambda ta: ta.grad("g").flow), "'shut' has been"),
    "closed gather": (
        lambda: _use_closed(lambda ta: ta.gather(np.zeros(0, np.int32))),
        "'shut' has been closed",
    ),
    "prepended shape": (
        lambda: ops.tensor_array_grad_with_shape(floats(1).handle, 0.0, [-1], "g")[1],
        r"at least 0, got \[-1\]",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_was_wrong(name: str) -> None:
    build, message = ERRORS[name]
    with pytest.raises(errors.InvalidArgumentError, match=message) as caught:
        run(build())
    assert caught.value.op_type is not None and caught.value.op.type.startswith("TensorArray")


def test_a_gather_may_say_what_shape_elements_have() -> None:
    handle, flow = ops.tensor_array_v3(2, dtypes.float32)
    got = run(ops.tensor_array_gather_v3(handle, [0, 1], flow, dtypes.float32, [3]))
    np.testing.assert_array_equal(got, np.zeros((2, 3)))
    written = ops.tensor_array_write_v3(handle, 0, fed([1.0])[0], flow)
    both = ops.tensor_array_gather_v3(handle, [0], written, dtypes.float32, [1])
    with control_dependencies([both]):
        bad = ops.tensor_array_gather_v3(handle, [1], written, dtypes.float32, [3])
    with pytest.raises(errors.InvalidArgumentError, match=r"\[1\], got element_shape \[3\]"):
        run(bad)


def test_closing_twice_is_fine() -> None:
    ta = floats(2)
    run(after(ta.close(), ta.close))


def test_where_the_array_is_not_known_a_step_checks() -> None:
    device: Any = HostDevice()
    unknown, flow = placeholder(dtypes.resource, ()), convert_to_tensor(0.0)
    array, start = _kernel(floats(1).handle, device)(np.int32(1))
    stack = _kernel(stack_v2(-1, dtypes.float32), device)(np.int32(-1))
    value, zero = np.array([1, 2], np.int32), np.int32(0)
    uses: list[tuple[Output, list[Any]]] = [
        (ops.tensor_array_write_v3(unknown, 0, value, flow), [zero, value, start]),
        (ops.tensor_array_read_v3(unknown, 0, flow, dtypes.int32), [zero, start]),
        (ops.tensor_array_gather_v3(unknown, [0], flow, dtypes.int32), [value[:1], start]),
    ]
    for output, inputs in uses:
        made = _kernel(output, device)
        for wrong in (array, stack):
            with pytest.raises(errors.InvalidTypeError, match="a TensorArray of int32, got"):
                made(wrong, *inputs)
    size = _kernel(ops.tensor_array_size_v3(unknown, flow), device)
    assert size(array, start) == 1
    with pytest.raises(errors.InvalidTypeError, match="the handle of a TensorArray, got"):
        size(stack, start)


def test_a_fetched_array_is_refused() -> None:
    with pytest.raises(errors.InvalidTypeError, match="TensorArray is not a tensor"):
        run(floats(1))


# --------------------------------------------------------------------------- gradient arrays


def test_writes_to_a_gradient_array_add_up() -> None:
    x = placeholder(dtypes.float32, (2,))
    ta = floats(3).write(0, x).write(1, x)
    grad = ta.grad("mine").write(0, x).write(0, [1.0, 1.0]).write(0, x)
    values = [grad.read(0), grad.read(1)]
    fed_value = np.array([5, 6], np.float32)
    first, second = run(values, {x: fed_value})
    np.testing.assert_array_equal(first, [11, 13])
    np.testing.assert_array_equal(second, [0, 0])
    np.testing.assert_array_equal(fed_value, [5, 6])


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64", "complex64", "int32"))
@pytest.mark.parametrize("shape", ((), (3,), (40, 40)))
def test_sums_of_every_kind(dtype: str, shape: tuple[int, ...]) -> None:
    value = np.full(shape, 2, dtypes.as_dtype(dtype).numpy)
    ta = TensorArray(dtypes.as_dtype(dtype), 1).write(0, value)
    grad = ta.grad("g").write(0, value).write(0, value).write(0, value)
    got = run(grad.read(0))
    assert got.dtype == value.dtype and got.shape == shape
    assert (np.asarray(got) == 6).all()


@pytest.mark.parametrize("value", (True, "a"))
def test_what_cannot_be_added(value: Any) -> None:
    element = convert_to_tensor(value)
    grad = TensorArray(element.dtype, 1).write(0, element).grad("g").write(0, element)
    assert run(grad.read(0)) in (True, b"a")
    with pytest.raises(errors.InvalidTypeError, match=r"(bool|string) cannot be summed"):
        run(grad.write(0, element).flow)


def test_sources_are_kept_apart() -> None:
    ta = floats(1).write(0, 1.0)
    one, other = ta.grad("one").write(0, 2.0), ta.grad("other").write(0, 3.0)
    again = ta.grad("one", flow=one.flow).write(0, 5.0)
    assert run([again.read(0), other.read(0)]) == [7, 3]


def test_a_gradient_has_the_shape_of_its_element() -> None:
    a, b, wrong = fed([1.0], [1.0, 2.0], [1.0, 2.0, 3.0])
    ta = floats(3, infer_shape=False).write(0, a).write(1, b)
    grad = ta.grad("g")
    assert [value.shape for value in run([grad.read(0), grad.read(1)])] == [(1,), (2,)]
    with pytest.raises(errors.InvalidArgumentError, match=r"element 1 .* \[2\], got \[3\]"):
        run(grad.write(1, wrong).flow)
    with pytest.raises(errors.InvalidArgumentError, match=r"element 2 .* never written"):
        run(grad.read(2))


def test_gradients_of_an_element_of_unknown_shape_have_one_shape() -> None:
    a, b = fed([1.0], [1.0, 2.0])
    grad = floats(1, infer_shape=False).grad("g").write(0, a)
    with pytest.raises(errors.InvalidArgumentError, match=r"element 0 .* \[1\], got \[2\]"):
        run(grad.write(0, b).flow)


def test_nothing_is_added_after_a_read() -> None:
    ta = floats(1, infer_shape=False).write(0, 1.0)
    for grad in (ta.grad("g"), ta.grad("g").grad("h")):
        bad = after(grad.read(0), lambda grad=grad: grad.write(0, 1.0).flow)
        with pytest.raises(errors.InvalidArgumentError, match=r"element 0 .* already read"):
            run(bad)


def test_an_array_with_gradients_cannot_grow() -> None:
    ta = floats(1, dynamic_size=True).write(0, 1.0)
    grown = after(ta.grad("g").flow, lambda: ta.write(1, 1.0).flow)
    with pytest.raises(errors.InvalidArgumentError, match=r"index 1 .* cannot grow"):
        run(grown)


def test_gradients_with_more_axes() -> None:
    ta = floats(2, element_shape=[2]).write(0, [1.0, 2.0])
    handle, flow = ops.tensor_array_grad_with_shape(ta.handle, ta.flow, [3], "many")
    written = ops.tensor_array_write_v3(handle, 0, np.ones((3, 2), np.float32), flow)
    reads = [ops.tensor_array_read_v3(handle, i, written, dtypes.float32) for i in (0, 1)]
    assert [read.dims for read in reads] == [(3, 2), (3, 2)]
    first, second = run(reads)
    assert (first == 1).all() and (second == 0).all() and second.shape == (3, 2)
    with pytest.raises(errors.InvalidArgumentError, match=r"\[3,2\], got \[2\]"):
        ops.tensor_array_write_v3(handle, 1, [1.0, 2.0], flow)


# --------------------------------------------------------------------------- lifetime


def test_reads_let_go_and_the_array_dies_with_its_handle() -> None:
    device: Any = HostDevice()
    handle, _ = _kernel(floats(2).handle, device)(np.int32(2))
    values = [np.ones(3, np.float32), np.ones(3, np.float32), np.ones(3, np.float32)]
    alive = [weakref.ref(value) for value in values]
    state = handle.resource
    state.write(0, values.pop(0))
    state.write(1, values.pop(0))
    state.gradient("g").resource.write(0, values.pop(0))
    state.read(0)
    assert [ref() is None for ref in alive] == [True, False, False]
    gc.disable()
    try:
        del handle, state
        assert [ref() is None for ref in alive] == [True, True, True]
    finally:
        gc.enable()


# --------------------------------------------------------------------------- the state alone

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), st.integers(-1, 6), st.integers(0, 2)),
    max_size=30,
)


@given(STEPS, st.integers(0, 5), st.booleans(), st.booleans(), st.booleans())
def test_the_state_against_a_model(
    steps: list[tuple[str, int, int]], size: int, dynamic: bool, clear: bool, gradient: bool
) -> None:
    state = TensorArrayState("a", dtypes.int32, size, (), dynamic=dynamic, clear=clear)
    if gradient:
        state = state.gradient("g").resource
        dynamic, clear = False, True
    written: dict[int, int] = {}
    read: set[int] = set()
    for action, index, value in steps:
        if action == "write":
            fits = index >= 0 and (index < size or dynamic)
            if fits and index not in read and (gradient or index not in written):
                state.write(index, np.int32(value))
                written[index] = written.get(index, 0) + value
                size = max(size, index + 1)
            else:
                with pytest.raises(errors.InvalidArgumentError):
                    state.write(index, np.int32(value))
        elif 0 <= index < size and not (clear and index in read):
            assert state.read(index) == written.get(index, 0)
            if clear or index not in written:
                read.add(index)
        else:
            with pytest.raises(errors.InvalidArgumentError):
                state.read(index)
        assert state.size == size


# --------------------------------------------------------------------------- other devices


def _like_numpy() -> Any:
    """An array module other than NumPy, which wherever a kernel asks is no CPU's."""
    return SimpleNamespace(**vars(np), asnumpy=np.array)


def _cupy() -> Any:
    import cupy

    return cupy


@pytest.mark.parametrize(
    "module", (_like_numpy, pytest.param(_cupy, marks=pytest.mark.gpu)), ids=("numpy", "cupy")
)
@pytest.mark.parametrize("shape", ((), (3,), (200, 30)))
def test_the_kernels_work_over_any_array_module(
    module: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    xp = module()
    device: Any = HostDevice()
    device.type, device.xp, device.empty = "GPU", xp, xp.empty
    values = [xp.full(shape, i + 1, np.float32) for i in range(3)]
    ta = floats(4, element_shape=shape, clear_after_read=False).unstack(np.ones((3, *shape)))
    handle, flow = _kernel(ta.handle, device, "GPU")(np.int32(4))
    assert isinstance(flow, xp.ndarray)
    write = _kernel(ta.write(0, np.ones(shape)).flow, device, "GPU")
    write(handle, xp.int32(0), values[0], flow)
    scatter = _kernel(ta.flow, device, "GPU")
    scatter(handle, xp.array([2, 1], np.int32), xp.stack(values[1:]), flow)
    got = _kernel(ta.stack(), device, "GPU")(handle, xp.arange(4, dtype=np.int32), flow)
    wanted = np.stack([np.full(shape, v, np.float32) for v in (1, 3, 2, 0)])
    np.testing.assert_array_equal(xp.asnumpy(got), wanted)
    grad = _kernel(ta.grad("g").handle, device, "GPU")(handle, flow)[0].resource
    for value in values:
        grad.write(1, value)
    np.testing.assert_array_equal(xp.asnumpy(grad.read(1)), np.full(shape, 6))
    np.testing.assert_array_equal(xp.asnumpy(values[1]), np.full(shape, 2))
    if shape:
        whole, lengths = _kernel(ta.concat(), device, "GPU")(handle, flow)
        np.testing.assert_array_equal(xp.asnumpy(whole), wanted.reshape(-1, *shape[1:]))
        pieces = floats(4, infer_shape=False).split(np.ones(4), [1, 1, 1, 1])
        other = _kernel(floats(4).handle, device, "GPU")(np.int32(4))[0]
        _kernel(pieces.flow, device, "GPU")(other, whole, lengths, flow)
        np.testing.assert_array_equal(xp.asnumpy(other.resource.read(1)), wanted[1])


@pytest.mark.parametrize("clear", [True, False])
def test_rows_of_one_array_are_stacked_as_a_whole(clear: bool) -> None:
    rows = placeholder(dtypes.float32, [3, 2])
    array = floats(3, clear_after_read=clear).unstack(rows)
    stacked = array.stack()
    with control_dependencies([stacked]):
        again = array.read(1)
    fed = np.arange(6, dtype=np.float32).reshape(3, 2)
    with Session() as session:
        found = session.run(stacked, {rows: fed})
        np.testing.assert_array_equal(found, fed)
        found[:] = 9.0
        assert fed[0, 0] == 0.0
        if clear:
            with pytest.raises(errors.InvalidArgumentError, match="cannot be read twice"):
                session.run(again, {rows: fed})
        else:
            np.testing.assert_array_equal(session.run(again, {rows: fed}), fed[1])
