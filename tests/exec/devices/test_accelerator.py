"""Steps over a simulated accelerator, a device of a package outside weft: values and overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft_accelerator
from weft_accelerator import Accelerator, DeviceArray, Limits
from weft_testing.waiting import in_threads

import weft as wf
from weft import errors
from weft_exec.devices.device import make_devices
from weft_exec.resources.resources import ResourceManager

ACCEL = "/device:ACCEL:0"


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture
def hardware() -> Accelerator:
    (found,) = weft_accelerator.plug_in(1, Limits(memory=1 << 24))
    return found


def config(count: int = 1, **options: Any) -> wf.ConfigProto:
    return wf.ConfigProto(device_count={"ACCEL": count}, **options)


@pytest.fixture
def session(hardware: Accelerator) -> Iterator[wf.Session]:
    with wf.Session(config=config()) as made:
        yield made


# --------------------------------------------------------------------------------- devices


def test_there_is_none_unless_it_is_asked_for() -> None:
    with wf.Session() as session:
        assert [device.device_type for device in session.list_devices()] == ["CPU"]
    with wf.device(ACCEL):
        y = wf.constant(1.0) * wf.placeholder_with_default(2.0, [])
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="ACCEL:0"):
        session.run(y)


def test_devices_tell_their_limits(hardware: Accelerator) -> None:
    with wf.Session(config=config(2)) as session:
        found = session.list_devices()
    assert [device.name[-7:] for device in found] == ["e:CPU:0", "ACCEL:0", "ACCEL:1"]
    assert [device.memory_limit_bytes for device in found] == [0, 1 << 24, 1 << 24]


def test_the_host_cannot_look_into_the_memory(hardware: Accelerator) -> None:
    value = hardware.memory.put(np.arange(3.0))
    for look in (
        np.asarray,
        np.sum,
        np.exp,
        bool,
        float,
        len,
        list,
        lambda v: v + 1,
        lambda v: np.ones(3) + v,
        lambda v: np.add(np.ones(3), v),
        lambda v: np.stack([v, v]),
        lambda v: np.array([v, v]),
        lambda v: v == v,
        lambda v: v[0],
        np.copy,
    ):
        with pytest.raises(TypeError):
            look(value)
    assert value.shape == (3,) and value.dtype == np.float64 and value.nbytes == 24
    assert "float64[3] in accelerator 0" in repr(value)


def test_a_kernel_of_the_host_that_gets_such_a_value_fails() -> None:
    """A wrong placement never causes a wrong value; the error names the node."""
    (hardware,) = weft_accelerator.plug_in(1)
    x = wf.placeholder(wf.float32, [2])
    y = wf.exp(x, name="on_host")
    with wf.Session() as session:
        call = session.make_callable(y, [x])
        value = hardware.memory.put(np.ones(2, np.float32))
        with pytest.raises((TypeError, errors.InvalidArgumentError)):
            call(value)


# --------------------------------------------------------------------------------- values


def test_feeds_and_fetches_of_all_types(session: wf.Session, hardware: Accelerator) -> None:
    types = "bool float16 float32 float64 complex64 complex128 int8 int32 int64 uint8 uint16"
    feeds, fetches = {}, []
    for name in types.split():
        for shape in ((), (3,), (2, 0), (2, 3)):
            x = wf.placeholder(wf.as_dtype(name), shape)
            feeds[x] = np.ones(shape, wf.as_dtype(name).as_numpy_dtype)
            with wf.device(ACCEL):
                fetches += [wf.identity(x), wf.expand_dims(x, 0)]
    results = session.run(fetches, feeds)
    for i, value in enumerate(feeds.values()):
        for got, want in ((results[2 * i], value), (results[2 * i + 1], value[None])):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_array_equal(got, want)
    assert hardware.kernels == len(feeds)
    assert all(isinstance(value, np.ndarray | np.generic) for value in results)


def test_what_is_fetched_belongs_to_the_caller(session: wf.Session) -> None:
    with wf.device(ACCEL):
        v = wf.Variable([1.0, 2.0])
        y = wf.reshape(wf.identity(v), [2, 1])
    session.run(v.initializer)
    first, second = session.run([v, y])
    first[:] = 7
    second[:] = 8
    assert session.run(v).tolist() == [1, 2]
    fed = np.array([3.0, 4.0], np.float32)
    x = wf.placeholder(wf.float32, [2])
    with wf.device(ACCEL):
        assign = wf.assign(v, x)
    session.run(assign.op, {x: fed})
    fed[:] = 9
    assert session.run(v).tolist() == [3, 4]


def test_strings_and_shapes_stay_on_the_host(session: wf.Session, hardware: Accelerator) -> None:
    words = wf.placeholder(wf.string, [None])
    x = wf.placeholder(wf.float32, [None, None])
    with wf.device(ACCEL):
        kept = wf.identity(words)
        count = wf.shape(x)[0] * 2
        flat = wf.reshape(x * 2.0, [count, -1])
    joined = wf.string_join([kept, wf.as_string(flat[:, 0])])
    result = session.run(joined, {words: ["a", "b"], x: [[1.0, 2.0]]})
    assert result.tolist() == [b"a2.000000", b"b4.000000"]


def test_a_host_operation_between_two_of_the_accelerator(session: wf.Session) -> None:
    x = wf.placeholder(wf.float64, [3])
    with wf.device(ACCEL):
        a = x * 2.0
    b = wf.py_func(lambda v: v[::-1].copy(), [a], wf.float64)
    with wf.device(ACCEL):
        c = wf.cumsum(b) + a
    wanted = np.cumsum([6.0, 4.0, 2.0]) + np.array([2.0, 4.0, 6.0])
    np.testing.assert_array_equal(session.run(c, {x: [1, 2, 3]}), wanted)


def test_several_accelerators_hand_each_other_values() -> None:
    boards = weft_accelerator.plug_in(3)
    x = wf.placeholder(wf.float64, [100])
    y = x
    for i in (0, 1, 2, 0):
        with wf.device(f"/device:ACCEL:{i}"):
            y = wf.sin(y)
    with wf.Session(config=config(3)) as session:
        value = np.linspace(0, 1, 100)
        np.testing.assert_array_equal(
            session.run(y, {x: value}), np.sin(np.sin(np.sin(np.sin(value))))
        )
    # Directly: only the last value goes out to the host, and only the first comes in from it.
    assert [board.outward.transfers for board in boards] == [1, 0, 0]
    assert [board.inward.transfers for board in boards] == [2, 1, 1]


def test_a_device_that_knows_no_other_takes_values_through_the_host() -> None:
    from weft_exec.config import SessionConfig

    boards = weft_accelerator.plug_in(2)
    options = SessionConfig.from_proto(config(2))
    cpu, first, second = make_devices(ResourceManager(), options)
    value = first.from_host(np.arange(4.0))
    told: list[Any] = []

    class Told:
        def __call__(self, value: Any = None) -> None:
            told.append(value)
            arrived.set()

        def fail(self, error: BaseException) -> None:
            told.append(error)
            arrived.set()

    for target, source, given in ((cpu, first, value), (second, first, value)):
        arrived = threading.Event()
        super(type(second), target).receive(given, source, Told()) if target is second else (
            target.receive(given, source, Told())
        )
        assert arrived.wait(30)
    assert isinstance(told[0], np.ndarray) and told[0].tolist() == [0, 1, 2, 3]
    assert isinstance(told[1], DeviceArray) and told[1].memory is boards[1].memory


# --------------------------------------------------------------------------------- control flow


def programs() -> dict[str, Any]:
    x = wf.placeholder(wf.float64, [4], name="x")
    p = wf.placeholder(wf.float64, [], name="p")

    with wf.device(ACCEL):
        on = wf.cond(p > 0.0, lambda: wf.sin(x), lambda: x * p)

    def branch() -> Any:
        with wf.device(ACCEL):
            return wf.sin(x) * p

    mixed = wf.cond(p > 0.0, branch, lambda: wf.cos(x))

    def body(i: Any, a: Any) -> Any:
        with wf.device(ACCEL):
            b = wf.sin(a) + x
        return i + 1, b * 0.5

    spans = wf.while_loop(lambda i, _: i < 6, body, [0, x])[1]

    def norm(i: Any, a: Any) -> Any:
        with wf.device(ACCEL):
            return wf.reduce_sum(wf.square(a)) < 50.0

    far = wf.while_loop(norm, lambda i, a: (i + 1, a * 1.5 + p), [0, x])

    def all_there(i: Any, a: Any) -> Any:
        return i + 1, wf.where(a > 1.0, a * 0.5, a + p)

    with wf.device(ACCEL):
        there = wf.while_loop(lambda i, a: i < 5, all_there, [0, x])[1]

    def nested(i: Any, a: Any) -> Any:
        def inner(j: Any, t: Any) -> Any:
            with wf.device(ACCEL):
                return j + 1, wf.tanh(t) + wf.cast(j * i, wf.float64)

        a = wf.cond(wf.equal(i % 2, 0), lambda: a * 2.0, lambda: a)
        return i + 1, wf.while_loop(lambda j, _: j < i, inner, [0, a])[1]

    deep = wf.while_loop(lambda i, _: i < 4, nested, [0, x])[1]
    return {"on": on, "mixed": mixed, "spans": spans, "far": far[1], "there": there, "deep": deep}


@pytest.mark.parametrize("name", ["on", "mixed", "spans", "far", "there", "deep"])
def test_control_flow_and_its_gradients(name: str, hardware: Accelerator) -> None:
    y = programs()[name]
    x, p = (wf.get_default_graph().get_tensor_by_name(f"{n}:0") for n in "xp")
    (first,) = wf.gradients(y, x)
    (second,) = wf.gradients(first, x)
    fetches = [y, first] + ([second] if second is not None else [])
    points = [(np.array([0.1, -0.4, 0.9, 1.7]), value) for value in (0.7, -0.3, 0.7)]
    with wf.Session(config=config()) as session:
        found = [session.run(fetches, {x: a, p: b}) for a, b in points]
    assert hardware.kernels
    with wf.Session(config=wf.ConfigProto(allow_soft_placement=True)) as session:
        wanted = [session.run(fetches, {x: a, p: b}) for a, b in points]
    for got, want in zip(found, wanted, strict=True):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)


# --------------------------------------------------------------------------------- variables


def network(resource: bool) -> tuple[Any, Any, Any, Any]:
    x = wf.placeholder(wf.float32, [None, 8])
    labels = wf.placeholder(wf.int32, [None])
    rng = np.random.default_rng(1)

    def weights(*shape: int) -> Any:
        start = rng.standard_normal(shape).astype(np.float32) * 0.3
        return wf.Variable(start, use_resource=resource)

    table = weights(5, 8)
    h = wf.nn.relu(wf.matmul(x, weights(8, 16)) + weights(16))
    h = h + wf.matmul(wf.gather(table, labels), weights(8, 16))
    logits = wf.matmul(h, weights(16, 5)) + weights(5)
    loss = wf.reduce_mean(
        wf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )
    return x, labels, loss, logits


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("optimizer", ["Adam", "Momentum", "Adagrad", "RMSProp"])
@pytest.mark.kernels
def test_training_gives_the_numbers_of_the_cpu(
    optimizer: str, resource: bool, hardware: Accelerator
) -> None:
    arguments = {"Momentum": {"momentum": 0.9}}.get(optimizer, {})

    def losses(device: str, proto: Any) -> tuple[list[Any], list[Any]]:
        with wf.Graph().as_default(), wf.device(device), wf.Session(config=proto) as session:
            x, labels, loss, _ = network(resource)
            made = getattr(wf.train, f"{optimizer}Optimizer")(0.01, **arguments)
            step = made.minimize(loss, global_step=wf.train.get_or_create_global_step())
            session.run(wf.global_variables_initializer())
            rng = np.random.default_rng(0)
            found = []
            for _ in range(8):
                feeds = {x: rng.standard_normal((6, 8)), labels: rng.integers(0, 5, 6)}
                found.append(session.run([loss, step], feeds)[0])
            return found, session.run(wf.global_variables())

    there, here = losses(ACCEL, config()), losses("", None)
    assert there[0][-1] != there[0][0]
    np.testing.assert_array_equal(there[0], here[0])
    for a, b in zip(there[1], here[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert hardware.kernels > 8 * 10


@pytest.mark.parametrize("resource", [False, True])
def test_updates_of_variables(resource: bool, session: wf.Session, hardware: Accelerator) -> None:
    with wf.device(ACCEL):
        v = wf.Variable(np.arange(6.0).reshape(3, 2), use_resource=resource)
        n = wf.Variable(3, use_resource=resource)
        updates = [
            v.assign_add(np.ones((3, 2))),
            wf.scatter_update(v, [0, 2], np.zeros((2, 2))),
            wf.scatter_add(v, [1, 1], np.ones((2, 2))),
            v.assign_sub(np.full((3, 2), 0.5)),
            n.assign_add(4),
        ]
        row = wf.gather(v, [1])
    session.run(wf.global_variables_initializer())
    for update in updates:
        session.run(getattr(update, "op", update))
    np.testing.assert_array_equal(session.run(v), [[-0.5, -0.5], [4.5, 5.5], [-0.5, -0.5]])
    assert session.run([row, n])[0].tolist() == [[4.5, 5.5]]
    assert session.run(n) == 7
    assert session.run(wf.report_uninitialized_variables()).size == 0


def test_snapshots_do_not_change(session: wf.Session) -> None:
    with wf.device(ACCEL):
        v = wf.Variable([1.0, 2.0], use_resource=True)
        before = v.read_value()
        with wf.control_dependencies([before]):
            change = v.assign_add([10.0, 10.0])
        with wf.control_dependencies([change.op]):
            after = v.read_value()
            old = before * 1.0
    session.run(v.initializer)
    found = session.run([old, after])
    assert [value.tolist() for value in found] == [[1, 2], [11, 12]]


def test_sessions_share_variables(hardware: Accelerator) -> None:
    with wf.device(ACCEL):
        v = wf.Variable([1.0, 2.0], use_resource=True)
        w = wf.Variable([1.0, 2.0], use_resource=False)
        change = wf.group(v.assign_add([1.0, 1.0]), wf.assign_add(w, [2.0, 2.0]))
    target = "inproc://test_accelerator"
    try:
        with (
            wf.Session(target, config=config()) as one,
            wf.Session(target, config=config()) as other,
        ):
            one.run(wf.global_variables_initializer())
            other.run(change)
            assert [value.tolist() for value in one.run([v, w])] == [[2, 3], [3, 4]]
            works = [lambda s=s: [s.run(change) for _ in range(20)] for s in (one, other)]
            with in_threads(*works) as threads:
                pass
            assert all(thread.outcome == [None] * 20 for thread in threads)
            assert [value.tolist() for value in one.run([v, w])] == [[42, 43], [83, 84]]
        with wf.Graph().as_default():
            host = wf.Variable([0.0, 0.0], name="Variable", use_resource=True)
            with wf.Session(target) as third, pytest.raises(errors.OpError, match="accelerator"):
                third.run(host.assign_add([1.0, 1.0]))
    finally:
        wf.Session.reset(target)
    assert hardware.memory.bytes_in_use == 0


@pytest.mark.parametrize("resource", [False, True])
def test_checkpoints(resource: bool, tmp_path: Path, hardware: Accelerator) -> None:
    def build(device: str) -> tuple[Any, Any]:
        with wf.device(device):
            v = wf.get_variable("v", initializer=np.arange(4.0), use_resource=resource)
            n = wf.get_variable("n", initializer=3, use_resource=resource)
        return [v, n], wf.train.Saver()

    with wf.Graph().as_default(), wf.Session(config=config()) as session:
        variables, saver = build(ACCEL)
        session.run(wf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "there"))
        session.run([variables[0].assign(np.zeros(4)).op, variables[1].assign(0).op])
        saver.restore(session, path)
        assert [np.asarray(x).tolist() for x in session.run(variables)] == [[0, 1, 2, 3], 3]
    with wf.Graph().as_default(), wf.Session() as session:  # and on the host
        variables, saver = build("")
        saver.restore(session, path)
        assert session.run(variables[0]).tolist() == [0, 1, 2, 3]
        session.run(variables[0].assign_add(np.ones(4)).op)
        path = saver.save(session, str(tmp_path / "here"))
    with wf.Graph().as_default(), wf.Session(config=config()) as session:
        variables, saver = build(ACCEL)
        saver.restore(session, path)
        assert session.run(variables[0]).tolist() == [1, 2, 3, 4]
        assert hardware.memory.bytes_in_use > 0


USES = {
    "value": lambda v: v * 2.0,
    "read_value": lambda v: v.read_value() * 2.0,
    "assign": lambda v: v.assign(np.full(4, 5.0)),
    "assign_add": lambda v: v.assign_add(np.ones(4)),
    "gather": lambda v: wf.gather(v, [0, 0]),
    "scatter": lambda v: wf.scatter_add(v, [0], [1.0]),
    "cond": lambda v: wf.cond(wf.placeholder_with_default(True, []), lambda: v + 1.0, lambda: v),
    "loop": lambda v: wf.while_loop(
        lambda i, _: i < 3, lambda i, a: (i + 1, a + v.read_value()), [0, np.zeros(4)]
    )[1],
}


@pytest.mark.parametrize("here", ["", "/device:CPU:0", ACCEL])
@pytest.mark.parametrize("there", ["/device:CPU:0", ACCEL])
@pytest.mark.parametrize("use", USES)
def test_a_variable_stays_where_it_is_whoever_uses_it(
    use: str, here: str, there: str, session: wf.Session, hardware: Accelerator
) -> None:
    """A variable without a request stays on its first device, with its value."""
    found = []
    for resource in (False, True):
        if use == "loop" and not resource:
            continue
        with wf.device(here):
            v = wf.Variable(np.arange(4.0), use_resource=resource)
        session.run(v.initializer)
        with wf.device(there):
            y = USES[use](v)
        result = session.run(y)
        found.append((result.tolist(), session.run(v).tolist()))
    with wf.Graph().as_default(), wf.Session() as alone:
        v = wf.Variable(np.arange(4.0), use_resource=True)
        alone.run(v.initializer)
        result = alone.run(USES[use](v))
        wanted = (result.tolist(), alone.run(v).tolist())
    assert found == [wanted] * len(found)


@pytest.mark.parametrize("executor", ["", "READY_QUEUE", "SINGLE_THREADED_EXECUTOR"])
def test_training_where_nothing_asks_for_a_device(executor: str, hardware: Accelerator) -> None:
    def losses(count: int) -> list[Any]:
        proto = config(count)
        proto.experimental.executor_type = executor
        with wf.Graph().as_default(), wf.Session(config=proto) as session:
            x, labels, loss, _ = network(True)
            with wf.device(ACCEL if count else ""):
                step = wf.train.AdamOptimizer(0.01).minimize(loss)
            session.run(wf.global_variables_initializer())
            rng = np.random.default_rng(0)
            feeds = {x: rng.standard_normal((6, 8)), labels: rng.integers(0, 5, 6)}
            return [session.run([loss, step], feeds)[0] for _ in range(4)]

    assert losses(1) == losses(0)
    assert hardware.kernels


# --------------------------------------------------------------------------------- overlap


def test_host_and_accelerator_work_at_the_same_time(hardware: Accelerator) -> None:
    """Each kernel waits until the other one is running."""
    both = threading.Barrier(2, timeout=60)
    hardware.seconds = lambda node: float(both.wait() * 0) if node.name == "there" else 0.0
    x = wf.placeholder(wf.float32, [2])
    with wf.device(ACCEL):
        there = wf.sin(x, name="there")

    def work(value: Any) -> Any:
        time.sleep(0.002)  # what takes less is not worth a thread
        both.wait()
        return value

    here = wf.py_func(work, [x], wf.float32)
    with wf.Session(config=config(inter_op_parallelism_threads=2)) as session:  # also on one core
        for _ in range(20):
            session.run([there, here], {x: [1, 2]})
    assert not both.broken


def test_transfers_overlap_and_take_their_time() -> None:
    weft_accelerator.plug_in(1, Limits(latency=0.1, bandwidth=1e9))
    xs = [wf.placeholder(wf.float32, [10]) for _ in range(20)]
    with wf.device(ACCEL):
        ys = [x + 1.0 for x in xs]
    feeds = {x: np.ones(10) for x in xs}
    with wf.Session(config=config()) as session:
        session.run(ys, feeds)
        start = time.perf_counter()
        session.run(ys, feeds)
        spent = time.perf_counter() - start
    assert 0.2 <= spent < 2.0  # not 40 times 0.1


def test_a_trace_shows_both_devices(session: wf.Session) -> None:
    x = wf.placeholder(wf.float32, [2])
    with wf.device(ACCEL):
        y = wf.sin(x, name="there")
    with wf.device("/cpu:0"):
        z = wf.cos(y, name="here")
    metadata = wf.RunMetadata()
    options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
    session.run(z, {x: [1, 2]}, options=options, run_metadata=metadata)
    stats = {dev.device[-7:]: dev.node_stats for dev in metadata.step_stats.dev_stats}
    assert "there" in [node.node_name for node in stats["ACCEL:0"]]
    assert "here" in [node.node_name for node in stats["e:CPU:0"]]
