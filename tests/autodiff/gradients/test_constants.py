"""Gradients with respect to constants equal those with respect to fed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf

A = np.array([[0.5, 1.5], [2.0, 0.7]])
B = np.array([[1.2, 0.4], [0.9, 2.1]])


def _sum_in_a_loop(x: wf.Tensor, y: wf.Tensor) -> Any:
    start = [0, wf.zeros([2, 2], wf.float64)]
    return wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a + x**y), start)[1]


def _branch_in_a_loop(x: wf.Tensor, y: wf.Tensor) -> Any:
    def body(i: wf.Tensor, a: wf.Tensor) -> Any:
        return i + 1, a * wf.cond(i > 1, lambda: x, lambda: y)

    return wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]


def _array(x: wf.Tensor, y: wf.Tensor) -> Any:
    array = wf.TensorArray(wf.float64, size=3).write(0, x[0]).write(1, y[0])
    return array.write(2, x[1] * y[1]).stack()


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "power": lambda x, y: x**y + 2.0**y + x**2.0,
    "cond": lambda x, y: wf.cond(wf.reduce_sum(x) > 0, lambda: x**y, lambda: x * y),
    "switch_case": lambda x, y: wf.switch_case(wf.constant(1), [lambda: x, lambda: x * y]),
    "loop": _sum_in_a_loop,
    "branch in a loop": _branch_in_a_loop,
    "scan": lambda x, y: wf.scan(lambda a, row: a * row + y[0], x, initializer=y[1]),
    "TensorArray": _array,
    "function": lambda x, y: wf.function(lambda a, b: a**b)(x, y),
    "captured by a function": lambda x, y: wf.function(lambda a: a**y)(x),
    "recompute_grad": lambda x, y: wf.recompute_grad(lambda a: wf.exp(a) ** y)(x),
    "softmax cross-entropy": lambda x, y: wf.nn.softmax_cross_entropy_with_logits_v2(
        labels=x, logits=y
    ),
    "weights of a loss": lambda x, y: wf.losses.absolute_difference(y, y + x, weights=x),
    "batch_normalization": lambda x, y: wf.nn.batch_normalization(x, y[0], y[1], x[0], y[0], 1e-3),
    "defaults of placeholders": lambda x, y: wf.placeholder_with_default(x, [2, 2]) * y,
    "ensured shape": lambda x, y: wf.reshape(wf.ensure_shape(x, [2, 2]), [4]) * wf.reshape(y, [4]),
    "solution": lambda x, y: wf.matrix_solve(x, y),
    "second order": lambda x, y: wf.gradients(x**y * x, x)[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_by_fed_values(name: str) -> None:
    wanted = _gradients(PROGRAMS[name], (False, False))
    for constant in ((True, True), (True, False), (False, True)):
        np.testing.assert_allclose(_gradients(PROGRAMS[name], constant), wanted, rtol=1e-12)


def _gradients(program: Callable[[Any, Any], Any], constant: tuple[bool, bool]) -> Any:
    """By both inputs together, and by each alone."""
    with wf.Graph().as_default(), wf.Session() as session:
        feeds: dict[Any, Any] = {}
        xs: list[wf.Tensor] = []
        for value, is_constant in zip((A, B), constant, strict=True):
            xs.append(wf.constant(value) if is_constant else wf.placeholder(wf.float64, [2, 2]))
            if not is_constant:
                feeds[xs[-1]] = value
        z = program(*xs)
        found = [*wf.gradients(z, xs), *wf.gradients(z, xs[0]), *wf.gradients(z, xs[1])]
        return session.run(found, feeds)
