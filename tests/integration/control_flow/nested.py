"""Loops in loops, loops in branches, branches in loops."""

from __future__ import annotations

from typing import Any

from .table import row


@row({"n": 0}, {"n": 1}, n=4, x=1.1)
def a_triangle_of_iterations(tf: Any, n: Any, x: Any) -> Any:
    """The inner loop runs as often as the outer counter says."""

    def outer(i: Any, a: Any) -> Any:
        b = tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * x), [0, a])[1]
        return i + 1, b + x

    return tf.while_loop(lambda i, a: i < n, outer, [0, x])[1]


@row(n=3, x=1.2, y=0.4)
def inner_loops_capture_outer_values(tf: Any, n: Any, x: Any, y: Any) -> Any:
    def outer(i: Any, a: Any) -> Any:
        c = a * y
        b = tf.while_loop(
            lambda j, b: j < 2, lambda j, b: (j + 1, b * c + x * a), [0, tf.zeros_like(x) + x]
        )[1]
        return i + 1, tf.sin(b) + c

    return tf.while_loop(lambda i, a: i < n, outer, [0, x])[1]


@row({"m": 0}, {"n": 0}, n=2, m=3, x=1.3)
def three_loops_deep(tf: Any, n: Any, m: Any, x: Any) -> Any:
    def level(depth: int, a: Any, around: Any) -> Any:
        if depth == 0:
            return a * x + around
        return tf.while_loop(
            lambda i, b: i < (n if depth % 2 else m),
            lambda i, b: (i + 1, level(depth - 1, b, around + 0.1 * b)),
            [0, a],
        )[1]

    return level(3, x * 0.1, tf.zeros_like(x))


@row({"n": 7}, {"n": 0}, n=6, x=1.2)
def a_cond_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        b = tf.cond(tf.equal(i % 2, 0), lambda: a * x, lambda: a + tf.sin(x * a))
        return i + 1, b

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row({"p": False}, p=True, n=4, x=1.2)
def a_cond_in_a_loop_on_an_invariant(tf: Any, p: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(p, lambda: a * x, lambda: a - x * x)

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row(n=6, x=1.2, y=0.7)
def a_cond_in_a_loop_with_one_sided_captures(tf: Any, n: Any, x: Any, y: Any) -> Any:
    """Each branch captures an invariant that the other does not know."""

    def body(i: Any, a: Any) -> Any:
        square = a * a
        b = tf.cond(i < 2, lambda: square * x, lambda: tf.tanh(square) * y)
        return i + 1, b

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row({"p": False}, {"n": 0}, p=True, n=3, x=1.2)
def a_loop_in_a_cond(tf: Any, p: Any, n: Any, x: Any) -> Any:
    def looped() -> Any:
        return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x])[1]

    return tf.cond(p, looped, lambda: x * 10.0)


@row({"p": False}, {"n": 0}, p=True, n=3, x=1.2, y=0.9)
def loops_in_both_branches(tf: Any, p: Any, n: Any, x: Any, y: Any) -> Any:
    z = x * y

    def loop(step: Any) -> Any:
        return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, step(a)), [0, z])[1]

    return tf.cond(p, lambda: loop(lambda a: a * x), lambda: loop(lambda a: a + y * z)) * z


@row({"n": 0}, n=5, x=1.2)
def a_loop_in_a_cond_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        def inner() -> Any:
            return tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * x), [0, a])[1]

        return i + 1, tf.cond(tf.equal(i % 2, 0), inner, lambda: tf.sin(a)) + x

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row({"n": 0}, n=3, x=0.8)
def a_cond_in_a_loop_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    def inner(j: Any, b: Any, i: Any) -> Any:
        c = tf.cond(tf.less(j, i), lambda: b * x, lambda: b + x * x)
        return j + 1, c, i

    def outer(i: Any, a: Any) -> Any:
        b = tf.while_loop(lambda j, b, i: j < 3, inner, [0, a, i])[1]
        return i + 1, b

    return tf.while_loop(lambda i, a: i < n, outer, [0, x])[1]


@row({"n": 0}, n=4, x=1.1)
def a_cond_in_a_cond_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        even, small = tf.equal(i % 2, 0), a < 2.0
        b = tf.cond(
            even,
            lambda: tf.cond(small, lambda: a * x * 2.0, lambda: a / x),
            lambda: tf.cond(small, lambda: a + x, lambda: tf.sqrt(a)),
        )
        return i + 1, b

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row(n=3, x=1.1)
def two_loops_in_a_body(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        b = tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * x), [0, a])[1]
        c = tf.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c + b * a), [0, b])[1]
        return i + 1, tf.sin(b) + c * 0.1

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row(n=3, x=1.1)
def a_loop_in_a_condition(tf: Any, n: Any, x: Any) -> Any:
    """The condition contains a loop."""

    def goes_on(i: Any, a: Any) -> Any:
        total = tf.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + a), [0, x])[1]
        return total < 40.0

    return tf.while_loop(goes_on, lambda i, a: (i + n, a * x + 1.0), [1, x])[1]


@row({"n": 1}, n=4, x=1.1)
def a_cond_in_a_condition(tf: Any, n: Any, x: Any) -> Any:
    def goes_on(i: Any, a: Any) -> Any:
        return tf.cond(i < 2, lambda: a < 100.0, lambda: tf.logical_and(i < n, a < 3.0))

    return tf.while_loop(goes_on, lambda i, a: (i + 1, a * x + 0.1), [0, x])[1]


@row({"p": False}, p=True, x=[1.0, 2.0, 3.0], order=1)
def an_iteration_count_from_a_cond(tf: Any, p: Any, x: Any) -> Any:
    n = tf.cond(p, lambda: tf.constant(2), lambda: tf.size(x) + 1)
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x])[1]
