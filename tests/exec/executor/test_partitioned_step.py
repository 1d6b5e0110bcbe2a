"""Steps on several devices: transfers, loops that span them, failures."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.waiting import new_threads

import weft as wf
from weft import errors
from weft_exec.kernels.registry import kernel
from weft_exec.resources.rendezvous import Rendezvous
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op
from weft_graph.ir.step_graph import Part
from weft_graph.ir.traits import WRITES
from weft_graph.passes import prune
from weft_graph.passes.partition import partition

HOME = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def config(count: int = 3, **options: Any) -> Any:
    return wf.ConfigProto(device_count={"CPU": count}, **options)


@pytest.fixture
def session() -> Iterator[wf.Session]:
    with wf.Session(config=config()) as made:
        yield made


def parts_of(fetches: list[Any], feeds: list[Any] | None = None) -> dict[str, Part]:
    """The parts of a step by the device that its nodes ask for."""
    step = prune(feeds or [], fetches, [])
    found = partition(step, step.live_nodes(), lambda node: node.device or HOME, HOME)
    assert found is not None
    for part in found.values():
        part.step.graph.check_integrity()
    return {name[-5:]: part for name, part in found.items()}


def count(part: Part) -> Counter[str]:
    return Counter(node.type for node in part.step.live_nodes())


# --------------------------------------------------------------------------------- partitions


def test_one_device_is_not_cut() -> None:
    y = wf.placeholder(wf.float32, []) * 2.0
    step = prune([], [y], [])
    assert partition(step, step.live_nodes(), lambda node: HOME, HOME) is None


def test_a_value_is_sent_once_to_each_device_that_needs_it() -> None:
    x = wf.placeholder(wf.float32, [2])
    y = x * 2.0
    with wf.device("/cpu:1"):
        a, b = y + 1.0, y - 1.0
    with wf.device("/cpu:2"):
        c = y * y
    found = parts_of([a, b, c], [x])
    assert count(found["CPU:0"])["_Send"] == 2
    assert count(found["CPU:1"])["_Recv"] == count(found["CPU:2"])["_Recv"] == 1
    assert [part.fetches for part in found.values()] == [(), (0, 1), (2,)]
    assert found["CPU:0"].feeds == (0,)


def test_constants_and_feeds_are_where_they_are_used() -> None:
    x = wf.placeholder(wf.float32, [])
    with wf.device("/cpu:1"):
        y = x * 2.0
    with wf.device("/cpu:2"):
        z = x * 2.0
    found = parts_of([y, z], [x])
    assert set(found) == {"CPU:1", "CPU:2"}
    assert all("_Recv" not in count(part) and part.feeds == (0,) for part in found.values())


def test_control_edges_cross_as_small_values() -> None:
    v = wf.Variable(1.0, use_resource=True)
    bump = wf.group(v.assign_add(1.0))
    with wf.device("/cpu:1"), wf.control_dependencies([bump]):
        y = wf.constant(5.0) * 2.0
    found = parts_of([y])
    received = [n for n in found["CPU:1"].step.graph.nodes if n.type == "_Recv"]
    assert [n.attrs["tensor_name"] for n in received] == ["^group_deps"]
    assert received[0].outputs[0].dims == ()


def test_a_device_without_variables_of_a_loop_goes_round_with_it() -> None:
    x = wf.placeholder(wf.float32, [8])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = wf.sin(a)
        return i + 1, b * 0.5

    y = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
    found = parts_of([y], [x])
    assert count(found["CPU:1"])["LoopCond"] == 0
    assert count(found["CPU:1"])["NextIteration"] == 1  # the small loop
    predicates = [
        n
        for n in found["CPU:1"].step.graph.nodes
        if n.type == "_Recv" and n.outputs[0].dtype is wf.bool
    ]
    assert len(predicates) == 1  # one tiny message an iteration says whether to go on
    assert count(found["CPU:1"])["_Recv"] == 2  # and one brings the value


def test_a_loop_variable_stays_where_it_is_computed() -> None:
    x = wf.placeholder(wf.float32, [1000])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = wf.sin(a)
        return i + 1, b

    with wf.device("/cpu:1"):
        start = wf.cos(x)
    y = wf.while_loop(lambda i, _: i < 5, body, [0, start])[1]
    with wf.device("/cpu:1"):
        y = y + 1.0
    found = parts_of([y], [x])
    received = [n for n in found["CPU:1"].step.graph.nodes if n.type == "_Recv"]
    assert [n.attrs["tensor_name"] for n in received] == ["while/LoopCond:0"]


# --------------------------------------------------------------------------------- values


def test_values_and_gradients_across_devices(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [])
    p = wf.placeholder(wf.bool, [])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = a * x
        with wf.device("/cpu:2"):
            c = wf.cond(p, lambda: wf.sin(b), lambda: b + x)
        return i + 1, c

    y = wf.while_loop(lambda i, _: i < 4, body, [0, x])[1]
    fetches = [y, *wf.gradients(y, x)]
    with wf.Session(config=config(1, allow_soft_placement=True)) as alone:
        for value in (0.3, 1.2):
            for taken in (True, False):
                feeds = {x: value, p: taken}
                np.testing.assert_allclose(
                    session.run(fetches, feeds), alone.run(fetches, feeds), rtol=1e-12
                )


def test_nested_loops_that_span_devices(session: wf.Session) -> None:
    def inner(n: Any) -> Any:
        def body(j: Any, t: Any) -> Any:
            with wf.device("/cpu:2"):
                return j + 1, t + wf.cast(j * n, wf.float64)

        return wf.while_loop(lambda j, _: j < n, body, [0, wf.constant(0.0, wf.float64)])[1]

    def outer(i: Any, total: Any) -> Any:
        with wf.device("/cpu:1"):
            doubled = total * 1.0
        return i + 1, doubled + inner(i)

    n = wf.placeholder(wf.int32, [])
    y = wf.while_loop(lambda i, _: i < n, outer, [0, wf.constant(0.0, wf.float64)])[1]
    for limit in (0, 1, 6):
        expected = sum(j * i for i in range(limit) for j in range(i))
        assert session.run(y, {n: limit}) == expected


def test_a_loop_in_a_branch_that_is_not_taken(session: wf.Session) -> None:
    p, x = wf.placeholder(wf.bool, []), wf.placeholder(wf.float64, [])

    def loop() -> Any:
        def body(i: Any, a: Any) -> Any:
            with wf.device("/cpu:1"):
                return i + 1, a * 2.0

        with wf.device("/cpu:2"):
            shifted = x + 1.0
        return wf.while_loop(lambda i, _: i < 3, body, [0, shifted])[1]

    y = wf.cond(p, loop, lambda: x)
    assert session.run(y, {p: True, x: 1.0}) == 16
    assert session.run(y, {p: False, x: 1.0}) == 1
    assert session.run(y, {p: True, x: 2.0}) == 24


def test_variables_stay_with_their_updates(session: wf.Session) -> None:
    with wf.device("/cpu:1"):
        v = wf.Variable(1.0, use_resource=True)
        w = wf.Variable(10.0, use_resource=False)
    with wf.device("/cpu:2"):
        change = wf.placeholder(wf.float32, []) * 2.0
    with wf.control_dependencies([v.assign_add(change), wf.assign_add(w, change)]):
        read = [v.read_value(), wf.identity(w)]
    session.run(wf.global_variables_initializer())
    feeds = {change.op.inputs[0]: 1.5}
    assert session.run(read, feeds) == [4, 13]
    assert session.run(read, feeds) == [7, 16]
    assert session.run([v, w]) == [7, 16]


@pytest.mark.parametrize("resource", [False, True])
def test_variables_of_several_devices_are_saved_by_one_node(
    session: wf.Session, resource: bool, tmp_path: Path
) -> None:
    with wf.device("/cpu:1"):
        v = wf.Variable(1.0, use_resource=resource)
    with wf.device("/cpu:2"):
        w = wf.Variable(2.0, use_resource=resource)
    saver = wf.train.Saver()
    session.run(wf.global_variables_initializer())
    path = saver.save(session, str(tmp_path / "m"))
    session.run([v.assign(5.0), w.assign(6.0)])
    saver.restore(session, path)
    assert session.run([v, w]) == [1, 2]


def test_what_is_fetched_belongs_to_the_caller(session: wf.Session) -> None:
    x = wf.placeholder(wf.float32, [4])
    y = x * 2.0
    with wf.device("/cpu:1"):
        z = wf.identity(y)
    a, b = session.run([y, z], {x: np.ones(4, np.float32)})
    a[0] = 7
    assert b.tolist() == [2, 2, 2, 2]
    call = session.make_callable([y, z], [x])
    assert [v.tolist() for v in call([1, 2, 3, 4])] == [[2, 4, 6, 8]] * 2


def test_steps_side_by_side(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            return i + 1, a + x

    y = wf.while_loop(lambda i, _: i < 20, body, [0, x])[1]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = [session.run(y, {x: float(number)}) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == {number: [21.0 * number] * 10 for number in range(4)}


# --------------------------------------------------------------------------------- failures

register_op(
    "TestRefuse",
    inputs=("x: float64",),
    outputs=("y: float64",),
    shape=lambda node: [node.inputs[0].dims],
    traits=WRITES,
    doc="The input, unless it is greater than 3.",
)


@kernel("TestRefuse")
def _refuse(node: Any, device: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        if x > 3:
            raise errors.DataLossError("refused")
        return x

    return run


def test_a_failure_ends_the_step_everywhere(
    session: wf.Session, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = out("TestRefuse", [a])
        with wf.device("/cpu:2"):
            return i + 1, b + 1.0

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    begun = new_threads()
    assert session.run(y, {x: 0.0}) == 3
    for _ in range(3):
        with pytest.raises(errors.DataLossError, match="refused") as caught:
            session.run(y, {x: 2.0})
        assert "CPU:1" in (caught.value.device or "")
        assert caught.value.details["iterations"][0][1] == 2
    assert session.run(y, {x: 0.0}) == 3
    assert all(meeting.pending == 0 for meeting in meetings) and len(meetings) == 5
    assert len(begun()) <= 4


def test_a_timeout_ends_what_waits_on_other_devices(
    session: wf.Session, meetings: list[Rendezvous]
) -> None:
    queue = wf.FIFOQueue(1, [wf.float64], [[]])
    element = queue.dequeue()
    with wf.device("/cpu:1"):
        y = element * 2.0
    with pytest.raises(errors.DeadlineExceededError):
        session.run(y, options=wf.RunOptions(timeout_in_ms=50))
    session.run(queue.enqueue(4.0))
    assert session.run(y) == 8
    assert all(meeting.pending == 0 for meeting in meetings)


def test_closing_a_session_ends_what_waits_on_other_devices() -> None:
    session = wf.Session(config=config())
    queue = wf.FIFOQueue(1, [wf.float64], [[]])
    element = queue.dequeue()
    with wf.device("/cpu:1"):
        y = element * 2.0
    caught: list[BaseException] = []

    def work() -> None:
        try:
            session.run(y)
        except errors.OpError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    session.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(caught[0], errors.CancelledError | errors.FailedPreconditionError)


# ------------------------------------------------------------------------------- fewer bits


def halved(value: Any) -> Any:
    bits = np.asarray(value, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


@pytest.mark.kernels
def test_chosen_values_lose_half_of_their_bits_on_the_way() -> None:
    x = wf.placeholder(wf.float32, [4])
    with wf.device("/cpu:0"):
        y = wf.sin(x)
        cheap = wf.lossy_transfers(y)
        local = cheap * 1.0
        only = wf.lossy_transfers(wf.cos(x), ["/cpu:2", "/job:worker"])
    there = []
    for i in (1, 2):
        with wf.device(f"/cpu:{i}"):
            there += [y * 1.0, cheap * 1.0, only * 1.0]
    value = np.array([0.1, 1.0, -2.7, 1e-8], np.float32)
    with wf.Session(config=config()) as session:
        here, *found = session.run([local, *there], {x: value})
    sine, cosine = np.sin(value), np.cos(value)
    wanted = [sine, halved(sine), cosine, sine, halved(sine), halved(cosine)]
    for got, want in zip([here, *found], [sine, *wanted], strict=True):
        np.testing.assert_array_equal(got, want)


def test_where_the_choice_is_made_does_not_matter() -> None:
    x = wf.placeholder(wf.float32, [2])
    with wf.device("/cpu:0"):
        y = wf.sin(x)
    with wf.device("/cpu:1"), wf.get_default_graph().colocate_with(wf.cos(x, name="other")):
        z = wf.lossy_transfers(y)
    with wf.device("/cpu:1"):
        z = z * 1.0
    value = np.array([0.1, 1.0], np.float32)
    with wf.Session(config=config(2)) as session:
        np.testing.assert_array_equal(session.run(z, {x: value}), halved(np.sin(value)))


@pytest.mark.kernels
def test_all_values_of_a_session_may_lose_bits() -> None:
    x = wf.placeholder(wf.float32, [3])
    with wf.device("/cpu:1"):
        y = wf.sin(x)
        z = wf.cast(y, wf.float64)
    with wf.device("/cpu:2"):
        found = [y * 1.0, z * 1.0]
    options = wf.GraphOptions(enable_bfloat16_sendrecv=True)
    value = np.array([0.3, 1.0, -2.7], np.float32)
    with wf.Session(config=config(graph_options=options)) as session:
        y_there, z_there = session.run(found, {x: value})
    np.testing.assert_array_equal(y_there, halved(np.sin(value)))
    np.testing.assert_array_equal(z_there, np.sin(value).astype(np.float64))


def test_loops_and_gradients_with_fewer_bits(session: wf.Session) -> None:
    x = wf.placeholder(wf.float32, [])

    def body(i: Any, a: Any) -> Any:
        with wf.device("/cpu:1"):
            b = wf.lossy_transfers(a * 1.001)
        with wf.device("/cpu:2"):
            return i + 1, b * 1.0

    y = wf.while_loop(lambda i, _: i < 3, body, [0, x])[1]
    want = np.float32(0.7)
    for _ in range(3):
        want = halved(want * np.float32(1.001))[()]
    grad = wf.gradients(y, x)[0]
    assert session.run(y, {x: 0.7}) == want
    assert abs(session.run(grad, {x: 0.7}) - 1.001**3) < 1e-5


@given(st.lists(st.floats(width=32), min_size=1))
def test_how_much_is_lost(values: list[float]) -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None])
        with wf.device("/cpu:0"):
            y = wf.lossy_transfers(x + 0.0)
        with wf.device("/cpu:1"):
            z = y * 1.0
        array = np.array(values, np.float32) + np.float32(0.0)
        with wf.Session(config=config(2)) as session:
            found = session.run(z, {x: array})
    kept = np.isfinite(array)
    np.testing.assert_array_equal(found[~kept], array[~kept])
    assert (np.abs(found[kept]) <= np.abs(array[kept])).all()
    normal = kept & (np.abs(array) >= np.finfo(np.float32).tiny)
    off = np.abs(found[normal].astype(np.float64) - array[normal])
    assert (off < 2.0**-7 * np.abs(array[normal].astype(np.float64))).all()


def test_only_float32_may_lose_bits() -> None:
    with pytest.raises(TypeError, match=r"only float32 .* got float64"):
        wf.lossy_transfers(wf.constant(1.0, wf.float64))
    with pytest.raises(errors.InvalidArgumentError, match="zero"):
        wf.lossy_transfers(wf.constant(1.0), "/gpu:zero")


# ------------------------------------------------------------------------------- by chance


class Chance:
    """A program with branches, loops, TensorArrays and state, whose nodes are anywhere."""

    def __init__(self, seed: int, place: Callable[[random.Random], str | None]) -> None:
        self.random = random.Random(seed)
        self.places = random.Random(seed + 1)
        self.place = place
        self.x, self.p = wf.placeholder(wf.float64, [3]), wf.placeholder(wf.bool, [])
        self.variables = [
            wf.get_variable(
                f"v{i}", initializer=np.array([0.3, -0.2, 0.5 + i]), use_resource=bool(i)
            )
            for i in range(2)
        ]
        loss = wf.reduce_mean(self.block([self.x, wf.sin(self.x)], 2) ** 2)
        grads = wf.gradients(loss, [self.x, *self.variables])
        self.grads = [wf.zeros([3], wf.float64) if g is None else wf.identity(g) for g in grads]
        pairs = [(g, v) for g, v in zip(grads[1:], self.variables, strict=True) if g is not None]
        optimizer = wf.train.MomentumOptimizer(0.05, 0.9)
        self.train = optimizer.apply_gradients(pairs) if pairs else wf.no_op()
        self.loss = loss

    def somewhere(self) -> Any:
        return wf.device(self.place(self.places))

    def block(self, given: list[Any], depth: int) -> Any:
        r, values = self.random, list(given)
        for _ in range(r.randrange(2, 5)):
            a, b = r.choice(values), r.choice(values)
            kind = r.randrange(8 if depth else 5)
            with self.somewhere():
                values.append(wf.clip_by_value(self.statement(kind, a, b, values, depth), -5, 5))
        return values[-1] + values[-2]

    def statement(self, kind: int, a: Any, b: Any, values: list[Any], depth: int) -> Any:
        r = self.random
        if kind < 5:
            simple = [wf.sin, lambda a: a + b, lambda a: wf.tanh(a * b), lambda a: b * 0.7 - a]
            return (a * r.choice(self.variables)) if kind == 4 else simple[kind](a)
        if kind == 5:
            pred = self.p if r.randrange(2) else wf.reduce_sum(a) > 0.0
            sides = [lambda: self.block(values, depth - 1) for _ in range(2)]
            return wf.cond(pred, *sides)
        if kind == 6:
            count, kept = r.randrange(1, 4), r.choice(values)

            def body(i: Any, c: Any, d: Any) -> Any:
                with self.somewhere():
                    return i + 1, wf.tanh(self.block([c, d, kept], depth - 1)), c

            loop = [0, a, b]
            return wf.while_loop(
                lambda i, *_: i < count, body, loop, parallel_iterations=r.choice([1, 10])
            )[1]

        def write(i: Any, array: Any) -> Any:
            with self.somewhere():
                element = self.block([a, b], depth - 1) * wf.cast(i, wf.float64)
                return i + 1, array.write(i, wf.tanh(element))

        array = wf.TensorArray(wf.float64, size=2, element_shape=[3])
        return wf.reduce_sum(wf.while_loop(lambda i, _: i < 2, write, [0, array])[1].stack(), 0)


def results_of(seed: int, count: int, place: Callable[[random.Random], str | None]) -> list[Any]:
    with wf.Graph().as_default():
        made = Chance(seed, place)
        options = wf.RunOptions(timeout_in_ms=60_000)
        found: list[Any] = []
        with wf.Session(config=config(count)) as session:
            session.run(wf.global_variables_initializer())
            for pred in (True, False):
                feed = {made.x: [0.3, -0.8, 1.1], made.p: pred}
                found += session.run([made.loss, *made.grads], feed, options=options)
                session.run(made.train, feed, options=options)
            return found + session.run(wf.global_variables())


def check_by_chance(seed: int) -> None:
    wanted = results_of(seed, 1, lambda r: None)
    for place in (
        lambda r: f"/cpu:{r.randrange(3)}",
        lambda r: r.choice(["/cpu:0", "/cpu:1", None]),
    ):
        for got, want in zip(results_of(seed, 3, place), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_programs_by_chance_on_several_devices(seed: int) -> None:
    check_by_chance(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 200))
def test_many_programs_by_chance_on_several_devices(seed: int) -> None:
    check_by_chance(seed)


def test_what_another_device_decides_is_an_error_to_fetch(session: wf.Session) -> None:
    x, p = wf.placeholder(wf.float32, []), wf.placeholder(wf.bool, [])
    inside: list[Any] = []

    def branch() -> Any:
        with wf.device("/cpu:1"):
            inside.append(wf.sin(x))
        return inside[0]

    with wf.device("/cpu:0"):
        wf.cond(p, branch, lambda: wf.cos(x))
    assert session.run(inside[0], {x: 0.0, p: True}) == 0
    with pytest.raises(errors.InvalidArgumentError, match="was fetched, but has no value"):
        session.run(inside[0], {x: 0.0, p: False})
