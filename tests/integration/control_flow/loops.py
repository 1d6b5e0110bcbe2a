"""Loops: iterations, changing shapes, captured values, and gradients of all of them."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from .table import row

State = collections.namedtuple("State", ["step", "total"])


@row({"n": 0}, {"n": 1}, n=5, x=1.3)
def powers_of_an_invariant(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, tf.ones_like(x)])[1]


@row({"n": 0}, n=4, x=0.7)
def the_gradient_of_an_initial_value(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tf.sin(a) * a), [0, x])[1]


@row(x=[0.5, 1.5])
def no_iterations_at_all(tf: Any, x: Any) -> Any:
    i, y, z = tf.while_loop(
        lambda i, a, b: i < 0, lambda i, a, b: (i + 1, a * x, tf.exp(b)), [0, x, x * 2.0]
    )
    return {"_i": i, "y": y, "z": z}


@row({"n": 3}, {"n": 0}, n=10, x=0.9)
def maximum_iterations_end_a_loop(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(lambda a: a < 100.0, lambda a: a * 1.5 + x, [x], maximum_iterations=n)


@row({"n": 3}, n=10, x=1.1)
def maximum_iterations_are_not_reached(tf: Any, n: Any, x: Any) -> Any:
    i, y = tf.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x], maximum_iterations=20
    )
    return {"_i": i, "y": y}


@row({"n": 1}, {"n": 0}, n=4, x=[1.0, 2.0], order=1)
def a_vector_that_grows(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, tf.concat([a, x * tf.cast(i + 1, tf.float64)], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1]


@row({"n": 1}, n=3, x=[1.0, 2.0], order=1)
def a_vector_that_grows_from_itself(tf: Any, n: Any, x: Any) -> Any:
    """The gradient has another shape in each iteration."""
    return tf.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, tf.concat([a, tf.square(a[-2:])], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1]


@row({"n": 1}, n=3, x=[1.0, 2.0, 3.0, 4.0, 5.0], order=1)
def a_vector_that_shrinks(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, a[1:] * a[:-1]),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1]


@row({"n": 0}, {"n": 1}, n=2, x=[[1.0, 2.0]], order=1)
def a_rank_that_changes(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, a: i < n,
        lambda i, a: (i + 1, tf.expand_dims(a * 2.0, 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape(None)],
    )[1]


@row({"x": np.ones([2, 3, 1])}, x=[1.0, 2.0], unknown=["x"])
def a_variable_of_unknown_rank(tf: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * a + x), [0, x])[1]


@row(x=[1.0, 2.0, 3.0])
def a_shape_that_the_body_fixes(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        picked = tf.gather(tf.concat([a, x], 0), tf.range(i, i + 3))
        picked.set_shape([3])
        return i + 1, picked * 1.5

    return tf.while_loop(lambda i, a: i < 3, body, [0, x])[1]


@row({"x": 3.0}, x=2.0)
def structures_of_loop_variables(tf: Any, x: Any) -> Any:
    start = State(tf.constant(0), {"b": (x, [x * 2.0]), "a": x * x})

    def body(step: Any, total: Any) -> Any:
        return State(
            step + 1,
            {"a": total["a"] + total["b"][0], "b": (total["b"][0] * x, [total["a"] - x])},
        )

    found = tf.while_loop(lambda step, total: step < 3, body, start)
    assert isinstance(found, State)
    return {
        "_step": found.step,
        "a": found.total["a"],
        "b0": found.total["b"][0],
        "b1": found.total["b"][1][0],
    }


@row(x=2.0)
def one_variable_in_several_guises(tf: Any, x: Any) -> Any:
    plain = tf.while_loop(lambda a: a < 50.0, lambda a: a * a, [x])
    same = tf.while_loop(lambda a: a < 50.0, lambda a: (a * 3.0,), (x,), return_same_structure=True)
    assert isinstance(same, tuple)
    return {"plain": plain * 1.0, "same": same[0]}


@row({"n": 0}, n=4, x=1.2, y=0.3)
def invariants_used_in_the_condition_too(tf: Any, n: Any, x: Any, y: Any) -> Any:
    i, a = tf.while_loop(
        lambda i, a: tf.logical_and(i < n, a < x * 20.0),
        lambda i, a: (i + 1, a * x + y * tf.cast(i, tf.float64)),
        [0, y],
    )
    return {"_i": i, "a": a}


@row(x=1.2, y=0.3)
def a_condition_that_depends_on_a_float(tf: Any, x: Any, y: Any) -> Any:
    a, b = tf.while_loop(lambda a, b: a * b < 30.0, lambda a, b: (a + b * x, b * x + y), [x, x + y])
    return {"a": a, "b": b}


@row({"n": 0}, n=5, x=1.1, y=0.2)
def variables_that_swap(tf: Any, n: Any, x: Any, y: Any) -> Any:
    _, a, b = tf.while_loop(lambda i, a, b: i < n, lambda i, a, b: (i + 1, b * 1.1, a), [0, x, y])
    return {"a": a, "b": b}


@row(n=4, x=1.1, y=0.2)
def a_chain_of_dependent_variables(tf: Any, n: Any, x: Any, y: Any) -> Any:
    """The gradient reaches x only after three iterations of the backward loop."""

    def body(i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return i + 1, a * 1.5, a * b, b + c * y, c * c

    found = tf.while_loop(lambda i, *_: i < n, body, [0, x, y, y * y, y])
    return found[4]


@row(n=3, x=2.0, y=3.0)
def a_variable_that_never_changes(tf: Any, n: Any, x: Any, y: Any) -> Any:
    _, a, b = tf.while_loop(lambda i, a, b: i < n, lambda i, a, b: (i + 1, a, a * b), [0, x, y])
    return {"a": a, "b": b}


@row(n=3, x=2.0, y=3.0)
def a_variable_that_is_overwritten(tf: Any, n: Any, x: Any, y: Any) -> Any:
    _, a, b = tf.while_loop(
        lambda i, a, b: i < n,
        lambda i, a, b: (i + 1, tf.constant(5.0, tf.float64), a * b),
        [0, x, y],
    )
    return {"a": a, "b": b}


@row(x=[1.0, 2.0, 3.0])
def the_same_tensor_in_two_variables(tf: Any, x: Any) -> Any:
    _, a, b = tf.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * b, a + b), [0, x, x])
    return {"a": a, "b": b}


@row(x=2.0)
def the_body_returns_one_tensor_twice(tf: Any, x: Any) -> Any:
    def body(i: Any, a: Any, b: Any) -> Any:
        c = a * b + x
        return i + 1, c, c

    _, a, b = tf.while_loop(lambda i, a, b: i < 3, body, [0, x, 1.0 / x])
    return {"a": a, "b": b}


@row(n=4, x=1.5, order=1)
def back_prop_false_stops_gradients(tf: Any, n: Any, x: Any) -> Any:
    y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x], back_prop=False)[1]
    return {"y": y, "z": y * x}


@row(n=4, x=1.5)
def stop_gradient_in_a_body(tf: Any, n: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, tf.stop_gradient(a) * x + a), [0, x]
    )[1]


@row(n=4, x=1.5)
def stop_gradient_around_a_loop(tf: Any, n: Any, x: Any) -> Any:
    fixed = tf.stop_gradient(x)
    a = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * fixed), [0, x])[1]
    b = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, fixed])[1]
    return {"a": a, "b": b}


@row({"n": 0}, n=3, x=1.1)
def one_loop_after_another(tf: Any, n: Any, x: Any) -> Any:
    a = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x])[1]
    b = tf.while_loop(lambda i, a: i < n + 1, lambda i, b: (i + 1, b + a * x), [0, a])[1]
    return {"a": a, "b": b}


@row(n=3, w=np.array([[0.4, 0.1], [0.2, 0.3]]), x=[[1.0, 2.0]])
def matrix_products(tf: Any, n: Any, w: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, h: i < n, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w))), [0, x]
    )[1]


@row({"n": 7}, {"n": 0}, n=3, x=1.01)
def results_of_counters_and_parallel_iterations(tf: Any, n: Any, x: Any) -> Any:
    found = [
        tf.while_loop(
            lambda i, a: i < n,
            lambda i, a: (i + 1, a + tf.sin(x * tf.cast(i, tf.float64))),
            [0, x],
            parallel_iterations=width,
            swap_memory=width == 1,
        )[1]
        for width in (1, 2, 32)
    ]
    return dict(zip(["one", "two", "many"], found, strict=True))


@row(n=3, x=[1.0, 2.0], order=1)
def shapes_of_values_in_a_body(tf: Any, n: Any, x: Any) -> Any:
    """Sizes of changing values, in the body and after the loop."""
    y = tf.while_loop(
        lambda i, a: tf.size(a) < n * 4,
        lambda i, a: (i + tf.size(a), tf.tile(a, [2]) / tf.cast(tf.shape(a)[0], tf.float64)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    return {"_sizes": y[0], "y": y[1], "mean": tf.reduce_mean(y[1])}


@row(n=4, x=[1.0, 2.0, 3.0])
def a_loop_in_scopes(tf: Any, n: Any, x: Any) -> Any:
    scopes = tf.name_scope("outer"), tf.device("/cpu:0"), tf.control_dependencies([x])
    with scopes[0], scopes[1], scopes[2], tf.colocate_with(x):
        y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x], name="named")[1]
    return y
