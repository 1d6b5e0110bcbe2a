"""Functions that bring their own gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def test_gradients_pass_through() -> None:
    x = wf.constant([0.2, 1.7])
    y = wf.grad_pass_through(wf.round)(x)
    (dx,) = wf.gradients(wf.reduce_sum(y * [3.0, 5.0]), [x])
    with wf.Session() as session:
        rounded, gradient = session.run([y, dx])
    np.testing.assert_array_equal(rounded, [0.0, 2.0])
    np.testing.assert_array_equal(gradient, [3.0, 5.0])


def test_variables_that_gradients_pass_by() -> None:
    x, v = wf.constant([2.0]), wf.Variable([3.0])
    y = wf.grad_pass_through(lambda x: x * v)(x)
    dx, dv = wf.gradients(y, [x, v])
    assert dv is None
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run([y, dx]) == [[6.0], [1.0]]
