"""Conditionals: results and captures of branches, and gradients through them."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from .table import row

Point = collections.namedtuple("Point", ["x", "y"])
BOTH = {"p": False}


@row(BOTH, p=True, x=[1.0, -2.0, 3.0])
def cond_of_captured_values(tf: Any, p: Any, x: Any) -> Any:
    return tf.cond(p, lambda: tf.sin(x) * x, lambda: x * x * x)


@row(BOTH, p=True, x=[1.0, -2.0, 3.0])
def cond_with_a_branch_that_ignores_its_input(tf: Any, p: Any, x: Any) -> Any:
    return tf.cond(p, lambda: tf.square(x), lambda: tf.zeros([3], tf.float64))


@row(BOTH, p=True, x=0.5, y=2.0)
def cond_returns_what_it_captured(tf: Any, p: Any, x: Any, y: Any) -> Any:
    return tf.cond(p, lambda: x, lambda: y)


@row(BOTH, p=True, x=0.5, y=2.0)
def cond_with_branches_of_two_captures(tf: Any, p: Any, x: Any, y: Any) -> Any:
    a, b = tf.cond(p, lambda: (x * y, x + y), lambda: (x / y, tf.pow(x, y)))
    return {"a": a, "b": b, "both": a * b}


@row(BOTH, p=True, x=[[1.0, 2.0], [3.0, 4.0]])
def cond_of_nested_dictionaries(tf: Any, p: Any, x: Any) -> Any:
    def then() -> Any:
        return {"b": {"c": x * 2.0, "a": tf.reduce_sum(x)}, "a": [x[0], x[1]]}

    def otherwise() -> Any:
        return {"a": [x[1], x[0]], "b": {"a": tf.reduce_prod(x), "c": tf.transpose(x)}}

    found = tf.cond(p, then, otherwise)
    return {
        "a0": found["a"][0],
        "a1": found["a"][1],
        "ba": found["b"]["a"],
        "bc": found["b"]["c"],
        "_order": tf.constant(list(found)),
    }


@row(BOTH, p=True, x=1.5)
def cond_of_named_tuples(tf: Any, p: Any, x: Any) -> Any:
    found = tf.cond(
        p, lambda: Point(x * 2.0, [x, x * x]), lambda: Point(-x, [tf.exp(x), tf.log(x)])
    )
    assert isinstance(found, Point)
    return {"x": found.x, "y0": found.y[0], "y1": found.y[1]}


@row(BOTH, p=True, x=1.5)
def cond_of_one_item_lists(tf: Any, p: Any, x: Any) -> Any:
    """A list of one item is that item, unless `strict` is set."""
    plain = tf.cond(p, lambda: [x * 2.0], lambda: [x * 3.0])
    strict = tf.cond(p, lambda: [x * 2.0], lambda: [x * 3.0], strict=True)
    assert isinstance(strict, list)
    return {"plain": plain * 1.0, "strict": strict[0]}


@row(BOTH, p=True)
def cond_of_constants_and_python_values(tf: Any, p: Any) -> Any:
    found = tf.cond(p, lambda: (1, 2.5, b"yes", True), lambda: (2, 3.5, b"no", False))
    return {str(i): value for i, value in enumerate(found)}


@row(BOTH, p=True)
def cond_of_operations(tf: Any, p: Any) -> Any:
    a = tf.get_variable("a", initializer=np.float64(1.0), use_resource=True, trainable=False)
    done = tf.cond(
        p,
        lambda: tf.group(a.assign_add(2.0)),
        lambda: tf.group(a.assign_add(10.0), a.assign_add(100.0)),
    )
    with tf.control_dependencies([done]):
        return {"_a": a.read_value()}


@row(BOTH, p=True, x=[1.0, 2.0])
def cond_of_no_op_and_a_value(tf: Any, p: Any, x: Any) -> Any:
    """A node returned in a structure gives a tensor that says whether it ran."""
    found = tf.cond(p, lambda: [tf.no_op(), x], lambda: [tf.no_op(), -x])
    return {"x": found[1]}


@row({"i": 1}, {"i": 2}, {"i": 3}, {"i": 7}, i=0, x=[0.5, 1.5])
def case_takes_the_first_that_holds(tf: Any, i: Any, x: Any) -> Any:
    return tf.case(
        [
            (tf.equal(i, 0), lambda: x * 2.0),
            (i < 2, lambda: x * x),
            (i < 3, lambda: tf.exp(x)),
        ],
        default=lambda: tf.log(x),
    )


@row({"i": 1}, {"i": 5}, i=0, x=2.0)
def case_from_a_dictionary_exclusive(tf: Any, i: Any, x: Any) -> Any:
    return tf.case(
        {tf.equal(i, 0): lambda: x * 2.0, tf.equal(i, 1): lambda: x * 5.0},
        default=lambda: -x,
        exclusive=True,
    )


@row({"i": 1}, i=0, x=2.0)
def case_without_default(tf: Any, i: Any, x: Any) -> Any:
    return tf.case([(tf.equal(i, 0), lambda: x * 2.0), (tf.equal(i, 1), lambda: x * x)])


@row({"i": 3}, i=0, x=2.0)
def case_of_structures(tf: Any, i: Any, x: Any) -> Any:
    a, b = tf.case(
        [(tf.equal(i, 0), lambda: (x, x * 2.0)), (tf.equal(i, 1), lambda: (x * 3.0, x))],
        default=lambda: (x * x, tf.sqrt(x)),
    )
    return {"a": a, "b": b}


@row({"i": 1}, {"i": 2}, {"i": 3}, {"i": -1}, {"i": 99}, i=0, x=2.0)
def switch_case_with_default(tf: Any, i: Any, x: Any) -> Any:
    return tf.switch_case(
        i,
        [lambda: x, lambda: x * x, lambda: tf.exp(x), lambda: x**4.0],
        default=lambda: tf.log(x),
    )


@row({"i": 1}, {"i": 2}, {"i": 9}, {"i": -5}, i=0, x=2.0)
def switch_case_without_default(tf: Any, i: Any, x: Any) -> Any:
    """The last function stands in for an index out of range."""
    return tf.switch_case(i, {2: lambda: tf.exp(x), 0: lambda: x, 1: lambda: x * x})


@row({"p": False}, {"q": False}, {"p": False, "q": False}, p=True, q=True, x=1.5, y=0.5)
def conds_in_both_branches(tf: Any, p: Any, q: Any, x: Any, y: Any) -> Any:
    return tf.cond(
        p,
        lambda: tf.cond(q, lambda: x * y, lambda: x + y) * x,
        lambda: tf.cond(q, lambda: x - y, lambda: tf.sin(x)) * y,
    )


@row({"p": False}, {"q": False}, {"p": False, "q": False}, p=True, q=True, x=1.5)
def a_cond_on_the_result_of_another(tf: Any, p: Any, q: Any, x: Any) -> Any:
    inner = tf.cond(p, lambda: q, lambda: tf.logical_not(q))
    y = tf.cond(p, lambda: x * 2.0, lambda: x * 3.0)
    return tf.cond(inner, lambda: y * y, lambda: tf.sqrt(y))


@row(BOTH, p=True, x=1.5)
def one_predicate_for_several_conds(tf: Any, p: Any, x: Any) -> Any:
    a = tf.cond(p, lambda: x * 2.0, lambda: x * x)
    b = tf.cond(p, lambda: a + 1.0, lambda: tf.exp(a))
    c = tf.cond(tf.logical_not(p), lambda: a * b, lambda: b - a)
    d = tf.cond(
        p, lambda: tf.cond(p, lambda: c, lambda: -c), lambda: tf.cond(p, lambda: b, lambda: c)
    )
    return {"a": a, "b": b, "c": c, "d": d}


@row(BOTH, p=True, x=[1.0, 2.0, 3.0], unknown=["x"])
def cond_with_branches_of_different_shapes(tf: Any, p: Any, x: Any) -> Any:
    return tf.cond(p, lambda: x[:2] * 2.0, lambda: tf.reshape(tf.square(x), [3, 1]))


@row({"x": -3.0}, x=4.0)
def the_branch_not_taken_has_no_nan(tf: Any, x: Any) -> Any:
    """Unlike a `where`, whose gradient multiplies the other side's infinities by zero."""
    return tf.cond(x > 0.0, lambda: tf.sqrt(x), lambda: x * 2.0)


@row({"x": 0.0}, x=4.0, order=1)
def a_cond_guards_a_division(tf: Any, x: Any) -> Any:
    return tf.cond(tf.equal(x, 0.0), lambda: x, lambda: 1.0 / x)


@row(BOTH, p=True, x=2.0)
def stop_gradient_in_a_branch(tf: Any, p: Any, x: Any) -> Any:
    return tf.cond(p, lambda: tf.stop_gradient(x * x) * x, lambda: x * x * x)


@row(BOTH, p=True, x=[1.0, 2.0])
def a_gradient_to_an_unused_output_of_a_cond(tf: Any, p: Any, x: Any) -> Any:
    """Only the second output leads to the value."""
    _, b = tf.cond(p, lambda: (x * 2.0, x * 3.0), lambda: (tf.exp(x), tf.square(x)))
    return b


@row(BOTH, p=True, x=1.25, s=b"a")
def cond_of_strings_and_ints(tf: Any, p: Any, x: Any, s: Any) -> Any:
    text, number, value = tf.cond(
        p,
        lambda: (tf.string_join([s, "then"], "-"), tf.constant(7, tf.int64), x),
        lambda: (tf.string_join(["else", s], "-"), tf.constant(-7, tf.int64), -x),
    )
    return {"text": text, "number": number, "value": value}


@row({"n": 3}, {"n": 0}, n=1, x=1.1)
def a_predicate_made_of_captured_loops(tf: Any, n: Any, x: Any) -> Any:
    total = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * x), [0, x])[1]
    return tf.cond(total > 1.2, lambda: total * 2.0, lambda: total * x)
