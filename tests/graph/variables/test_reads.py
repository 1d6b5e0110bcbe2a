"""Reads of a variable after an update, or in a loop that updates it, return the new value."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.control_flow.context import contexts_in
from weft_graph.ir.graph import Graph
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.variables import reads
from weft_graph.variables.reference import RefVariable
from weft_io.meta_graphs.export import export_meta_graph
from weft_io.meta_graphs.scoped_import import import_scoped_meta_graph

Program = Callable[[], Any]
BOTH = pytest.mark.parametrize("use_resource", (False, True), ids=("ref", "resource"))


def after(*nodes: Any) -> Any:
    return wf.control_dependencies(nodes)


def loop_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=0)

    def body(i: Any) -> Any:
        with after(v.assign(v + i)):
            return i + 1

    with after(wf.while_loop(lambda i: i < 5, body, [0])):
        return v + 0


def loop_whose_condition_reads() -> Any:
    v = wf.get_variable("v", initializer=0)
    return wf.while_loop(lambda _: wf.less(v, 10), lambda _: wf.assign_add(v, 1) + 0, [v])


def loop_after_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    with after(wf.assign(v, 5.0)):
        return wf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + v), [0, 0.0])[1]


def loop_from_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    return wf.while_loop(lambda x: x < 36.0, lambda x: x + v, [wf.assign(v, 5.0) + 1.0])


def loop_in_a_loop() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    def inner(j: Any, total: Any) -> Any:
        with after(total):
            update = wf.assign_add(v, 1.0)
        with after(update):
            return j + 1, total + v

    def outer(i: Any, total: Any) -> Any:
        def more(j: Any, _: Any) -> Any:
            return wf.logical_and(j < 3, v < 100.0)

        return i + 1, total + wf.while_loop(more, inner, [0, 0.0])[1] + 0.0 * v

    return wf.while_loop(lambda i, _: wf.logical_and(i < 2, v < 100.0), outer, [0, 0.0])[1]


def quiet_loop_in_a_loop_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    def outer(i: Any, total: Any) -> Any:
        with after(total):
            update = wf.assign(v, wf.cast(i, wf.float32))
        with after(update):
            start = wf.constant(0)
        inner = wf.while_loop(lambda j, t: j < 2, lambda j, t: (j + 1, t + v), [start, 0.0])
        return i + 1, total + inner[1]

    return wf.while_loop(lambda i, _: i < 4, outer, [0, 0.0])[1]


def loop_after_an_assignment_from_older_values() -> Any:
    v, start, zero = wf.get_variable("v", initializer=1.0), wf.constant(0), wf.constant(0.0)
    with after(wf.assign(v, 5.0)):
        return wf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + v), [start, zero])[1]


def limited_loop_after_an_assignment() -> Any:
    v, zero = wf.get_variable("v", initializer=1.0), wf.constant(0.0)
    with after(wf.assign(v, 5.0)):
        return wf.while_loop(lambda _: True, lambda x: x + v, [zero], maximum_iterations=3)


def loop_whose_counter_is_ahead() -> Any:
    """The counter needs no update; the condition, and so the body, waits for it."""
    v = wf.get_variable("v", initializer=1.0)

    def wait(value: Any) -> Any:
        time.sleep(0.02)
        return value

    def body(i: Any, total: Any) -> Any:
        following = i + 1
        total = total + v
        (slow,) = wf.py_func(wait, [total], [wf.float32])
        with after(slow):
            update = wf.assign_add(v, 1.0)
        with after(update):
            return following, wf.identity(total)

    return wf.while_loop(lambda i, x: wf.logical_and(i < 4, x < 99.0), body, [0, 0.0])[1]


def branch_after_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    with after(wf.assign(v, 5.0)):
        return wf.cond(wf.constant(True), lambda: v * 2.0, lambda: v * 3.0)


def branch_on_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    return wf.cond(wf.assign(v, 5.0) > 3.0, lambda: v * 2.0, lambda: v * 3.0)


def branch_in_a_branch_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    def branch() -> Any:
        with after(wf.assign(v, 7.0)):
            return wf.cond(wf.constant(True), lambda: v * 2.0, lambda: v * 0.0)

    return wf.cond(wf.constant(True), branch, lambda: wf.constant(0.0))


def branch_in_a_loop_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    def body(i: Any, total: Any) -> Any:
        with after(wf.assign_add(v, 1.0)):
            return i + 1, total + wf.cond(i < 100, lambda: v * 2.0, lambda: v * 0.0)

    return wf.while_loop(lambda i, _: i < 4, body, [0, 0.0])[1]


def branch_that_assigns_in_a_loop() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    def body(i: Any) -> Any:
        with after(wf.cond(v < 3.0, lambda: wf.assign_add(v, 1.0) + 0.0, lambda: v + 0.0)):
            return i + 1

    with after(wf.while_loop(lambda i: i < 10, body, [0])):
        return v + 0.0


def steps_of_descent_in_a_loop() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    def body(i: Any) -> Any:
        slope = wf.gradients((v - 3.0) ** 2.0, v)[0]
        with after(wf.assign_sub(v, 0.25 * slope)):
            return i + 1

    with after(wf.while_loop(lambda i: i < 3, body, [0])):
        return v + 0.0


def rows_in_a_loop_that_scatters() -> Any:
    v = wf.get_variable("v", initializer=[[1.0, 2.0], [3.0, 4.0]])

    def body(i: Any, total: Any) -> Any:
        with after(total):
            update = wf.scatter_add(v, [0], [[1.0, 1.0]])
        with after(update):
            return i + 1, total + wf.reduce_sum(wf.nn.embedding_lookup(v, [0]))

    return wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]


def scan_that_adds() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    def step(_: Any, x: Any) -> Any:
        with after(wf.assign_add(v, x)):
            return v + 0.0

    return wf.scan(step, wf.constant([1.0, 2.0, 3.0]), 0.0)


def parts_after_assignments() -> Any:
    v = wf.get_variable(
        "v", [4], initializer=wf.zeros_initializer(), partitioner=wf.fixed_size_partitioner(2)
    )
    with after(*[wf.assign(part, wf.ones_like(part)) for part in v]):
        return wf.cond(wf.constant(True), lambda: wf.reduce_sum(v), lambda: 0.0)


def parts_in_a_loop_that_assigns() -> Any:
    v = wf.get_variable(
        "v", [4], initializer=wf.zeros_initializer(), partitioner=wf.fixed_size_partitioner(2)
    )

    def body(i: Any, total: Any) -> Any:
        with after(*[wf.assign_add(part, wf.ones_like(part)) for part in v]):
            return i + 1, total + wf.reduce_sum(v)

    return wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]


def summary_after_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    with after(wf.assign(v, 5.0)):
        text = wf.cond(wf.constant(True), lambda: wf.summary.scalar("v", v), lambda: "")
    return wf.decode_raw(wf.substr(text, -4, 4), wf.float32)[0]


def average_in_a_branch() -> Any:
    v = wf.get_variable("v", initializer=1.0)
    average = wf.train.ExponentialMovingAverage(0.5)
    with after(wf.assign(v, 5.0)):
        update = wf.cond(wf.constant(True), lambda: average.apply([v]), wf.no_op)
    with after(update):
        return average.average(v) + 0.0


def call_after_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    @wf.Defun()
    def double() -> Any:
        return v * 2.0

    with after(wf.assign(v, 5.0)):
        return double()


def call_whose_read_waits_for_its_argument() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    @wf.Defun(wf.float32)
    def body(x: Any) -> Any:
        with after(x):
            return x + v

    with after(wf.assign(v, 5.0)):
        x = wf.constant(1.0)
    return body(x)


def call_whose_argument_follows_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    @wf.Defun(wf.float32)
    def scaled(x: Any) -> Any:
        return x * v

    with after(wf.assign(v, 5.0)):
        x = wf.identity(2.0)
    return scaled(x)


def call_of_a_number_after_an_assignment() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    @wf.Defun(wf.float32)
    def scaled(x: Any) -> Any:
        return x * v

    first = scaled(2.0)
    with after(first):
        update = wf.assign(v, 5.0)
    with after(update):
        return scaled(2.0) - first


def call_in_a_loop_whose_argument_follows_an_update() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    @wf.Defun(wf.float32)
    def plus(x: Any) -> Any:
        return x + v

    def body(i: Any, total: Any) -> Any:
        with after(total):
            update = wf.assign_add(v, 1.0)
        with after(update):
            x = wf.identity(total)
        return i + 1, wf.reshape(plus(x), [])

    return wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]


def call_in_a_loop_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    @wf.Defun()
    def double() -> Any:
        return v * 2.0

    def body(i: Any, total: Any) -> Any:
        with after(wf.assign_add(v, 1.0)):
            return i + 1, total + double()

    return wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]


def branch_in_a_function_that_assigns() -> Any:
    v = wf.get_variable("v", initializer=1.0)

    @wf.Defun()
    def body() -> Any:
        with after(wf.assign(v, 5.0)):
            return wf.cond(wf.constant(True), lambda: v * 2.0, lambda: v * 1.0) + v

    return body()


def loop_in_a_function() -> Any:
    v = wf.get_variable("v", initializer=0.0)

    @wf.Defun(wf.int32)
    def count(start: Any) -> Any:
        def body(i: Any, last: Any) -> Any:
            with after(last):
                update = wf.assign_add(v, 1.0)
            with after(update):
                return i + 1, v + 0.0

        return wf.while_loop(lambda i, _: v < 5.0, body, [start, 0.0])[1]

    return count(wf.constant(0))


IN_PLACE: list[tuple[Program, Any]] = [
    (loop_that_assigns, 10),
    (loop_whose_condition_reads, 10),
    (loop_after_an_assignment, 15.0),
    (loop_from_an_assignment, 36.0),
    (loop_after_an_assignment_from_older_values, 15.0),
    (limited_loop_after_an_assignment, 15.0),
    (loop_in_a_loop, 21.0),
    (quiet_loop_in_a_loop_that_assigns, 12.0),
    (branch_after_an_assignment, 10.0),
    (branch_on_an_assignment, 10.0),
    (branch_in_a_branch_that_assigns, 14.0),
    (branch_in_a_loop_that_assigns, 20.0),
    (branch_that_assigns_in_a_loop, 3.0),
    (steps_of_descent_in_a_loop, 2.75),
    (rows_in_a_loop_that_scatters, 21.0),
    (average_in_a_branch, 3.0),
]
"""Programs that TensorFlow 2.21 gives these values for, with either kind of variable."""

OTHERS: list[tuple[Program, Any]] = [
    (loop_whose_counter_is_ahead, 10.0),
    (scan_that_adds, [1.0, 3.0, 6.0]),
    (parts_after_assignments, 4.0),
    (parts_in_a_loop_that_assigns, 24.0),
    (summary_after_an_assignment, 5.0),
    (call_after_an_assignment, 10.0),
    (call_whose_argument_follows_an_assignment, 10.0),
    (call_of_a_number_after_an_assignment, 8.0),
    (call_in_a_loop_whose_argument_follows_an_update, 6.0),
    (call_whose_read_waits_for_its_argument, 6.0),
    (call_in_a_loop_that_assigns, 12.0),
    (branch_in_a_function_that_assigns, 15.0),
    (loop_in_a_function, 5.0),
]
"""Programs that TensorFlow refuses, or whose reference variables race there."""


def by_name(case: Any) -> str | None:
    return getattr(case, "__name__", None)


def value(fetch: Any) -> Any:
    with wf.Session() as session:
        session.run("init")
        return session.run(fetch, options=wf.RunOptions(timeout_in_ms=60_000))


@BOTH
@pytest.mark.parametrize(("program", "expected"), IN_PLACE + OTHERS, ids=by_name)
def test_reads_in_place(program: Program, expected: Any, use_resource: bool) -> None:
    with Graph().as_default():
        with wf.variable_scope("", use_resource=use_resource):
            result = program()
        wf.variables_initializer(wf.global_variables(), name="init")
        np.testing.assert_allclose(value(result), expected)


@BOTH
def test_gradients_of_a_loop_that_updates_what_it_reads(use_resource: bool) -> None:
    """The sum of x v for v = 1, 2, 3: each turn's own value counts."""
    with Graph().as_default():
        v = wf.Variable(1.0, use_resource=use_resource)
        x = wf.constant(2.0)

        def body(i: Any, total: Any) -> Any:
            product = x * v
            with after(product):
                update = wf.assign_add(v, 1.0)
            with after(update):
                return i + 1, total + product

        total = wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]
        slopes = wf.gradients(total, [x, v])
        wf.variables_initializer([v], name="init")
        np.testing.assert_allclose(value([total, *slopes]), [12.0, 6.0, 6.0])


@BOTH
def test_gradients_of_a_branch_after_an_assignment(use_resource: bool) -> None:
    with Graph().as_default():
        v = wf.Variable(1.0, use_resource=use_resource)
        x = wf.constant(2.0)
        with after(wf.assign(v, 5.0)):
            y = wf.cond(wf.constant(True), lambda: v * x * v, lambda: v + 0.0)
        slopes = wf.gradients(y, [x, v])
        wf.variables_initializer([v], name="init")
        np.testing.assert_allclose(value([y, *slopes]), [50.0, 25.0, 20.0])


@BOTH
def test_a_value_that_was_read_stays(use_resource: bool) -> None:
    with Graph().as_default():
        v = wf.Variable(1.0, use_resource=use_resource)
        before = v.read_value()
        with after(before):
            update = wf.assign(v, 5.0)
        with after(update):
            y = wf.cond(wf.constant(True), lambda: before * 2.0, lambda: before)
        wf.variables_initializer([v], name="init")
        assert value(y) == 2.0


def test_what_nobody_updates_is_read_once_before_the_loop() -> None:
    with Graph().as_default() as graph:
        v, w = wf.Variable(1.0), wf.Variable(1.0)

        def body(i: Any, total: Any) -> Any:
            inner = wf.cond(i < 2, lambda: v * total, lambda: v + total) + v
            with after(wf.assign_add(w, inner)):
                return i + 1, inner + 1.0

        wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])
        (loop,) = [c for c in contexts_in(graph).values() if c.repeats]
        assert v.value() in loop.invariants  # type: ignore[attr-defined]
        inside = [n for n in v.handle.consumers() if n.context is not None]
        assert not inside, "the loop takes the value, not the variable"


def test_the_way_from_an_update_is_searched_from_both_ends() -> None:
    with Graph().as_default():
        v = wf.Variable(1.0)
        update = v.assign_add(1.0)
        with after(update):
            node = wf.no_op()
        for _ in range(3):
            before, node = node, wf.group(node)
        assert reads.filter_following([node, before], [update.op]) == [node, before]
        assert reads.filter_following([update.op], [update.op]) == [update.op]
        assert reads.filter_following([update.op, v.initializer], [node]) == []
        other = wf.constant(1.0).op
        assert reads.filter_following([other, node], [update.op]) == [node]


def test_a_graph_whose_updates_were_looked_for_is_freed() -> None:
    with Graph().as_default() as graph:
        branch_after_an_assignment()
    seen = weakref.ref(graph)
    del graph
    gc.collect()
    assert seen() is None


# ------------------------------------------------------------------ graphs of TensorFlow


@pytest.fixture
def as_tensorflow_writes(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Build as in TensorFlow: all users of a reference variable share one read."""
    monkeypatch.setattr(RefVariable, "value", lambda self: self._snapshot)
    monkeypatch.setattr(reads, "reference_of", lambda value: None)
    return monkeypatch


@pytest.mark.parametrize("meta", [False, True], ids=["graph", "meta graph"])
@pytest.mark.parametrize(("program", "expected"), IN_PLACE, ids=by_name)
def test_imported_graphs(
    program: Program, expected: Any, meta: bool, as_tensorflow_writes: pytest.MonkeyPatch
) -> None:
    with Graph().as_default():
        wf.identity(program(), name="result")
        wf.variables_initializer(wf.global_variables(), name="init")
        message = export_meta_graph()
    as_tensorflow_writes.undo()
    with Graph().as_default():
        if meta:
            import_scoped_meta_graph(message)
        else:
            import_graph_def(message.graph_def, name="")
        np.testing.assert_allclose(value("result:0"), expected)


def test_gradients_of_an_imported_loop(as_tensorflow_writes: pytest.MonkeyPatch) -> None:
    with Graph().as_default():
        v, x = wf.Variable(1.0, name="v"), wf.constant(2.0, name="x")

        def body(i: Any, total: Any) -> Any:
            with after(wf.assign_add(v, 1.0)):
                return i + 1, total + x * v

        total = wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]
        wf.identity(total, name="result")
        wf.variables_initializer([v], name="init")
        message = export_meta_graph()
    as_tensorflow_writes.undo()
    with Graph().as_default() as graph:
        import_scoped_meta_graph(message)
        (slope,) = wf.gradients(*map(graph.get_tensor_by_name, ("result:0", "x:0")))
        np.testing.assert_allclose(value(["result:0", slope]), [18.0, 9.0])


def test_graphs_without_updates_are_imported_as_they_are() -> None:
    with Graph().as_default() as graph:
        v = wf.Variable(1.0, name="v")
        wf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + v), [0, 0.0])
        message = graph.as_graph_def()
    with Graph().as_default() as again:
        import_graph_def(message, name="")
        assert [n.name for n in again.nodes] == [n.name for n in graph.nodes]


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_whole_of_parts_is_joined_in_each_turn_of_a_loop_that_updates_them(
    parts: int, resource: bool
) -> None:
    def body(i, total):
        total = total + v
        with wf.control_dependencies([total]):
            updates = [part.assign_add([1.0] * (4 // parts)).op for part in v]
        with wf.control_dependencies(updates):
            return i + 1, wf.identity(total)

    with Graph().as_default(), wf.Session() as session:
        partitioner = wf.fixed_size_partitioner(parts)
        zeros = wf.zeros_initializer()
        v = wf.get_variable("v", [4], None, zeros, partitioner=partitioner, use_resource=resource)
        total = wf.while_loop(lambda i, _: i < 3, body, [0, wf.zeros([4])])[1]
        with wf.control_dependencies([total]):
            after = wf.cond(total[0] > 0, lambda: 2.0 * wf.identity(v), lambda: wf.zeros([4]))
        kept = wf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + v), [0, wf.zeros([4])])
        session.run(wf.global_variables_initializer())
        assert session.run(total).tolist() == [0.0 + 1 + 2] * 4
        assert session.run(after).tolist() == [12.0] * 4
        assert session.run(kept[1]).tolist() == [18.0] * 4


def test_variables_of_one_shared_name_know_of_updates_of_each_other() -> None:
    with Graph().as_default(), wf.Session() as session:
        attrs = {"shape": [], "dtype": wf.float32, "container": "", "shared_name": "both"}
        a, b = [wf.raw_ops.VariableV2(name=name, **attrs) for name in "ab"]
        read = wf.identity(b, "b/read")

        def body(i, total):
            with wf.control_dependencies([wf.assign_add(a, 1.0)]):
                return i + 1, total + wf.identity(read)

        total = wf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]
        session.run(wf.assign(a, 1.0))
        assert session.run(total) in {1.0 + 2 + 3, 2.0 + 3 + 4}


def test_an_updated_resource_variable_is_fetched_from_a_finalized_graph() -> None:
    with Graph().as_default() as graph, wf.Session() as session:
        v = wf.Variable(1.0, use_resource=True)
        after = v.assign_add(2.0)
        session.run(v.initializer)
        graph.finalize()
        assert session.run(after) == 3.0


def test_control_inputs_that_no_update_comes_before_leave_the_shared_read() -> None:
    with Graph().as_default() as graph:
        v = wf.Variable(1.0, name="v", use_resource=False)
        with after(wf.no_op()):
            assert (v * 2.0).op.inputs[0].name == "v/read:0"
        with after(wf.identity(v.assign(2.0))):
            assert (v * 2.0).op.inputs[0].name == "v/read_1:0"
        assert graph.get_tensor_by_name("v/read:0").consumers()
