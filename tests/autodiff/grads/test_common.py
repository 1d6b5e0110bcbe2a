from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.differentiate import vector_jacobian
from weft_testing.evaluate import evaluate

import weft as wf
from weft_autodiff.grads import arithmetic, casting  # noqa: F401 - registers
from weft_autodiff.grads.common import sum_to_shape
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def feed(*shape: int | None) -> Output:
    return out("Placeholder", (), {"dtype": dtypes.float32, "shape": shape})


@pytest.mark.parametrize(
    ("grad", "value", "other", "added"),
    [
        ((2, 3), (2, 3), (2, 3), []),
        ((None, 3), (None, 3), (3,), []),
        ((None, 3), (None, 3), (), []),
        ((None, 3), (None, 3), (1, 3), []),
        ((2, 3), (), (2, 3), ["Sum"]),
        ((2, 3), (3,), (2, 3), ["Sum"]),
        ((None, 3), (3,), (None, 3), ["Sum"]),
        ((2, 3), (2, 1), (2, 3), ["Sum", "Reshape"]),
        ((2, 3), (1, 3), (2, 3), ["Sum", "Reshape"]),
    ],
)
def test_known_shapes_need_no_arithmetic(grad: Any, value: Any, other: Any, added: Any) -> None:
    g, v, o = feed(*grad), feed(*value), feed(*other)
    before = len(g.graph.get_operations())
    result = sum_to_shape(g, v, o)
    made = [node.type for node in g.graph.get_operations()[before:]]
    assert [op for op in made if op != "Const"] == added
    assert result.dims == value
    sizes = tuple(5 if n is None else n for n in grad)
    assert evaluate(result, {g: np.ones(sizes)}).shape == tuple(
        5 if n is None else n for n in value
    )


@pytest.mark.parametrize(
    ("x", "y"), [((4, 1), (1, 3)), ((4, 3), (3,)), ((), (2, 2)), ((2, 2), (2, 2)), ((1,), (5,))]
)
def test_unknown_shapes_are_summed_at_run_time(x: Any, y: Any) -> None:
    a, b = (out("Placeholder", (), {"dtype": dtypes.float32, "shape": None}) for _ in range(2))
    product = wf.multiply(a, b)
    grads = vector_jacobian([product], [out("OnesLike", [product])], [a, b])
    values = {a: np.full(x, 2.0), b: np.full(y, 3.0)}
    to_a, to_b = evaluate(grads, values)
    count = np.broadcast(np.empty(x), np.empty(y)).size
    np.testing.assert_array_equal(to_a, np.full(x, 3.0 * count / np.prod(x)))
    np.testing.assert_array_equal(to_b, np.full(y, 2.0 * count / np.prod(y)))


def test_casts_pass_gradients_between_inexact_types_only() -> None:
    x = feed(3)
    for target in ("float16", "bfloat16", "complex64"):
        y = wf.cast(x, target)
        (grad,) = vector_jacobian([y], [out("OnesLike", [y])], [x])
        assert grad is not None
        assert grad.dtype == "float32"
        np.testing.assert_array_equal(evaluate(grad, {x: np.ones(3)}), [1, 1, 1])
    y = wf.cast(wf.cast(x, "int32"), "float32")
    assert vector_jacobian([y], [constant(np.ones(3, np.float32))], [x]) == [None]


@pytest.mark.parametrize("shape", [None, [None, 3], [None, None]])
def test_a_size_that_turns_out_to_be_1_is_summed(shape: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float64, shape)
        (gradient,) = wf.gradients(wf.broadcast_to(x, [2, 4, 3]) * 2, x)
        for rows in (1, 4):
            value = session.run(gradient, {x: np.ones((rows, 3))})
            np.testing.assert_array_equal(value, np.full((rows, 3), 2 * 2 * 4 / rows))


def test_equal_elements_share_the_gradient_of_the_nth() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.constant([[1.0, 2.0, 2.0, 3.0], [5.0, 5.0, 5.0, 4.0]])
        (gradient,) = wf.gradients(out("NthElement", [x, 1]), x, wf.constant([6.0, 6.0]))
        np.testing.assert_array_equal(session.run(gradient), [[0, 3, 3, 0], [2, 2, 2, 0]])
