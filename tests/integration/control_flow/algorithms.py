"""Well-known algorithms, written as loops and conditionals."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


@row(
    {"a": [1, 2, 3, 4, 5], "b": [1, 3, 4, 6, 5]},
    a=[2, 7, 1, 8, 2],
    b=[8, 2, 8, 1, 7],
    order=0,
)
def edit_distance(tf: Any, a: Any, b: Any) -> Any:
    def columns(j: Any, left: Any, i: Any, above: Any, line: Any) -> Any:
        cost = tf.cast(tf.not_equal(a[i], b[j]), tf.int32)
        best = tf.minimum(tf.minimum(left + 1, above[j + 1] + 1), above[j] + cost)
        return j + 1, best, i, above, line.write(j + 1, best)

    def lines(i: Any, above: Any) -> Any:
        line = tf.TensorArray(tf.int32, size=6).write(0, i + 1)
        found = tf.while_loop(lambda j, *_: j < 5, columns, [0, i + 1, i, above, line])
        below = found[4].stack()
        below.set_shape([6])
        return i + 1, below

    return tf.while_loop(lambda i, _: i < 5, lines, [0, tf.range(6)])[1][-1]


SCORES = np.linspace(-1.0, 1.5, 12).reshape(4, 3) ** 2
TRANSITIONS = np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6], [-0.1, 0.2, 0.7]])


@row(scores=SCORES, transitions=TRANSITIONS)
def crf_forward(tf: Any, scores: Any, transitions: Any) -> Any:
    def body(t: Any, alpha: Any) -> Any:
        paths = tf.expand_dims(alpha, 1) + transitions
        return t + 1, tf.reduce_logsumexp(paths, 0) + scores[t]

    alpha = tf.while_loop(lambda t, _: t < 4, body, [1, scores[0]])[1]
    return tf.reduce_logsumexp(alpha)


@row(scores=SCORES, transitions=TRANSITIONS, order=1)
def viterbi(tf: Any, scores: Any, transitions: Any) -> Any:
    def forward(t: Any, best: Any, pointers: Any) -> Any:
        paths = tf.expand_dims(best, 1) + transitions
        pointers = pointers.write(t - 1, tf.cast(tf.argmax(paths, 0), tf.int32))
        return t + 1, tf.reduce_max(paths, 0) + scores[t], pointers

    array = tf.TensorArray(tf.int32, size=3)
    _, best, pointers = tf.while_loop(lambda t, *_: t < 4, forward, [1, scores[0], array])
    last = tf.cast(tf.argmax(best), tf.int32)
    table = pointers.stack()

    def backward(t: Any, tag: Any, tags: Any) -> Any:
        tag = table[t, tag]
        return t - 1, tag, tags.write(t, tag)

    tags = tf.TensorArray(tf.int32, size=4, clear_after_read=False).write(3, last)
    tags = tf.while_loop(lambda t, *_: t >= 0, backward, [2, last, tags])[2]
    return {"best": tf.reduce_max(best), "_tags": tags.stack()}


@row(m=np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 1.5]]))
def power_iteration(tf: Any, m: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        w = tf.matmul(m, v)
        return i + 1, w / tf.sqrt(tf.reduce_sum(tf.square(w)))

    v = tf.while_loop(lambda i, _: i < 12, body, [0, tf.ones([3, 1], tf.float64)])[1]
    return tf.reduce_sum(v * tf.matmul(m, v))


@row({"wanted": 7}, {"wanted": 1}, {"wanted": 90}, wanted=40, order=0)
def binary_search(tf: Any, wanted: Any) -> Any:
    values = tf.constant([1, 3, 7, 12, 25, 40, 41, 77])

    def body(low: Any, high: Any, steps: Any) -> Any:
        middle = (low + high) // 2
        low, high = tf.cond(
            values[middle] < wanted, lambda: (middle + 1, high), lambda: (low, middle)
        )
        return low, high, steps + 1

    low, _, steps = tf.while_loop(lambda low, high, _: low < high, body, [0, 8, 0])
    return {"place": low, "steps": steps}


@row({"n": 1}, {"n": 97}, n=27, order=0)
def collatz(tf: Any, n: Any) -> Any:
    def body(n: Any, steps: Any, most: Any) -> Any:
        n = tf.cond(tf.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1)
        return n, steps + 1, tf.maximum(most, n)

    _, steps, most = tf.while_loop(lambda n, *_: n > 1, body, [n, 0, n])
    return {"steps": steps, "most": most}


@row({"n": 1}, {"n": 0}, n=11, m=np.array([[0.9, 0.3], [-0.2, 0.8]]))
def a_matrix_power_by_squaring(tf: Any, n: Any, m: Any) -> Any:
    def body(n: Any, base: Any, result: Any) -> Any:
        odd = tf.equal(n % 2, 1)
        result = tf.cond(odd, lambda: tf.matmul(result, base), lambda: result)
        return n // 2, tf.matmul(base, base), result

    return tf.while_loop(lambda n, *_: n > 0, body, [n, m, tf.eye(2, dtype=tf.float64)])[2]


@row(y=[1.0, 0.0], k=1.7, h=0.1)
def runge_kutta_steps(tf: Any, y: Any, k: Any, h: Any) -> Any:
    def f(y: Any) -> Any:
        return tf.stack([y[1], -k * tf.sin(y[0])])

    def body(i: Any, y: Any) -> Any:
        a = f(y)
        b = f(y + h / 2.0 * a)
        c = f(y + h / 2.0 * b)
        d = f(y + h * c)
        return i + 1, y + h / 6.0 * (a + 2.0 * b + 2.0 * c + d)

    return tf.while_loop(lambda i, _: i < 8, body, [0, y])[1]


@row({"a": 48, "b": 180}, {"a": 17, "b": 0}, a=1071, b=462, order=0)
def greatest_common_divisor(tf: Any, a: Any, b: Any) -> Any:
    return tf.while_loop(lambda a, b: b > 0, lambda a, b: (b, a % b), [a, b])[0]


@row(x=0.4, c=0.3)
def a_fixed_point(tf: Any, x: Any, c: Any) -> Any:
    """A loop with as many iterations as necessary."""

    def goes_on(x: Any, change: Any) -> Any:
        return change > 1e-10

    def body(x: Any, _: Any) -> Any:
        y = tf.cos(x) * c
        return y, tf.abs(y - x)

    return tf.while_loop(goes_on, body, [x, tf.ones_like(x)], maximum_iterations=100)[0]


@row(order=0, limit=30)
def primes_by_a_sieve(tf: Any, limit: Any) -> Any:
    def strike(i: Any, alive: Any) -> Any:
        def struck() -> Any:
            numbers = tf.range(limit)
            multiple = tf.logical_and(tf.equal(numbers % i, 0), numbers > i)
            return tf.logical_and(alive, tf.logical_not(multiple))

        return i + 1, tf.cond(alive[i], struck, lambda: alive)

    alive = tf.range(limit) >= 2
    found = tf.while_loop(lambda i, _: i * i < limit, strike, [2, alive])[1]
    return tf.reshape(tf.where(found), [-1])


LOGITS = np.array(
    [[0.1, 0.5, -0.3, 0.9], [0.4, -0.2, 0.8, 0.3], [-0.5, 0.7, 0.2, 0.1], [0.6, 0.0, -0.1, 0.4]]
)


@row(logits=LOGITS, order=1)
def beam_search_with_growing_beams(tf: Any, logits: Any) -> Any:
    """Two beams over four tokens; the sequences get longer with each step."""
    tables = tf.nn.log_softmax(logits)

    def body(t: Any, ids: Any, scores: Any) -> Any:
        every = tf.expand_dims(scores, 1) + tf.gather(tables, ids[:, -1])
        best, places = tf.nn.top_k(tf.reshape(every, [-1]), 2)
        beams, tokens = places // 4, places % 4
        longer = tf.concat([tf.gather(ids, beams), tf.expand_dims(tokens, 1)], 1)
        return t + 1, longer, best

    start = [0, tf.constant([[0], [1]]), tf.constant([0.0, -1.0], tf.float64)]
    _, ids, scores = tf.while_loop(
        lambda t, ids, _: tf.shape(ids)[1] < 5,
        body,
        start,
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([2, None]), tf.TensorShape([2])],
    )
    return {"_ids": ids, "scores": scores}


@row(x=[3.0, 1.0, 2.0, 5.0, 4.0], order=1)
def insertion_sort(tf: Any, x: Any) -> Any:
    def outer(i: Any, a: Any) -> Any:
        def inner(j: Any, a: Any) -> Any:
            pair = tf.gather(a, [j - 1, j])
            pair = tf.cond(pair[0] > pair[1], lambda: tf.reverse(pair, [0]), lambda: pair)
            new = tf.concat([a[: j - 1], pair, a[j + 1 :]], 0)
            new.set_shape([5])
            return j - 1, new

        return i + 1, tf.while_loop(lambda j, _: j > 0, inner, [i, a])[1]

    return tf.while_loop(lambda i, _: i < 5, outer, [1, x])[1]


@row({"z": np.complex128(-1.2 + 0.3j)}, z=np.complex128(0.1 + 0.2j), order=0)
def mandelbrot_escape(tf: Any, z: Any) -> Any:
    start = [0, tf.zeros_like(z)]
    steps, _ = tf.while_loop(
        lambda i, w: tf.logical_and(i < 50, tf.abs(w) < 2.0), lambda i, w: (i + 1, w * w + z), start
    )
    return steps


@row(m=np.array([[4.0, 1.0], [1.0, 3.0]]), b=[1.0, 2.0])
def conjugate_gradients(tf: Any, m: Any, b: Any) -> Any:
    def body(i: Any, x: Any, r: Any, p: Any) -> Any:
        mp = tf.reshape(tf.matmul(m, tf.reshape(p, [2, 1])), [2])
        rr = tf.reduce_sum(r * r)
        alpha = rr / tf.reduce_sum(p * mp)
        new = r - alpha * mp
        return i + 1, x + alpha * p, new, new + tf.reduce_sum(new * new) / rr * p

    # One step less than would be exact, so that no sum is zero.
    return tf.while_loop(lambda i, *_: i < 1, body, [0, tf.zeros_like(b), b, b])[1]
