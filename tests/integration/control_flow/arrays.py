"""TensorArrays in loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


@row(x=[1.0, 2.0, 3.0, 4.0])
def prefix_sums(tf: Any, x: Any) -> Any:
    rows = tf.TensorArray(tf.float64, size=4).unstack(x)

    def body(i: Any, total: Any, out: Any) -> Any:
        total += tf.square(rows.read(i))
        return i + 1, total, out.write(i, total)

    start = [0, tf.constant(0.0, tf.float64), tf.TensorArray(tf.float64, size=4)]
    found = tf.while_loop(lambda i, *_: i < 4, body, start)
    return {"sums": found[2].stack(), "total": found[1]}


@row(x=[1.0, 2.0, 3.0, 4.0])
def a_loop_backwards_over_an_array(tf: Any, x: Any) -> Any:
    rows = tf.TensorArray(tf.float64, size=4).unstack(x)

    def body(i: Any, a: Any, out: Any) -> Any:
        a = a * 0.5 + rows.read(i)
        return i - 1, a, out.write(i, a * x[0])

    start = [3, tf.constant(1.0, tf.float64), tf.TensorArray(tf.float64, size=4)]
    return tf.while_loop(lambda i, *_: i >= 0, body, start)[2].stack()


@row({"n": 0}, n=3, x=[[1.0, 2.0], [3.0, 4.0]], order=1)
def an_array_of_dynamic_size(tf: Any, n: Any, x: Any) -> Any:
    array = tf.TensorArray(
        tf.float64, size=0, dynamic_size=True, element_shape=tf.TensorShape([2, 2])
    )

    def body(i: Any, a: Any, out: Any) -> Any:
        return i + 1, tf.matmul(a, x) * 0.2, out.write(i, a)

    found = tf.while_loop(lambda i, *_: i < n, body, [0, x, array])
    return {"stack": found[2].stack(), "_size": found[2].size()}


@row(x=[1.0, 2.0, 3.0])
def an_array_read_in_another_order_and_twice(tf: Any, x: Any) -> Any:
    array = tf.TensorArray(tf.float64, size=3, clear_after_read=False).unstack(x)

    def body(i: Any, a: Any) -> Any:
        return i + 1, a * array.read((i * 2) % 3) + array.read(0)

    return tf.while_loop(lambda i, _: i < 3, body, [0, tf.constant(1.0, tf.float64)])[1]


@row(x=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
def arrays_read_and_written_in_one_loop(tf: Any, x: Any) -> Any:
    rows = tf.TensorArray(tf.float64, size=3).unstack(x)

    def body(i: Any, previous: Any, rows: Any, out: Any) -> Any:
        row_ = rows.read(i)
        value = tf.tanh(row_ * previous + x[0])
        return i + 1, value, rows, out.write(i, tf.stack([value, row_]))

    start = [0, tf.ones([2], tf.float64), rows, tf.TensorArray(tf.float64, size=3)]
    return tf.while_loop(lambda i, *_: i < 3, body, start)[3].stack()


@row(x=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], order=1)
def an_array_of_pieces_joined(tf: Any, x: Any) -> Any:
    pieces = tf.TensorArray(tf.float64, size=3, infer_shape=False).split(x, [1, 2, 3])

    def body(i: Any, out: Any) -> Any:
        piece = pieces.read(i)
        return i + 1, out.write(i, tf.concat([piece, piece[:1]], 0) * 2.0)

    out = tf.TensorArray(tf.float64, size=3, infer_shape=False)
    return tf.while_loop(lambda i, _: i < 3, body, [0, out])[1].concat()


@row({"p": False}, p=True, x=[1.0, 2.0], order=1)
def cond_of_an_array(tf: Any, p: Any, x: Any) -> Any:
    """The branches write to one array, made outside of them."""
    array = tf.TensorArray(tf.float64, size=2).write(0, x)
    found = tf.cond(p, lambda: array.write(1, x * 2.0), lambda: array.write(1, tf.square(x)))
    return found.stack()


@row(n=5, x=[1.0, 2.0], order=1)
def a_cond_in_a_loop_writes_an_array(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any, out: Any) -> Any:
        even = tf.equal(i % 2, 0)
        out = tf.cond(even, lambda: out.write(i, a), lambda: out.write(i, -a * a))
        return i + 1, a * 1.1, out

    start = [0, x, tf.TensorArray(tf.float64, size=n)]
    return tf.while_loop(lambda i, *_: i < n, body, start)[2].stack()


@row(x=[[1.0, 2.0], [3.0, 4.0]])
def a_table_filled_by_two_loops(tf: Any, x: Any) -> Any:
    """An array written by an inner loop and carried by the outer one."""

    def outer(i: Any, array: Any) -> Any:
        def inner(j: Any, array: Any) -> Any:
            return j + 1, array.write(i * 2 + j, x[i, j] * x[j, i])

        return i + 1, tf.while_loop(lambda j, _: j < 2, inner, [0, array])[1]

    array = tf.TensorArray(tf.float64, size=4)
    return tf.while_loop(lambda i, _: i < 2, outer, [0, array])[1].stack()


@row(x=[0.5, -0.5, 1.5], w=np.array([[0.5, -0.3], [0.2, 0.4]]), u=np.array([[1.0, 0.5]]))
def an_rnn_by_hand(tf: Any, x: Any, w: Any, u: Any) -> Any:
    inputs = tf.TensorArray(tf.float64, size=3).unstack(tf.reshape(x, [3, 1, 1]))

    def body(t: Any, h: Any, out: Any) -> Any:
        h = tf.tanh(tf.matmul(h, w) + tf.matmul(inputs.read(t), u))
        return t + 1, h, out.write(t, h)

    start = [0, tf.zeros([1, 2], tf.float64), tf.TensorArray(tf.float64, size=3)]
    _, last, outputs = tf.while_loop(lambda t, *_: t < 3, body, start)
    return {"last": last, "outputs": outputs.stack()}


@row(x=np.linspace(-1.0, 1.0, 12).reshape(4, 1, 3), lengths=[3], order=1)
def an_rnn_that_stops_at_lengths(tf: Any, x: Any, lengths: Any) -> Any:
    inputs = tf.TensorArray(tf.float64, size=4).unstack(x)

    def body(t: Any, h: Any, out: Any) -> Any:
        new = tf.cond(
            t < lengths[0], lambda: tf.tanh(h * 0.5 + inputs.read(t)), lambda: tf.identity(h)
        )
        return t + 1, new, out.write(t, new * tf.cast(t < lengths[0], tf.float64))

    start = [0, tf.zeros([1, 3], tf.float64), tf.TensorArray(tf.float64, size=4)]
    found = tf.while_loop(lambda t, *_: t < 4, body, start)
    return {"last": found[1], "outputs": found[2].stack()}
