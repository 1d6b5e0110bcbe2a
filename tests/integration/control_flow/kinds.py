"""Loop variables of all element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


@row({"n": 0}, n=4, x=np.float32([1.5, -0.5]), order=1)
def float32_variables(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x + 1.0), [0, x])[1]


@row(n=3, x=np.float16([1.5, -0.5]), order=1, loose=2e-2)
def half_variables(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x + 1.0), [0, x])[1]


@row(n=3, x=np.complex128([1 + 2j, 0.5 - 1j]), order=1)
def complex_variables(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x + 1.0), [0, x])[1]


@row({"p": False}, p=True, x=np.complex64([1 + 2j, 0.5 - 1j]), order=1)
def complex_branches(tf: Any, p: Any, x: Any) -> Any:
    return tf.cond(p, lambda: x * x, lambda: tf.conj(x) * 3.0)


@row(n=np.int64(5), a=np.int8(3), b=np.uint8(250), c=np.int64(1) << 40, order=0)
def integer_variables(tf: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
    found = tf.while_loop(
        lambda i, a, b, c: i < n,
        lambda i, a, b, c: (i + 1, -a, b + tf.ones_like(b), c * 2),
        [tf.constant(0, tf.int64), a, b, c],
    )
    return dict(zip("iabc", found, strict=True))


@row(n=5, p=[True, False], order=0)
def bool_variables(tf: Any, n: Any, p: Any) -> Any:
    found = tf.while_loop(
        lambda i, p, q: tf.logical_and(i < n, tf.logical_or(p[0], q)),
        lambda i, p, q: (i + 1, tf.reverse(tf.logical_not(p), [0]), tf.logical_not(q)),
        [0, p, tf.constant(True)],
    )
    return dict(zip("ipq", found, strict=True))


@row({"n": 0}, n=3, s=[b"a", b"\xc3\xa4\x00"], order=0)
def string_variables(tf: Any, n: Any, s: Any) -> Any:
    _, text, joined = tf.while_loop(
        lambda i, s, t: i < n,
        lambda i, s, t: (i + 1, tf.string_join([s, tf.as_string(i)]), tf.reduce_join(s)),
        [0, s, ""],
    )
    return {"text": text, "joined": joined}


@row(n=3, x=1.5, order=2)
def variables_of_mixed_types(tf: Any, n: Any, x: Any) -> Any:
    def body(i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return i + 1, a * x, b + tf.cast(a, tf.float32), tf.logical_not(c), d + tf.cast(a, tf.int64)

    found = tf.while_loop(
        lambda i, *_: i < n,
        body,
        [0, x, tf.cast(x, tf.float32), True, tf.constant(0, tf.int64)],
    )
    return dict(zip("iabcd", found, strict=True))


@row(x=np.zeros([0, 3]), order=1)
def empty_tensors(tf: Any, x: Any) -> Any:
    y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + x), [0, x])[1]
    z = tf.cond(tf.size(x) > 0, lambda: tf.reduce_sum(y), lambda: tf.reduce_sum(y) + 1.0)
    return {"y": y, "z": z}


@row(n=3, x=np.float32([1.5, -0.5]), order=0)
def bfloat16_variables(tf: Any, n: Any, x: Any) -> Any:
    start = tf.cast(x, tf.bfloat16)
    y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * start), [0, start])[1]
    return tf.cast(y, tf.float32)
