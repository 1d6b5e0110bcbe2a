"""Loops in graphs: one program that runs with weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

ITERATIONS, OUTER, INNER, NARROW = 1000, 50, 50, 64
PRODUCTS, SIDE = 100, 256
STEPS, BATCH, UNITS = 100, 32, 128
EXPERTS, WIDTH, ROWS = 2, 256, 32


def session(timer: Timer) -> Any:
    threads = {
        "intra_op_parallelism_threads": timer.threads,
        "inter_op_parallelism_threads": timer.threads,
    }
    return tf.Session(config=tf.ConfigProto(**threads))


def weights(rng: np.random.RandomState, *shape: int) -> Any:
    return tf.Variable((rng.randn(*shape) / shape[0] ** 0.5).astype(np.float32))


def scalar(timer: Timer) -> None:
    start = tf.placeholder(tf.int32, [])
    body = lambda i, x: (i + 1, x * 0.5 + 1.0)  # noqa: E731 - as such loops are written
    result = tf.while_loop(lambda i, x: i < ITERATIONS, body, (start, tf.constant(0.0)))
    with session(timer) as s:
        timer.time("loop_scalar", lambda: s.run(result, {start: 0}))


def nested(timer: Timer) -> None:
    start = tf.placeholder(tf.float32, [])

    def row(i: Any, total: Any) -> Any:
        inner = (tf.constant(0), total)
        _, total = tf.while_loop(
            lambda j, _: j < INNER, lambda j, total: (j + 1, total * 0.5 + 1.0), inner
        )
        return i + 1, total

    result = tf.while_loop(lambda i, _: i < OUTER, row, (tf.constant(0), start))
    with session(timer) as s:
        timer.time("loop_nested", lambda: s.run(result, {start: 0.0}))


def nested_gradient(timer: Timer) -> None:
    """Measure loops with a varying trip count, with changing and constant variables."""
    rng = np.random.RandomState(0)
    x, w = tf.placeholder(tf.float32, [NARROW]), weights(rng, NARROW)

    def row(i: Any, v: Any) -> Any:
        turn = lambda j, u: (j + 1, tf.tanh(u * w) + 0.5 * v)  # noqa: E731
        return i + 1, tf.while_loop(lambda j, _: j < i, turn, (tf.constant(0), v))[1]

    last = tf.while_loop(lambda i, _: i < OUTER, row, (tf.constant(0), x))[1]
    grads = tf.gradients(tf.reduce_sum(last), [x, w])
    given = rng.randn(NARROW).astype(np.float32)
    with session(timer) as s:
        s.run(tf.global_variables_initializer())
        timer.time("loop_nested_gradient", lambda: s.run(grads, {x: given}))


def products(timer: Timer) -> None:
    rng = np.random.RandomState(0)
    x, w = tf.placeholder(tf.float32, [SIDE, SIDE]), weights(rng, SIDE, SIDE)
    first = rng.randn(SIDE, SIDE).astype(np.float32)
    result = tf.while_loop(
        lambda i, _: i < PRODUCTS, lambda i, x: (i + 1, tf.matmul(x, w)), (tf.constant(0), x)
    )
    with session(timer) as s:
        s.run(tf.global_variables_initializer())
        timer.time("loop_products", lambda: s.run(result, {x: first}))


class Lstm:
    """A cell for `dynamic_rnn` that does not need Keras in TensorFlow."""

    state_size = (UNITS, UNITS)
    output_size = UNITS

    def __init__(self, rng: np.random.RandomState) -> None:
        self.w, self.b = weights(rng, 2 * UNITS, 4 * UNITS), tf.Variable(tf.zeros([4 * UNITS]))

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return tf.zeros([batch_size, UNITS], dtype), tf.zeros([batch_size, UNITS], dtype)

    def __call__(self, x: Any, state: Any, scope: Any = None) -> Any:
        c, h = state
        gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), self.w), self.b)
        i, j, f, o = tf.split(gates, 4, 1)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return h, (c, h)


def rnn(timer: Timer, lengths: bool) -> None:
    rng = np.random.RandomState(0)
    x = tf.placeholder(tf.float32, [STEPS, BATCH, UNITS])
    ends = tf.placeholder(tf.int32, [BATCH])
    cell = Lstm(rng)
    outputs, _ = tf.nn.dynamic_rnn(
        cell, x, ends if lengths else None, dtype=tf.float32, time_major=True
    )
    gradients = tf.gradients(tf.reduce_sum(outputs * outputs), [cell.w, cell.b])
    feeds = {x: rng.randn(STEPS, BATCH, UNITS).astype(np.float32)}
    if lengths:
        feeds[ends] = rng.randint(1, STEPS + 1, BATCH)
    row = "rnn_lengths" if lengths else "rnn"
    with session(timer) as s:
        s.run(tf.global_variables_initializer())
        timer.time(f"{row}_forward", lambda: s.run(outputs, feeds))
        timer.time(f"{row}_gradient", lambda: s.run(gradients, feeds))


def conditional(timer: Timer) -> None:
    """Build a training step of a selected expert; skip it if its gradient is not finite."""
    rng = np.random.RandomState(0)
    x, first = tf.placeholder(tf.float32, [ROWS, WIDTH]), tf.placeholder(tf.bool, [])
    experts = [[weights(rng, WIDTH, WIDTH) for _ in range(2)] for _ in range(EXPERTS)]
    layers = [
        lambda: tf.matmul(tf.tanh(tf.matmul(x, experts[0][0])), experts[0][1]),
        lambda: tf.matmul(tf.nn.sigmoid(tf.matmul(x, experts[1][0])), experts[1][1]),
    ]
    loss = tf.reduce_mean(tf.square(tf.cond(first, *layers)))
    parameters = [w for expert in experts for w in expert]
    gradients = tf.gradients(loss, parameters)
    norm = tf.add_n([tf.reduce_sum(tf.square(g)) for g in gradients])
    rate = 1e-6

    def updated() -> Any:
        pairs = zip(parameters, gradients, strict=True)
        return tf.group(*[tf.assign_sub(w, rate * g) for w, g in pairs])

    step = tf.cond(tf.is_finite(norm), updated, tf.no_op)
    value = rng.randn(ROWS, WIDTH).astype(np.float32)
    with session(timer) as s:
        s.run(tf.global_variables_initializer())
        run = s.make_callable([step, loss], feed_list=[x, first])
        timer.time("conditional", lambda: (run(value, True), run(value, False)))


PROGRAMS: dict[str, timing.Program] = {
    "loop_scalar": scalar,
    "loop_nested": nested,
    "loop_nested_gradient": nested_gradient,
    "loop_products": products,
    "conditional": conditional,
    "rnn": lambda timer: rnn(timer, lengths=False),
    "rnn_lengths": lambda timer: rnn(timer, lengths=True),
}


def use(module: Any) -> None:
    global tf
    tf = module


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)
