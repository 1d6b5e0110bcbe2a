"""Gradients that are asked for inside a body or a branch."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


@row({"c": 9.0}, c=2.0, hidden=1)
def newton_with_a_gradient_in_the_body(tf: Any, c: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        f = x * x - c
        return i + 1, x - f / tf.gradients(f, x)[0]

    return tf.while_loop(lambda i, x: i < 6, body, [0, c])[1]


@row(x=[1.0, -2.0, 0.5], order=1, hidden=1)
def gradient_descent_in_a_loop(tf: Any, x: Any) -> Any:
    scale = tf.constant([1.0, 2.0, 3.0], tf.float64)

    def body(i: Any, a: Any) -> Any:
        loss = tf.reduce_sum(scale * tf.square(a - x * x))
        return i + 1, a - 0.1 * tf.gradients(loss, a)[0]

    return tf.while_loop(lambda i, a: i < 5, body, [0, tf.zeros_like(x)])[1]


@row(w=0.7, x=[1.0, 2.0, 3.0], y=[2.0, 3.5, 6.0], hidden=1)
def an_inner_loop_as_in_maml(tf: Any, w: Any, x: Any, y: Any) -> Any:
    """The loss after some steps of descent, differentiated with respect to where they began."""

    def loss(w: Any) -> Any:
        return tf.reduce_mean(tf.square(tf.tanh(x * w) * 3.0 - y))

    def body(i: Any, w: Any) -> Any:
        return i + 1, w - 0.05 * tf.gradients(loss(w), w)[0]

    adapted = tf.while_loop(lambda i, w: i < 3, body, [0, w])[1]
    return {"adapted": adapted, "loss": loss(adapted)}


@row({"p": False}, p=True, x=1.5, hidden=1)
def a_gradient_in_a_branch(tf: Any, p: Any, x: Any) -> Any:
    def then() -> Any:
        inner = x * 1.0
        return tf.gradients(tf.sin(inner) * inner, inner)[0]

    return tf.cond(p, then, lambda: tf.gradients(x * x * x, x)[0])


@row({"p": False}, p=True, x=1.5, hidden=1)
def a_gradient_in_a_branch_of_what_is_outside(tf: Any, p: Any, x: Any) -> Any:
    y = tf.sin(x) * x
    return tf.cond(p, lambda: tf.gradients(y, x)[0], lambda: y)


@row(x=[[1.0, 2.0], [3.0, 4.0]], order=1, hidden=1)
def rows_of_a_jacobian_in_a_loop(tf: Any, x: Any) -> Any:
    y = tf.reshape(tf.matmul(x, x) * tf.sin(x), [-1])

    def body(i: Any, out: Any) -> Any:
        return i + 1, out.write(i, tf.gradients(y[i], x)[0])

    out = tf.TensorArray(tf.float64, size=4)
    return tf.while_loop(lambda i, _: i < 4, body, [0, out])[1].stack()


@row(x=0.5, hidden=1)
def a_gradient_of_a_loop_in_a_body(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        inner = tf.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * b + a), [0, a])[1]
        return i + 1, a + 0.1 * tf.gradients(inner, a)[0]

    return tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]


@row(x=0.5, hidden=1)
def a_gradient_of_a_cond_in_a_body(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        y = tf.cond(tf.equal(i % 2, 0), lambda: a * a * a, lambda: tf.exp(a))
        return i + 1, a + 0.1 * tf.gradients(y, a)[0]

    return tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]


@row(x=0.5, hidden=2)
def a_second_gradient_in_a_body(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        y = tf.sin(a) * a * a
        first = tf.gradients(y, a)[0]
        return i + 1, a - 0.2 * first / (1.0 + tf.square(tf.gradients(first, a)[0]))

    return tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]


@row(n=3, x=1.2, order=1, hidden=1)
def a_gradient_outside_with_gradients_in_a_cond_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        def step() -> Any:
            b = a * 1.0
            return a - 0.1 * tf.gradients(tf.cos(b) * b, b)[0]

        return i + 1, tf.cond(i < 2, step, lambda: a * x)

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row(x=np.array([0.3, 0.2]), order=1, hidden=1)
def langevin_like_steps_with_fixed_noise(tf: Any, x: Any) -> Any:
    noise = tf.constant(np.linspace(-0.1, 0.1, 8).reshape(4, 2))

    def body(i: Any, a: Any) -> Any:
        energy = tf.reduce_sum(tf.square(tf.square(a) - 1.0))
        return i + 1, a - 0.05 * tf.gradients(energy, a)[0] + noise[i]

    return tf.while_loop(lambda i, a: i < 4, body, [0, x])[1]
