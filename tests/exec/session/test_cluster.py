"""Sessions over two tasks in two processes, joined by bytes alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.cluster import Hub, Master
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_exec.session import target as targets
from weft_graph.functions.defun import Declare, Defun
from weft_graph.ir.registry import Registry

FIRST, SECOND = "/job:worker/task:0", "/job:worker/task:1"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    made = Hub()
    with pytest.MonkeyPatch.context() as patch:
        mine: Registry[Any] = Registry("session target", package="weft_exec.session.targets")
        for scheme in ("", "inproc"):
            mine.register(scheme, targets.find_target(f"{scheme}://" if scheme else ""))
        mine.register("pair", made)
        patch.setattr(targets, "_targets", mine)
        yield made
    made.close()


@pytest.fixture
def session(hub: Hub) -> Iterator[wf.Session]:
    with wf.Graph().as_default(), wf.Session("pair://x") as made:
        hub.parts.clear()
        yield made
    wf.Session.reset("pair://x")


def test_variables_and_feeds_and_fetches_are_with_their_task(hub: Hub, session: Any) -> None:
    with wf.device(FIRST):
        x = wf.placeholder(wf.float32, [None])
        v = wf.Variable([1.0, 2.0], name="v")
        a = x * 2.0
    with wf.device(SECOND):
        y = wf.placeholder(wf.float32, [])
        w = wf.get_variable("w", initializer=[5.0, 6.0], use_resource=True)
        b = y * 3.0
        both = a + w
    session.run(wf.global_variables_initializer())
    assert len(hub.parts) == 2
    got = session.run([a, b, both, v, w], {x: [1.0, 2.0], y: 4.0})
    np.testing.assert_equal(got, [[2, 4], 12, [7, 10], [1, 2], [5, 6]])
    with wf.device(SECOND):
        only = y + 1.0
    hub.parts.clear()
    assert session.run(only, {y: 1.0}) == 2.0
    assert list(hub.parts) == [hub.devices[2].name]  # neither fed nor fetched by way of task 0
    np.testing.assert_equal(session.run(v.assign_add(w)), [6, 8])
    np.testing.assert_equal(session.run(w.assign(v * 2.0)), [12, 16])
    np.testing.assert_equal(session.run([v, w.read_value()]), [[6, 8], [12, 16]])


@pytest.mark.kernels
def test_a_loop_and_its_gradient_over_both_tasks(session: Any) -> None:
    x = wf.placeholder(wf.float32, [2])

    def body(i: Any, a: Any) -> Any:
        with wf.device(SECOND):
            b = wf.sin(a)
        with wf.device(FIRST):
            return i + 1, b * 1.5

    last = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
    p = wf.placeholder(wf.bool, [])
    with wf.device(SECOND):
        either = wf.cond(p, lambda: last * 2.0, lambda: wf.zeros_like(last))
    (slope,) = wf.gradients(either, [x])
    proto = wf.ConfigProto(allow_soft_placement=True)
    with wf.Session(config=proto) as here:
        for taken in (True, False):
            fed = {x: [0.3, 0.7], p: taken}
            want, got = here.run([either, slope], fed), session.run([either, slope], fed)
            np.testing.assert_allclose(got, want, rtol=1e-6)
            assert np.any(want[1]) == taken


def test_functions_that_stay_calls(session: Any) -> None:
    declared = Declare("cluster_power", [("x", wf.float32), ("n", wf.int32)], [("y", "float")])

    @Defun(wf.float32, wf.int32, func_name="cluster_power")
    def power(x: Any, n: Any) -> Any:
        return wf.cond(n > 0, lambda: x * declared(x, n - 1), lambda: wf.ones_like(x))

    x = wf.placeholder(wf.float32, [])
    power.add_to_graph(wf.get_default_graph())
    with wf.device(SECOND):
        y = power(x, 3)
    with wf.device(FIRST):
        z = y + 1.0
    assert session.run(z, {x: 2.0}) == 9.0


def test_queues_are_with_their_task_and_wait_there(session: Any) -> None:
    with wf.device(SECOND):
        queue = wf.FIFOQueue(2, [wf.string, wf.int32], [[], [2]], shared_name="cluster")
    with wf.device(FIRST):
        fed = wf.placeholder(wf.string, [])
        put = queue.enqueue([fed, [1, 2]])
        text, numbers = queue.dequeue()
        joined, more = wf.string_join([text, "!\0é"]), numbers + 1
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(session.run([joined, more])))
    waiting.start()
    session.run(put, {fed: b"\xff\0"})
    waiting.join(20)
    np.testing.assert_equal(found, [[b"\xff\0!\0\xc3\xa9", [2, 3]]])
    assert session.run(queue.size()) == 0


def test_colocation_control_edges_and_references(session: Any) -> None:
    with wf.device(SECOND):
        v = wf.Variable(1.0, name="v")
    with wf.colocate_with(v.op):
        beside = wf.constant(2.0) * 3.0
    with wf.device(FIRST):
        one = wf.Variable(0.0, name="one")
        add = wf.assign_add(v, 10.0)  # goes to where the variable is
        with wf.control_dependencies([add]):
            after = one.assign(v + 1.0)
            with wf.device(SECOND), wf.control_dependencies([after]):
                last = v.assign_add(beside + one)
    session.run(wf.global_variables_initializer())
    assert session.run(last) == 29.0
    assert session.run([v, one]) == [29.0, 12.0]
    report = session.explain([last])
    places = {each.name: each.device for each in report.placement.nodes}
    assert places["v"] == places[beside.op.name] == places["AssignAdd"]


def test_large_constants_and_odd_values(session: Any) -> None:
    big = np.arange(50_000, dtype=np.float64)
    strings = np.array([["é", "\0"], ["", "long" * 99]], object)
    with wf.device(SECOND):
        x, text = wf.constant(big), wf.constant(strings)
        halves = wf.cast(x[:3], wf.bfloat16)
        none = wf.zeros([0, 3], wf.int64)
    with wf.device(FIRST):
        y = wf.reduce_sum(x + 1.0)
        got = session.run(
            [y, wf.identity(text), halves + halves, wf.identity(none), wf.complex(y, y)]
        )
    assert got[0] == big.sum() + 50_000 and got[4].imag == got[0]
    assert got[1][0].tolist() == ["é".encode(), b"\0"] and got[1].shape == (2, 2)
    assert got[2].astype(float).tolist() == [0, 2, 4] and got[3].shape == (0, 3)


def test_an_error_ends_the_other_part_even_where_it_waits(session: Any) -> None:
    x = wf.placeholder(wf.int32, [])
    with wf.device(FIRST):
        queue = wf.FIFOQueue(1, [wf.float32], [[]])
        never = queue.dequeue()
    with wf.device(SECOND):
        bad = wf.gather([1.0, 2.0], x, name="bad")
        fine = wf.constant(1.0) + 1.0
    with wf.device(FIRST):
        sum_ = bad + 1.0
    with pytest.raises(errors.InvalidArgumentError) as caught:
        session.run([never, sum_], {x: 7})
    assert caught.value.node == "bad" and "test_cluster.py" in str(caught.value.line)
    assert session.run([sum_, fine], {x: 1}) == [3.0, 2.0]


def test_the_graph_may_grow_and_state_stays(session: Any) -> None:
    with wf.device(SECOND):
        v = wf.Variable(2.0, name="v")
    session.run(v.initializer)
    for i in range(3):
        with wf.device((FIRST, SECOND)[i % 2]):
            more = v * float(i)
        assert session.run(more) == 2.0 * i
    with wf.Session("pair://x") as other:
        assert other.run(v) == 2.0
    wf.Session.reset("pair://x")
    with pytest.raises(errors.FailedPreconditionError, match="v"):
        session.run(v)


def test_closing_ends_what_waits_there(hub: Hub) -> None:
    with wf.Graph().as_default():
        with wf.device(SECOND):
            queue = wf.FIFOQueue(1, [wf.float32])
            taken = queue.dequeue()
        made = wf.Session("pair://x")
        backend = made._backend
        assert isinstance(backend, Master)
        raised: list[Exception] = []

        def wait() -> None:
            try:
                made.run(taken)
            except errors.CancelledError as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: bool(backend._running))
        made.close()
        waiting.join(20)
        assert "closed" in str(raised[0])
        with pytest.raises(errors.FailedPreconditionError, match="closed"):
            made.run(taken)
