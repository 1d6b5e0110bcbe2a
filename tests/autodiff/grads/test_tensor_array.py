"""Gradients through TensorArrays: all cases against differences, twice over; known numbers."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.differentiate import directional_error, random_like
from weft_testing.evaluate import evaluate
from weft_testing.loading import load_family

from weft_autodiff.gradients.backprop import gradients
from weft_exec.session.session import Session
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import control_dependencies
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops import tensor_array as ops
from weft_graph.ops.array import placeholder
from weft_graph.ops.casting import cast
from weft_tensor import dtypes

ROWS = [
    pytest.param(case, dtype, known, id=f"{case.name}-{dtype}-{'static' if known else 'unknown'}")
    for case in load_family("tensor_array").ARRAY_CASES
    for dtype, known in (("float64", True), ("float64", False), ("complex128", True))
]


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as found:
        yield found


def feed(array: Any, known: bool = True) -> Output:
    shape = array.shape if known else None
    return placeholder(dtypes.from_numpy(array.dtype), shape)


def differentiate(
    ys: list[Output], xs: list[Output], point: dict[Output, Any], rng: np.random.Generator
) -> list[Output]:
    """Gradients for random seeds, checked against differences; the seeds join `point`."""
    seeds = [random_like(rng, np.asarray(value)) for value in evaluate(ys, point)]
    fed = [feed(seed) for seed in seeds]
    point |= dict(zip(fed, seeds, strict=True))
    grads = gradients(ys, xs, grad_ys=fed)
    by_y = dict(zip(ys, seeds, strict=True))
    expected, found = directional_error(ys, grads, xs, point, by_y, rng)  # type: ignore[arg-type]
    assert abs(expected - found) <= 1e-6 * max(abs(expected), abs(found), 1)
    return [grad for grad in grads if isinstance(grad, Output)]


@pytest.mark.parametrize(("case", "dtype", "known"), ROWS)
def test_against_differences(case: Any, dtype: str, known: bool) -> None:
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    kind = np.zeros((), dtypes.as_dtype(dtype).numpy)
    arrays = [random_like(rng, np.zeros(shape, kind.dtype)) for shape in case.shapes]
    xs = [feed(array, known) for array in arrays]
    point: dict[Output, Any] = dict(zip(xs, arrays, strict=True))
    ys = [y * y for y in case.build(*[x * x for x in xs])]
    grads = differentiate(ys, xs, point, rng)
    assert len(grads) == len(xs)
    assert len(differentiate(grads, xs, point, rng)) == len(xs)


def test_the_third_derivative_of_an_element_read_often() -> None:
    x = placeholder(dtypes.float64, ())
    ta = TensorArray(dtypes.float64, 2, clear_after_read=False).write(0, x).write(1, x * x)
    y = ta.read(0) * ta.read(0) * ta.read(1)
    found = [y]
    for _ in range(4):
        found += gradients(found[-1], [x])
    with Session() as session:
        got = session.run(found, {x: 3.0})
    np.testing.assert_allclose(got, [81, 108, 108, 72, 24])


def test_the_hessian_through_an_array_that_is_differentiated_by_hand() -> None:
    x = placeholder(dtypes.float64, (3,))
    ta = TensorArray(dtypes.float64, 3).unstack(x)
    grad = ta.grad("by hand")
    for i in range(3):
        grad = grad.write(i, ta.read(i) * (i + 1.0))
    (second,) = gradients(grad.stack() ** 2, [x])
    with Session() as session:
        got = session.run(second, {x: np.array([1.0, 2.0, 3.0])})
    np.testing.assert_allclose(got, [2, 16, 54])


X = np.array([0.5, -1.5], np.float32)
ROWS_OF_X = np.array([[0.5, -1.0], [2.0, 0.25], [1.5, -0.75]], np.float32)
WEIGHTS = np.array([[1.0, 2.0], [-3.0, 0.5], [4.0, -1.0]], np.float32)


def _array(size: Any, **options: Any) -> TensorArray:
    return TensorArray(dtypes.float32, size, **options)


def _write_read(x: Output) -> Any:
    ta = _array(3).write(0, x * x).write(1, x)
    return ta.read(0) * ta.read(1)


def _read_often(x: Output) -> Any:
    ta = _array(3, clear_after_read=False).write(0, x * x).write(1, x)
    return [ta.read(0), ta.read(0) * 3.0, ta.read(1), ta.gather([0, 1, 1])]


def _unread(x: Output) -> Any:
    return _array(3).write(0, x).write(1, x * x).read(0)


def _unstack_read(x: Output) -> Any:
    ta = _array(3).unstack(x)
    return [ta.read(2) ** 2, ta.read(0)]


def _scatter_gather(x: Output) -> Any:
    ta = _array(5, clear_after_read=False).scatter([3, 1, 4], x)
    return ta.gather([1, 3, 1]) * WEIGHTS


def _split_concat(x: Output) -> Any:
    return _array(2, infer_shape=False).split(x, [1, 2]).concat() * WEIGHTS


def _split_read(x: Output) -> Any:
    return _array(2, infer_shape=False).split(x, [1, 2]).read(1) ** 3


def _stack(x: Output) -> Any:
    ta = _array(3).write(0, x[0]).write(2, x[1] * 2.0).write(1, x[2] * x[0])
    return ta.stack() * WEIGHTS


def _chain(x: Output) -> Any:
    source, target = _array(3).unstack(x), _array(3)
    for i in range(3):
        target = target.write(i, out("Tanh", [source.read(i)]) * (i + 1.0))
    return target.stack()


def _grow(x: Output) -> Any:
    ta = _array(0, dynamic_size=True).write(3, x).write(0, x * x)
    return ta.read(3) * ta.read(0)


def _left_out(x: Output) -> Any:
    return _array(4, element_shape=[2]).write(1, x * x).stack()


RECORDED: dict[str, tuple[Callable[[Output], Any], Any, list[Any]]] = {
    "write, read": (_write_read, X, [0.75, 6.75]),
    "read often": (_read_often, X, [8.0, -12.0]),
    "unread": (_unread, X, [1.0, 1.0]),
    "unstack, read": (_unstack_read, ROWS_OF_X, [[1.0, 1.0], [0.0, 0.0], [3.0, -1.5]]),
    "scatter, gather": (_scatter_gather, ROWS_OF_X, [[-3.0, 0.5], [5.0, 1.0], [0.0, 0.0]]),
    "split, concat": (_split_concat, ROWS_OF_X, [[1.0, 2.0], [-3.0, 0.5], [4.0, -1.0]]),
    "split, read": (_split_read, ROWS_OF_X, [[0.0, 0.0], [12.0, 0.1875], [6.75, 1.6875]]),
    "stack": (_stack, ROWS_OF_X, [[-3.5, 1.625], [8.0, -2.0], [-1.5, -0.5]]),
    "chain": (
        _chain,
        ROWS_OF_X,
        [[0.78644776, 0.41997433], [0.14130163, 1.88002968], [0.5421195, 1.78975749]],
    ),
    "grow": (_grow, X, [0.75, 6.75]),
    "left out": (_left_out, X, [1.0, -3.0]),
}
"""Programs that TensorFlow runs too, and the gradients it gives."""


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("known", (True, False))
def test_gradients_are_those_of_tensorflow(name: str, known: bool) -> None:
    build, value, wanted = RECORDED[name]
    x = feed(value, known or name == "stack")
    (grad,) = gradients(build(x), [x])
    with Session() as session:
        got = session.run(grad, {x: value})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


# --------------------------------------------------------------------------- the parts


def test_each_call_has_arrays_of_its_own() -> None:
    x = placeholder(dtypes.float64, (2,))
    ta = TensorArray(dtypes.float64, 2).unstack(x)
    a, b = ta.read(0), ta.read(1)
    first, second = gradients(a * a, [x]), gradients(a * b, [x])
    with Session() as session:
        got = session.run([first, second], {x: np.array([3.0, 5.0])})
    np.testing.assert_array_equal(got[0][0], [6, 0])
    np.testing.assert_array_equal(got[1][0], [5, 3])


def test_sources_are_the_names_of_the_calls(graph: Graph) -> None:
    x = placeholder(dtypes.float32, ())
    read = TensorArray(dtypes.float32, 1).write(0, x).read(0)
    gradients(read, [x])
    gradients(read, [x])
    gradients(read, [x], name="mine")
    found = [n.attrs["source"] for n in graph.nodes if n.type == "TensorArrayGradV3"]
    assert found == ["gradients/"] * 2 + ["gradients_1/"] * 2 + ["mine/"] * 2


def test_static_shapes_survive() -> None:
    x = placeholder(dtypes.float32, (3, None))
    ta = TensorArray(dtypes.float32, 3)
    for y in (
        ta.unstack(x).read(0),
        TensorArray(dtypes.float32, 1).write(0, x).read(0),
        TensorArray(dtypes.float32, 2, infer_shape=False).split(x, [1, 2]).read(0),
    ):
        (grad,) = gradients(y, [x])
        assert grad is not None and grad.dims == (3, None)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "complex64"))
def test_every_type_that_gradients_have(dtype: str) -> None:
    element = dtypes.as_dtype(dtype)
    x = placeholder(element, (2,))
    ta = TensorArray(element, 2, clear_after_read=False).unstack(x)
    (grad,) = gradients([ta.read(0), ta.read(0), ta.stack()], [x])
    with Session() as session:
        got = session.run(grad, {x: np.ones(2, element.numpy)})
    assert got.dtype == element.numpy
    np.testing.assert_array_equal(got.astype(complex), [3, 1])


def test_nothing_flows_through_integers() -> None:
    x = placeholder(dtypes.float32, (2,))
    ta = TensorArray(dtypes.int32, 2).unstack(cast(x, dtypes.int32))
    assert gradients(cast(ta.stack(), dtypes.float32), [x]) == [None]
    assert gradients(cast(ta.size(), dtypes.float32), [x]) == [None]


def test_the_lengths_of_a_concatenation_have_no_gradient() -> None:
    x = placeholder(dtypes.float32, (2,))
    ta = TensorArray(dtypes.float32, 2, infer_shape=False).write(0, x).write(1, x)
    value, lengths = ops.tensor_array_concat_v3(ta.handle, ta.flow, dtypes.float32)
    both = out("Mul", [value, cast(lengths[0], dtypes.float32)])
    (grad,) = gradients(both, [x])
    assert gradients(cast(lengths, dtypes.float32), [x]) == [None]
    with Session() as session:
        np.testing.assert_array_equal(session.run(grad, {x: np.ones(2)}), [4, 4])


def test_a_gradient_waits_for_all_that_adds_to_it() -> None:
    """Reads that the graph orders after other reads still count."""
    x = placeholder(dtypes.float32, ())
    ta = TensorArray(dtypes.float32, 1, clear_after_read=False).write(0, x)
    total = ta.read(0)
    for _ in range(5):
        with control_dependencies([total]):
            total = total + ta.identity().read(0)
    (grad,) = gradients(total, [x])
    with Session() as session:
        assert session.run(grad, {x: 1.0}) == 6


def test_what_is_not_written_is_zero_in_the_gradient_of_several_shapes() -> None:
    x, y = placeholder(dtypes.float32, None), placeholder(dtypes.float32, None)
    ta = TensorArray(dtypes.float32, 2, infer_shape=False).write(0, x).write(1, y)
    grads = gradients(ta.read(1), [x, y])
    with Session() as session:
        first, second = session.run(grads, {x: np.ones((2, 3)), y: np.ones(4)})
    np.testing.assert_array_equal(first, np.zeros((2, 3)))
    np.testing.assert_array_equal(second, np.ones(4))


def test_the_rows_of_nothing() -> None:
    x = placeholder(dtypes.float32, None)
    ta = TensorArray(dtypes.float32, 0, dynamic_size=True).unstack(x)
    (grad,) = gradients(ta.stack(), [x])
    with Session() as session:
        for shape in ((0, 3), (2, 3)):
            got = session.run(grad, {x: np.zeros(shape)})
            np.testing.assert_array_equal(got, np.ones(shape))


def test_gradients_with_more_axes_pass_their_flow_on() -> None:
    x = placeholder(dtypes.float32, (2,))
    ta = TensorArray(dtypes.float32, 1).write(0, x)
    handle, flow = ops.tensor_array_grad_with_shape(ta.handle, ta.flow, [3], "many")
    written = ops.tensor_array_write_v3(handle, 0, out("Pack", [[x, x, x * 2.0]]), flow)
    read = ops.tensor_array_read_v3(handle, 0, written, dtypes.float32)
    (grad,) = gradients(read, [x])
    with Session() as session:
        np.testing.assert_array_equal(session.run(grad, {x: np.ones(2)}), [4, 4])
