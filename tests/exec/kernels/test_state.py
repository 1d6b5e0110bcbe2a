from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load_family
from weft_testing.waiting import in_threads, wait_until

from weft_exec.executor.driver import Driver
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.state import MutexResource
from weft_exec.resources.resources import NOT_READY, VariableState
from weft_exec.session.session import Session
from weft_graph.ir import builder
from weft_graph.ir.graph import Graph
from weft_graph.ops import control, resource_state, state
from weft_graph.proto import RunOptions
from weft_graph.variables.reference import RefVariable, Variable
from weft_tensor import dtypes, errors
from weft_tensor.finalizers import settle

ROWS = [
    pytest.param(case, dtype, use_resource, id=f"{case.name}-{dtype}-{kind}")
    for case in load_family("state").STATE_CASES
    for dtype in case.dtypes
    for use_resource, kind in ((False, "ref"), (True, "resource"))
]


def update(case: Any, variable: Any, inputs: list[Any]) -> Any:
    if isinstance(variable, RefVariable):
        return builder.create(case.op, [variable, *inputs])
    if case.op.startswith("Assign"):
        return builder.create(case.op + "VariableOp", [variable.handle, *inputs])
    how = case.op.removeprefix("Scatter")
    return resource_state.resource_scatter(how, variable.handle, *inputs, variable.dtype)


@pytest.mark.parametrize(("case", "dtype", "use_resource"), ROWS)
def test_update(case: Any, dtype: str, use_resource: bool) -> None:
    numpy = dtypes.as_dtype(dtype).numpy
    inputs = [x.astype(numpy) if x.dtype.kind == "f" else x for x in case.inputs]
    with Graph().as_default() as graph:
        variable = Variable(case.before.astype(numpy), use_resource=use_resource)
        node = update(case, variable, inputs)
        read = variable.read_value()
    session = Session(graph=graph)
    session.run(variable.initializer)
    session.run(node)
    value = session.run(read)
    assert value.dtype == numpy and value.shape == case.after.shape
    wanted = case.after.astype(numpy)
    if np.dtype(numpy).kind in "iub":
        np.testing.assert_array_equal(value, wanted)
    else:
        np.testing.assert_allclose(
            value.astype(complex),
            wanted.astype(complex),
            rtol=2e-2 if numpy.itemsize == 2 else 1e-6,
        )


@pytest.mark.parametrize("use_resource", (False, True))
def test_scatter_division_of_integers_floors_in_turn(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.array([[7, -7]], np.int32), use_resource=use_resource)
        divided = state.scatter_div(variable, [0, 0], [[2, 2], [3, 3]])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(divided), [[1, -2]])


@pytest.mark.parametrize("use_resource", (False, True))
@pytest.mark.parametrize("index", (-1, 4))
def test_scatter_names_index_and_range(use_resource: bool, index: int) -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.ones((4, 2), np.float32), use_resource=use_resource)
        bad = state.scatter_add(variable, [[1, 2], [index, 0]], np.ones((2, 2, 2), np.float32))
    session = Session(graph=graph)
    session.run(variable.initializer)
    with pytest.raises(errors.InvalidArgumentError, match=rf"\[1,0\] = {index} is not in \[0, 4\)"):
        session.run(bad)
    np.testing.assert_array_equal(session.run(variable), np.ones((4, 2)))


def test_scatter_nd_names_the_point_and_the_shape() -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.ones((4, 2), np.float32))
        bad = state.scatter_nd_add(variable, [[3, 2]], [1.0])
    session = Session(graph=graph)
    session.run(variable.initializer)
    words = r"\[3, 2\] are out of range for shape \[4,2\]"
    with pytest.raises(errors.InvalidArgumentError, match=words):
        session.run(bad)


def test_scatter_into_many_rows_is_exact() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal((1000, 16))
    rows = rng.integers(0, 1000, 600)
    updates = rng.standard_normal((600, 16))
    with Graph().as_default() as graph:
        variable = Variable(before)
        added = state.scatter_add(variable, rows, updates)
    session = Session(graph=graph)
    session.run(variable.initializer)
    wanted = before.copy()
    np.add.at(wanted, rows, updates)
    np.testing.assert_allclose(session.run(added), wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("use_resource", (False, True))
def test_count_up_to(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable(1, use_resource=use_resource)
        count = state.count_up_to(variable, 3)
    session = Session(graph=graph)
    session.run(variable.initializer)
    assert [session.run(count), session.run(count)] == [1, 2]
    with pytest.raises(errors.OutOfRangeError, match="limit of 3"):
        session.run(count)
    assert session.run(variable) == 3


@pytest.mark.parametrize("use_resource", (False, True))
def test_an_uninitialized_variable_is_named(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0], name="lonely", use_resource=use_resource)
        added = variable.assign_add([1.0])
        known = variable.is_initialized()
    session = Session(graph=graph)
    assert session.run(known) == np.False_
    for fetch in (variable, added):
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value lonely"):
            session.run(fetch)
    session.run(variable.initializer)
    assert session.run(known) == np.True_


def test_assign_with_another_shape() -> None:
    with Graph().as_default() as graph:
        fixed = Variable([1.0, 2.0])
        free = Variable([1.0, 2.0], validate_shape=False)
        fed = builder.constant([1.0, 2.0, 3.0])
        with pytest.raises(errors.InvalidArgumentError, match="shape"):
            fixed.assign(fed)
        resized = state.assign(free, fed, validate_shape=False)
    session = Session(graph=graph)
    session.run([fixed.initializer, free.initializer])
    np.testing.assert_array_equal(session.run(resized), [1.0, 2.0, 3.0])


def test_strings_and_booleans_are_held() -> None:
    with Graph().as_default() as graph:
        text = Variable(["a", "b"])
        word = Variable("x", use_resource=True)
        flag = Variable(True)
        changed = state.scatter_update(text, [1], ["c"])
    session = Session(graph=graph)
    session.run([text.initializer, word.initializer, flag.initializer])
    assert session.run(changed).tolist() == [b"a", b"c"]
    assert session.run(word) == b"x"
    assert session.run(flag) == np.True_


def test_resource_gather() -> None:
    table = np.arange(24.0).reshape(4, 3, 2)
    with Graph().as_default() as graph:
        variable = Variable(table, use_resource=True)
        rows = variable.sparse_read([[3, 0]])
        point = variable.gather_nd([[1, 2], [0, 0]])
        batched = resource_state.resource_gather(
            variable.handle, [[0, 2], [1, 1], [2, 0], [0, 0]], dtypes.float64, batch_dims=1
        )
        shape = builder.out("VariableShape", [variable.handle])
        outside = variable.sparse_read([4])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(rows), table[[[3, 0]]])
    np.testing.assert_array_equal(session.run(point), table[[1, 0], [2, 0]])
    wanted = np.stack([table[i][j] for i, j in enumerate([[0, 2], [1, 1], [2, 0], [0, 0]])])
    np.testing.assert_array_equal(session.run(batched), wanted)
    np.testing.assert_array_equal(session.run(shape), [4, 3, 2])
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[0\] = 4 is not in \[0, 4\)"):
        session.run(outside)


def test_destroyed_variables_are_uninitialized() -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0], use_resource=True)
        destroy = resource_state.destroy_resource_op(variable.handle)
        strict = resource_state.destroy_resource_op(variable.handle, ignore_lookup_error=False)
        known = variable.is_initialized()
    session = Session(graph=graph)
    session.run(variable.initializer)
    session.run(destroy)
    assert session.run(known) == np.False_
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(variable), [1.0])
    session.run(strict)
    assert session.run(known) == np.False_


def test_a_fed_array_is_copied() -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.zeros(2048))
    session = Session(graph=graph)
    fed = np.ones(2048)
    variable.load(fed, session)
    fed[:] = 7
    np.testing.assert_array_equal(session.run(variable), np.ones(2048))


def test_a_fetched_array_is_the_callers() -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.ones(2048))
    session = Session(graph=graph)
    session.run(variable.initializer)
    session.run(variable)[:] = 7
    session.run(variable.value())[:] = 8
    np.testing.assert_array_equal(session.run(variable), np.ones(2048))


def test_updates_work_in_place() -> None:
    with Graph().as_default() as graph:
        variable = Variable(np.ones((64, 64)))
        updates = state.scatter_add(variable, [1], np.ones((1, 64))).node
    session = Session(graph=graph)
    session.run(variable.initializer)
    (held,) = session._resources.resources(VariableState, "")
    address = held.read().ctypes.data
    for _ in range(3):
        session.run(updates)
    assert held.read().ctypes.data == address
    assert held.read()[1, 0] == 4.0


def test_mutexes_pass_in_order_and_survive_failures() -> None:
    with Graph().as_default() as graph:
        mutex = resource_state.mutex()
        lock = resource_state.mutex_acquire(mutex)
        with graph.control_dependencies([lock]):
            counter = Variable(0)
            inside = counter.assign_add(1, read_value=False)
        with graph.control_dependencies([inside]):
            release = resource_state.mutex_release(lock)
        forgotten = resource_state.mutex_acquire(mutex)
    session = Session(graph=graph)
    session.run(counter.initializer)
    for _ in range(5):
        session.run(release)
    session.run(forgotten.op)
    session.run(release)
    assert session.run(counter) == 6


class TestEndsOfSteps:
    """A lock ends with its step, also while something refers to its value."""

    @pytest.fixture
    def alive(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """The locks that have been taken."""
        alive: list[Any] = []
        attempt = MutexResource.attempt

        def kept(mutex: MutexResource) -> Any:
            hold = attempt(mutex)
            alive.append(hold)
            return hold

        monkeypatch.setattr(MutexResource, "attempt", kept)
        return alive

    @pytest.fixture
    def session(self) -> Any:
        with Graph().as_default() as graph, Session(graph=graph) as session:
            yield session

    def again(self, session: Session, lock: Any) -> None:
        session.run(lock.op, options=RunOptions(timeout_in_ms=20_000))

    def test_one_that_nobody_releases(self, session: Session, alive: list[Any]) -> None:
        lock = resource_state.mutex_acquire(resource_state.mutex())
        for _ in range(3):
            session.run(lock.op)
        assert len(alive) == 3 and not any([hold.release() for hold in alive])

    def test_a_failure(self, session: Session, alive: list[Any]) -> None:
        lock = resource_state.mutex_acquire(resource_state.mutex())
        with session.graph.control_dependencies([lock]):
            fails = control.Assert(builder.constant(value=False), ["no"])
        with session.graph.control_dependencies([fails]):
            release = resource_state.mutex_release(lock)
        with pytest.raises(errors.InvalidArgumentError, match="assertion failed"):
            session.run(release)
        assert len(alive) == 1 and not alive[0].release()
        self.again(session, lock)

    def test_a_deadline(self, session: Session, alive: list[Any]) -> None:
        lock = resource_state.mutex_acquire(resource_state.mutex())
        with session.graph.control_dependencies([lock]):
            waits = resource_state.mutex_acquire(resource_state.mutex(name="other"))
            with session.graph.control_dependencies([waits]):
                never = resource_state.mutex_acquire(waits.op.inputs[0])
        with pytest.raises(errors.DeadlineExceededError):
            session.run(never.op, options=RunOptions(timeout_in_ms=50))
        assert len([hold for hold in alive if hold is not NOT_READY]) == 2
        self.again(session, lock)

    def test_the_end_of_the_session(self, alive: list[Any]) -> None:
        target = "inproc://ends_of_steps"
        with Graph().as_default() as graph:
            mutex = resource_state.mutex(name="m")
            lock = resource_state.mutex_acquire(mutex)
            with graph.control_dependencies([lock]):
                never = resource_state.mutex_acquire(mutex)
        closed, other = Session(target, graph=graph), Session(target, graph=graph)
        with in_threads(lambda: closed.run(never.op)) as threads:
            wait_until(lambda: NOT_READY in alive)
            closed.close()
        assert isinstance(threads[0].outcome, errors.CancelledError)
        self.again(other, lock)
        other.close()
        Session.reset(target)

    def test_an_interrupt(
        self, session: Session, alive: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = resource_state.mutex_acquire(resource_state.mutex())
        with session.graph.control_dependencies([lock]):
            waits = resource_state.mutex_acquire(lock.op.inputs[0])

        def interrupted(driver: Driver) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Driver, "_wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.run(waits.op)
        self.again(session, lock)

    def test_one_that_is_taken_when_the_step_has_ended(self) -> None:
        mutex, step = MutexResource("m"), StepContext(None, "")
        step.end()
        hold = mutex.attempt()
        hold.unlock_after(step)
        assert not hold.release() and mutex.attempt() is not NOT_READY

    def test_what_ended_before_is_forgotten(self, session: Session) -> None:
        step, mutex = StepContext(None, ""), MutexResource("m")
        for _ in range(3):
            hold = mutex.attempt()
            hold.unlock_after(step)
            assert hold.release()
            mutex.attempt().unlock_after(step)  # nobody refers to it
            settle()
        assert not step._end_callbacks


def test_a_mutex_serves_steps_in_turn() -> None:
    with Graph().as_default() as graph:
        counter = Variable(np.zeros(64))
        lock = resource_state.mutex_acquire(resource_state.mutex())
        with graph.control_dependencies([lock]):
            before = counter.read_value()
        changed = counter.assign(before + 1.0)
        with graph.control_dependencies([changed.op]):
            release = resource_state.mutex_release(lock)
    session = Session(graph=graph)
    session.run(counter.initializer)

    def work() -> None:
        for _ in range(50):
            session.run(release)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.run(counter)[0] == 200


def test_waiting_for_a_mutex_ends_at_the_deadline() -> None:
    with Graph().as_default() as graph:
        lock = resource_state.mutex_acquire(resource_state.mutex(name="m"))
    session = Session(graph=graph)
    session.run(lock.op)
    (held,) = session._resources.resources(MutexResource, "")
    hold = held.attempt()
    with pytest.raises(errors.DeadlineExceededError):
        session.run(lock.op, options=RunOptions(timeout_in_ms=50))
    assert not len(held.waiters)
    hold.release()
    session.run(lock.op)
    assert not hold.release()
