"""Steps with something to overlap: heavy kernels on the pool, continuations, failures, Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import new_threads

import weft as wf
from weft import errors
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.registry import kernel
from weft_exec.resources.resources import CompletionCallback
from weft_exec.resources.threads import shared_pool
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import WAITS, WRITES

BODIES: dict[str, Callable[..., Any]] = {}

for _op in ("TestHeavy", "TestAsynchronous"):
    register_op(
        _op,
        inputs=("inputs: N * float32",),
        outputs=("output: float32",),
        attrs={"N": "int >= 0", "body": "string"},
        shape=lambda node: [()],
        traits=WAITS if _op.endswith("Asynchronous") else WRITES,
    )


@kernel("TestHeavy", heavy=True)
def _heavy(node: Any, device: Any) -> Callable[..., Any]:
    return lambda *inputs: BODIES[node.attrs["body"]](*inputs)


@kernel("TestAsynchronous")
def _asynchronous(node: Any, device: Any) -> Callable[..., Any]:
    def start(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        BODIES[node.attrs["body"]](context, inputs, done)

    return start


def heavy(body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    BODIES[str(id(body))] = body
    return out("TestHeavy", [list(inputs)], {"body": str(id(body))}, name)


def asynchronous(body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    BODIES[str(id(body))] = body
    return out("TestAsynchronous", [list(inputs)], {"body": str(id(body))}, name)


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
    BODIES.clear()


def two_threads() -> wf.Session:
    return wf.Session(config=wf.ConfigProto(inter_op_parallelism_threads=2))


def test_two_heavy_kernels_run_at_the_same_time() -> None:
    meeting = threading.Barrier(2)
    threads: set[int] = set()

    def meet() -> np.float32:
        meeting.wait(30)
        threads.add(threading.get_ident())
        return np.float32(1)

    with two_threads() as session:
        for _ in range(20):
            threads.clear()
            assert session.run([heavy(meet, name=None), heavy(meet)]) == [1, 1]
            assert len(threads) == 2


def test_what_follows_a_kernel_does_not_wait_for_another_beside_it() -> None:
    """Two chains: the second kernel of one meets the first of the other, whichever is quicker."""
    meeting = threading.Barrier(2)

    def meet(*inputs: np.float32) -> np.float32:
        meeting.wait(30)
        time.sleep(0.002)  # so that it is worth a thread
        return np.float32(1)

    def quick(*inputs: np.float32) -> np.float32:
        return np.float32(1)

    with two_threads() as session:
        for first in (True, False):
            chain = heavy(meet, heavy(quick) + 0.0)
            other = heavy(meet)
            fetches = [chain, other] if first else [other, chain]
            for _ in range(20):
                assert session.run(fetches) == [1, 1]


def test_data_and_control_edges_order_heavy_kernels() -> None:
    ran: list[str] = []

    def note(name: str) -> Callable[..., np.float32]:
        def body(*inputs: np.float32) -> np.float32:
            ran.append(name)
            return np.float32(1)

        return body

    a = heavy(note("a"))
    b = heavy(note("b"), a + 1.0)
    with wf.control_dependencies([b]):
        c = heavy(note("c"))
    d = heavy(note("d"), c * 2.0, a)
    with two_threads() as session:
        for _ in range(50):
            ran.clear()
            session.run(d)
            assert ran == ["a", "b", "c", "d"]


def test_a_continuation_may_come_from_any_thread_at_any_time() -> None:
    def later(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        threading.Thread(target=done, args=(inputs[0] * 2,)).start()

    def at_once(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        done(inputs[0] + 1)

    y = wf.constant(1.0)
    for _ in range(20):
        y = asynchronous(at_once, asynchronous(later, y)) - 1.0
    with wf.Session() as session:
        assert session.run(y) == 2.0**20


def test_waiting_kernels_hold_no_threads() -> None:
    held: list[CompletionCallback] = []

    def hold(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        held.append(done)
        if len(held) == 1000:
            for each in held:
                each(np.float32(1))

    total = wf.add_n([asynchronous(hold) for _ in range(1000)])
    with wf.Session() as session:
        begun = new_threads()
        assert session.run(total) == 1000
        assert len(begun()) <= 2


def test_done_twice_is_an_error_of_the_kernel() -> None:
    caught: list[BaseException] = []

    def twice(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        done(np.float32(1))
        try:
            done(np.float32(2))
        except errors.InternalError as error:
            caught.append(error)

    with wf.Session() as session:
        assert session.run(asynchronous(twice)) == 1.0
    assert len(caught) == 1


@pytest.mark.parametrize("how", ["raise", "fail"])
def test_a_failure_names_the_node_and_cancels_the_rest(how: str) -> None:
    told: list[errors.OpError] = []

    def never(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        def cancelled(error: errors.OpError) -> None:
            told.append(error)
            done.fail(error)

        context.cancellation.register(cancelled)

    def broken(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        if how == "raise":
            raise ValueError("no such thing")
        done.fail(errors.UnavailableError("gone"))

    expected = errors.InvalidArgumentError if how == "raise" else errors.UnavailableError
    fetches = [asynchronous(never), asynchronous(broken, wf.constant(1.0), name="broken")]
    with wf.Session() as session:
        for _ in range(3):
            with pytest.raises(expected, match="broken") as caught:
                session.run(fetches)
            assert list(caught.value.inputs) == ["float32[]"]
        assert session.run(wf.constant(1.0)) == 1.0
    assert len(told) == 3 and all(isinstance(e, errors.CancelledError) for e in told)


def test_an_interrupt_waits_for_running_kernels_and_leaves_the_session_usable() -> None:
    started, released = threading.Event(), threading.Event()
    finished: list[int] = []

    def slow() -> np.float32:
        started.set()
        released.wait(30)
        finished.append(1)
        return np.float32(1)

    def interrupted() -> np.float32:
        started.wait(30)
        threading.Timer(0.05, released.set).start()
        raise KeyboardInterrupt

    fetches = [heavy(slow), heavy(interrupted)]
    with two_threads() as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(fetches)
        assert finished == [1]
        assert session.run(wf.constant(2.0) * 2.0) == 4.0


def test_values_that_cross_entries_are_forgotten_after_their_last_use() -> None:
    import weakref

    alive: list[weakref.ref[Any]] = []

    class Watched(np.ndarray):  # type: ignore[type-arg]
        pass

    def make() -> Any:
        value = np.zeros(()).view(Watched)
        alive.append(weakref.ref(value))
        return value

    def check(*inputs: Any) -> np.float32:
        return np.float32(sum(ref() is not None for ref in alive))

    a, b = heavy(make), heavy(make)
    used = heavy(lambda *inputs: np.float32(0), a, b)
    with wf.control_dependencies([used]):
        left = heavy(check)
    with two_threads() as session:
        assert session.run(left) == 0.0


def test_pools_are_shared_by_size() -> None:
    assert shared_pool(3) is shared_pool(3)
