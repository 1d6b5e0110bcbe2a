"""Queues in sessions."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import (
    Recorder,
    empty,
    in_threads,
    new_threads,
    rounds,
    traced,
    wait_until,
)

from weft_exec.executor.driver import Driver
from weft_exec.resources.cancellation import Cancellation
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.builder import constant, create
from weft_graph.ir.default_graph import control_dependencies, get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import no_op
from weft_graph.ops.shapes import reshape
from weft_graph.variables.reference import Variable
from weft_io.queues.queue import (
    FIFOQueue,
    PaddingFIFOQueue,
    PriorityQueue,
    QueueBase,
    RandomShuffleQueue,
)
from weft_io.resources.chunks import ChunkStore
from weft_io.resources.queue import Queue
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

F32 = dtypes.float32
VALUES = [d for d in dtypes.ALL_DTYPES if d.is_numpy_compatible and not d.is_quantized]


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


def resource(session: Any) -> Queue:
    (queue,) = session.resources.resources(Queue, "")
    return queue


def waiting(session: Any, enqueues: int, dequeues: int) -> Any:
    return lambda: resource(session).pending() == (enqueues, dequeues)


def within(milliseconds: int) -> Any:
    return proto.RunOptions(timeout_in_ms=milliseconds)


# --------------------------------------------------------------------------- construction


def test_properties() -> None:
    with Graph().as_default():
        queue = FIFOQueue(10, [F32, "int32"], [[2], []], names=["a", "b"], name="q")
        assert queue.name == "q" and queue.queue_ref.dtype == dtypes.resource
        assert queue.dtypes == [F32, dtypes.int32] and queue.names == ["a", "b"]
        assert queue.shapes == [TensorShape([2]), TensorShape([])]
        with get_default_graph().name_scope("scope"):
            inner = FIFOQueue(10, [F32], name="q")
        assert inner.name == "scope/q" and inner.size().op.name == "q_Size"
        loose = FIFOQueue(10, [F32])
        assert loose.shapes[0].ndims is None and loose.names is None


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [((), [[]]), ((3, 2), [[3, 2]]), ([[4]], [[4]]), (TensorShape([5]), [[5]]), ([3], [[3]])],
)
def test_one_shape_needs_no_list(shapes: Any, wanted: list[list[int]]) -> None:
    with Graph().as_default():
        assert [s.as_list() for s in FIFOQueue(10, F32, shapes).shapes] == wanted


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: FIFOQueue(1, [F32], [[None]]), errors.InvalidArgumentError, "fully defined"),
        (lambda: FIFOQueue(1, [F32], [[1], [2]]), errors.InvalidArgumentError, "same length"),
        (lambda: FIFOQueue(1, [F32], names=["a", "b"]), errors.InvalidArgumentError, "names"),
        (lambda: FIFOQueue(1, F32, 3), errors.InvalidTypeError, "Shapes must be"),
        (lambda: PaddingFIFOQueue(1, F32, [None]), errors.InvalidArgumentError, "list of shapes"),
        (
            lambda: PaddingFIFOQueue(1, F32, [TensorShape(None)]),
            errors.InvalidArgumentError,
            "defined rank",
        ),
        (lambda: PaddingFIFOQueue(1, F32, None), errors.InvalidArgumentError, "requires shapes"),
        (
            lambda: PriorityQueue(1, [F32], [[]], names=["x"]),
            errors.InvalidArgumentError,
            "names",
        ),
    ],
)
def test_wrong_descriptions_are_refused(make: Any, error: type[errors.OpError], match: str) -> None:
    with Graph().as_default(), pytest.raises(error, match=match):
        make()


def test_min_after_dequeue_must_leave_something(session: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="min_after_dequeue 5 must be"):
        session.run(RandomShuffleQueue(5, 5, F32).size())


def test_static_shapes_of_what_comes_out(session: Any) -> None:
    queue = FIFOQueue(10, [F32, dtypes.int32], [[2], []])
    assert [t.shape.as_list() for t in queue.dequeue()] == [[2], []]
    assert [t.shape.as_list() for t in queue.dequeue_many(3)] == [[3, 2], [3]]
    assert [t.shape.as_list() for t in queue.dequeue_up_to(3)] == [[None, 2], [None]]
    fed = queue.dequeue_many(placeholder(dtypes.int32, []))
    assert [t.shape.as_list() for t in fed] == [[None, 2], [None]]
    padded = PaddingFIFOQueue(10, F32, [[None, 2]]).dequeue_many(3)
    assert padded.shape.as_list() == [3, None, 2]
    raw = create("QueueDequeueManyV2", [queue.queue_ref, 3], {"component_types": queue.dtypes})
    assert raw.outputs[0].shape.as_list() == [3, 2]
    with pytest.raises(errors.InvalidArgumentError, match="not be negative"):
        queue.dequeue_many(-1)


def test_wrong_elements_are_refused_while_the_graph_is_built() -> None:
    with Graph().as_default():
        queue = FIFOQueue(10, [F32, dtypes.int32], [[2], []])
        with pytest.raises(errors.InvalidArgumentError, match="incompatible"):
            queue.enqueue([[1.0, 2.0, 3.0], 4])
        with pytest.raises(errors.InvalidArgumentError, match="incompatible"):
            queue.enqueue_many([np.ones((3, 3), np.float32), [1, 2, 3]])
        with pytest.raises(errors.InvalidArgumentError):
            queue.enqueue_many([np.ones((3, 2), np.float32), [1, 2]])
        with pytest.raises(errors.InvalidArgumentError, match="len"):
            queue.enqueue([[1.0, 2.0]])
        with pytest.raises(errors.InvalidTypeError):
            queue.enqueue([[1.0, 2.0], 0.5])
        with pytest.raises(errors.InvalidArgumentError, match="must have names"):
            queue.enqueue({"a": [1.0, 2.0], "b": 3})


def test_names_make_elements_dicts(session: Any) -> None:
    queue = FIFOQueue(10, [F32, dtypes.int32], [[], []], names=["a", "b"])
    session.run(queue.enqueue({"b": 2, "a": 1.0}))
    session.run(queue.enqueue_many({"b": [3, 4], "a": [5.0, 6.0]}))
    assert session.run(queue.dequeue()) == {"a": 1.0, "b": 2}
    batch = session.run(queue.dequeue_many(2))
    assert batch["a"].tolist() == [5, 6] and batch["b"].tolist() == [3, 4]
    with pytest.raises(errors.InvalidArgumentError, match="must enqueue a dictionary"):
        queue.enqueue([1.0, 2])
    with pytest.raises(errors.InvalidArgumentError, match="do not match names"):
        queue.enqueue({"a": 1.0, "c": 2})


# --------------------------------------------------------------------------- kinds


def test_elements_leave_in_order(session: Any) -> None:
    queue = FIFOQueue(10, [F32, dtypes.string], [[], []])
    session.run(queue.enqueue([1.0, "a"]))
    session.run(queue.enqueue_many([[2.0, 3.0], ["b", "c"]]))
    assert session.run([queue.size(), queue.is_closed()]) == [3, False]
    assert session.run(queue.dequeue()) == [1.0, b"a"]
    numbers, texts = session.run(queue.dequeue_many(2))
    assert numbers.tolist() == [2, 3] and texts.tolist() == [b"b", b"c"]


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("make", [FIFOQueue, RandomShuffleQueue, PriorityQueue])
def test_every_element_type(session: Any, make: type[QueueBase], dtype: dtypes.DType) -> None:
    least = (0,) if make is RandomShuffleQueue else ()
    queue = make(10, *least, [dtype], [[2]])
    value = np.array([b"a", b"bc"], object) if dtype is dtypes.string else np.ones(2, dtype.numpy)
    lead = [3] if make is PriorityQueue else []
    fed = placeholder(dtype, [2])
    session.run(queue.enqueue([*lead, fed]), {fed: value})
    session.run(queue.enqueue_many([*[lead] * bool(lead), reshape(fed, [1, 2])]), {fed: value})
    (*_, single) = session.run([queue.dequeue()])[0] if lead else [session.run(queue.dequeue())]
    (*_, batch) = (
        session.run([queue.dequeue_many(1)])[0] if lead else [session.run(queue.dequeue_many(1))]
    )
    assert single.dtype == value.dtype
    assert single.tolist() == value.tolist() == batch[0].tolist()


def test_elements_of_any_shape(session: Any) -> None:
    queue = FIFOQueue(10, F32)
    session.run(queue.enqueue([[1.0, 2.0]]))
    session.run(queue.enqueue(3.0))
    session.run(queue.enqueue_many([[[1.0], [2.0]]]))
    assert [np.shape(session.run(queue.dequeue())) for _ in range(4)] == [(2,), (), (1,), (1,)]
    with pytest.raises(errors.InvalidArgumentError, match="specified shapes"):
        session.run(queue.dequeue_many(1))
    with pytest.raises(errors.InvalidArgumentError, match="specified shapes"):
        session.run(queue.dequeue_up_to(0))


def test_padding(session: Any) -> None:
    queue = PaddingFIFOQueue(10, [F32, dtypes.string], [[None], [None, 1]])
    session.run(queue.enqueue([[1.0, 2.0], [["a"]]]))
    session.run(queue.enqueue([[], [["b"], ["c"]]]))
    numbers, texts = session.run(queue.dequeue_many(2))
    assert numbers.tolist() == [[1, 2], [0, 0]]
    assert texts.tolist() == [[[b"a"], [b""]], [[b"b"], [b"c"]]]
    session.run(queue.enqueue([[1.0, 2.0], [["a"]]]))
    single, _ = session.run(queue.dequeue())
    assert single.tolist() == [1, 2]
    empty_, _ = session.run(queue.dequeue_many(0))
    assert empty_.shape == (0, 0)


def test_priorities(session: Any) -> None:
    queue = PriorityQueue(10, dtypes.string, [[]])
    session.run(queue.enqueue_many([[3, -1, 2, -1], ["d", "a", "c", "b"]]))
    session.run(queue.enqueue([2**62, "e"]))
    priorities, texts = session.run(queue.dequeue_many(4))
    assert priorities.tolist() == [-1, -1, 2, 3] and b"".join(texts) == b"abcd"
    assert session.run(queue.dequeue()) == [2**62, b"e"]
    loose = PriorityQueue(10, dtypes.string)
    fed = placeholder(dtypes.int64)
    put = loose.enqueue([fed, ["x"]])
    session.run(put, {fed: 3})
    with pytest.raises(errors.InvalidArgumentError, match="component 0"):
        session.run(put, {fed: [3]})
    with pytest.raises(errors.InvalidArgumentError, match="specified shapes"):
        session.run(loose.dequeue_many(1))
    assert session.run(loose.dequeue())[1].tolist() == [b"x"]
    bare = PriorityQueue(10, [])
    session.run(bare.enqueue_many([[3, 1, 2]]))
    assert session.run(bare.dequeue_many(3)).tolist() == [1, 2, 3]


def test_random_order_leaves_some_to_choose_from(session: Any) -> None:
    queue = RandomShuffleQueue(20, 5, dtypes.int64, [[]], seed=4)
    session.run(queue.enqueue_many([np.arange(20)]))
    first = session.run(queue.dequeue_many(15)).tolist()
    assert first != sorted(first)
    with pytest.raises(errors.DeadlineExceededError):
        session.run(queue.dequeue(), options=within(20))
    session.run(queue.close())
    rest = session.run(queue.dequeue_many(5)).tolist()
    assert sorted(first + rest) == list(range(20))


def test_equal_graph_seeds_give_equal_orders() -> None:
    def order(seed: int, **names: Any) -> list[int]:
        with Graph().as_default() as graph:
            graph.seed = seed
            for _ in range(names.pop("nodes", 0)):
                no_op()
            queue = RandomShuffleQueue(20, 0, dtypes.int64, [[]], **names)
            with Session(graph=graph) as session:
                session.run(queue.enqueue_many([np.arange(20)]))
                return session.run(queue.dequeue_many(20)).tolist()

    assert order(1) == order(1) != order(2)
    assert order(1, shared_name="x", nodes=3) == order(1, shared_name="x")


# --------------------------------------------------------------------------- closing


def test_what_a_closed_queue_says(session: Any) -> None:
    queue = FIFOQueue(3, F32, [[]], name="q")
    session.run(queue.enqueue_many([[1.0, 2.0]]))
    session.run(queue.close())
    assert session.run(queue.is_closed())
    for put in (queue.enqueue(1.0), queue.enqueue_many([[1.0]])):
        with pytest.raises(errors.CancelledError, match=r"FIFOQueue 'q' is closed\."):
            session.run(put)
    session.run(queue.enqueue_many([np.zeros(0, np.float32)]))
    with pytest.raises(errors.CancelledError, match="Queue 'q' is already closed"):
        session.run(queue.close())
    session.run(queue.close(cancel_pending_enqueues=True))
    message = (
        r"FIFOQueue 'q' is closed and has insufficient elements \(requested %d, current size %d\)"
    )
    with pytest.raises(errors.OutOfRangeError, match=message % (3, 2)):
        session.run(queue.dequeue_many(3))
    assert session.run(queue.dequeue_up_to(1)).tolist() == [1]
    assert session.run(queue.dequeue_up_to(5)).tolist() == [2]
    with pytest.raises(errors.OutOfRangeError, match=message % (5, 0)):
        session.run(queue.dequeue_up_to(5))
    with pytest.raises(errors.OutOfRangeError, match=message % (1, 0)):
        session.run(queue.dequeue())
    assert session.run(queue.dequeue_many(0)).shape == (0,)


def test_closing_waits_for_pending_enqueues(session: Any) -> None:
    queue = FIFOQueue(1, F32, [[]])
    put, close, take = queue.enqueue_many([[1.0, 2.0, 3.0]]), queue.close(), queue.dequeue_many(3)
    late = queue.enqueue(4.0)
    closed = queue.is_closed()
    with in_threads(lambda: session.run(put)) as first:
        wait_until(lambda: session.resources.resources(Queue, ""))
        wait_until(waiting(session, 1, 0))
        with in_threads(lambda: session.run(close)) as second:
            wait_until(waiting(session, 2, 0))
            with in_threads(lambda: session.run(late)) as third:
                wait_until(waiting(session, 3, 0))
                assert not session.run(closed)
                assert session.run(take).tolist() == [1, 2, 3]
    assert first[0].outcome is None and second[0].outcome is None
    assert isinstance(third[0].outcome, errors.CancelledError)
    assert session.run(closed)


def test_closing_can_cancel_pending_enqueues(session: Any) -> None:
    queue = FIFOQueue(2, F32, [[]])
    put, close = queue.enqueue_many([[1.0, 2.0, 3.0]]), queue.close(cancel_pending_enqueues=True)
    take = queue.dequeue_up_to(9)
    with in_threads(lambda: session.run(put)) as threads:
        wait_until(lambda: session.resources.resources(Queue, ""))
        wait_until(waiting(session, 1, 0))
        session.run(close)
    assert isinstance(threads[0].outcome, errors.CancelledError)
    assert "cancelled: FIFOQueue 'fifo_queue' was closed" in threads[0].outcome.message
    assert "fifo_queue_EnqueueMany" in str(threads[0].outcome)
    assert session.run(take).tolist() == [1, 2]


def test_closing_ends_pending_dequeues(session: Any) -> None:
    queue = FIFOQueue(9, F32, [[]])
    put, close = queue.enqueue_many([[1.0, 2.0]]), queue.close()
    many, up_to = queue.dequeue_many(5), queue.dequeue_up_to(4)
    session.run(put)
    with in_threads(lambda: session.run(many)) as first:
        wait_until(waiting(session, 0, 1))
        with in_threads(lambda: session.run(up_to)) as second:
            wait_until(waiting(session, 0, 2))
            session.run(close)
    assert isinstance(first[0].outcome, errors.OutOfRangeError)
    assert second[0].outcome.tolist() == [1, 2]


def test_an_enqueue_that_gives_up_lets_the_queue_close() -> None:
    queue = Queue("q", "FIFOQueue", [F32], [()], 0, ChunkStore([F32], [()]))
    step, put, close, take = Cancellation(), Recorder(), Recorder(), Recorder()
    queue.enqueue((np.float32(1),), put, step)
    queue.close_queue(False, close)
    queue.dequeue(take)
    assert put.waits and close.waits and take.waits
    step.cancel()
    assert close.value is None
    with pytest.raises(errors.OutOfRangeError):
        assert take.value


# --------------------------------------------------------------------------- waiting


def test_a_batch_larger_than_the_queue_passes(session: Any) -> None:
    queue = FIFOQueue(3, dtypes.int64, [[]])
    put, take = queue.enqueue_many([np.arange(100)]), queue.dequeue_many(50)
    with in_threads(lambda: session.run(put)):
        assert session.run(take).tolist() == list(range(50))
        assert session.run(take).tolist() == list(range(50, 100))
    assert session.run(queue.size()) == 0


@pytest.mark.parametrize("how", ["timeout", "failure", "close"])
def test_a_step_that_ends_leaves_the_queue_whole(how: str) -> None:
    with Graph().as_default() as graph:
        queue = FIFOQueue(5, dtypes.int64, [[]], shared_name="q")
        put, many, single = queue.enqueue_many([[1, 2, 3]]), queue.dequeue_many(4), queue.dequeue()
        size = queue.size()
        broken = create("Assert", [False, [constant("no")]])
        both = [many, broken]
    target = f"inproc://whole_{how}"
    other = Session(target, graph=graph)
    other.run(put)
    session = Session(target, graph=graph)

    def step() -> Any:
        if how == "timeout":
            return session.run(many, options=within(50))
        return session.run(both if how == "failure" else many)

    with in_threads(step) as threads:
        if how == "close":
            wait_until(lambda: resource(other).pending() == (0, 1))
            assert other.run(size) == 0  # what there is, is reserved
            session.close()
    wanted = {
        "timeout": errors.DeadlineExceededError,
        "failure": errors.InvalidArgumentError,
        "close": errors.CancelledError,
    }[how]
    assert isinstance(threads[0].outcome, wanted)
    assert resource(other).pending() == (0, 0)
    assert other.run(size) == 3
    assert [other.run(single) for _ in range(3)] == [1, 2, 3]
    other.close()
    Session.reset(target)


@pytest.mark.parametrize("first", ["element", "close"])
def test_what_comes_while_the_session_closes_is_taken_or_stays(first: str) -> None:
    target = f"inproc://at_once_{first}"
    with Graph().as_default() as graph:
        single = FIFOQueue(5, dtypes.int64, [[]], shared_name="q").dequeue()
    other = Session(target, graph=graph)
    other.run(graph.get_operation_by_name("fifo_queue"))
    interval = sys.getswitchinterval()
    for number in range(20):
        queue = resource(other)
        session = Session(target, graph=graph)
        with in_threads(lambda session=session: session.run(single)) as threads:
            wait_until(lambda queue=queue: queue.pending() == (0, 1))
            sys.setswitchinterval(10)  # the step hears of both at once
            try:
                if first == "close":
                    session.close()
                queue.enqueue((np.int64(number),), Recorder())
                if first == "element":
                    session.close()
            finally:
                sys.setswitchinterval(interval)
        outcome = threads[0].outcome
        if isinstance(outcome, errors.CancelledError):
            taken = Recorder()
            queue.dequeue(taken)
            outcome = taken.value[0]
        assert outcome == number and queue.size() == 0
    other.close()
    Session.reset(target)


@pytest.mark.parametrize("how", ["_timed_out", "_wake"])
@pytest.mark.parametrize("after", [False, True])
def test_what_comes_with_the_end_of_the_step_is_taken_or_stays(
    session: Any, monkeypatch: pytest.MonkeyPatch, how: str, after: bool
) -> None:
    queue = FIFOQueue(5, dtypes.int64, [[]])
    many = queue.dequeue_many(2)
    real = getattr(Driver, how)

    def interrupted(driver: Driver, *args: Any) -> None:
        if after:
            real(driver, *args)
        resource(session).enqueue_many((np.array([1, 2]),), Recorder())
        if not after:
            real(driver, *args)

    monkeypatch.setattr(Driver, how, interrupted)
    try:
        taken = session.run(many, options=within(50)).tolist()
    except errors.DeadlineExceededError:
        taken = []
    left = Recorder()
    resource(session).dequeue_many(2 - len(taken), empty, left)
    assert [*taken, *left.value[0].tolist()] == [1, 2]


def test_timeouts_of_the_operation_itself(session: Any) -> None:
    queue = FIFOQueue(1, F32, [[]])
    attrs = {"component_types": [F32], "timeout_ms": 20}
    for take in (
        create("QueueDequeueV2", [queue.queue_ref], attrs),
        create("QueueDequeueManyV2", [queue.queue_ref, 2], attrs),
    ):
        with pytest.raises(errors.DeadlineExceededError):
            session.run(take)
    session.run(queue.enqueue(1.0))
    put = create("QueueEnqueueV2", [queue.queue_ref, [constant(2.0)]], {"timeout_ms": 20})
    with pytest.raises(errors.DeadlineExceededError):
        session.run(put)
    assert session.run(queue.dequeue_many(1)).tolist() == [1]
    assert resource(session).pending() == (0, 0)


def test_deleting_a_queue_ends_those_who_wait() -> None:
    with Graph().as_default() as graph:
        with graph.container("box"):
            queue = FIFOQueue(1, F32, [[]], shared_name="deleted")
        take, put = queue.dequeue(), queue.enqueue(2.0)
    with Session(graph=graph) as session:
        with in_threads(lambda: session.run(take)) as threads:
            wait_until(lambda: session.resources.resources(Queue, "box"))
            (found,) = session.resources.resources(Queue, "box")
            wait_until(lambda: found.pending() == (0, 1))
            session.resources.clear(["box"])
        assert isinstance(threads[0].outcome, errors.CancelledError)
        session.run(put)  # into a new one
        assert session.run(take) == 2
    Session.reset("", ["box"])


def test_many_threads_lose_and_double_nothing(session: Any) -> None:
    queue = FIFOQueue(7, dtypes.int64, [[]])
    fed = placeholder(dtypes.int64, [None])
    put, take, take_some = queue.enqueue_many([fed]), queue.dequeue(), queue.dequeue_up_to(5)
    close = queue.close()
    each, producers = 120, 3
    taken: list[list[int]] = []

    def produce(start: int) -> None:
        numbers = np.arange(start, start + each)
        for part in np.split(numbers, [1, 2, 9, 30, 31, 70]):
            session.run(put, {fed: part})

    def consume(operation: Any) -> None:
        mine: list[int] = []
        taken.append(mine)
        try:
            for _ in rounds():
                mine.extend(np.atleast_1d(session.run(operation)).tolist())
        except errors.OutOfRangeError:
            return

    with in_threads(lambda: consume(take), lambda: consume(take_some), lambda: consume(take)):
        works = [lambda i=i: produce(i * each) for i in range(producers)]
        with in_threads(*works) as threads:
            pass
        assert [thread.outcome for thread in threads] == [None] * producers
        session.run(close)
    assert sorted(number for mine in taken for number in mine) == list(range(each * producers))
    for mine in taken:  # each consumer sees every producer's elements in order
        for i in range(producers):
            part = [number for number in mine if number // each == i]
            assert part == sorted(part)


def test_ten_thousand_waiters_take_some_megabytes() -> None:
    queue = Queue("q", "FIFOQueue", [F32], [()], -1, ChunkStore([F32], [()]))
    step = Cancellation()
    with traced() as memory:
        waiters = [Recorder() for _ in range(10_000)]
        for waiter in waiters:
            queue.dequeue(waiter, step)
    assert memory.peak < 30e6
    assert queue.pending() == (0, 10_000)
    step.cancel()
    assert queue.pending() == (0, 0)
    assert all(isinstance(waiter.told[0], errors.CancelledError) for waiter in waiters)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_pending_dequeues_hold_no_threads(session: Any, count: int) -> None:
    queue = FIFOQueue(count, dtypes.int64, [[]])
    takes = [queue.dequeue() for _ in range(count)]
    put = queue.enqueue_many([np.arange(count)])
    begun = new_threads()
    with traced() as memory, in_threads(lambda: session.run(takes)) as threads:
        wait_until(lambda: session.resources.resources(Queue, ""))
        wait_until(waiting(session, 0, count))
        assert len(begun()) <= 1
        session.run(put)
    assert memory.peak < 2e6 + 8e3 * count
    assert sorted(threads[0].outcome) == list(range(count))


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_pending_dequeues_end_with_their_step(session: Any, count: int) -> None:
    queue = FIFOQueue(3, dtypes.int64, [[]])
    takes = [queue.dequeue() for _ in range(count)]
    size = queue.size()
    with pytest.raises(errors.DeadlineExceededError):
        session.run([take.op for take in takes], options=within(300))
    assert resource(session).pending() == (0, 0)
    session.run(queue.enqueue(1))
    assert session.run(size) == 1


# --------------------------------------------------------------------------- ownership


def test_fed_arrays_stay_the_callers(session: Any) -> None:
    queue = FIFOQueue(10, F32, [[2]])
    fed = placeholder(F32, [None, 2])
    value = np.ones((3, 2), np.float32)
    session.run(queue.enqueue_many([fed]), {fed: value})
    session.run(queue.enqueue([reshape(fed[0], [2])]), {fed: value})
    value[:] = 7
    assert session.run(queue.dequeue_many(4)).tolist() == [[1, 1]] * 4


def test_fetched_arrays_are_the_callers(session: Any) -> None:
    queue = FIFOQueue(10, F32, [[2]])
    value = constant(np.ones((3, 2), np.float32)) * 2.0
    put, single, many = queue.enqueue_many([value]), queue.dequeue(), queue.dequeue_many(2)
    session.run(put)
    first = session.run(single)
    first[:] = 9
    rest = session.run(many)
    assert rest.tolist() == [[2, 2], [2, 2]]
    rest[:] = 9
    fixed = queue.enqueue_many([np.ones((3, 2), np.float32)])
    whole = queue.dequeue_many(3)
    for _ in range(2):
        session.run(fixed)
        got = session.run(whole)
        assert got.tolist() == [[1, 1]] * 3
        got[:] = 5


def test_what_was_enqueued_does_not_follow_the_variable(session: Any) -> None:
    variable = Variable(np.zeros(4000, np.float32))
    queue = FIFOQueue(10, F32, [[4000]])
    session.run(variable.initializer)
    put, add, take = queue.enqueue([variable]), variable.assign_add(np.ones(4000)), queue.dequeue()
    session.run(put)
    session.run(add.op)
    session.run(put)
    assert session.run(take)[0] == 0 and session.run(take)[0] == 1


def test_a_slice_does_not_keep_the_whole(session: Any) -> None:
    queue = FIFOQueue(100, F32, [[2]])
    fed = placeholder(F32, [])
    large = constant(np.ones((50_000, 2), np.float32)) * fed
    put = queue.enqueue([large[17]])
    session.run(put, {fed: 1.0})
    with traced() as memory:
        for _ in range(50):
            session.run(put, {fed: 1.0})
    assert memory.current < 1e6


# --------------------------------------------------------------------------- sharing


def test_queues_are_shared_by_name() -> None:
    target = "inproc://sharing"
    with Graph().as_default() as graph:
        queue = FIFOQueue(10, [F32], [[2]], shared_name="shared")
        put = queue.enqueue([[1.0, 2.0]])
    with Session(target, graph=graph) as session:
        session.run(put)
    for make, match in (
        (lambda: FIFOQueue(11, [F32], [[2]], shared_name="shared"), "capacity 10 but"),
        (lambda: FIFOQueue(10, [dtypes.int32], [[2]], shared_name="shared"), "types float32 but"),
        (lambda: FIFOQueue(10, [F32], [[3]], shared_name="shared"), r"shapes \[\[2\]\] but"),
        (
            lambda: RandomShuffleQueue(10, 2, [F32], [[2]], shared_name="shared"),
            "'shared' is a FIFOQueue, but a RandomShuffleQueue",
        ),
    ):
        with Graph().as_default() as graph:
            size = make().size()
        with (
            Session(target, graph=graph) as session,
            pytest.raises(errors.InvalidArgumentError, match=match),
        ):
            session.run(size)
    with Graph().as_default() as graph:
        again = FIFOQueue(10, [F32], [[2]], shared_name="shared")
        take = again.dequeue()
    with Session(target, graph=graph) as session:
        assert session.run(take).tolist() == [1, 2]
    Session.reset(target)


def test_those_who_share_a_random_order_agree_on_its_seeds(session: Any) -> None:
    def queue(seed: int | None) -> RandomShuffleQueue:
        return RandomShuffleQueue(10, 0, F32, [[]], seed=seed, shared_name="shared")

    first, other, any_order = queue(1), queue(2), queue(None)
    assert session.run([first.size(), any_order.size()]) == [0, 0]
    with pytest.raises(errors.InvalidArgumentError, match=r"seeds \(.*, 1\) but .* \(.*, 2\)"):
        session.run(other.size())


def test_sessions_do_not_share_private_queues() -> None:
    with Graph().as_default() as graph:
        queue = FIFOQueue(10, F32, [[]])
        put, size = queue.enqueue(1.0), queue.size()
    with Session(graph=graph) as first, Session(graph=graph) as second:
        first.run(put)
        assert (first.run(size), second.run(size)) == (1, 0)


def test_the_queue_is_chosen_when_it_runs(session: Any) -> None:
    queues = [FIFOQueue(10, dtypes.int32, [[]]) for _ in range(3)]
    index = placeholder(dtypes.int32, [])
    chosen = QueueBase.from_list(index, queues)
    put = chosen.enqueue(index)
    for i in (2, 0, 2):
        session.run(put, {index: i})
    assert session.run([queue.size() for queue in queues]) == [1, 0, 2]
    assert session.run(chosen.dequeue_many(2), {index: 2}).tolist() == [2, 2]
    with pytest.raises(errors.InvalidArgumentError):
        session.run(put, {index: 3})


def test_only_queues_alike_can_be_chosen_from() -> None:
    with Graph().as_default():
        queue = FIFOQueue(3, F32, [[2]])
        for wrong in ([], [queue, 3], (queue,)):
            with pytest.raises(errors.InvalidTypeError, match="list of queues"):
                QueueBase.from_list(0, wrong)
        with pytest.raises(errors.InvalidTypeError, match="component dtypes"):
            QueueBase.from_list(0, [queue, FIFOQueue(3, dtypes.int32, [[2]])])
        with pytest.raises(errors.InvalidTypeError, match="component names"):
            QueueBase.from_list(0, [queue, FIFOQueue(3, F32, [[2]], names=["a"])])
        other = FIFOQueue(3, F32, [[3]])
        assert QueueBase.from_list(0, [queue, other]).shapes[0].as_list() == [None]


def test_shapes_of_imported_queues_are_checked(session: Any) -> None:
    for op, shapes, match in (
        ("FIFOQueueV2", [[None]], "must be fully defined"),
        ("FIFOQueueV2", [[1], [2]], "one shape per component or none"),
        ("PaddingFIFOQueueV2", [], "requires the rank"),
        ("PaddingFIFOQueueV2", [None], "requires the rank"),
    ):
        queue = create(op, (), {"component_types": [F32], "shapes": shapes}).outputs[0]
        with pytest.raises(errors.InvalidArgumentError, match=match):
            session.run(create("QueueSizeV2", [queue]).outputs[0])


def test_handles_of_other_things_are_refused(session: Any) -> None:
    variable = Variable(1.0, use_resource=True)
    size = create("QueueSizeV2", [variable.handle])
    with pytest.raises(errors.InvalidArgumentError, match="requires the handle of a queue"):
        session.run(size.outputs[0])


def test_run_time_shapes_and_types_are_checked(session: Any) -> None:
    queue = FIFOQueue(10, [F32, dtypes.int32], [[2], []])
    fed = placeholder(F32)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"component 0. Expected \[2\], got \[3\]"
    ):
        session.run(queue.enqueue([fed, 1]), {fed: [1, 2, 3]})
    with pytest.raises(
        errors.InvalidArgumentError, match=r"component 1. Expected \[1\], got \[2\]"
    ):
        session.run(queue.enqueue_many([fed, [1, 2]]), {fed: [[1, 2]]})
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected \[1,2\], got \[1,3\]"):
        session.run(queue.enqueue_many([fed, [1]]), {fed: [[1, 2, 3]]})
    with pytest.raises(errors.InvalidArgumentError, match="first axis"):
        session.run(queue.enqueue_many([fed, [1]]), {fed: 1.0})
    wrong = create("QueueEnqueueV2", [queue.queue_ref, [constant(1.0)]])
    with pytest.raises(errors.InvalidArgumentError, match="holds components of types"):
        session.run(wrong)
    count = placeholder(dtypes.int32, [])
    with pytest.raises(errors.InvalidArgumentError, match="must not be negative"):
        session.run(queue.dequeue_many(count), {count: -1})
    counts = placeholder(dtypes.int32)
    with pytest.raises(errors.InvalidArgumentError, match=r"must be a scalar, got shape \[1\]"):
        session.run(queue.dequeue_many(counts), {counts: [1]})
    assert session.run(queue.size()) == 0


def test_steps_can_be_ordered_by_queues(session: Any) -> None:
    """A token that two steps pass to and fro."""
    ping, pong = FIFOQueue(1, F32, [[]]), FIFOQueue(1, F32, [[]])
    count = Variable(0)
    session.run(count.initializer)
    with control_dependencies([ping.dequeue()]):
        forward = pong.enqueue(1.0)
    with control_dependencies([pong.dequeue()]):
        counted = count.assign_add(1)
    with control_dependencies([counted]):
        back = ping.enqueue(1.0)
    start = ping.enqueue(1.0)

    def repeat(operation: Any) -> None:
        for _ in range(50):
            session.run(operation)

    with in_threads(lambda: repeat(forward), lambda: repeat(back)):
        session.run(start)
    assert session.run(count) == 50
