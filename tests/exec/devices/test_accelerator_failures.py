"""Steps over a simulated accelerator that fail, wait or end early release everything."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import weft_accelerator
from weft_accelerator import Accelerator, Limits
from weft_testing.waiting import in_threads, new_threads, traced, wait_until

import weft as wf
from weft import errors
from weft_exec.kernels.registry import kernel
from weft_exec.resources.rendezvous import Rendezvous
from weft_graph.ir.builder import out
from weft_graph.ir.op_def import register_op

ACCEL = "/device:ACCEL:0"
LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


@pytest.fixture
def hardware() -> Iterator[Accelerator]:
    (found,) = weft_accelerator.plug_in(1, Limits(memory=LIMIT))
    yield found
    for worker in (found.compute, found.inward.worker, found.outward.worker):
        worker.release()
        wait_until(lambda w=worker: not w.pending)


@pytest.fixture
def session(hardware: Accelerator) -> Iterator[wf.Session]:
    with wf.Session(config=config()) as made:
        yield made


def config(count: int = 1) -> wf.ConfigProto:
    return wf.ConfigProto(device_count={"ACCEL": count})


def failure(call: Callable[[], Any], kind: type[errors.OpError]) -> errors.OpError:
    """Return the error of a call, without the frames that would keep its values alive."""
    try:
        call()
    except kind as error:
        return error.copy()
    raise AssertionError(f"no {kind.__name__}")


def in_use(hardware: Accelerator) -> int:
    gc.collect()
    return hardware.memory.bytes_in_use


# --------------------------------------------------------------------------------- memory


def test_a_step_over_the_limit_fails_and_the_next_one_runs(
    session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float32, [None])
    with wf.device(ACCEL):
        v = wf.Variable(np.ones(1000, np.float32), use_resource=True)
        big = wf.reduce_sum(wf.tile(x, [100], name="too_big")) + wf.reduce_sum(v)
    session.run(v.initializer)
    assert session.run(big, {x: np.ones(10)}) == 2000
    before = in_use(hardware)
    assert before >= 4000
    for _ in range(3):
        error = failure(
            lambda: session.run(big, {x: np.ones(50_000)}), errors.ResourceExhaustedError
        )
        assert error.node == "too_big" and "ACCEL:0" in (error.device or "")
        assert "test_accelerator_failures.py" in str(error) and "float32[50000]" in str(error)
        assert in_use(hardware) == before
        assert session.run(big, {x: np.ones(10)}) == 2000
    assert all(meeting.pending == 0 for meeting in meetings)
    hardware.memory._pool.check_integrity()


def test_a_value_too_large_to_come_in(session: wf.Session, hardware: Accelerator) -> None:
    x = wf.placeholder(wf.float32, [None], name="fed")
    with wf.device(ACCEL):
        y = wf.reduce_sum(x)
    session.run(y, {x: np.ones(1000)})
    before = in_use(hardware)
    error = failure(
        lambda: session.run(y, {x: np.ones(LIMIT // 4 + 1)}), errors.ResourceExhaustedError
    )
    assert "fed" in (error.node or "") and "ACCEL:0" in (error.device or "")
    assert session.run(y, {x: np.ones(1000)}) == 1000
    assert in_use(hardware) == before <= 64  # a constant of the sum


def test_a_constant_too_large_to_come_in(session: wf.Session, hardware: Accelerator) -> None:
    x = wf.placeholder(wf.float32, [1])
    with wf.device(ACCEL):
        y = wf.reduce_sum(wf.constant(np.ones(LIMIT // 4 + 1, np.float32), name="large") * x)
    for _ in range(2):
        error = failure(lambda: session.run(y, {x: [1]}), errors.ResourceExhaustedError)
        assert error.node == "large" and "ACCEL:0" in (error.device or "")
        assert in_use(hardware) == 0


def test_a_variable_too_large_keeps_its_old_value(
    session: wf.Session, hardware: Accelerator
) -> None:
    x = wf.placeholder(wf.float32, None)
    with wf.device(ACCEL):
        v = wf.Variable([1.0, 2.0], validate_shape=False, use_resource=False)
        change = wf.assign(v, x, validate_shape=False)
    session.run(v.initializer)
    before = in_use(hardware)
    error = failure(
        lambda: session.run(change.op, {x: np.ones(LIMIT // 6)}), errors.ResourceExhaustedError
    )
    assert error.op.type == "Assign"
    assert session.run(v).tolist() == [1, 2]
    assert in_use(hardware) == before


def test_what_steps_use_is_given_back(session: wf.Session, hardware: Accelerator) -> None:
    x = wf.placeholder(wf.float32, [None, 64])
    with wf.device(ACCEL):
        w = wf.Variable(np.zeros((64, 64), np.float32), use_resource=True)
        loss = wf.reduce_mean(wf.square(wf.tanh(wf.matmul(x, w)) - x))
        step = wf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    session.run(wf.global_variables_initializer())
    feeds = {x: np.random.default_rng(0).standard_normal((100, 64))}
    session.run([step, loss], feeds)
    before = in_use(hardware)
    for _ in range(30):
        session.run([step, loss], feeds)
    assert in_use(hardware) == before
    assert hardware.memory.statistics().peak_bytes_in_use > before
    session.close()
    assert in_use(hardware) <= before - 2 * 64 * 64 * 4  # constants live with the executables


# --------------------------------------------------------------------------------- failures

register_op(
    "TestAccelRefuse",
    inputs=("x: float64",),
    outputs=("y: float64",),
    shape=lambda node: [node.inputs[0].dims],
    doc="The input, unless its sum is greater than 3.",
)


@kernel("TestAccelRefuse")
def _refuse(node: Any, device: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        if np.sum(x) > 3:
            raise errors.DataLossError("refused")
        return x * 1.0

    return run


def test_a_failing_kernel_ends_the_step_everywhere(
    session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [4])

    def body(i: Any, a: Any) -> Any:
        with wf.device(ACCEL):
            b = out("TestAccelRefuse", [a], name="refuses")
        with wf.device("/cpu:0"):
            return i + 1, b + 0.25

    y = wf.while_loop(lambda i, _: i < 4, body, [0, x])[1]
    assert session.run(y, {x: np.full(4, -1.0)}).tolist() == [0] * 4
    begun, before = new_threads(), in_use(hardware)
    for _ in range(5):
        error = failure(lambda: session.run(y, {x: np.full(4, 0.5)}), errors.DataLossError)
        assert error.node and error.node.endswith("refuses") and "ACCEL" in (error.device or "")
        assert error.details["iterations"][0][1] == 2
        assert in_use(hardware) == before
    assert session.run(y, {x: np.full(4, -1.0)}).tolist() == [0] * 4
    assert all(meeting.pending == 0 for meeting in meetings)
    assert len(begun()) <= 3  # those of the accelerator


@pytest.mark.parametrize("after", range(7))
def test_a_device_that_raises_in_the_middle(
    after: int, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    """Any of the transfers and kernels of the step may fail."""
    x = wf.placeholder(wf.float64, [8])
    with wf.device(ACCEL):
        a = wf.sin(x)
    with wf.device("/cpu:0"):
        b = wf.exp(a)
    with wf.device(ACCEL):
        c = wf.reduce_sum(wf.cos(b) + a)
    value = np.linspace(0, 1, 8)
    wanted = np.sum(np.cos(np.exp(np.sin(value))) + np.sin(value))
    with wf.Session(config=config()) as session:
        assert session.run(c, {x: value}) == wanted
        before = in_use(hardware)
        count = [0]
        check = hardware.check

        def failing() -> None:
            count[0] += 1
            if count[0] == after + 1:
                raise errors.UnavailableError("the accelerator fell off the bus")
            check()

        hardware.check = hardware.inward._check = hardware.outward._check = failing
        error = failure(lambda: session.run(c, {x: value}), errors.UnavailableError)
        assert "fell off" in str(error) and error.node and error.device
        assert session.run(c, {x: value}) == wanted
        assert in_use(hardware) == before
    assert all(meeting.pending == 0 for meeting in meetings)
    # Two inputs, four kernels and two outputs: the loop over `after` reaches all but the last.
    assert count[0] >= 8


def test_an_exception_of_a_device_is_located(session: wf.Session, hardware: Accelerator) -> None:
    x = wf.placeholder(wf.float64, [2])
    with wf.device(ACCEL):
        y = wf.sin(x)
    session.run(y, {x: [1, 2]})
    hardware.fail_next(RuntimeError("no such register"))
    error = failure(lambda: session.run(y, {x: [1, 2]}), errors.InternalError)
    assert "no such register" in str(error) and error.node and error.device
    hardware.fail_next(MemoryError("full"))
    failure(lambda: session.run(y, {x: [1, 2]}), errors.ResourceExhaustedError)
    assert session.run(y, {x: [0, 0]}).tolist() == [0, 0]


def test_the_host_failing_drops_what_waits_in_the_stream(
    session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [100])
    divisor = wf.placeholder(wf.int32, [])
    with wf.device(ACCEL):
        y = x
        for _ in range(20):
            y = wf.sin(y)
        ys = [wf.cos(x + float(i)) for i in range(20)]
    with wf.device("/cpu:0"):
        broken = wf.floordiv(1, divisor, name="broken")
    fetches = [y, *ys, broken]
    session.run(fetches, {x: np.ones(100), divisor: 1})
    before, ran = in_use(hardware), hardware.kernels
    hardware.compute.hold()
    error = failure(
        lambda: session.run(fetches, {x: np.ones(100), divisor: 0}),
        errors.InvalidArgumentError,
    )
    assert error.node == "broken"
    hardware.compute.release()
    wait_until(lambda: not hardware.compute.pending and not hardware.inward.worker.pending)
    assert hardware.kernels == ran
    wait_until(lambda: in_use(hardware) == before)
    assert session.run(fetches, {x: np.ones(100), divisor: 1})[-1] == 1
    assert all(meeting.pending == 0 for meeting in meetings)


# --------------------------------------------------------------------------------- ends


@pytest.mark.parametrize("where", ["compute", "inward", "outward"])
def test_a_timeout_does_not_wait_for_the_device(
    where: str, session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [100])
    with wf.device(ACCEL):
        ys = [wf.sin(x + float(i)) for i in range(10)]
    wanted = session.run(ys, {x: np.ones(100)})
    begun, before = new_threads(), in_use(hardware)
    part = getattr(hardware, where)
    worker = getattr(part, "worker", part)
    worker.hold()
    options = wf.RunOptions(timeout_in_ms=60)
    for _ in range(2):
        failure(
            lambda: session.run(ys, {x: np.ones(100)}, options=options),
            errors.DeadlineExceededError,
        )
    assert all(meeting.pending == 0 for meeting in meetings)
    assert len(begun()) <= 3
    worker.release()
    wait_until(lambda: not worker.pending)
    wait_until(lambda: in_use(hardware) == before)
    for got, want in zip(session.run(ys, {x: np.ones(100)}), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_closing_the_session_ends_its_steps(
    hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [100])
    with wf.device(ACCEL):
        y = wf.sin(wf.cos(x))
    session = wf.Session(config=config())
    feeds = {x: np.ones(100)}
    wanted = session.run(y, feeds)
    hardware.compute.hold()
    with in_threads(*[partial(session.run, y, feeds)] * 3) as threads:
        wait_until(lambda: hardware.compute.pending >= 3)
        session.close()
    assert wanted.shape == (100,) and all(
        isinstance(thread.outcome, errors.CancelledError) for thread in threads
    )
    hardware.compute.release()
    wait_until(lambda: not hardware.compute.pending)
    del threads, session
    wait_until(lambda: in_use(hardware) == 0)
    assert all(meeting.pending == 0 for meeting in meetings)


def test_steps_side_by_side_of_which_some_fail(
    session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    x = wf.placeholder(wf.float64, [])

    def body(i: Any, a: Any) -> Any:
        with wf.device(ACCEL):
            return i + 1, out("TestAccelRefuse", [a + x])

    y = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
    assert session.run(y, {x: 0.25}) == 1.5
    before = in_use(hardware)

    def work(number: int) -> list[str]:
        found = []
        for i in range(15):
            value = 1.0 if (i + number) % 3 == 0 else 0.25
            try:
                found.append(str(session.run(y, {x: value})))
            except errors.DataLossError:
                found.append("refused")
        return found

    with in_threads(*[lambda n=n: work(n) for n in range(4)]) as threads:
        pass
    for number, thread in enumerate(threads):
        wanted = ["refused" if (i + number) % 3 == 0 else "1.5" for i in range(15)]
        assert thread.outcome == wanted
    assert in_use(hardware) == before
    assert all(meeting.pending == 0 for meeting in meetings)


# --------------------------------------------------------------------------------- many


COUNTS = [1_000, pytest.param(10_000, marks=pytest.mark.long)]


def sum_of_many(count: int) -> tuple[Any, dict[Any, Any]]:
    """A sum on the host of values of the accelerator, and its feeds."""
    x = wf.placeholder(wf.float32, [count])
    with wf.device(ACCEL):
        values = wf.unstack(x)
    with wf.device("/cpu:0"):
        return wf.add_n(values), {x: np.ones(count)}


@pytest.mark.parametrize("count", COUNTS)
def test_many_pending_receives_cost_no_threads(
    count: int, session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    """In the rendezvous while the kernel is held, then all on the way while the link is."""
    total, feeds = sum_of_many(count)
    assert session.run(total, feeds) == count  # derived, and the pools have grown
    begun, before = new_threads(), in_use(hardware)
    hardware.compute.hold()
    hardware.outward.worker.hold()
    with traced() as memory, in_threads(lambda: session.run(total, feeds)) as workers:
        wait_until(lambda: meetings[-1].pending >= count)
        assert len(begun()) <= 4
        hardware.compute.release()
        wait_until(lambda: hardware.outward.worker.pending == count)
        assert len(begun()) <= 4
        assert meetings[-1].pending == 0
        hardware.outward.worker.release()
    assert workers[0].outcome == count
    assert memory.peak < count * 6_000
    del workers
    wait_until(lambda: in_use(hardware) == before)


@pytest.mark.parametrize("count", COUNTS)
def test_many_pending_receives_end_at_a_timeout(
    count: int, session: wf.Session, hardware: Accelerator, meetings: list[Rendezvous]
) -> None:
    total, feeds = sum_of_many(count)
    assert session.run(total, feeds) == count
    before = in_use(hardware)
    options = wf.RunOptions(timeout_in_ms=count // 10)
    for worker in (hardware.compute, hardware.outward.worker):
        worker.hold()
        failure(lambda: session.run(total, feeds, options=options), errors.DeadlineExceededError)
        assert meetings[-1].pending == 0
        worker.release()
        wait_until(lambda w=worker: not w.pending)
    wait_until(lambda: in_use(hardware) == before)
    assert session.run(total, feeds) == count
