"""Steps that are fed and fetched bit by bit."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import new_threads

import weft as wf
from weft import errors
from weft_tensor.finalizers import settle


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def _scalars(count: int) -> list[Any]:
    return [wf.placeholder(wf.float32, [], name=name) for name in "abcdef"[:count]]


CONFIGS = [
    wf.ConfigProto(inter_op_parallelism_threads=1),
    wf.ConfigProto(inter_op_parallelism_threads=4, device_count={"CPU": 3}),
]


class TestFeedsAndFetches:
    @pytest.mark.parametrize("config", CONFIGS, ids=["one device", "three devices"])
    def test_goes_on_where_it_was(self, config: Any) -> None:
        a, b, c = _scalars(3)
        with wf.device("/cpu:2" if config.device_count else ""):
            first = a + b
        second = first * c
        with wf.Session(config=config) as session:
            for k in range(3):
                handle = session.partial_run_setup([first, second], [a, b, c])
                got = session.partial_run(handle, [first], {a: k, b: 2})
                assert got == [k + 2.0]
                got = session.partial_run(handle, {"x": (second,)}, {"c:0": got[0]})
                assert got == {"x": ((k + 2.0) ** 2,)}

    def test_state_changes_once(self) -> None:
        a, b = _scalars(2)
        variable = wf.Variable(1.0)
        value = variable.assign_add(a)
        product = value * b
        with wf.Session() as session:
            session.run(variable.initializer)
            handle = session.partial_run_setup([value, product], [a, b])
            assert session.partial_run(handle, value, {a: 2.0}) == 3.0
            assert session.run(variable) == 3.0
            assert session.partial_run(handle, product, {b: 2.0}) == 6.0
            assert session.run(variable) == 3.0

    def test_nodes_run_as_soon_as_they_can(self) -> None:
        a, b = _scalars(2)
        variable = wf.Variable(1.0)
        with wf.Session() as session:
            session.run(variable.initializer)
            handle = session.partial_run_setup([variable.assign(a).op, a + b], [a, b])
            assert session.partial_run(handle, [], {a: 5.0}) == []
            assert session.run(variable) == 5.0

    def test_loops_branches_and_gradients(self) -> None:
        x = wf.placeholder(wf.float32, [3])
        n = wf.placeholder(wf.int32, [])
        up = wf.placeholder(wf.bool, [])
        turns = wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2.0), [0, x])[1]
        either = wf.cond(up, lambda: turns + 1.0, lambda: turns - 1.0)
        (slope,) = wf.gradients(turns, [x])
        with wf.Session() as session:
            handle = session.partial_run_setup([x, turns, either, slope], [x, n, up])
            np.testing.assert_array_equal(session.partial_run(handle, x, {x: [1, 2, 3]}), [1, 2, 3])
            np.testing.assert_array_equal(session.partial_run(handle, turns, {n: 2}), [4, 8, 12])
            got = session.partial_run(handle, [either, slope], {up: False})
        np.testing.assert_array_equal(got, [[3, 7, 11], [4, 4, 4]])

    def test_what_a_branch_does_not_compute_has_no_value(self) -> None:
        up = wf.placeholder(wf.bool, [])
        side = wf.raw_ops.Switch(data=wf.constant(1.0), pred=up)[1] + 1.0
        with wf.Session() as session:
            handle = session.partial_run_setup([side], [up])
            with pytest.raises(errors.InvalidArgumentError, match="not taken"):
                session.partial_run(handle, side, {up: False})

    def test_sparse_values(self) -> None:
        sparse = wf.sparse_placeholder(wf.float32)
        total = wf.reduce_sum(sparse.values)
        with wf.Session() as session:
            handle = session.partial_run_setup(total, [sparse])
            value = wf.SparseTensorValue([[0], [2]], [1.0, 4.0], [3])
            assert session.partial_run(handle, total, {sparse: value}) == 5.0

    def test_fetches_belong_to_the_caller(self) -> None:
        a = wf.placeholder(wf.float32, [2])
        kept = wf.constant([1.0, 2.0])
        with wf.Session() as session:
            handle = session.partial_run_setup([a, kept], [a])
            fed = np.ones(2, np.float32)
            got = session.partial_run(handle, [a, kept], {a: fed})
            got[0][:] = got[1][:] = 9.0
            assert fed[0] == 1.0
            np.testing.assert_array_equal(session.run(kept), [1.0, 2.0])

    def test_several_at_once(self) -> None:
        a, b = _scalars(2)
        first, both = a * 2.0, a + b
        with wf.Session() as session:
            handles = [session.partial_run_setup([first, both], [a, b]) for _ in range(4)]
            for k, handle in enumerate(handles):
                assert session.partial_run(handle, first, {a: k}) == 2.0 * k
            for k, handle in reversed(list(enumerate(handles))):
                assert session.partial_run(handle, both, {b: 1.0}) == k + 1.0

    def test_waits_for_queues(self) -> None:
        a, b = _scalars(2)
        queue = wf.FIFOQueue(2, wf.float32, [[]])
        taken = queue.dequeue() + a
        with wf.Session() as session:
            handle = session.partial_run_setup([taken, a + b], [a, b])
            later = threading.Timer(0.02, session.run, [queue.enqueue(4.0)])
            later.start()
            assert session.partial_run(handle, taken, {a: 1.0}) == 5.0
            later.join()


class TestRefusals:
    def test_each_mistake_leaves_the_run_as_it_was(self) -> None:
        a, b, c = _scalars(3)
        first = a + b
        second, other = first * c, first + 1.0
        mistakes = [
            ("already fetched from this partial run", first, {b: 1.0}),
            ("not among the fetches", other, {}),
            ("not among the feeds", second, {other: 1.0}),
            ("already fed to this partial run", [], {a: 1.0}),
            ("requires shape", second, {c: [1.0, 2.0]}),
            ("has no value", first.op, {}),
        ]
        with wf.Session() as session:
            handle = session.partial_run_setup([first, second], [a, b, c])
            session.partial_run(handle, [], {a: 1.0})
            session.partial_run(handle, [first], {b: 2.0})
            for words, fetches, feeds in mistakes:
                with pytest.raises(errors.OpError, match=words):
                    session.partial_run(handle, fetches, feeds)
            assert session.partial_run(handle, second, {c: 3.0}) == 9.0
            with pytest.raises(errors.InvalidArgumentError, match="not a partial run"):
                session.partial_run(handle, second, {c: 3.0})
            handle = session.partial_run_setup([first, second], [a, b, c])
            with pytest.raises(errors.InvalidArgumentError, match="until b:0, c:0 is fed"):
                session.partial_run(handle, second, {a: 1.0})

    def test_of_setups(self) -> None:
        (a,) = _scalars(1)
        inside: list[Any] = []

        def body(i: Any) -> Any:
            inside.append(i + 1)
            return inside[0]

        wf.while_loop(lambda i: i < 3, body, [0])
        with wf.Session() as session:
            with pytest.raises(errors.InvalidArgumentError, match="at least one fetch"):
                session.partial_run_setup([], [a])
            with pytest.raises(errors.InvalidArgumentError, match="must be different tensors"):
                session.partial_run_setup(a, [a, a])
            with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
                session.partial_run_setup(inside, [a])

    def test_what_a_fetch_comes_after_must_be_fed_too(self) -> None:
        a, b = _scalars(2)
        variable = wf.Variable(1.0)
        used = wf.raw_ops.Identity(input=variable) * b
        with wf.control_dependencies([used]):
            update = variable.assign_add(a)
        with wf.Session() as session:
            session.run(variable.initializer)
            handle = session.partial_run_setup([used, update], [a, b])
            with pytest.raises(errors.InvalidArgumentError, match="until b:0 is fed"):
                session.partial_run(handle, update, {a: 1.0})
            assert session.partial_run(handle, [used, update], {a: 1.0, b: 1.0}) == [1.0, 2.0]


class TestEnds:
    def test_a_failure_ends_it(self) -> None:
        a, b = _scalars(2)
        checked = wf.check_numerics(a, "odd")
        with wf.Session() as session:
            handle = session.partial_run_setup([checked, b], [a, b])
            with pytest.raises(errors.InvalidArgumentError, match="odd"):
                session.partial_run(handle, checked, {a: np.nan})
            with pytest.raises(errors.InvalidArgumentError, match="not a partial run"):
                session.partial_run(handle, b, {b: 1.0})

    def test_a_timeout_is_for_each_call(self) -> None:
        a, b = _scalars(2)
        taken = wf.FIFOQueue(2, wf.float32, [[]]).dequeue()
        config = wf.ConfigProto(operation_timeout_in_ms=500)
        with wf.Session(config=config) as session:
            handle = session.partial_run_setup([a + 1.0, taken, b], [a, b])
            assert session.partial_run(handle, [], {a: 1.0}) == []
            with pytest.raises(errors.DeadlineExceededError, match="Dequeue"):
                session.partial_run(handle, taken)

    def test_closing_the_session_ends_a_call(self) -> None:
        (a,) = _scalars(1)
        taken = wf.FIFOQueue(2, wf.float32, [[]]).dequeue() + a
        session = wf.Session()
        handle = session.partial_run_setup(taken, [a])
        later = threading.Timer(0.02, session.close)
        later.start()
        with pytest.raises(errors.CancelledError, match="closed"):
            session.partial_run(handle, taken, {a: 1.0})
        later.join()

    @pytest.mark.parametrize("target", ["", "grpc"])
    def test_a_closed_session_takes_no_part_in_a_step(self, target: str) -> None:
        """It can neither continue an earlier partial run nor start a new one."""
        (a,) = _scalars(1)
        double = a * 2.0
        with ExitStack() as stack:
            if target:
                server = stack.enter_context(closing(wf.train.Server.create_local_server()))
                target = server.target
            session = wf.Session(target)
            handle = session.partial_run_setup([double], [a])
            session.close()
            for call in (
                lambda: session.partial_run(handle, double, {a: 1.0}),
                lambda: session.partial_run_setup([double], [a]),
            ):
                with pytest.raises(errors.FailedPreconditionError, match="has been closed"):
                    call()

    @pytest.mark.parametrize("close", [True, False])
    def test_one_that_is_never_finished_goes_with_the_session(self, close: bool) -> None:
        """The run waits in a queue that outlives it, and must not consume an element afterwards."""
        (a,) = _scalars(1)
        queue = wf.FIFOQueue(2, wf.float32, [[]], shared_name="q")
        taken = queue.dequeue()
        with wf.Session("inproc://partial") as other:
            session = wf.Session("inproc://partial")
            begun = new_threads()
            handle = session.partial_run_setup([taken, taken + a], [a])
            session.partial_run(handle, [])
            assert not begun()
            gone = weakref.ref(session._partial_runs[handle])
            if close:
                session.close()
            del session
            gc.collect()
            assert gone() is None
            settle()
            other.run(queue.enqueue(1.0))
            assert other.run(queue.size()) == 1
        wf.Session.reset("inproc://partial")
