"""Programs from TensorFlow's issue tracker: gradients of and in loops and conditionals.

The number of the issue is in each docstring.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


def _variable(tf: Any, name: str, value: Any, resource: bool = True) -> Any:
    return tf.get_variable(name, initializer=np.asarray(value, np.float64), use_resource=resource)


@row({}, {}, order=0)
def a_reference_variable_as_loop_variable(tf: Any) -> Any:
    """TensorFlow#1093: training through a loop that does nothing."""
    v = _variable(tf, "v", 2.0, resource=False)
    _, same = tf.while_loop(lambda i, a: i < 1, lambda i, a: [i + 1, a], [0, v])
    loss = same * same
    train = tf.train.GradientDescentOptimizer(0.9).minimize(loss)
    with tf.control_dependencies([train]):
        return {"v": tf.identity(v.read_value())}


@row(inner=[[1.0, 2.0, 3.0]], outer=[[1.0, 2.0, 3.0, 4.0, 5.0]])
def products_of_nested_loops(tf: Any, inner: Any, outer: Any) -> Any:
    """TensorFlow#593: an invariant of two loops that is a variable."""
    x = _variable(tf, "x", [0.5])

    def outer_body(i: Any, total: Any, values: Any) -> Any:
        number = tf.reduce_sum(tf.slice(values, tf.stack([0, i]), [1, 1]))

        def inner_body(j: Any, s: Any, values: Any) -> Any:
            other = tf.reduce_sum(tf.slice(values, tf.stack([0, j]), [1, 1]))
            return j + 1, s + other * number * x, values

        start = [0, tf.zeros([1], tf.float64), inner]
        s = tf.while_loop(lambda j, *_: j < 3, inner_body, start)[1]
        return i + 1, total + s, values

    start = [0, tf.zeros([1], tf.float64), outer]
    return tf.while_loop(lambda i, *_: i < 5, outer_body, start)[1]


@row(x=3.0, order=1, hidden=1)
def the_gradient_of_independent_loop_variables(tf: Any, x: Any) -> Any:
    """Issues 15403 and 16333: inside of the body one variable does not depend on the other."""
    found = []

    def body(i: Any, a: Any, b: Any) -> Any:
        found.append(tf.gradients(b, a)[0])
        c = b * a
        return i + 1, tf.gradients(c, b)[0] + a, c

    _, a, b = tf.while_loop(lambda i, *_: i < 3, body, [0, x, x])
    assert found == [None]
    return {"a": a, "b": b}


@row(x=1.0)
def a_loop_over_floats_and_one_over_ints(tf: Any, x: Any) -> Any:
    """TensorFlow#13826: integers have no gradient."""
    ints = tf.while_loop(lambda i, d: i <= 5, lambda i, d: [i + d, d], [1, 1])
    floats = tf.while_loop(lambda i, d: i <= 5.0, lambda i, d: [i + d, d], [x, x])
    return {"ints": ints[0], "floats": floats[0]}


@row(w=np.ones([5]) / 5.0, c=np.arange(5.0), order=1, hidden=1)
def exponentiated_gradient_with_a_joint_condition(tf: Any, w: Any, c: Any) -> Any:
    """TensorFlow#16504: a condition of two parts, one of which is a float variable."""

    def body(k: Any, w: Any, change: Any) -> Any:
        g = tf.gradients(tf.reduce_sum(tf.square(w - c / 10.0)), w)[0]
        new = w * tf.exp(-0.5 * g)
        new = new / tf.reduce_sum(new)
        return k + 1, new, tf.reduce_max(tf.abs(new - w))

    start = [0, w, tf.constant(np.inf, tf.float64)]
    found = tf.while_loop(lambda k, _, change: tf.logical_and(k < 10, change > 1e-3), body, start)
    return found[1]


@row({"c": 1}, c=0, a=np.array([[1.0, 2.0], [3.0, 4.0]]))
def minimizing_with_a_loop_in_a_branch(tf: Any, c: Any, a: Any) -> Any:
    """TensorFlow#3208: one branch loops over TensorArrays, and the variable is in both."""
    w = _variable(tf, "w", [[0.5], [0.25]])

    def looped() -> Any:
        rows = tf.TensorArray(tf.float64, size=2).unstack(a)

        def step(t: Any, rows: Any, out: Any) -> Any:
            return t + 1, rows, out.write(t, rows.read(t) * w)

        out = tf.TensorArray(tf.float64, size=2)
        found = tf.while_loop(lambda t, *_: t < 2, step, [0, rows, out], swap_memory=True)
        return tf.reduce_sum(found[2].stack(), 0)

    return tf.cond(tf.equal(c, 0), looped, lambda: 2.0 * a * w)


@row(x=np.ones([3, 1]), values=[1.0, 2.0])
def a_sparse_matrix_as_loop_variable(tf: Any, x: Any, values: Any) -> Any:
    """TensorFlow#8348: gradients of a loop that carries a sparse matrix."""
    matrix = tf.SparseTensor(
        np.array([[0, 0], [1, 1]], np.int64), values, np.array([3, 3], np.int64)
    )

    def body(m: Any, b: Any, x: Any, i: Any) -> Any:
        return m, b + tf.sparse_tensor_dense_matmul(m, x), x * 1.5, i + 1

    start = [matrix, tf.zeros_like(x), x, 0]
    return tf.while_loop(lambda m, b, x, i: i < 4, body, start)[1]


@row(n=3, order=1)
def rows_joined_in_a_body(tf: Any, n: Any) -> Any:
    """TensorFlow#3359: a matrix that grows by a row that is computed from its last one."""
    x = _variable(tf, "x", [[1.0, 2.0]])

    def body(i: Any, m: Any) -> Any:
        return i + 1, tf.concat([m, m[-1:] * 1.5 + m[:1]], 0)

    return tf.while_loop(
        lambda i, _: i < n,
        body,
        [0, x.read_value()],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 2])],
    )[1]


@row(x=1.0, order=1, hidden=1)
def the_gradient_of_an_array_that_was_stacked(tf: Any, x: Any) -> Any:
    """TensorFlow#5412: of the gradients of stacked values, only that of the last one is not 0."""
    array = tf.TensorArray(tf.float64, size=3)

    def body(t: Any, a: Any, out: Any) -> Any:
        a = 2.0 * a
        return t + 1, a, out.write(t, a)

    stacked = tf.while_loop(lambda t, *_: t < 3, body, [0, x, array])[2].stack()
    return {"stacked": stacked, "_grad": tf.gradients(stacked[2], stacked)[0]}


@row(x=0.5)
def a_second_derivative_of_a_fold(tf: Any, x: Any) -> Any:
    """Issues 2598, 15219 and 28310: the Hessian of a loop's result."""
    values = tf.constant([1.0, 2.0, 3.0], tf.float64)
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x + values[i] * x), [0, x])[1]


@row(x=0.9)
def higher_derivatives_of_matrix_products(tf: Any, x: Any) -> Any:
    """TensorFlow#35012: products of matrices in a loop."""
    m = tf.eye(2, dtype=tf.float64) * x + 0.1
    y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.matmul(a, m)), [0, m])[1]
    return tf.trace(y)


@row(x=[1.0, 2.0, 3.0, 4.0], order=1, hidden=1)
def gradients_in_a_body_with_respect_to_the_outside(tf: Any, x: Any) -> Any:
    """TensorFlow#14101: the gradient of a value of the body with respect to one outside.

    It is that of one iteration: loop variables are constants there.
    """
    start = tf.cumsum(x)[-1]

    def body(i: Any, state: Any, total: Any) -> Any:
        value = state * start + tf.square(start)
        return i + 1, value * 0.01, total + tf.gradients(value, start)[0]

    found = tf.while_loop(lambda i, *_: i < 3, body, [0, start, tf.constant(0.0, tf.float64)])
    return {"state": found[1], "total": found[2]}


@row(x=[1.0, 2.0, 3.0], order=1, hidden=1)
def gradients_of_elements_of_an_array_in_a_body(tf: Any, x: Any) -> Any:
    """TensorFlow#9450: each element of a loss, differentiated in a loop over them."""
    w = _variable(tf, "w", [[0.5], [0.2]])
    inputs = tf.stack([x, x * x], 1)
    loss = tf.reshape(tf.square(tf.matmul(inputs, w)), [-1])

    def body(i: Any, total: Any) -> Any:
        return i + 1, total + tf.gradients(loss[i], w)[0]

    return tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([2, 1], tf.float64)])[1]


@row(x=0.5, order=0, refused=True)
def the_gradient_of_an_aggregate_of_what_was_written(tf: Any, x: Any) -> Any:
    """TensorFlow#13983: the sum of an array so far, differentiated in the body that writes it.

    All iterations share the array of gradients, to which nothing is added once it was read.
    """

    def body(i: Any, a: Any, history: Any) -> Any:
        history = history.write(i, a)
        use = tf.reduce_sum(history.gather(tf.range(0, i + 1))) * 2.0 + a * a
        return i + 1, a - 0.1 * tf.gradients(use, [a])[0], history

    array = tf.TensorArray(tf.float64, size=3, clear_after_read=False)
    found = tf.while_loop(lambda i, *_: i < 3, body, [0, x, array], parallel_iterations=1)
    return found[1]


@row(x=5.0)
def sums_and_products_of_a_variable_with_itself(tf: Any, x: Any) -> Any:
    """TensorFlow#22504: a + a and 2a have one gradient."""
    added = tf.while_loop(lambda i, a: i < 6, lambda i, a: (i + 1, tf.add(a, a)), [0, x])[1]
    doubled = tf.while_loop(lambda i, a: i < 6, lambda i, a: (i + 1, a * 2.0), [0, x])[1]
    return {"added": added, "doubled": doubled}


@row(x=0.3, order=1, hidden=1)
def data_from_one_loop_in_another_with_gradients(tf: Any, x: Any) -> Any:
    """TensorFlow#22221: the second loop takes gradients with respect to the first one's results."""
    w = _variable(tf, "w", 0.4)
    rollouts = tf.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * w + x), [0, x], back_prop=False
    )[1]
    rollouts = tf.stop_gradient(rollouts)

    def body(i: Any, total: Any) -> Any:
        loss = tf.square(rollouts * w - 1.0)
        return i + 1, total + tf.gradients(loss, w)[0]

    return tf.while_loop(
        lambda i, _: i < 2, body, [0, tf.constant(0.0, tf.float64)], back_prop=False
    )[1]


@row({"x": 0.0}, x=2.0, order=1)
def a_division_in_the_branch_not_taken(tf: Any, x: Any) -> Any:
    """Issues 20091 and 20355: `where` gives NaN here, a conditional does not."""
    return tf.cond(x > 1.0, lambda: 1.0 / (x - 1.0), lambda: tf.square(x) + x)


@row({"p": True}, p=False, x=np.ones([4]), hidden=1)
def the_gradient_of_a_cond_taken_twice(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#43631: two calls give the same."""
    loss = tf.cond(p, lambda: tf.reduce_sum(x * x), lambda: tf.reduce_sum(tf.sin(x)))
    once, twice = tf.gradients(loss, x)[0], tf.gradients(loss, x)[0]
    return {"once": once, "twice": twice}


@row(x=[1.0, 4.0, 2.0], order=1, hidden=1)
def gradients_under_a_dependency_on_the_result(tf: Any, x: Any) -> Any:
    """TensorFlow#15874: gradients with a control dependency on their target."""
    array = tf.TensorArray(tf.float64, size=3).unstack(x)
    _, (array,) = tf.while_loop(
        lambda i, _: i < 1, lambda i, arrays: [i + 1, arrays], [0, [array]], parallel_iterations=1
    )
    y = tf.square(array.read(1))
    with tf.control_dependencies([y]):
        return {"y": y, "_grad": tf.gradients(y, x)[0]}


@row(x=[4.0, 6.0, 0.0, 7.0, 1.0])
def a_captured_vector_read_by_index(tf: Any, x: Any) -> Any:
    """TensorFlow#3114: rows of a tensor from outside, written to an array."""

    def body(i: Any, out: Any) -> Any:
        return i + 1, out.write(i, tf.square(tf.gather(x, i)))

    array = tf.TensorArray(tf.float64, size=5)
    return tf.while_loop(lambda i, _: i < 5, body, [0, array])[1].stack()


@row(x=[0.5, 1.5], order=0)
def a_jacobian_by_a_loop_over_outputs(tf: Any, x: Any) -> Any:
    """Issues 11208, 675 and 33717: the function has a loop itself."""
    y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.reverse(a, [0]) * x), [0, x])[1]

    def body(i: Any, out: Any) -> Any:
        return i + 1, out.write(i, tf.gradients(y[i], x)[0])

    array = tf.TensorArray(tf.float64, size=2)
    return tf.while_loop(lambda i, _: i < 2, body, [0, array])[1].stack()


@row({"p": False}, p=True, x=[[0.5, 1.5]])
def a_branch_with_a_loop_over_its_weights(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#2125: a recurrent network in one branch, zeros in the other."""
    w = _variable(tf, "w", [[0.5, 0.1], [0.3, 0.2]])

    def network() -> Any:
        return tf.while_loop(
            lambda t, h: t < 3, lambda t, h: (t + 1, tf.tanh(tf.matmul(h, w) + x)), [0, x]
        )[1]

    return tf.cond(p, network, lambda: tf.zeros([1, 2], tf.float64))
