"""Conditionals and loops as they run: in a line, and node by node."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors
from weft_exec.executor.derive import derive
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import place_on
from weft_exec.executor.step import StepMachine
from weft_exec.kernels.registry import kernel
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import WAITS
from weft_graph.passes import prune
from weft_graph.raw_ops import Enter, Exit, LoopCond, Merge, NextIteration, Switch

LINE, QUEUE = "", "READY_QUEUE"
BODIES: dict[str, Callable[..., Any]] = {}

register_op(
    "TestWait",
    inputs=("input: float32",),
    outputs=("output: float32",),
    attrs={"body": "string"},
    shape=lambda node: [()],
    traits=WAITS,
)


@kernel("TestWait")
def _wait(node: Any, device: Any) -> Callable[..., Any]:
    return BODIES[node.attrs["body"]]


register_op(
    "TestPass",
    inputs=("input: int32",),
    outputs=("output: int32",),
    shape=lambda node: [()],
    traits=WAITS,
    doc="The input, by an asynchronous kernel: what waits for it is scheduled node by node.",
)


@kernel("TestPass")
def _pass(node: Any, device: Any) -> Callable[..., Any]:
    return lambda ctx, inputs, done: done(inputs[0])


def waits(body: Callable[..., Any], value: Any) -> wf.Tensor:
    BODIES[str(id(body))] = body
    return out("TestWait", [value], {"body": str(id(body))})


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made
    BODIES.clear()


@pytest.fixture(params=[LINE, QUEUE], ids=["line", "queue"])
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session that runs nodes in a fixed order, or schedules all and checks the invariants."""
    finished = StepMachine.finished

    def check_too(machine: StepMachine, token: Any) -> None:
        finished(machine, token)
        machine.check()

    monkeypatch.setattr(StepMachine, "finished", check_too)
    with wf.Session(config=config(request.param)) as made:
        yield made


def config(executor_type: str, threads: int = 1) -> Any:
    proto = wf.ConfigProto(inter_op_parallelism_threads=threads)
    proto.experimental.executor_type = executor_type
    return proto


def counted(limit: Any, name: str = "frame") -> tuple[Any, Any, Any]:
    """A loop from 0 to `limit` of primitives: its Merge, the body's value, and its Exit."""
    start = Enter(data=wf.constant(0), frame_name=name)
    merge = Merge(inputs=[start, start])
    goes_on = LoopCond(input=wf.less(merge.output if hasattr(merge, "output") else merge[0], limit))
    left, inside = Switch(data=merge[0], pred=goes_on)
    one = Enter(data=wf.constant(1), frame_name=name, is_constant=True)
    following = NextIteration(data=wf.add(inside, one))
    wf.get_default_graph().replace_input(merge[0].op, 1, following, reason="close the loop")
    return merge[0], inside, Exit(data=left)


# ------------------------------------------------------------------------------ primitives


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_a_loop_of_primitives_counts(session: wf.Session, limit: int) -> None:
    bound = Enter(data=wf.constant(limit), frame_name="frame", is_constant=True)
    assert session.run(counted(bound)[2]) == limit


def test_a_switch_kills_one_side_and_a_merge_takes_the_other(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool, [])
    lower, upper = Switch(data=wf.constant([1.0, 2.0]), pred=pred)
    value, index = Merge(inputs=[lower * 10.0, upper + 0.5])
    for chosen, expected in ((True, [1.5, 2.5]), (False, [10.0, 20.0])):
        got, which = session.run([value, index], {pred: chosen})
        np.testing.assert_array_equal(got, expected)
        assert which == int(chosen) and which.dtype == np.int32


def test_what_needs_a_dead_value_is_dead(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool, [])
    lower, upper = Switch(data=wf.constant(1.0), pred=pred)
    alive = wf.constant(2.0)
    mixed = lower + alive
    assert session.run(mixed, {pred: False}) == 3
    with pytest.raises(errors.InvalidArgumentError, match="branch that was not taken") as caught:
        session.run([mixed, alive], {pred: True})
    assert caught.value.node == mixed.op.name
    assert session.run(alive, {pred: True}) == 2
    del upper


def test_a_merge_without_a_live_input_has_no_value(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool, [])
    lower, _ = Switch(data=wf.constant(1.0), pred=pred)
    merged = Merge(inputs=[lower, lower + 1.0])[0]
    with pytest.raises(errors.InvalidArgumentError, match="all inputs of its Merge were dead"):
        session.run(merged, {pred: True})


def test_a_merge_of_unrelated_inputs_takes_what_is_alive(session: wf.Session) -> None:
    p, q = wf.placeholder(wf.bool, []), wf.placeholder(wf.bool, [])
    a = Switch(data=wf.constant(1.0), pred=p)[1]
    b = Switch(data=wf.constant(2.0), pred=q)[1]
    merged = Merge(inputs=[a, b])[0] * 10.0
    assert session.run(merged, {p: True, q: False}) == 10
    assert session.run(merged, {p: False, q: True}) == 20
    assert session.run(merged, {p: True, q: True}) in (10, 20)


def test_control_dependencies_carry_death(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool, [])
    upper = wf.identity(Switch(data=wf.constant(1.0), pred=pred)[1])
    count = wf.Variable(0, use_resource=True)
    session.run(count.initializer)
    with wf.control_dependencies([upper]):
        bump = count.assign_add(1, read_value=False)
    session.run(bump, {pred: False})
    assert session.run(count.read_value()) == 0
    session.run(bump, {pred: True})
    assert session.run(count.read_value()) == 1


def test_frames_may_not_be_mixed(session: wf.Session) -> None:
    _, inside, left = counted(Enter(data=wf.constant(3), frame_name="frame", is_constant=True))
    wrong = wf.add(inside, wf.placeholder_with_default(1, []), name="wrong")
    bad = Exit(data=wrong)
    with pytest.raises(errors.InvalidArgumentError, match="from the frame 'frame'") as caught:
        session.run(bad)
    assert caught.value.node == "wrong"
    assert session.run(left) == 3


def test_an_exit_belongs_to_a_frame(session: wf.Session) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="not in any frame"):
        session.run(Exit(data=wf.constant(1)))


def test_a_predicate_has_rank_0(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool)
    y = wf.cond(pred, lambda: wf.constant(1), lambda: wf.constant(2))
    with pytest.raises(errors.InvalidArgumentError, match="rank 0, got shape"):
        session.run(y, {pred: [True, False]})
    assert session.run(y, {pred: True}) == 1


def test_a_cycle_without_loop_ops_is_an_error(session: wf.Session, graph: wf.Graph) -> None:
    x = wf.identity(1.0)
    y = x + 1.0
    graph.replace_input(x.op, 0, y, reason="test")
    with pytest.raises(errors.InvalidArgumentError, match="cycle outside loops"):
        session.run(y)


def test_the_inside_of_a_loop_is_neither_fetched_nor_fed(session: wf.Session) -> None:
    seen = []

    def body(i: Any) -> Any:
        seen.append(i + 1)
        return seen[0]

    loop = wf.while_loop(lambda i: i < 3, body, [0])
    with pytest.raises(errors.InvalidArgumentError, match="inside the loop"):
        session.run(seen[0])
    with pytest.raises(errors.InvalidArgumentError, match="has no value outside"):
        _ = seen[0] + 1
    assert session.run(loop) == 3


# ---------------------------------------------------------------------------------- effects


def test_only_the_branch_taken_has_effects(session: wf.Session) -> None:
    pred = wf.placeholder(wf.bool, [])
    a, b = wf.Variable(0.0), wf.Variable(0.0, use_resource=True)
    session.run(wf.global_variables_initializer())
    y = wf.cond(pred, lambda: a.assign_add(1.0), lambda: b.assign_add(10.0))
    assert session.run(y, {pred: True}) == 1
    assert session.run(y, {pred: False}) == 10
    assert session.run([a.value(), b.read_value()]) == [1, 10]


@pytest.mark.parametrize("resource", [False, True])
def test_a_body_updates_variables_each_time(session: wf.Session, resource: bool) -> None:
    v = wf.Variable(0.0, use_resource=resource)
    session.run(v.initializer)

    def body(i: Any) -> Any:
        with wf.control_dependencies([v.assign_add(2.0)]):
            return i + 1

    assert session.run(wf.while_loop(lambda i: i < 5, body, [0])) == 5
    assert session.run(v.value()) == 10


def test_control_dependencies_hold_into_loops_and_out_of_them(session: wf.Session) -> None:
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    first = v.assign(5.0, read_value=False)
    with wf.control_dependencies([first]):
        loop = wf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + v.read_value()), [0, 0.0])
    with wf.control_dependencies([loop[1]]):
        last = v.assign(7.0, read_value=False)
    assert session.run([loop[1], last])[0] == 15
    assert session.run(v.read_value()) == 7


def test_a_body_may_wait_for_what_is_outside(session: wf.Session) -> None:
    v = wf.Variable(1.0, use_resource=True)
    session.run(v.initializer)
    outside = v.assign(4.0, read_value=False)

    def body(i: Any, s: Any) -> Any:
        with wf.control_dependencies([outside]):
            return i + 1, s + v.read_value()

    assert session.run(wf.while_loop(lambda i, s: i < 2, body, [0, 0.0])[1]) == 8


# ------------------------------------------------------------------------- overlap and memory


def test_iterations_overlap_as_far_as_they_may() -> None:
    """At most eight iterations wait at a time; they continue when all eight have arrived."""
    started = threading.Semaphore(0)
    pending: list[Any] = []
    most = []

    def start(ctx: Any, inputs: Any, done: Any) -> None:
        pending.append(lambda: done(inputs[0]))
        most.append(len(pending))
        started.release()

    loop = wf.while_loop(
        lambda i, s: i < 24,
        lambda i, s: (i + 1, s + waits(start, wf.cast(i, wf.float32))),
        [0, 0.0],
        parallel_iterations=8,
    )

    def release() -> None:
        for _ in range(3):
            for _ in range(8):
                assert started.acquire(timeout=60)
            batch, pending[:] = pending[:], []
            for finish in batch:
                finish()

    helper = threading.Thread(target=release)
    helper.start()
    with wf.Session() as session:
        assert session.run(loop[1]) == sum(range(24))
    helper.join()
    assert max(most) == 8


def test_one_iteration_at_a_time_if_so_asked() -> None:
    most, active, lock = [], [0], threading.Lock()

    def start(ctx: Any, inputs: Any, done: Any) -> None:
        with lock:
            active[0] += 1
            most.append(active[0])

        def finish() -> None:
            with lock:
                active[0] -= 1
            done(inputs[0])

        threading.Timer(0.001, finish).start()

    loop = wf.while_loop(
        lambda i, s: i < 10,
        lambda i, s: (i + 1, s + waits(start, 1.0)),
        [0, 0.0],
        parallel_iterations=1,
    )
    with wf.Session() as session:
        assert session.run(loop[1]) == 10
    assert max(most) == 1


def test_memory_does_not_grow_with_iterations(session: wf.Session) -> None:
    limit = wf.placeholder(wf.int32, [])
    loop = wf.while_loop(
        lambda i, a: i < limit, lambda i, a: (i + 1, a * 0.5 + 1.0), [0, wf.zeros([1000])]
    )
    session.run(loop, {limit: 3})
    peaks = []
    for count in (200, 2000):
        gc.collect()
        tracemalloc.start()
        session.run(loop, {limit: count})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] + 10_000


@pytest.mark.long
def test_a_million_iterations(session: wf.Session) -> None:
    loop = wf.while_loop(lambda i: i < 1_000_000, lambda i: i + 1, [0])
    tracemalloc.start()
    assert session.run(loop) == 1_000_000
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


# ------------------------------------------------------------------------------- failures


def test_an_error_says_in_which_iteration_of_which_loop(session: wf.Session) -> None:
    table = wf.constant([1.0, 2.0, 3.0])
    limit = wf.placeholder(wf.int32, [])

    def inner(i: Any) -> Any:
        start = wf.while_loop(
            lambda j, s: j <= limit,
            lambda j, s: (j + 1, s + wf.gather(table, j, name="look")),
            [i, 0.0],
            name="inner",
        )
        return i + 1, start[1]

    loop = wf.while_loop(lambda i, s: i < 2, lambda i, s: inner(i), [0, 0.0], name="outer")
    with pytest.raises(errors.InvalidArgumentError) as caught:
        session.run(loop, {limit: 4})
    assert caught.value.node is not None and caught.value.node.endswith("look")
    assert caught.value.details["iterations"] == [
        ["outer/inner/while_context", 3],
        ["outer/while_context", 0],
    ]
    assert "in iteration 3 of 'outer/inner/while_context'" in str(caught.value)
    assert session.run(loop, {limit: 1})[0] == 2


def test_an_endless_loop_ends_at_its_timeout(session: wf.Session) -> None:
    loop = wf.while_loop(lambda i: True, lambda i: i + 1, [0])
    with pytest.raises(errors.DeadlineExceededError):
        session.run(loop, options=wf.RunOptions(timeout_in_ms=50))
    assert session.run(wf.constant(3)) == 3


def test_an_endless_loop_ends_when_its_session_closes(session: wf.Session) -> None:
    running = threading.Event()

    def tell() -> np.int32:
        running.set()
        return np.int32(0)

    first = wf.py_func(tell, [], wf.int32)
    first.set_shape([])
    loop = wf.while_loop(lambda i: True, lambda i: i + 1, [first])
    raised: list[BaseException] = []

    def run() -> None:
        try:
            session.run(loop)
        except errors.OpError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(60)
    session.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(raised[0], errors.CancelledError)


def test_a_failing_asynchronous_kernel_ends_the_loop(session: wf.Session) -> None:
    def start(ctx: Any, inputs: Any, done: Any) -> None:
        if inputs[0] == 3:
            done.fail(errors.DataLossError("torn"))
        else:
            done(inputs[0])

    loop = wf.while_loop(
        lambda i, s: i < 9,
        lambda i, s: (i + 1, s + waits(start, wf.cast(i, wf.float32))),
        [0, 0.0],
    )
    with pytest.raises(errors.DataLossError, match="torn") as caught:
        session.run(loop)
    assert caught.value.details["iterations"][0][1] == 3


def test_nodes_that_a_session_runs_are_not_edited(session: wf.Session, graph: wf.Graph) -> None:
    x = wf.placeholder(wf.float32, [])
    loop = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, 1.0])
    assert session.run(loop[1], {x: 2.0}) == 8
    before = [(n.name, n.inputs, n.control_inputs, dict(n.attrs)) for n in graph.nodes]
    (grad,) = wf.gradients(loop[1], x)
    again = wf.gradients(grad, x)[0]
    assert session.run([loop[1], grad, again], {x: 2.0}) == [8, 12, 12]
    assert before == [
        (n.name, n.inputs, n.control_inputs, dict(n.attrs)) for n in graph.nodes[: len(before)]
    ]


def test_a_session_of_another_thread_never_sees_half_a_loop(graph: wf.Graph) -> None:
    """While a body is being built, a session that is extended stops before the loop."""
    x = wf.placeholder(wf.float32, [])
    y = x * 2.0
    entered, go_on = threading.Event(), threading.Event()

    def body(i: Any) -> Any:
        entered.set()
        assert go_on.wait(60)
        return i + 1

    def build() -> None:
        with graph.as_default():
            wf.while_loop(lambda i: i < 3, body, [0])

    thread = threading.Thread(target=build)
    thread.start()
    assert entered.wait(60)
    with wf.Session(graph=graph) as session:
        assert session.run(y, {x: 1.0}) == 2
        go_on.set()
        thread.join()
        assert session.run(y, {x: 2.0}) == 4
        wait_until(lambda: not thread.is_alive())
        exits = [n for n in graph.nodes if n.type == "Exit"]
        assert session.run(exits[0].outputs[0]) == 3


# --------------------------------------------------------------------- programs by chance

Tree = Any


def trees() -> st.SearchStrategy[Tree]:
    """Expressions over x and the innermost loop variable a, in integers modulo 101."""
    leaf = st.one_of(st.just(("x",)), st.just(("a",)), st.tuples(st.just("k"), st.integers(0, 9)))

    def more(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.just("add"), inner, inner),
            st.tuples(st.just("mul"), inner, inner),
            st.tuples(st.just("cond"), inner, inner, inner),
            st.tuples(st.just("while"), st.integers(0, 3), inner, inner),
            st.tuples(st.just("until"), inner, inner),
            st.tuples(st.just("wait"), inner),
        )

    return st.recursive(leaf, more, max_leaves=10)


def evaluate(tree: Tree, x: int, a: int) -> int:
    kind = tree[0]
    if kind in ("x", "a", "k"):
        return {"x": x, "a": a}.get(kind, tree[-1] if kind == "k" else 0)
    if kind == "add":
        return (evaluate(tree[1], x, a) + evaluate(tree[2], x, a)) % 101
    if kind == "mul":
        return (evaluate(tree[1], x, a) * evaluate(tree[2], x, a)) % 101
    if kind == "wait":
        return evaluate(tree[1], x, a)
    if kind == "cond":
        return evaluate(tree[2 if evaluate(tree[1], x, a) % 2 else 3], x, a)
    if kind == "while":
        value = evaluate(tree[2], x, a)
        for _ in range(tree[1]):
            value = evaluate(tree[3], x, value)
        return value
    value, steps = evaluate(tree[1], x, a), 0
    while value % 3 and steps < 4:
        value, steps = evaluate(tree[2], x, value), steps + 1
    return value


def build(tree: Tree, x: Any, a: Any) -> Any:
    kind = tree[0]
    if kind in ("x", "a", "k"):
        return x if kind == "x" else a if kind == "a" else wf.constant(tree[1])
    if kind in ("add", "mul"):
        left, right = build(tree[1], x, a), build(tree[2], x, a)
        return (left + right if kind == "add" else left * right) % 101
    if kind == "wait":
        return out("TestPass", [build(tree[1], x, a)])
    if kind == "cond":
        pred = wf.equal(build(tree[1], x, a) % 2, 1)
        return wf.cond(pred, lambda: build(tree[2], x, a), lambda: build(tree[3], x, a))
    if kind == "while":
        return wf.while_loop(
            lambda i, v: i < tree[1],
            lambda i, v: (i + 1, build(tree[3], x, v)),
            [0, build(tree[2], x, a)],
        )[1]
    return wf.while_loop(
        lambda i, v: wf.logical_and(wf.not_equal(v % 3, 0), i < 4),
        lambda i, v: (i + 1, build(tree[2], x, v)),
        [0, build(tree[1], x, a)],
    )[1]


@given(trees(), st.integers(0, 100))
def test_programs_by_chance_give_what_python_gives(tree: Tree, value: int) -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.int32, [])
        result = build(tree, x, x)
        for optimize in (0, -1):
            for kind in (LINE, QUEUE):
                proto = config(kind, threads=2)
                proto.graph_options.optimizer_options.opt_level = optimize
                with wf.Session(graph=graph, config=proto) as session:
                    assert session.run(result, {x: value}) == evaluate(tree, value, value)


def test_the_kernels_of_eight_iterations_wait_side_by_side() -> None:
    """None of them ends before the eighth has begun."""
    held: list[Any] = []

    def start(ctx: Any, inputs: Any, done: Any) -> None:
        held.append(done)
        if len(held) == 8:
            while held:
                held.pop()(inputs[0])

    loop = wf.while_loop(
        lambda i, s: i < 80,
        lambda i, s: (i + 1, s + waits(start, 1.0)),
        [0, 0.0],
        parallel_iterations=8,
    )
    with wf.Session() as session:
        assert session.run(loop[1], options=wf.RunOptions(timeout_in_ms=60_000)) == 80
    assert not held


@given(trees(), st.integers(0, 100), st.data())
def test_any_order_of_events_gives_the_same(tree: Tree, value: int, data: st.DataObject) -> None:
    """The state machine alone: several ready entries at a time run in random order."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.int32, [])
        result = build(tree, x, x)
        overlap = data.draw(st.sampled_from([Overlap.EVERYTHING, Overlap.HEAVY]))
        with wf.Session(graph=graph, config=config(QUEUE)) as session:
            step = prune([x], [result + out("TestPass", [0])], [])
            (device,) = session._backend._devices
            executable = derive(step, place_on(device), overlap)
    slots = executable.template.copy()
    slots[executable.feed_slots[0]] = np.int32(value)
    assert executable.plan is not None
    machine = StepMachine(executable.plan, slots)
    running = []
    while not machine.done:
        machine.check()
        token = machine.take()
        if token is not None:
            running.append(token)
        if running and (token is None or data.draw(st.booleans())):
            entry, iteration = running.pop(data.draw(st.integers(0, len(running) - 1)))
            entry.segment.run(iteration.slots)
            if entry.kernel is not None:
                iteration.slots[entry.slot] = entry.arguments(iteration.slots)[0]
            machine.finished((entry, iteration))
    assert not machine.root.children
    assert executable.results(machine.root.slots) == [evaluate(tree, value, value)]


@pytest.mark.parametrize("said", ["off", "now"])
def test_two_loops_of_one_frame_name_are_refused(
    session: wf.Session, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", said)
    first = counted(Enter(data=wf.constant(3), frame_name="frame", is_constant=True))[2]
    second = counted(Enter(data=first, frame_name="frame", is_constant=True))[2]
    with pytest.raises(errors.InvalidArgumentError, match=r"cycle|share the name of a frame"):
        session.run(second)
    assert session.run(first) == 3


@pytest.mark.parametrize("policy", [LINE, QUEUE])
def test_references_are_read_where_values_are_routed(policy: str) -> None:
    v = wf.Variable([1.0])
    choice = wf.placeholder(wf.bool, [])
    with wf.control_dependencies([wf.assign(v, [4.0])]):
        left, right = Switch(data=v._ref(), pred=choice)
    either = Merge(inputs=[left * 2.0, right])
    with wf.control_dependencies([either.output]):
        alone = Merge(inputs=[v._ref()])
    inside = Exit(data=wf.identity(Enter(data=v._ref(), frame_name="f", is_constant=True)))
    with wf.Session(config=config(policy)) as session:
        session.run(v.initializer)
        assert session.run(inside) == [1.0]
        for taken, value in ((True, 4.0), (False, 8.0)):
            assert session.run(either.output, {choice: taken}) == [value]
            assert session.run(alone.output + 1.0, {choice: taken}) == [5.0]


def test_a_variable_without_a_value_goes_through_a_switch_of_references() -> None:
    v = wf.raw_ops.VariableV2(shape=[1], dtype=wf.float32)
    lacking, there = wf.raw_ops.RefSwitch(data=v, pred=wf.is_variable_initialized(v))
    with wf.control_dependencies([wf.raw_ops.RefIdentity(input=lacking)]):
        made = wf.assign(v, [1.0])
    with wf.control_dependencies([wf.raw_ops.RefIdentity(input=there)]):
        kept = wf.identity(v)
    either = Merge(inputs=[made, kept])
    with wf.Session() as session:
        assert session.run(either.output) == [1.0]
        assert session.run(either) == ([1.0], 1)
