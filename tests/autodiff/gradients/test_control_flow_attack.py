"""Gradients of loops and conditionals where they are likely to go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft as wf
from weft import errors

WAYS = [(kind, level) for kind in ("", "READY_QUEUE") for level in (0, -1)]


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def config(kind: str, level: int) -> Any:
    proto = wf.ConfigProto(inter_op_parallelism_threads=2)
    proto.experimental.executor_type = kind
    proto.graph_options.optimizer_options.opt_level = level
    return proto


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0] or 'LINE'}{way[1]}")
def session(request: pytest.FixtureRequest) -> Iterator[wf.Session]:
    with wf.Session(config=config(*request.param)) as made:
        yield made


def real() -> Any:
    return wf.placeholder(wf.float64, [])


# ------------------------------------------------------------------------------ conditionals


def test_the_second_output_of_a_cond_is_used_twice(session: wf.Session) -> None:
    """The incoming gradients are summed outside the branches."""
    p, x = wf.placeholder(wf.bool, []), real()
    y, z = wf.cond(p, lambda: (x, wf.sin(x)), lambda: (x, x * 3.0))
    (g,) = wf.gradients(y + z * z, x)
    assert session.run(g, {p: True, x: 0.5}) == pytest.approx(1.0 + np.sin(1.0))
    assert session.run(g, {p: False, x: 0.5}) == pytest.approx(1.0 + 9.0)


def test_a_gradient_of_a_gradient_of_a_cond_in_a_body(session: wf.Session) -> None:
    """The body takes the gradient of a conditional; the loop is differentiated."""
    x = real()

    def body(i: Any, a: Any) -> Any:
        y = wf.cond(wf.equal(i, 0), lambda: a * a * a, lambda: wf.exp(a))
        return i + 1, wf.gradients(y, a)[0]

    (g,) = wf.gradients(wf.while_loop(lambda i, _: i < 2, body, [0, x])[1], x)
    assert session.run(g, {x: 0.5}) == pytest.approx(np.exp(0.75) * 3.0)


def test_the_gradient_with_respect_to_a_value_inside_of_a_branch(session: wf.Session) -> None:
    """The gradient has a value if the branch is taken."""
    p, x, inside = wf.placeholder(wf.bool, []), real(), []

    def then() -> Any:
        inside.append(x * 2.0)
        return wf.square(inside[0])

    y = wf.cond(p, then, lambda: x)
    (g,) = wf.gradients(y, inside[0])
    assert session.run(g, {p: True, x: 2.0}) == 8


def test_no_gradient_with_respect_to_the_inside_of_a_loop() -> None:
    """The gradient has one value per iteration, so it is an error and not None."""
    x, inside = real(), []

    def body(i: Any, a: Any) -> Any:
        inside.append(a * x)
        return i + 1, inside[0]

    y = wf.while_loop(lambda i, _: i < 2, body, [0, x])[1]
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        wf.gradients(y, inside[0])
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        wf.gradients(inside[0], x)


@pytest.mark.parametrize("plus", [0.0, 1.0])
def test_no_gradient_through_a_loop_that_was_imported(plus: float) -> None:
    """A GraphDef does not record the nodes of a loop; the enclosing part alone must be rejected."""
    x = wf.placeholder(wf.float64, [3], name="x")
    wf.add(wf.map_fn(lambda e: e * e, x), plus * x, name="y")
    graph_def = wf.get_default_graph().as_graph_def()
    for there_are_contexts in (False, True):
        with wf.Graph().as_default():
            if there_are_contexts:
                wf.cond(wf.constant(True), lambda: wf.constant(1), lambda: wf.constant(2))
            x, y = wf.import_graph_def(graph_def, return_elements=["x:0", "y:0"])
            with pytest.raises(errors.UnimplementedError, match="created individually"):
                wf.gradients(y, x)


# ------------------------------------------------------------------- gradients in other loops


def test_the_gradient_of_a_loop_in_the_body_of_another(session: wf.Session) -> None:
    """Each iteration of the second loop uses a value that the first loop saved."""
    x = wf.placeholder(wf.float64, [2])
    y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    total = wf.while_loop(
        lambda i, _: i < 2,
        lambda i, s: (i + 1, s + wf.gradients(y[i], x)[0]),
        [0, wf.zeros([2], wf.float64)],
    )[1]
    np.testing.assert_allclose(session.run(total, {x: [0.5, 2.0]}), [0.5, 32.0])


def test_a_jacobian_by_a_loop_is_not_differentiated() -> None:
    """Each iteration reads the value that the first loop saved, which has no gradient."""
    x = wf.placeholder(wf.float64, [2])
    y = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    total = wf.while_loop(
        lambda i, _: i < 2,
        lambda i, s: (i + 1, s + wf.gradients(y[i], x)[0]),
        [0, wf.zeros([2], wf.float64)],
    )[1]
    with pytest.raises(errors.UnimplementedError, match="gradient of a nested loop"):
        wf.gradients(total, x)


# ----------------------------------------------------------------------------- higher orders


def test_the_third_derivative_of_loops_in_a_cond_in_a_loop(session: wf.Session) -> None:
    x = real()

    def body(i: Any, a: Any) -> Any:
        def looped() -> Any:
            return wf.while_loop(lambda j, _: j < i, lambda j, b: (j + 1, b * x), [0, a])[1]

        return i + 1, wf.cond(wf.equal(i % 2, 0), looped, lambda: a * a)

    derivatives = [wf.while_loop(lambda i, _: i < 4, body, [0, x])[1]]
    for _ in range(3):
        derivatives.append(wf.gradients(derivatives[-1], x)[0])
    # x, squared in iterations 1 and 3, and times x squared in iteration 2: x to the 8th
    expected = [1.1**8, 8 * 1.1**7, 56 * 1.1**6, 336 * 1.1**5]
    np.testing.assert_allclose(session.run(derivatives, {x: 1.1}), expected)


def test_gradients_taken_twice_and_of_their_sum(session: wf.Session) -> None:
    x = real()
    y = wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1]
    first = wf.gradients(y, x)[0]
    assert session.run(first, {x: 2.0}) == 32
    second = wf.gradients(y, x)[0]
    both = wf.gradients(first + second, x)[0]
    assert session.run([first, second, both], {x: 2.0}) == [32, 32, 96]


def test_a_hessian_by_a_loop_over_rows(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [2])
    y = wf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, wf.reverse(a, [0]) * x), [0, x])[1]
    slope = wf.gradients(wf.reduce_sum(y * y), x)[0]
    rows = [wf.gradients(slope[i], x)[0] for i in range(2)]
    start = [0, wf.zeros([0, 2], wf.float64)]
    looped = wf.while_loop(
        lambda i, _: i < 2,
        lambda i, h: (i + 1, wf.concat([h, [wf.gradients(slope[i], x)[0]]], 0)),
        start,
        shape_invariants=[wf.TensorShape([]), wf.TensorShape([None, 2])],
    )[1]
    got, expected = session.run([looped, rows], {x: [0.5, 1.5]})
    np.testing.assert_allclose(got, expected)


# ------------------------------------------------------------------------- programs by chance

Tree = Any
STEP = 1e-6


def trees() -> st.SearchStrategy[Tree]:
    """Expressions over x and the innermost loop variable a."""
    leaf = st.one_of(st.just(("x",)), st.just(("a",)), st.just(("k", 0.7)))
    when = st.sampled_from(["p", "a", "i"])

    def more(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.just("multiply"), inner, inner),
            st.tuples(st.just("sin"), inner),
            st.tuples(st.just("cond"), when, inner, inner),
            st.tuples(st.just("pair"), when, inner, inner),
            st.tuples(st.just("while"), st.integers(0, 3), inner, inner),
            st.tuples(st.just("swap"), inner, inner),
            st.tuples(st.just("until"), inner, inner),
            st.tuples(st.just("slope"), inner),
        )

    return st.recursive(leaf, more, max_leaves=6)


class Maker:
    """A tree as nodes.

    Attributes:
      x, p: the inputs.
    """

    def __init__(self, x: Any, p: Any) -> None:
        self.x, self.p = x, p

    def make(self, tree: Tree, a: Any, i: Any) -> Any:
        if tree[0] in ("x", "a", "k"):
            return (
                {"x": self.x, "a": a}.get(tree[0])
                if len(tree) == 1
                else wf.constant(tree[1], wf.float64)
            )
        return getattr(self, "make_" + tree[0])(tree, a, i)

    def make_multiply(self, tree: Tree, a: Any, i: Any) -> Any:
        return self.make(tree[1], a, i) * self.make(tree[2], a, i)

    def make_sin(self, tree: Tree, a: Any, i: Any) -> Any:
        return wf.sin(self.make(tree[1], a, i))

    def holds(self, which: str, a: Any, i: Any) -> Any:
        return self.p if which == "p" else a > 0.31 if which == "a" else wf.equal(i % 2, 0)

    def make_cond(self, tree: Tree, a: Any, i: Any) -> Any:
        return wf.cond(
            self.holds(tree[1], a, i),
            lambda: self.make(tree[2], a, i),
            lambda: self.make(tree[3], a, i),
        )

    def make_pair(self, tree: Tree, a: Any, i: Any) -> Any:
        """Two outputs, both used, the second twice; one of them only captured."""
        one = self.make(tree[3], a, i)
        y, z = wf.cond(
            self.holds(tree[1], a, i),
            lambda: (self.make(tree[2], a, i), one),
            lambda: (wf.sin(one), self.make(tree[2], one, i)),
        )
        return y * z + z * z

    def make_while(self, tree: Tree, a: Any, i: Any) -> Any:
        start = self.make(tree[2], a, i)
        found = wf.while_loop(
            lambda j, _: j < tree[1], lambda j, b: (j + 1, self.make(tree[3], b, j)), [0, start]
        )
        return wf.tanh(found[1])

    def make_swap(self, tree: Tree, a: Any, i: Any) -> Any:
        """The number of iterations depends on the loop around."""
        count = wf.cond(self.p, lambda: i % 3, lambda: wf.constant(2))
        found = wf.while_loop(
            lambda j, *_: j < count,
            lambda j, b, c: (j + 1, wf.tanh(c), self.make(tree[2], b * c, j)),
            [0, self.make(tree[1], a, i), self.x],
        )
        return wf.tanh(found[1] + found[2])

    def make_until(self, tree: Tree, a: Any, i: Any) -> Any:
        found = wf.while_loop(
            lambda b, j: wf.logical_and(b < 1.2, j < 4),
            lambda b, j: (self.make(tree[2], b, j) + 0.4, j + 1),
            [self.make(tree[1], a, i), 0],
        )
        return wf.tanh(found[0])

    def make_slope(self, tree: Tree, a: Any, i: Any) -> Any:
        """A gradient that is taken wherever this is."""
        here = wf.identity(a)
        value = self.make(tree[1], here, i)
        slope = wf.gradients(value, here)[0]
        return wf.tanh(value if slope is None else slope)


def check_tree(tree: Tree) -> None:
    """Derivatives are the same in all ways, and agree with difference quotients."""
    with wf.Graph().as_default() as graph:
        x, p, i = real(), wf.placeholder(wf.bool, []), wf.placeholder(wf.int32, [])
        orders = [Maker(x, p).make(tree, x * 1.3, i)]
        for _ in range(2):
            slope = wf.gradients(orders[-1], x)[0]
            if slope is None:
                break
            orders.append(slope)
        feeds = [{x: 0.45, p: True, i: 0}, {x: 0.8, p: False, i: 1}, {x: 0.6, p: True, i: 2}]
        found = []
        for kind, level in WAYS:
            with wf.Session(graph=graph, config=config(kind, level)) as session:
                found.append([session.run(orders, feed) for feed in feeds])
                alone = [[session.run(each, feed) for each in orders] for feed in feeds[:1]]
            np.testing.assert_allclose(alone, found[-1][:1], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found[-1], found[0], rtol=1e-9, atol=1e-12)
        with wf.Session(graph=graph) as session:
            for feed, values in zip(feeds, found[0], strict=True):
                above = session.run(orders[:-1], feed | {x: feed[x] + STEP})
                below = session.run(orders[:-1], feed | {x: feed[x] - STEP})
                jump = np.abs(np.add(above, below) - 2 * np.array(values[:-1]))
                if np.any(jump > 1e-3 * (1 + np.abs(values[:-1]))):
                    continue  # another branch, or another number of iterations, on one side
                quotients = (np.array(above) - np.array(below)) / (2 * STEP)
                np.testing.assert_allclose(values[1:], quotients, rtol=1e-4, atol=1e-4)


@given(trees())
@settings(max_examples=20)
def test_derivatives_of_programs_by_chance(tree: Tree) -> None:
    check_tree(tree)


@pytest.mark.long
@given(trees())
@settings(max_examples=1000)
def test_derivatives_of_many_programs_by_chance(tree: Tree) -> None:
    check_tree(tree)
