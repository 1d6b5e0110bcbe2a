"""Collective operations of GPUs by a stand-in for NCCL: transports and synchronization."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cupy_standin import Machine, installed, nccl as standin
from weft_testing.tasks import jobs, servers
from weft_testing.waiting import in_threads, wait_until

import weft as wf
import weft_distrib
from weft import errors

Build = Callable[[int], Any]


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Two GPUs of the stand-in, which loads no PTX, or the GPUs of the marker `gpus`."""
    monkeypatch.setenv("WEFT_JIT", "asked")
    marker = request.node.get_closest_marker("gpus")
    with installed(Machine(2) if marker is None else Machine(**marker.kwargs)) as found:
        yield found
        # Memberships within one process end with what is left of their session.
        wait_until(lambda: gc.collect() >= 0 and not standin.open_ends)


def growing(**options: Any) -> wf.ConfigProto:
    proto = wf.ConfigProto(**options)
    proto.gpu_options.allow_growth = True
    return proto


def run_here(build: Build, names: list[str], times: int = 1, **options: Any) -> list[Any]:
    """Members on devices of one process."""
    with wf.Graph().as_default():
        made = []
        for i, name in enumerate(names):
            with wf.device(name):
                made.append(build(i))
        with wf.Session(config=growing(**options)) as session:
            for _ in range(times):
                found: list[Any] = session.run(made)
            return found


def calls(machine: Machine) -> list[str]:
    """Return the transfers made by NCCL."""
    return [what for _, what in machine.log if what in ("allReduce", "allGather", "broadcast")]


TYPES = [
    wf.float16, wf.float32, wf.float64, wf.int8, wf.int32, wf.int64, wf.uint8, wf.uint32,
    wf.uint64, wf.complex64, wf.complex128,
]  # fmt: skip
GPUS = ["/gpu:0", "/gpu:1"]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_gpus_merge_by_nccl(machine: Machine, dtype: Any) -> None:
    values = np.array([[3, 2, 9], [1, 4, 3]])
    merges = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}
    kinds = [(m, f) for m in merges for f in ("Id", "Div") if m == "Add" or not dtype.is_complex]

    def build(i: int) -> Any:
        mine = wf.constant(values[i], dtype)
        return [weft_distrib.all_reduce(mine, 2, 1, k, *kind) for k, kind in enumerate(kinds)]

    for got in run_here(build, GPUS):
        for each, (merge, final) in zip(got, kinds, strict=True):
            want = merges[merge].reduce(values).astype(dtype.as_numpy_dtype)
            if final == "Div":
                want = want // 2 if dtype.is_integer else want / want.dtype.type(2)
            assert each.dtype == dtype.as_numpy_dtype
            np.testing.assert_array_equal(each, want)
    assert len(calls(machine)) == 2 * len(kinds)


def test_integers_are_divided_towards_zero(machine: Machine) -> None:
    got = run_here(
        lambda i: weft_distrib.all_reduce(wf.constant([-7, 7, -8]), 2, 1, 1, "Max", "Div"), GPUS
    )
    np.testing.assert_array_equal(got[1], [-3, 3, -4])


@pytest.mark.gpus(count=3)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 3), (70_000,)])
def test_members_get_all_shapes(machine: Machine, shape: tuple[int, ...]) -> None:
    values = np.random.RandomState(0).standard_normal((3, *shape)).astype(np.float32)
    names = [f"/gpu:{i}" for i in range(3)]
    for each in run_here(lambda i: weft_distrib.all_reduce(values[i], 3, 1, 1), names, 3):
        assert np.shape(each) == shape
        np.testing.assert_array_equal(each, values[0] + values[1] + values[2])
    assert len(calls(machine)) == (9 if values.size else 0)


@pytest.mark.parametrize("dtype", [wf.bool, wf.int16, wf.complex128, wf.float32, wf.int32])
def test_gather_and_broadcast(machine: Machine, dtype: Any) -> None:
    rows = np.array([[[1, 0]], [[0, 3]]]).astype(dtype.as_numpy_dtype)
    for each in run_here(lambda i: weft_distrib.all_gather(rows[i], 2, 1, 1), GPUS, 2):
        np.testing.assert_array_equal(each, rows.reshape(2, 2))
        assert each.dtype == dtype.as_numpy_dtype
    for value in (rows, rows[0, 0, 0], rows[:, :0]):

        def build(i: int, value: Any = value) -> Any:
            if i == 1:
                return weft_distrib.broadcast_send(wf.constant(value), 2, 2, 1)
            return weft_distrib.broadcast_receive(None, dtype, 2, 2, 1)

        for each in run_here(build, GPUS, 2):
            np.testing.assert_array_equal(each, value)
    assert calls(machine).count("allGather") == 4
    assert calls(machine).count("broadcast") == 8
    with pytest.raises(errors.InvalidArgumentError, match="rank 1 or more"):
        run_here(
            lambda i: weft_distrib.all_gather(wf.placeholder_with_default(1.0, None), 2, 1, 1), GPUS
        )


def test_many_operations_at_once_begin_in_one_order(machine: Machine) -> None:
    def build(i: int) -> Any:
        keys = list(range(12))[:: 1 - 2 * i]  # the other way round on the other device
        sums = {
            k: weft_distrib.all_reduce(wf.constant([k + 1.0]) * (i + 1.0), 2, 1, k) for k in keys
        }
        return [sums[k] for k in sorted(keys)]

    for each in run_here(build, GPUS, 5):
        np.testing.assert_array_equal(np.ravel(each), 3.0 * np.arange(1, 13))


def test_an_operation_may_wait_for_another_on_one_device_alone(machine: Machine) -> None:
    """If the order were fixed before all arrive, the first device's would block the second."""

    def build(i: int) -> Any:
        late = weft_distrib.all_reduce(wf.constant(2.0), 2, 1, 2)
        early = weft_distrib.all_reduce(late * 3.0 if i else wf.constant(1.0), 2, 1, 1)
        return [early, late]

    assert run_here(build, GPUS, 3) == [[13.0, 4.0]] * 2


def test_iterations_of_a_loop_meet_their_own(machine: Machine) -> None:
    def build(i: int) -> Any:
        def body(k: Any, total: Any) -> Any:
            return k + 1, total + weft_distrib.all_reduce(wf.cast(k * 10**i, wf.float32), 2, 1, 1)

        return wf.while_loop(lambda k, _: k < 5, body, [0, 0.0])[1]

    assert run_here(build, GPUS, 2) == [110.0, 110.0]


def test_replicas_train_alike_on_gpus(machine: Machine) -> None:
    with wf.Graph().as_default():
        trained = []
        for i in range(2):
            with wf.device(f"/gpu:{i}"):
                w = wf.get_variable(f"w{i}", initializer=wf.constant([4.0, 1.0]))
                table = wf.get_variable(f"t{i}", initializer=wf.ones([3, 2]))
                loss = wf.reduce_sum((w - i) * w) + wf.reduce_sum(wf.gather(table, [i]))
                opt = weft_distrib.AllReduceOptimizer(
                    wf.train.GradientDescentOptimizer(0.25), num_replicas=2, group_key=1
                )
                trained.append(([w, table], opt.minimize(loss, var_list=[w, table])))
        with wf.Session(config=growing()) as session:
            session.run(wf.global_variables_initializer())
            session.run([train for _, train in trained])
            (w, table), other = session.run([kept for kept, _ in trained])
    np.testing.assert_allclose(w, [2.125, 0.625])
    np.testing.assert_allclose(table, [[0.875] * 2, [0.875] * 2, [1, 1]])
    np.testing.assert_array_equal(w, other[0])
    assert {"allReduce", "allGather"} <= set(calls(machine))


# ------------------------------------------------------------------------------ which way


def test_what_is_asked_for_goes_through_the_host(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    values = np.random.RandomState(0).standard_normal((2, 30_000)).astype(np.float32)
    for hint in ("ring", "tree", "ordered"):
        for each in run_here(
            lambda i: weft_distrib.all_reduce(
                values[i],
                2,
                1,
                1,
                communication_hint=hint,  # noqa: B023
            ),
            GPUS,
            2,
        ):
            np.testing.assert_array_equal(each, values[0] + values[1])
    mixed = run_here(lambda i: weft_distrib.all_reduce(values[i], 2, 1, 1), ["/gpu:0", "/cpu:0"])
    np.testing.assert_array_equal(mixed[0], mixed[1])
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    fixed = run_here(
        lambda i: weft_distrib.all_reduce(values[i], 2, 1, 1),
        GPUS,
        experimental=config.experimental,
    )
    np.testing.assert_array_equal(fixed[0], values[0] + values[1])
    assert not calls(machine)
    assert not caplog.records


def test_automatic_choice_tells_why_it_is_not_nccl(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    short = run_here(
        lambda i: weft_distrib.all_reduce(wf.constant([i, 1], wf.int16), 2, 1, 1), GPUS, 2
    )
    np.testing.assert_array_equal(short[0], [1, 2])
    told = {record.message for record in caplog.records}
    assert told == {
        "instance 1 of group 1 uses host memory instead of NCCL: NCCL cannot merge int16 by Add"
    }


@pytest.mark.gpus(count=2, nccl=False)
def test_where_there_is_no_nccl(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    assert run_here(lambda i: weft_distrib.all_reduce(1.0 + i, 2, 1, 1), GPUS) == [3.0, 3.0]
    assert "CuPy did not find NCCL on /job:localhost/replica:0/task:0/device:GPU:0" in caplog.text
    with pytest.raises(
        errors.InvalidArgumentError, match=r"cannot use NCCL: CuPy did not find NCCL"
    ):
        run_here(lambda i: weft_distrib.all_reduce(1.0, 2, 1, 1, communication_hint="nccl"), GPUS)


def test_nccl_asked_for_and_impossible_is_an_error(machine: Machine) -> None:
    def wrong(names: list[str], message: str, dtype: Any = wf.float32, merge: str = "Add") -> None:
        with pytest.raises(errors.InvalidArgumentError, match=f"cannot use NCCL: .*{message}"):
            run_here(
                lambda i: weft_distrib.all_reduce(
                    wf.constant([1], dtype), 2, 1, 1, merge, communication_hint="nccl"
                ),
                names,
            )

    wrong(["/gpu:0", "/cpu:0"], "CPU:0 is not a GPU")
    wrong(GPUS, "cannot merge uint16 by Add", wf.uint16)
    wrong(GPUS, "cannot merge complex64 by Mul", wf.complex64, "Mul")


def test_shapes_that_differ_are_named(machine: Machine) -> None:
    for op in (weft_distrib.all_reduce, weft_distrib.all_gather):
        with pytest.raises(
            errors.InvalidArgumentError, match=r"GPU:1 gave \[3\] where .* has \[2\]"
        ):
            run_here(lambda i: op(wf.zeros([2 + i]), 2, 1, 1), GPUS)  # noqa: B023


# -------------------------------------------------------------------------- several tasks


class Replica:
    """Run a session on a GPU of a task with a sum of all members' feeds."""

    def __init__(self, target: str, task: int, gpu: int, hint: str = "auto") -> None:
        with wf.Graph().as_default(), wf.device(f"/job:worker/task:{task}/gpu:{gpu}"):
            self.x = wf.placeholder(wf.float32, [])
            self.sum = weft_distrib.all_reduce(self.x, 2, 1, 1, communication_hint=hint)
            self.session = wf.Session(target)

    def run(self) -> float:
        """The sum."""
        return float(self.session.run(self.sum, {self.x: 2.0}))


def together(replicas: list[Replica]) -> list[Any]:
    """Return the result or the error of each replica when all run."""
    with in_threads(*[replica.run for replica in replicas]) as threads:
        pass
    return [thread.outcome for thread in threads]


def test_gpus_of_several_tasks(machine: Machine) -> None:
    with servers(jobs(worker=2), growing()) as workers:
        apart = [Replica(worker.target, i, i, "nccl") for i, worker in enumerate(workers)]
        for _ in range(3):
            assert together(apart) == [4.0, 4.0]
        assert len(calls(machine)) == 6
        for replica in apart:
            replica.session.close()
        shared = [Replica(worker.target, i, 0) for i, worker in enumerate(workers)]
        assert together(shared) == [4.0, 4.0]
        assert len(calls(machine)) == 6  # one GPU, which two tasks have, goes through the host
        for replica in shared:
            replica.session.close()
        shared = [Replica(worker.target, i, 0, "nccl") for i, worker in enumerate(workers)]
        for error in together(shared):
            assert isinstance(error, errors.InvalidArgumentError)
            assert "task:0/device:GPU:0 and /job:worker/replica:0/task:1/device:GPU:0 are one" in (
                error.message
            )
        for replica in shared:
            replica.session.close()


@pytest.mark.parametrize("stuck", ["allReduce", "__init__"])
def test_a_member_that_leaves_what_others_wait_for_in_nccl(
    machine: Machine, stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, work = threading.Event(), getattr(standin.NcclCommunicator, stuck)
    there = threading.Event()

    def hold(self: Any, *args: Any) -> None:
        rank = args[2] if stuck == "__init__" else self._rank
        if rank == 1 and not held.is_set():
            there.set()
            assert held.wait(60)
            raise standin.NcclError("gone")
        work(self, *args)

    monkeypatch.setattr(standin.NcclCommunicator, stuck, hold)
    with servers(jobs(worker=2), growing()) as workers:
        replicas = [Replica(worker.target, i, i) for i, worker in enumerate(workers)]
        with in_threads(*[replica.run for replica in replicas]) as threads:
            wait_until(there.is_set)
            replicas[1].session.close()
        assert isinstance(threads[0].outcome, errors.AbortedError)
        assert "task:1/device:GPU:1 has left group 1" in threads[0].outcome.message
        held.set()
        monkeypatch.undo()
        replicas[1] = Replica(workers[1].target, 1, 1)
        assert together(replicas) == [4.0, 4.0]  # by another communicator
        for replica in replicas:
            replica.session.close()


def test_what_nccl_says_of_a_failure_is_told_to_all(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        if self._rank == 0:
            raise standin.NcclError("NCCL_ERROR_REMOTE_ERROR: remote process exited")

    monkeypatch.setattr(standin.NcclCommunicator, "check_async_error", fail)
    with servers(jobs(worker=2), growing()) as workers:
        replicas = [Replica(worker.target, i, i) for i, worker in enumerate(workers)]
        first = together(replicas)[0]
        assert isinstance(first, errors.InternalError)
        assert "GPU:0: NCCL_ERROR_REMOTE_ERROR" in first.message
        for replica in replicas:
            replica.session.close()


def test_a_run_that_takes_too_long_ends(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    work = standin.NcclCommunicator.allReduce

    def hold(self: Any, *args: Any) -> None:
        held.wait(60)
        work(self, *args)

    monkeypatch.setattr(standin.NcclCommunicator, "allReduce", hold)
    with pytest.raises(errors.DeadlineExceededError, match="NCCL has not finished instance 1"):
        run_here(lambda i: weft_distrib.all_reduce(1.0, 2, 1, 1, timeout=0.3), GPUS)
    held.set()
