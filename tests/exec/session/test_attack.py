"""Regressions found by attacking sessions and the executor: results, races, leaks, ownership."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_exec.kernels.registry import kernel
from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, Waiters
from weft_exec.resources.threads import ThreadPool
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import WRITES

BODIES: dict[str, Callable[..., Any]] = {}
_keys = itertools.count()

for _op in ("AttackHeavy", "AttackCheap", "AttackAsynchronous"):
    register_op(
        _op,
        inputs=("inputs: N * float32",),
        outputs=("output: float32",),
        attrs={"N": "int >= 0", "body": "string"},
        shape=lambda node: [()],
        traits=WRITES,
    )
register_op("AttackMade", outputs=("output: float32",), attrs={"body": "string"}, traits=WRITES)


@kernel("AttackHeavy", heavy=True)
def _heavy(node: Any, device: Any) -> Callable[..., Any]:
    return BODIES[node.attrs["body"]]


@kernel("AttackCheap")
def _cheap(node: Any, device: Any) -> Callable[..., Any]:
    return BODIES[node.attrs["body"]]


# The op does not say that it waits: as on a device that leaves its work to a stream.
@kernel("AttackAsynchronous", asynchronous=True)
def _asynchronous(node: Any, device: Any) -> Callable[..., Any]:
    return BODIES[node.attrs["body"]]


@kernel("AttackMade")
def _made(node: Any, device: Any) -> Callable[..., Any]:
    BODIES[node.attrs["body"]]()
    return lambda: np.float32(0)


def _node(op: str, body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    key = f"body{next(_keys)}"
    BODIES[key] = body
    return out(op, [list(inputs)], {"body": key}, name)


def heavy(body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    return _node("AttackHeavy", body, *inputs, name=name)


def cheap(body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    return _node("AttackCheap", body, *inputs, name=name)


def asynchronous(body: Callable[..., Any], *inputs: Any, name: str | None = None) -> wf.Tensor:
    return _node("AttackAsynchronous", body, *inputs, name=name)


def at_once(context: Any, inputs: Sequence[Any], done: Any) -> None:
    done(np.float32(1))


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
    BODIES.clear()


@pytest.fixture
def own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that only this test's sessions share, so that a hang stays in the test."""
    pool = ThreadPool(2)
    monkeypatch.setattr("weft_exec.session.targets.local.shared_pool", lambda size: pool)


def two_threads() -> wf.Session:
    return wf.Session(config=wf.ConfigProto(inter_op_parallelism_threads=2))


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start `function` in a daemon thread; its result or error goes into the list."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(function())
        except BaseException as error:  # because the test looks at what was raised
            answer.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answer


# ------------------------------------------------------------ control dependencies and order


def test_folding_keeps_the_control_inputs_of_constants() -> None:
    v = wf.Variable(0.0)
    with wf.control_dependencies([v.assign_add(1.0)]):
        y = wf.constant(1.0) + 2.0
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(y) == 3.0
        assert session.run(v) == 1.0


def test_what_is_folded_lies_in_order() -> None:
    """Else kernels of products would copy transposed weights in each step."""
    with wf.Graph().as_default(), wf.Session() as session:
        turned = wf.transpose(wf.constant(np.arange(6.0).reshape(2, 3)))
        seen: list[bool] = []
        watched = wf.py_func(lambda x: seen.append(x.flags.c_contiguous) or x, [turned], wf.float64)
        session.run(watched)
    assert seen == [True]


def test_folding_a_static_shape_keeps_the_effects_before_its_input() -> None:
    v = wf.Variable(0.0)
    x = wf.placeholder(wf.float32, [2])
    with wf.control_dependencies([v.assign_add(1.0)]):
        y = wf.identity(x)
    shape = out("Shape", [y])
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(shape, {x: [1.0, 2.0]}).tolist() == [2]
        assert session.run(v) == 1.0


def test_a_known_size_is_folded_where_others_are_not_known() -> None:
    v = wf.Variable(0.0)
    x = wf.placeholder(wf.float32, [None, 7])
    with wf.control_dependencies([v.assign_add(1.0)]):
        y = wf.identity(x)
    half = wf.truncatediv(-wf.shape(x)[1], 2)
    assert wf.get_static_value(half) == -3
    assert wf.get_static_value(wf.truncatediv(half, 0)) is None
    with wf.Session() as session:
        session.run(v.initializer)
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        feeds = {x: np.zeros([2, 7])}
        assert session.run(half, feeds, options=options, run_metadata=metadata) == -3
        ran = [n.node_name for each in metadata.step_stats.dev_stats for n in each.node_stats]
        assert ran == [half.op.name]  # which is a constant by now
        assert session.run(wf.shape(y)[1], feeds) == 7
        assert session.run(v) == 1.0


def test_control_dependencies_pass_through_constants_in_the_ready_queue() -> None:
    """The product waits for the update only through its constant, as in TensorFlow."""
    too_early = threading.Event()
    v = wf.Variable(1.0)

    def start(context: Any, inputs: Sequence[Any], done: Any) -> None:
        def finish() -> None:
            too_early.wait(0.3)  # passes unset when the product waits, as it should
            done(np.float32(10))

        threading.Thread(target=finish, daemon=True).start()

    with wf.control_dependencies([v.assign(asynchronous(start))]):
        y = out("Mul", [v._as_output(True), 2.0])
    told = cheap(lambda value: (too_early.set(), value)[1], y)
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(told) == 20.0


def test_a_fed_placeholder_can_be_a_control_input() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.control_dependencies([x]):
        y = wf.constant(1.0)
    with wf.Session() as session:
        assert session.run(y, {x: 2.0}) == 1.0


def test_an_unordered_read_sees_the_value_before_the_step_beside_an_asynchronous_node() -> None:
    updated = threading.Event()
    v = wf.Variable(1.0)

    def start(context: Any, inputs: Sequence[Any], done: Any) -> None:
        def finish() -> None:
            updated.wait(0.3)  # passes unset when the update waits for the read, as it should
            done(np.float32(1))

        threading.Thread(target=finish, daemon=True).start()

    y = asynchronous(start) + v._as_output(True)
    with wf.control_dependencies([v.assign_add(10.0)]):
        told = cheap(lambda: (updated.set(), np.float32(0))[1])
    config = wf.ConfigProto(inter_op_parallelism_threads=1)
    with wf.Session(config=config) as session:
        session.run(v.initializer)
        assert session.run([y, told])[0] == 2.0


@pytest.mark.parametrize("devices", [["/cpu:0", "/cpu:0"], ["/cpu:1", "/cpu:0"]])
@pytest.mark.parametrize("with_branch", [False, True])
def test_a_reference_that_is_fetched_is_read_at_the_end(
    devices: list[str], with_branch: bool
) -> None:
    """As in TensorFlow; values computed from it, and resource variables, are from before."""
    with wf.device(devices[0]):
        v, w = wf.Variable(1.0), wf.Variable(1.0, use_resource=True)
        update = wf.group(v.assign_add(10.0), w.assign_add(10.0))
    with wf.device(devices[1]):
        if with_branch:
            update = wf.cond(wf.constant(True), lambda: v.assign_add(10.0).op, wf.no_op)
        last = wf.Variable(0.0).assign_add(v)
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(wf.global_variables_initializer())
        assert session.run([v, v.value(), w, update, last])[:3] == [11.0, 1.0, 1.0]
        again = session.make_callable([v, update])
        assert again()[0] == 21.0
        assert session.run([v, v.assign(3.0), v.assign_add(0.0)])[0] == 3.0
        assert session.run(v, {v: 5.0}) == 5.0


def test_a_fetched_reference_belongs_to_the_caller() -> None:
    v = wf.Variable([1.0, 2.0])
    with wf.Session() as session:
        session.run(v.initializer)
        got = session.run([v, v.assign_add([1.0, 1.0]).op])[0]
        got[:] = 0.0
        assert session.run(v).tolist() == [2.0, 3.0]
        text = wf.Variable("a")
        session.run(text.initializer)
        assert session.run([text, text.assign("b")]) == [b"b", b"b"]


# ------------------------------------------------------------------------ signatures


def test_a_tuple_and_a_named_tuple_of_the_same_fetches_keep_their_types() -> None:
    Pair = collections.namedtuple("Pair", "a b")
    a, b = wf.constant(1.0), wf.constant(2.0)
    with wf.Session() as session:
        assert type(session.run((a, b))) is tuple
        assert type(session.run(Pair(a, b))) is Pair


def test_a_list_and_a_subclass_of_list_keep_their_types() -> None:
    class Items(list[Any]):
        pass

    a = wf.constant(1.0)
    with wf.Session() as session:
        assert type(session.run([a])) is list
        assert type(session.run(Items([a]))) is Items


def test_mapping_keys_that_are_equal_keep_their_types() -> None:
    a = wf.constant(1.0)
    with wf.Session() as session:
        session.run({1: a})
        assert [type(key) for key in session.run({True: a})] == [bool]


def test_a_defaultdict_can_be_fetched() -> None:
    fetches = collections.defaultdict(list, a=wf.constant(1.0))
    with wf.Session() as session:
        assert session.run(fetches)["a"] == 1.0


def test_a_tuple_of_one_feed_is_expanded_every_time() -> None:
    x = wf.placeholder(wf.float32)
    y = x * 1.0
    with wf.Session() as session:
        for _ in range(2):
            assert session.run(y, {(x,): (3.0,)}).shape == ()


# ------------------------------------------------------------------------ ownership


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", [np.matrix, np.ma.MaskedArray, np.memmap])
def test_fetching_a_fed_array_of_a_subclass_gives_an_array_of_the_callers_own(
    kind: type, tmp_path: Any
) -> None:
    x = wf.placeholder(wf.float32, [2, 2])
    if kind is np.memmap:
        value = np.memmap(tmp_path / "values", np.float32, "w+", shape=(2, 2))
    else:
        value = kind(np.ones((2, 2), np.float32))
    with wf.Session() as session:
        fetched = session.run(wf.identity(x), {x: value})
    assert type(fetched) is np.ndarray
    assert not np.shares_memory(fetched, value)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_kernels_see_a_fed_matrix_as_an_array() -> None:
    x = wf.placeholder(wf.float32, [2, 3])
    value = np.matrix(np.ones((2, 3), np.float32))
    with wf.Session() as session:
        assert session.run(wf.reduce_sum(x, 0), {x: value}).shape == (3,)
        assert session.run(wf.reshape(x, [6]), {x: value}).shape == (6,)


# ------------------------------------------------------------------------ lifetimes


def test_make_callable_extends_the_session_with_the_graph(graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [])
    a, b = wf.constant(1.0), wf.constant(2.0)
    y = x + a
    with wf.Session() as session:
        session.make_callable(y, [x])
        with pytest.raises(errors.FailedPreconditionError, match="was already run"):
            graph.replace_input(y.op, 1, b, reason="test")


def test_make_callable_refuses_one_tensor_twice() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
        session.make_callable(x + 1.0, [x, x])


def test_make_callable_keeps_the_structure_it_was_made_with() -> None:
    a = wf.constant(1.0)
    fetches = [a]
    with wf.Session() as session:
        call = session.make_callable(fetches)
        fetches.append(a)
        wf.Session.reset("")
        assert len(call()) == 1


def test_interactive_sessions_close_in_any_order() -> None:
    first, second = wf.InteractiveSession(), wf.InteractiveSession()
    try:
        first.close()
        assert wf.get_default_session() is second
    finally:
        second.close()
        first.close()
    assert wf.get_default_session() is None


def test_a_session_refuses_to_be_entered_twice() -> None:
    with wf.Session() as session:
        with pytest.raises((RuntimeError, errors.FailedPreconditionError)), session:
            pass
        assert wf.get_default_session() is session
        assert session.run(wf.constant(1.0)) == 1.0


def test_closing_a_session_cancels_a_step_between_nodes() -> None:
    inside, go = threading.Event(), threading.Event()
    v = wf.Variable(1.0)

    def body() -> np.float32:
        inside.set()
        go.wait(30)
        return np.float32(1)

    y = cheap(body)
    with wf.control_dependencies([y]):
        z = out("AddV2", [v._as_output(True), 1.0])
    session = wf.Session()
    session.run(v.initializer)
    thread, answer = in_thread(lambda: session.run(z))
    assert inside.wait(30)
    session.close()
    go.set()
    thread.join(30)
    assert isinstance(answer[0], errors.CancelledError), answer


def test_a_planned_step_runs_while_another_is_being_planned() -> None:
    planning, go = threading.Event(), threading.Event()

    def slow() -> None:
        planning.set()
        go.wait(60)

    BODIES["slow"] = slow
    y = wf.constant(1.0) + 1.0
    z = out("AttackMade", (), {"body": "slow"})
    options = wf.RunOptions(timeout_in_ms=60_000)
    with wf.Session() as session:
        session.run(y)
        planner, _ = in_thread(lambda: session.run(z))
        assert planning.wait(30)
        runner, answer = in_thread(lambda: session.run(y, options=options))
        runner.join(5)
        ran = list(answer)
        go.set()
        planner.join(30)
        runner.join(30)
    assert ran == [2.0]


def test_a_session_that_was_not_closed_is_collected() -> None:
    session = wf.Session()
    session.run(wf.Variable(1.0).initializer)
    ref = weakref.ref(session)
    del session
    gc.collect()
    assert ref() is None


# ------------------------------------------------------------------- pool and completions


def test_nested_sessions_on_the_pool_do_not_wait_for_each_other(own_pool: None) -> None:
    with wf.Graph().as_default():
        parts = [heavy(lambda: np.float32(1)), heavy(lambda: np.float32(2))]
        inner = two_threads()
    on_pool: set[int] = set()
    both_on_pool = threading.Event()

    def nest() -> np.float32:
        thread = threading.current_thread()
        nested = thread.name.startswith("weft-kernel")
        if nested:
            on_pool.add(thread.ident or 0)
        if len(on_pool) == 2:
            both_on_pool.set()
        # The clients wait too: one that went on would run its second kernel itself.
        assert both_on_pool.wait(30)
        return np.float32(sum(inner.run(parts)) if nested else 0)

    outer = [heavy(nest), heavy(nest)]
    with two_threads() as session:
        clients = [in_thread(lambda: session.run(outer)) for _ in range(2)]
        for thread, answer in clients:
            thread.join(60)
            assert not thread.is_alive()
            assert sum(answer[0]) in (0, 3, 6)


def test_a_kernel_that_exits_on_a_pool_thread_ends_the_step(own_pool: None) -> None:
    def leave() -> np.float32:
        raise SystemExit(3)

    y = [heavy(leave), heavy(leave)]
    session = two_threads()
    thread, answer = in_thread(lambda: session.run(y))
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(answer[0], errors.OpError | SystemExit)


def test_a_kernel_that_completes_and_then_raises_counts_once() -> None:
    def body(context: Any, inputs: Sequence[Any], done: Any) -> None:
        done(np.float32(1))
        raise ValueError("too late")

    y = asynchronous(body) + 1.0
    with wf.Session() as session:
        try:
            assert session.run(y) == 2.0
        except errors.OpError as error:
            assert error.node == "AttackAsynchronous", error


def test_an_error_shared_by_waiters_names_each_node() -> None:
    line = Waiters()
    line.close(errors.AbortedError("the resource is gone"))

    def body(context: Any, inputs: Sequence[Any], done: Any) -> None:
        line.wait(lambda: NOT_READY, done, context.cancellation)

    names = []
    with wf.Session() as session:
        for name in ("first", "second"):
            with pytest.raises(errors.AbortedError) as caught:
                session.run(asynchronous(body, name=name))
            names.append(caught.value.node)
    assert names == ["first", "second"]


def test_an_error_shared_by_waiters_does_not_grow() -> None:
    line = Waiters()
    line.close(errors.AbortedError("the resource is gone"))

    def body(context: Any, inputs: Sequence[Any], done: Any) -> None:
        line.wait(lambda: NOT_READY, done, context.cancellation)

    y = asynchronous(body)
    depths = []
    with wf.Session() as session:
        for _ in range(20):
            with pytest.raises(errors.AbortedError) as caught:
                session.run(y)
            depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[-1] == depths[1]


class _Done:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, value: Any = None) -> None:
        self.calls.append(value)

    def fail(self, error: BaseException) -> None:
        self.calls.append(error)


def test_an_attempt_that_raises_something_else_loses_no_other_waiter() -> None:
    line, state = Waiters(), SimpleNamespace(open=False)
    first, second = _Done(), _Done()

    def ready() -> Any:
        return 1 if state.open else NOT_READY

    def broken() -> Any:
        raise ValueError("broken")

    line.wait(ready, first)
    line.wait(broken, second)
    state.open = True
    with contextlib.suppress(ValueError):
        line.wake()
    assert first.calls == [1]
    assert len(second.calls) == 1


def test_cancelled_waiters_behind_one_that_waits_are_forgotten() -> None:
    line = Waiters()
    line.wait(lambda: NOT_READY, _Done())

    class Attempt:
        def __call__(self) -> Any:
            return NOT_READY

    attempt = Attempt()
    ref = weakref.ref(attempt)
    cancellation = Cancellation()
    line.wait(attempt, _Done(), cancellation)
    cancellation.cancel()
    del attempt
    gc.collect()
    assert ref() is None


def test_a_completed_waiter_is_forgotten_before_its_deadline() -> None:
    line, ready = Waiters(), SimpleNamespace(now=False)

    class Attempt:
        def __call__(self) -> Any:
            return 1 if ready.now else NOT_READY

    attempt = Attempt()
    ref = weakref.ref(attempt)
    line.wait(attempt, _Done(), deadline=time.monotonic() + 3600)
    ready.now = True
    line.wake()
    del attempt
    gc.collect()
    assert ref() is None


# ------------------------------------------------------------------------ placement


def _device_of(session: wf.Session, target: Any, name: str) -> str:
    metadata = wf.RunMetadata()
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    session.run(target, options=options, run_metadata=metadata)
    stats = metadata.step_stats.dev_stats
    return next(d.device for d in stats for n in d.node_stats if n.node_name == name)


def test_colocated_state_is_placed_from_the_whole_graph() -> None:
    first = cheap(lambda: np.float32(1), name="first")
    with wf.get_default_graph().colocate_with(first.op), wf.device("/cpu:1"):
        cheap(lambda: np.float32(2), name="second")
    config = wf.ConfigProto(device_count={"CPU": 2})
    with wf.Session(config=config) as session:
        second = _device_of(session, "second:0", "second")
        assert _device_of(session, first, "first") == second


def test_no_devices_is_an_error_that_says_so() -> None:
    with pytest.raises(errors.InvalidArgumentError):
        wf.Session(config=wf.ConfigProto(device_count={"CPU": 0})).run(wf.constant(1.0) + 1.0)


# ------------------------------------------------------------------------ feeds


def test_an_integer_too_large_for_a_fed_float_names_the_placeholder() -> None:
    x = wf.placeholder(wf.float32, [], name="x")
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="x"):
        session.run(x, {x: 10**400})


def test_a_feed_that_is_no_mapping_is_refused_on_a_planned_step_too() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session:
        session.run(x, {x: 1.0})
        with pytest.raises(TypeError):
            session.run(x, [x])


def test_a_tuple_feed_of_a_wrong_value_is_a_named_error() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
        session.run(x, {(x,): 1.0})


def test_feeding_a_variable_that_is_assigned_in_the_step_is_refused() -> None:
    v = wf.Variable(1.0)
    with wf.Session() as session:
        session.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError):
            session.run(v.assign(2.0), {v._as_output(True): 3.0})
