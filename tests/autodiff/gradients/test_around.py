"""Gradients in the bodies of functions with respect to captured values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors


def in_function(build: Callable[[Any], Any]) -> Any:
    """Return the result of a function of 2.0 that is built in this way."""
    return wf.Defun(wf.float32)(lambda x: build(x))(2.0)


def three() -> Any:
    return wf.placeholder_with_default(3.0, [])


def variable(use_resource: bool) -> Any:
    return wf.Variable(3.0, use_resource=use_resource)


def behind() -> Any:
    c = three()
    d = c + 1
    return in_function(lambda x: wf.gradients(x * d * d, [c])[0])


def outside_only() -> Any:
    c = three()
    y = c * c
    return in_function(lambda x: wf.gradients(y, [c])[0] * x)


def direct_and_behind() -> Any:
    c = three()
    d = c * c
    return in_function(lambda x: wf.gradients(x * d * c, [c])[0])


def inside_and_behind() -> Any:
    c = three()
    d = c * c
    return in_function(lambda x: sum(wf.gradients(x * x * d, [x, c])))


def both_on_the_way() -> Any:
    c = three()
    d = c * c
    return in_function(lambda x: sum(wf.gradients(x * d * d, [d, c])))


def two_levels() -> Any:
    c = three()
    d = c * c

    def outer(x: Any) -> Any:
        e = d * x
        return in_function(lambda y: wf.gradients(y * e * e * c, [c])[0])

    return in_function(outer)


def stopped(direct: bool) -> Any:
    c = three()
    d = c * c
    e = d * c
    return in_function(lambda x: wf.gradients(x * (d * c if direct else e), c, stop_gradients=d)[0])


def of_variable(use_resource: bool) -> Any:
    v = variable(use_resource)
    squared, read = v * v, v.read_value()
    return in_function(lambda x: wf.gradients(x * squared * v * read, [v])[0])


def second_order() -> Any:
    c = three()
    d = c**3
    return in_function(lambda x: wf.gradients(wf.gradients(x * d, [c])[0], [c])[0])


def of_the_call() -> Any:
    c = three()
    d = c**3
    given = wf.Defun(wf.float32)(lambda x: wf.gradients(x * d, [c])[0])(c)
    return wf.gradients(given, [c])[0]


def through_a_call() -> Any:
    c = three()
    d = wf.Defun(wf.float32)(lambda z: z * z)(c)
    return in_function(lambda x: wf.gradients(x * d, [c])[0])


def in_a_branch() -> Any:
    c = three()
    d = c * c
    return in_function(lambda x: wf.cond(x > 0, lambda: wf.gradients(x * d, c)[0], lambda: x))


def in_a_function_of_a_branch() -> Any:
    c = three()

    def branch() -> Any:
        d = c * c
        return in_function(lambda x: wf.gradients(x * d, [c])[0])

    return wf.cond(c > 0, branch, lambda: c)


def traced() -> Any:
    c = three()
    d = c * c
    return wf.function(lambda x: wf.gradients(x * d, [c])[0])(wf.constant(2.0))


def of_rows() -> Any:
    c = wf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    d = wf.gather(c, [0, 0, 1])
    return in_function(
        lambda x: wf.reduce_sum(wf.convert_to_tensor(wf.gradients(d * d * x, [c])[0]), 1)
    )


def unconnected() -> Any:
    c, other = three(), three()
    d = c * c
    return in_function(lambda x: wf.gradients(x * d, other, unconnected_gradients="zero")[0])


VALUES: list[tuple[Callable[[], Any], Any]] = [
    (behind, 16),
    (outside_only, 12),
    (direct_and_behind, 54),
    (inside_and_behind, 60),
    (both_on_the_way, 252),
    (two_levels, 3240),
    (lambda: stopped(True), 18),
    (lambda: stopped(False), 18),
    (lambda: of_variable(False), 216),
    (lambda: of_variable(True), 216),
    (second_order, 36),
    (of_the_call, 81),
    (through_a_call, 12),
    (in_a_branch, 12),
    (in_a_function_of_a_branch, 12),
    (traced, 12),
    (of_rows, [24, 28, 0]),
    (unconnected, 0),
]


@pytest.mark.parametrize(("build", "wanted"), VALUES)
def test_what_flows_out_of_a_function(build: Callable[[], Any], wanted: Any) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        result = build()
        session.run(wf.global_variables_initializer())
        np.testing.assert_allclose(session.run(result), wanted)


def test_a_dataset_keeps_what_the_gradient_needs() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        c = wf.placeholder(wf.float32, [])
        d = c * c
        numbers = wf.data.Dataset.range(3)
        slopes = numbers.map(lambda i: wf.gradients(wf.cast(i, wf.float32) * d, [c])[0])
        iterator = wf.data.make_initializable_iterator(slopes)
        following = iterator.get_next()
        session.run(iterator.initializer, {c: 3.0})
        assert [session.run(following) for _ in range(3)] == [0, 6, 12]


def test_what_does_not_depend_on_it_has_no_gradient() -> None:
    found: list[Any] = []

    def build(x: Any) -> Any:
        found.extend(wf.gradients(x * d, [other, of_d]))
        return x

    with wf.Graph().as_default():
        c, other = three(), three()
        d = c * c
        of_d = d + 1
        in_function(build)
    assert found == [None, None]


def test_a_loop_outside_is_refused_by_name() -> None:
    with wf.Graph().as_default():
        c = three()
        last = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * c), [0, c])[1]
        with pytest.raises(errors.UnimplementedError, match="'while/while_context', a loop"):
            in_function(lambda x: wf.gradients(x * last, [c])[0])
