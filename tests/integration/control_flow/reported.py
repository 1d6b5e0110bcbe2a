"""Programs from TensorFlow's issue tracker: which nodes run, and in which order.

The number of the issue is in each docstring.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row


def _counter(tf: Any, name: str, resource: bool = True) -> Any:
    return tf.get_variable(name, initializer=0, use_resource=resource, trainable=False)


@row(x=7, y=5, order=0)
def nodes_of_both_branches_are_built(tf: Any, x: Any, y: Any) -> Any:
    """TensorFlow#9628: both functions are called, and append to a list outside the conditional."""
    seen = []

    def append(value: Any) -> Any:
        seen.append(value)
        return value

    result = tf.cond(tf.less(x, y), lambda: append(x), lambda: append(y))
    return {"result": result, "first": seen[0], "second": seen[1]}


@row(order=0, p=False)
def an_update_outside_of_the_branch_runs_either_way(tf: Any, p: Any) -> Any:
    """TensorFlow#2062: the branch that is not taken waits for a counter made outside of it."""
    count = _counter(tf, "count")
    bump = count.assign_add(1)

    def then() -> Any:
        with tf.control_dependencies([bump]):
            return tf.identity(count.read_value())

    y = tf.cond(p, then, lambda: tf.constant(-5))
    with tf.control_dependencies([y, bump]):
        return {"y": y, "count": count.read_value()}


@row({"p": False}, p=True, order=0)
def assignments_outside_and_inside_of_branches(tf: Any, p: Any) -> Any:
    """TensorFlow#3287: only nodes created inside a branch are conditional."""
    outside = [_counter(tf, name) for name in ("a", "b")]
    inside = [_counter(tf, name) for name in ("c", "d")]
    first, second = [v.assign_add(1) for v in outside]
    y = tf.cond(p, lambda: tf.identity(first), lambda: tf.identity(second))
    z = tf.cond(p, lambda: inside[0].assign_add(1) + 0, lambda: inside[1].assign_add(1) + 0)
    with tf.control_dependencies([y, z, first, second]):
        return {v.op.name: v.read_value() for v in [*outside, *inside]}


@row({"p": True}, {"p": False}, p=False, x=[2.0], order=0)
def dependencies_on_updates_made_outside(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#1410: both counters go up in each run, whichever branch waits for one of them."""
    a, b = _counter(tf, "alpha"), _counter(tf, "beta")
    c = tf.get_variable("c", initializer=np.zeros([1]), use_resource=True, trainable=False)
    more_a, more_b = a.assign_add(1), b.assign_add(1)

    def train() -> Any:
        with tf.control_dependencies([more_a]):
            return c.assign(x + x) + 0.0

    def test() -> Any:
        with tf.control_dependencies([more_b]):
            return c.assign(x) + 0.0

    y = tf.cond(p, train, test)
    with tf.control_dependencies([y, more_a, more_b]):
        return {"y": y, "a": a.read_value(), "b": b.read_value(), "c": c.read_value()}


@row({"p": True}, {"p": False}, p=False, order=0)
def a_dependency_in_one_function_of_case(tf: Any, p: Any) -> Any:
    """TensorFlow#4432: the update of one function, created outside, affects the other's reads."""
    v = _counter(tf, "v")
    bump = v.assign_add(1)

    def first() -> Any:
        with tf.control_dependencies([bump]):
            return -v.read_value()

    y = tf.case([(p, first)], default=lambda: tf.constant(10))
    with tf.control_dependencies([y, bump]):
        return {"y": y, "v": v.read_value()}


@row({"step": 2}, {"step": 4}, {"step": 5}, step=0, order=0)
def case_with_functions_that_share_a_loop_variable(tf: Any, step: Any) -> Any:
    """Issues 5500 and 8776: Python's closures see the last value of the loop."""
    values = [tf.constant(v) for v in (0.01, 0.001)]
    steps = [tf.equal(step, n) for n in (2, 4)]
    late = [(p, lambda: value) for p, value in zip(steps, values)]  # noqa: B023, B905
    bound = [(p, lambda v=v: v) for p, v in zip(steps, values, strict=True)]
    rate = tf.constant(0.1)
    return {
        "late": tf.case(late, default=lambda: rate),
        "bound": tf.case(bound, default=lambda: rate, exclusive=True),
    }


@row({"i": 1}, {"i": 2}, i=0, order=0, refused=True)
def case_whose_conditions_do_not_hold(tf: Any, i: Any) -> Any:
    """TensorFlow#16161: none holds, and there is no default."""
    return tf.case(
        [(tf.equal(i, 0), lambda: tf.constant(1)), (tf.equal(i, 1), lambda: tf.constant(2))],
        exclusive=True,
    )


@row({"i": 5}, {"i": 1}, i=9, order=0, refused=True)
def exclusive_conditions_of_which_two_hold(tf: Any, i: Any) -> Any:
    """TensorFlow#8168 and the reference: exclusive conditions are checked when they run."""
    return tf.case(
        [(i > 4, lambda: tf.constant(1)), (i > 6, lambda: tf.constant(2))],
        default=lambda: tf.constant(3),
        exclusive=True,
    )


@row({"n": 2}, n=11, order=0)
def numbers_of_fibonacci_assigned_in_a_body(tf: Any, n: Any) -> Any:
    """TensorFlow#20639: each iteration reads the assignment of the previous one."""
    start = np.array([1, 1] + [0] * 9, np.int32)
    a = tf.get_variable("a", initializer=start, use_resource=True, trainable=False)

    def body(i: Any, _: Any) -> Any:
        now = a.read_value()
        with tf.control_dependencies([now]):
            done = tf.scatter_update(a, i, now[i - 1] + now[i - 2])
        with tf.control_dependencies([done]):
            return i + 1, a.read_value()

    return tf.while_loop(lambda i, _: i < n, body, [2, tf.constant(start)], parallel_iterations=1)[
        1
    ]


@row({"p": True}, p=False, order=0)
def arrays_made_inside_of_branches(tf: Any, p: Any) -> Any:
    """TensorFlow#17965: each branch creates a TensorArray."""

    def made(value: float) -> Any:
        array = tf.TensorArray(tf.float64, size=1, element_shape=tf.TensorShape([2]))
        return array.write(0, tf.constant([value, value], tf.float64))

    return tf.cond(p, lambda: made(2.0).stack(), lambda: made(3.0).stack())


@row(n=4, order=0)
def shape_invariants_of_arrays_are_scalars(tf: Any, n: Any) -> Any:
    """TensorFlow#7700: the shape of an array's flow is given, or its unknown shape."""
    array = tf.TensorArray(tf.float64, size=n)
    found = tf.while_loop(
        lambda i, _: i < n,
        lambda i, a: (i + 1, a.write(i, tf.cast(i, tf.float64))),
        [0, array],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape(None)],
    )
    return found[1].stack()


@row(n=3, order=0)
def a_variable_made_in_a_body(tf: Any, n: Any) -> Any:
    """TensorFlow#8604: its initializer is outside of the loop when it is a function."""

    def body(i: Any, s: Any) -> Any:
        w = tf.Variable(lambda: tf.constant(2.5, tf.float64), use_resource=True)
        return i + 1, s + w

    return tf.while_loop(lambda i, _: i < n, body, [0, tf.constant(0.0, tf.float64)])[1]


@row(n=3, order=0, refused=True)
def a_variable_with_an_initial_tensor_in_a_body(tf: Any, n: Any) -> Any:
    """TensorFlow#8604: an initial value from the inside of the loop is refused."""

    def body(i: Any, s: Any) -> Any:
        w = tf.Variable(tf.cast(i, tf.float64), use_resource=True)
        return i + 1, s + w

    return tf.while_loop(lambda i, _: i < n, body, [0, tf.constant(0.0, tf.float64)])[1]


@row({"p": False}, p=True, order=0)
def an_update_in_a_branch_that_others_wait_for(tf: Any, p: Any) -> Any:
    """TensorFlow#14699: nodes that wait for a node inside a branch run if the branch is taken."""
    count, inner = _counter(tf, "count"), []

    def then() -> Any:
        inner.append(tf.no_op())
        return tf.constant(1)

    y = tf.cond(p, then, lambda: tf.constant(2))
    with tf.control_dependencies(inner):
        bump = count.assign_add(1)
    with tf.control_dependencies([tf.group(bump), y]):
        z = tf.identity(y)
    # No input of this Merge waits for the branch.
    after = tf.cond(tf.equal(y, 2), lambda: tf.constant(7), lambda: tf.constant(8))
    del z
    return {"y": y, "after": after}


@row({"p": False}, p=True, x=2.0)
def a_branch_that_copies_into_a_variable(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#32106: a branch assigns, and the nodes after it wait for the assignment."""
    copy = tf.get_variable("copy", initializer=np.float64(0.0), use_resource=True, trainable=False)

    def then() -> Any:
        with tf.control_dependencies([copy.assign(x)]):
            return copy.read_value() * x

    y = tf.cond(p, then, lambda: x)
    with tf.control_dependencies([y]):
        return {"y": y * 2.0, "_copy": copy.read_value()}


@row({"i": 7}, {"i": 2}, i=1, order=0)
def switch_case_of_effects(tf: Any, i: Any) -> Any:
    """TensorFlow#42996: one branch of several has its effect."""
    counts = [_counter(tf, f"count_{k}") for k in range(3)]
    branches = [lambda v=v: v.assign_add(1) + 0 for v in counts]
    y = tf.switch_case(i, branches)
    with tf.control_dependencies([y]):
        return {f"count_{k}": v.read_value() for k, v in enumerate(counts)}


@row(i=[1, 0], order=0, refused=True)
def switch_case_of_a_vector(tf: Any, i: Any) -> Any:
    """TensorFlow#48373: the index has rank 0."""
    return tf.switch_case(i, [lambda: tf.constant(17), lambda: tf.constant(31)])


@row(n=3, order=0, refused=True)
def no_parallel_iterations(tf: Any, n: Any) -> Any:
    """TensorFlow#5257: `parallel_iterations` is positive."""
    return tf.while_loop(lambda i: i < n, lambda i: i + 1, [0], parallel_iterations=0)


@row(n=3, order=0)
def writes_to_an_array_that_are_dropped(tf: Any, n: Any) -> Any:
    """Issues 3663 and 50243: the array that `write` returns is not carried on."""

    def body(i: Any, out: Any) -> Any:
        out.write(i, tf.cast(i, tf.float64))
        return i + 1, out

    array = tf.TensorArray(tf.float64, size=3)
    return tf.while_loop(lambda i, _: i < n, body, [0, array])[1].stack()


@row(n=3, order=0, refused=True)
def a_write_after_a_read(tf: Any, n: Any) -> Any:
    """TensorFlow#17127: an element that was read cannot be written again."""

    def body(i: Any, a: Any) -> Any:
        return i + 1, a.write(0, a.read(0) * 2.0)

    array = tf.TensorArray(tf.float64, size=1).write(0, tf.constant(1.0, tf.float64))
    return tf.while_loop(lambda i, _: i < n, body, [0, array])[1].read(0)


@row(n=4, order=0, refused=True)
def an_array_larger_than_it_was_made(tf: Any, n: Any) -> Any:
    """TensorFlow#3663: writes beyond the end of an array whose size is fixed."""

    def body(i: Any, out: Any) -> Any:
        return i + 1, out.write(i, tf.cast(i, tf.float64))

    array = tf.TensorArray(tf.float64, size=3)
    return tf.while_loop(lambda i, _: i < n, body, [0, array])[1].stack()


@row(n=2, x=[1.0, 2.0], order=0, refused=True)
def a_shape_that_changes_without_an_invariant(tf: Any, n: Any, x: Any) -> Any:
    """TensorFlow#45538: shapes are invariant unless it is said otherwise."""
    return tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, tf.concat([a, a], 0)), [0, x])[1]


@row({"p": False}, p=True, x=2.0, order=0)
def an_update_from_outside_in_a_body(tf: Any, p: Any, x: Any) -> Any:
    """TensorFlow#6087: the body waits for an update made outside, which runs once."""
    v = tf.get_variable("v", initializer=np.float64(1.0), use_resource=True, trainable=False)
    bump = v.assign_add(1.0)

    def body(i: Any, y: Any) -> Any:
        with tf.control_dependencies([bump]):
            return i + 1, y + v.read_value()

    return tf.while_loop(lambda i, _: i < 5, body, [0, x])[1]


@row({"x": 9}, x=1, order=0)
def a_loop_that_prints(tf: Any, x: Any) -> Any:
    """Issues 22701 and 15403: printing in conditions and bodies changes nothing."""

    def body(i: Any, a: Any) -> Any:
        return tf.Print(i + 1, [i]), tf.Print(a + x, [a], "a: ")

    def goes_on(i: Any, a: Any) -> Any:
        with tf.control_dependencies([tf.Print(i, [i])]):
            return i < 4

    return tf.while_loop(goes_on, body, [0, tf.zeros([3], tf.int32)])[1]


@row(text=[b"a", b"b", b"c", b"d"], kinds=[3, 0, 2, 3], order=0)
def words_from_tagged_characters(tf: Any, text: Any, kinds: Any) -> Any:
    """TensorFlow#32108: an inner loop with a break, over strings."""

    def word(i: Any) -> Any:
        def goes_on(j: Any, s: Any, ended: Any) -> Any:
            return tf.logical_and(j < 4, tf.logical_not(ended))

        def more(j: Any, s: Any, _: Any) -> Any:
            return j + 1, tf.string_join([s, text[j]]), tf.equal(kinds[j], 2)

        return tf.while_loop(goes_on, more, [i, "", tf.constant(False)])[:2]

    def body(i: Any, words: Any) -> Any:
        following, found = tf.cond(
            tf.equal(kinds[i], 3), lambda: (i + 1, text[i]), lambda: tuple(word(i))
        )
        return following, tf.concat([words, [found]], 0)

    return tf.while_loop(
        lambda i, _: i < 4,
        body,
        [0, tf.constant([], tf.string)],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )[1]
