"""Gradients of loops and conditionals where they are likely to go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

WAYS = [(kind, level) for kind in ("", "READY_QUEUE") for level in (0, -1)]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'LINE'}{way[1]}")
def session(request: pytest.FixtureRequest) -> Iterator[wf.Session]:
    proto = wf.ConfigProto(inter_op_parallelism_threads=2)
    proto.experimental.executor_type, proto.graph_options.optimizer_options.opt_level = (
        request.param
    )
    with wf.Session(config=proto) as made:
        yield made


def real(value: float | None = None) -> Any:
    return wf.placeholder(wf.float64, [] if value is None else np.shape(value))


# ------------------------------------------------------------------------------ conditionals


def test_the_second_output_of_a_cond_is_used_twice(session: wf.Session) -> None:
    """The sum of what flows back is made outside of the branches."""
    p, x = wf.placeholder(wf.bool, []), real()
    y, z = wf.cond(p, lambda: (x, wf.sin(x)), lambda: (x, x * 3.0))
    (g,) = wf.gradients(y + z * z, x)
    assert session.run(g, {p: True, x: 0.5}) == pytest.approx(1.0 + np.sin(1.0))
    assert session.run(g, {p: False, x: 0.5}) == pytest.approx(1.0 + 9.0)


def test_a_gradient_of_a_gradient_of_a_cond_in_a_body(session: wf.Session) -> None:
    """The body takes the gradient of a conditional; the loop is differentiated."""
    x = real()

    def body(i: Any, a: Any) -> Any:
        y = wf.cond(wf.equal(i, 0), lambda: a * a * a, lambda: wf.exp(a))
        return i + 1, wf.gradients(y, a)[0]

    (g,) = wf.gradients(wf.while_loop(lambda i, _: i < 2, body, [0, x])[1], x)
    assert session.run(g, {x: 0.5}) == pytest.approx(np.exp(0.75) * 3.0)


def test_the_gradient_with_respect_to_a_value_inside_of_a_branch(session: wf.Session) -> None:
    """It is there where the branch is taken."""
    p, x, inside = wf.placeholder(wf.bool, []), real(), []

    def then() -> Any:
        inside.append(x * 2.0)
        return wf.square(inside[0])

    y = wf.cond(p, then, lambda: x)
    (g,) = wf.gradients(y, inside[0])
    assert session.run(g, {p: True, x: 2.0}) == 8


def test_no_gradient_with_respect_to_the_inside_of_a_loop() -> None:
    """It has a value for each iteration, so it is an error and not None."""
    x, inside = real(), []

    def body(i: Any, a: Any) -> Any:
        inside.append(a * x)
        return i + 1, inside[0]

    y = wf.while_loop(lambda i, _: i < 2, body, [0, x])[1]
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        wf.gradients(y, inside[0])
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        wf.gradients(inside[0], x)


# ------------------------------------------------------------------- gradients in other loops


def test_the_gradient_of_a_loop_in_the_body_of_another(session: wf.Session) -> None:
    """What the first loop kept is taken once in each iteration of the second."""
    x = wf.placeholder(wf.float64, [2])
    y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    total = wf.while_loop(
        lambda i, _: i < 2,
        lambda i, s: (i + 1, s + wf.gradients(y[i], x)[0]),
        [0, wf.zeros([2], wf.float64)],
    )[1]
    np.testing.assert_allclose(session.run(total, {x: [0.5, 2.0]}), [0.5, 32.0])


def test_a_jacobian_by_a_loop_is_not_differentiated() -> None:
    """What the first loop kept is read again in each iteration, and has no gradient."""
    x = wf.placeholder(wf.float64, [2])
    y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    total = wf.while_loop(
        lambda i, _: i < 2,
        lambda i, s: (i + 1, s + wf.gradients(y[i], x)[0]),
        [0, wf.zeros([2], wf.float64)],
    )[1]
    with pytest.raises(errors.UnimplementedError, match="inside another loop"):
        wf.gradients(total, x)
