"""Training, moving averages and layers inside of loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row

X = np.linspace(-1.0, 1.0, 12).reshape(6, 2)


def _weights(tf: Any, resource: bool = True) -> Any:
    return tf.get_variable("w", initializer=np.array([[0.5], [-0.25]]), use_resource=resource)


def _trained(tf: Any, optimizer: Any, x: Any, n: Any, resource: bool = True) -> Any:
    """Steps of an optimizer in a loop body, each based on the previous one."""
    w = _weights(tf, resource)

    def body(i: Any, _: Any) -> Any:
        with tf.control_dependencies([i]):
            error = tf.matmul(x, w.read_value()) - 1.0
            loss = tf.reduce_mean(tf.square(error))
            grad = tf.gradients(loss, w)[0]
        with tf.control_dependencies([optimizer.apply_gradients([(grad, w)])]):
            return i + 1, tf.identity(loss)

    start = [0, tf.constant(0.0, tf.float64)]
    i, loss = tf.while_loop(lambda i, _: i < n, body, start, parallel_iterations=1)
    with tf.control_dependencies([i, loss]):
        return {"loss": loss, "w": tf.identity(w.read_value())}


@row({}, {"n": 0}, n=4, x=X, order=0)
def descent_in_a_body(tf: Any, n: Any, x: Any) -> Any:
    return _trained(tf, tf.train.GradientDescentOptimizer(0.1), x, n)


@row({}, {"n": 0}, n=4, x=X, order=0)
def descent_in_a_body_on_a_reference_variable(tf: Any, n: Any, x: Any) -> Any:
    return _trained(tf, tf.train.GradientDescentOptimizer(0.1), x, n, resource=False)


@row({}, {"p": False}, p=True, x=3.0, order=0)
def a_moving_average_updated_in_a_branch(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#1724: the update is made inside of the branch."""
    v = tf.get_variable("v", initializer=np.float64(1.0), use_resource=True, trainable=False)
    average = tf.train.ExponentialMovingAverage(0.5)
    average.apply([v])
    shadow = average.average(v)

    def update() -> Any:
        with tf.control_dependencies([v.assign_add(x)]):
            averaged = tf.assign(shadow, shadow * 0.5 + v.read_value() * 0.5)
        with tf.control_dependencies([averaged]):
            return tf.identity(shadow.read_value())

    y = tf.cond(p, update, lambda: tf.identity(shadow.read_value()))
    with tf.control_dependencies([y]):
        return {"y": y, "v": v.read_value()}


@row({"p": False}, p=True, x=X, order=1)
def layers_in_branches(tf: Any, p: Any, x: Any) -> Any:
    def dense(value: float) -> Any:
        return lambda: tf.layers.dense(
            x, 2, tf.tanh, kernel_initializer=tf.constant_initializer(value)
        )

    return tf.cond(p, dense(0.3), dense(-0.7))


@row({"n": 0}, n=3, x=X, order=1)
def a_layer_in_a_body(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, h: Any) -> Any:
        out = tf.layers.dense(
            h,
            2,
            tf.sigmoid,
            kernel_initializer=tf.constant_initializer(0.4),
            name="layer",
            reuse=tf.AUTO_REUSE,
        )
        return i + 1, out

    return tf.while_loop(lambda i, _: i < n, body, [0, x])[1]


@row({}, {"p": False}, {}, p=True, x=X, order=0)
def moments_for_training_and_moving_ones_else(tf: Any, p: Any, x: Any) -> Any:
    """Batch normalization by hand: one branch updates the averages that the other uses."""
    mean = tf.get_variable("mean", initializer=np.zeros(2), use_resource=True, trainable=False)
    variance = tf.get_variable("var", initializer=np.ones(2), use_resource=True, trainable=False)

    def training() -> Any:
        m, v = tf.nn.moments(x, [0])
        first = mean.assign(mean.read_value() * 0.9 + m * 0.1)
        second = variance.assign(variance.read_value() * 0.9 + v * 0.1)
        with tf.control_dependencies([first, second]):
            return tf.identity(m), tf.identity(v)

    m, v = tf.cond(p, training, lambda: (mean.read_value(), variance.read_value()))
    y = (x - m) / tf.sqrt(v + 1e-3)
    with tf.control_dependencies([y]):
        return {"y": y, "mean": mean.read_value(), "variance": variance.read_value()}


@row({}, {"x": [5.0, 7.0]}, {"x": [1.0, 1.0]}, x=[1.0, 2.0], order=0)
def every_second_run_updates(tf: Any, x: Any) -> Any:
    """A step counter decides whether gradients are collected or applied."""
    w = tf.get_variable("w", initializer=np.array([1.0, 1.0]), use_resource=True)
    held = tf.get_variable("held", initializer=np.zeros(2), use_resource=True, trainable=False)
    step = tf.get_variable("step", initializer=0, use_resource=True, trainable=False)
    grad = tf.gradients(tf.reduce_sum(tf.square(w * x)), w)[0]
    with tf.control_dependencies([held.assign_add(grad)]):
        count = step.assign_add(1, read_value=False)
    with tf.control_dependencies([count]):
        now = step.read_value()

    def apply() -> Any:
        with tf.control_dependencies([w.assign_sub(held.read_value() * 0.1)]):
            return tf.group(held.assign(tf.zeros_like(x)))

    done = tf.cond(tf.equal(now % 2, 0), apply, lambda: tf.no_op())
    with tf.control_dependencies([done]):
        return {"w": w.read_value(), "held": held.read_value(), "step": step.read_value()}


@row({"n": 12}, n=3, order=0)
def a_condition_that_reads_a_variable(tf: Any, n: Any) -> Any:
    v = tf.get_variable("v", initializer=1, use_resource=True, trainable=False)

    def goes_on(i: Any) -> Any:
        with tf.control_dependencies([i]):
            return v.read_value() < n

    def body(i: Any) -> Any:
        with tf.control_dependencies([v.assign_add(i + 1)]):
            return i + 1

    i = tf.while_loop(goes_on, body, [0], parallel_iterations=1)
    with tf.control_dependencies([i]):
        return {"i": i, "v": v.read_value()}
