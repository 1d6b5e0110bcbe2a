"""Variables, effects, assertions and random numbers in bodies and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


def _variable(tf: Any, name: str, value: Any, resource: bool, trainable: bool = True) -> Any:
    return tf.get_variable(
        name, initializer=np.asarray(value), use_resource=resource, trainable=trainable
    )


@row({"p": False}, p=True, x=[[1.0, 2.0]])
def cond_of_reference_variables(tf: Any, p: Any, x: Any) -> Any:
    w = _variable(tf, "w", [[1.0], [2.0]], False)
    v = _variable(tf, "v", [[3.0], [-1.0]], False)
    return tf.cond(p, lambda: tf.matmul(x, w), lambda: tf.matmul(x, tf.square(v)) + w[0])


@row({"p": False}, p=True, x=[[1.0, 2.0]])
def cond_of_resource_variables(tf: Any, p: Any, x: Any) -> Any:
    w = _variable(tf, "w", [[1.0], [2.0]], True)
    v = _variable(tf, "v", [[3.0], [-1.0]], True)
    return tf.cond(p, lambda: tf.matmul(x, w), lambda: tf.matmul(x, tf.square(v)) + w[0])


@row({"n": 0}, n=3, x=[[1.0, 2.0]], order=1)
def a_loop_over_a_reference_variable(tf: Any, n: Any, x: Any) -> Any:
    w = _variable(tf, "w", [[0.5, 0.1], [0.2, 0.4]], False)
    return tf.while_loop(
        lambda i, h: i < n, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w))), [0, x]
    )[1]


@row({"n": 0}, n=3, x=[[1.0, 2.0]])
def a_loop_over_a_resource_variable(tf: Any, n: Any, x: Any) -> Any:
    w = _variable(tf, "w", [[0.5, 0.1], [0.2, 0.4]], True)
    return tf.while_loop(
        lambda i, h: i < n, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w))), [0, x]
    )[1]


@row(n=3, x=0.5, order=1)
def variables_read_outside_of_the_loop(tf: Any, n: Any, x: Any) -> Any:
    a, b = _variable(tf, "a", 1.5, False), _variable(tf, "b", 0.5, True)
    start = a * b
    return tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * a + b * x), [0, start])[1]


@row({}, {"n": 0}, n=4, order=0)
def a_body_adds_to_a_resource_variable(tf: Any, n: Any) -> Any:
    v = _variable(tf, "v", 1.0, True, trainable=False)

    def body(i: Any, seen: Any) -> Any:
        with tf.control_dependencies([v.assign_add(2.0)]):
            return i + 1, seen + v.read_value()

    i, seen = tf.while_loop(
        lambda i, s: i < n,
        body,
        [0, tf.constant(0.0, tf.float64)],
        parallel_iterations=1,
    )
    with tf.control_dependencies([i]):
        return {"seen": seen, "v": v.read_value()}


@row({}, {"n": 0}, n=4, order=0)
def a_body_adds_to_a_reference_variable(tf: Any, n: Any) -> Any:
    v = _variable(tf, "v", 1.0, False, trainable=False)

    def body(i: Any, seen: Any) -> Any:
        added = tf.assign_add(v, 2.0)
        return i + 1, seen + added

    i, seen = tf.while_loop(
        lambda i, s: i < n,
        body,
        [0, tf.constant(0.0, tf.float64)],
        parallel_iterations=1,
    )
    with tf.control_dependencies([i]):
        return {"seen": seen, "v": tf.identity(v.read_value())}


@row({"p": False}, {}, {"p": False}, p=True, order=0)
def a_branch_assigns(tf: Any, p: Any) -> Any:
    v = _variable(tf, "v", [1.0, 2.0], True, trainable=False)
    w = _variable(tf, "w", [1.0, 2.0], False, trainable=False)
    y = tf.cond(p, lambda: v.assign_add([1.0, 1.0]) + 0.0, lambda: v * 2.0)
    z = tf.cond(p, lambda: w + 0.0, lambda: tf.assign(w, w * 10.0) + 0.0)
    with tf.control_dependencies([y, z]):
        return {"y": y, "z": z, "v": v.read_value(), "w": tf.identity(w.read_value())}


@row({}, n=5, x=2.0, order=1)
def a_body_scatters_into_a_variable(tf: Any, n: Any, x: Any) -> Any:
    table = _variable(tf, "table", np.zeros([5]), True, trainable=False)

    def body(i: Any, s: Any) -> Any:
        with tf.control_dependencies([tf.scatter_add(table, [i], [x])]):
            return i + 1, s * x

    i, s = tf.while_loop(lambda i, s: i < n, body, [0, x], parallel_iterations=1)
    with tf.control_dependencies([i]):
        return {"_table": table.read_value(), "s": s}


@row({"x": 0.1}, x=3.0)
def assertions_in_a_body_and_a_branch(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([tf.assert_positive(a), tf.Assert(i < 10, [i])]):
            return i + 1, a * x + 0.1

    def then() -> Any:
        with tf.control_dependencies([tf.assert_greater(x, tf.constant(1.0, tf.float64))]):
            return tf.sqrt(x)

    return tf.while_loop(lambda i, a: i < 3, body, [0, x])[1] + tf.cond(x > 1.0, then, lambda: x)


@row({}, n=20, order=0)
def random_numbers_in_a_body(tf: Any, n: Any) -> Any:
    """The numbers differ between iterations and stay in their range."""

    def body(i: Any, low: Any, high: Any, previous: Any, same: Any) -> Any:
        value = tf.random_uniform([], 2.0, 3.0, tf.float64)
        same += tf.cast(tf.equal(value, previous), tf.int32)
        return i + 1, tf.minimum(low, value), tf.maximum(high, value), value, same

    zero = tf.constant(0.0, tf.float64)
    _, low, high, _, same = tf.while_loop(lambda i, *_: i < n, body, [0, zero + 9.0, zero, zero, 0])
    return {"in": tf.logical_and(low >= 2.0, high < 3.0), "spread": low < high, "same": same}


@row({"p": False}, p=True, x=0.5, order=0)
def a_random_number_in_each_branch(tf: Any, p: Any, x: Any) -> Any:
    y = tf.cond(
        p,
        lambda: tf.random_uniform([4], 1.0, 2.0, tf.float64),
        lambda: tf.random_uniform([4], 5.0, 6.0, tf.float64) + x * 0.0,
    )
    return {"floor": tf.floor(y)}


@row({"n": 2}, n=4, x=1.5)
def the_gradient_of_a_variable_used_in_a_cond_in_a_loop(tf: Any, n: Any, x: Any) -> Any:
    w = _variable(tf, "w", 1.1, True)
    b = _variable(tf, "b", -0.3, True)

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(tf.equal(i % 2, 0), lambda: a * w, lambda: tf.sin(a) + b * x)

    return tf.while_loop(lambda i, a: i < n, body, [0, x])[1]


@row({}, {}, {}, n=3, x=[1.0, 2.0], order=0, hidden=1)
def training_steps_on_a_loop(tf: Any, n: Any, x: Any) -> Any:
    w = _variable(tf, "w", [0.9, 1.1], True)
    y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * w), [0, x])[1]
    loss = tf.reduce_sum(tf.square(y - 3.0))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.control_dependencies([train]):
        return {"loss": tf.identity(loss), "w": w.read_value()}


@row({}, {"p": False}, p=True, x=[[1.0, 2.0]], order=0, hidden=1)
def training_steps_in_a_branch(tf: Any, p: Any, x: Any) -> Any:
    """One of two optimizers, as the predicate says."""
    w = _variable(tf, "w", [[0.5], [0.5]], True)
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - 1.0))
    slow, fast = tf.train.GradientDescentOptimizer(0.01), tf.train.GradientDescentOptimizer(0.1)
    done = tf.cond(p, lambda: slow.minimize(loss), lambda: fast.minimize(loss))
    with tf.control_dependencies([done]):
        return {"w": w.read_value()}
