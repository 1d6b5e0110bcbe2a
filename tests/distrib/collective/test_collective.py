"""Collective ops as programs use them: in one process, between sessions, and between processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, processes, servers
from weft_testing.waiting import in_threads, wait_until

import weft as wf
import weft_distrib
from weft import errors
from weft_distrib.collective import runtime
from weft_distrib.collective.groups import Member
from weft_exec.resources.cancellation import Timer, call_at

Build = Callable[[int], Any]


def run_here(build: Build, count: int, times: int = 1) -> list[Any]:
    """Members on devices of one process."""
    config = wf.ConfigProto(device_count={"CPU": count})
    with wf.Graph().as_default():
        made = []
        for i in range(count):
            with wf.device(f"/cpu:{i}"):
                made.append(build(i))
        with wf.Session(config=config) as session:
            for _ in range(times):
                found: list[Any] = session.run(made)
            return found


HINTS = ("auto", "ring", "tree", "ordered")
TYPES = [
    wf.float16, wf.bfloat16, wf.float32, wf.float64, wf.int8, wf.int16, wf.int32, wf.int64,
    wf.uint8, wf.uint16, wf.uint32, wf.uint64, wf.complex64, wf.complex128,
]  # fmt: skip
MERGES = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_all_types_are_merged_by_all_ops(dtype: Any) -> None:
    values = np.array([[3, 2], [1, 4], [2, 2]])

    def member(merge: str, final: str, i: int) -> Any:
        return weft_distrib.all_reduce(wf.constant(values[i], dtype), 3, 1, 1, merge, final)

    for merge, ufunc in MERGES.items():
        if dtype.is_complex and merge in ("Min", "Max"):
            with pytest.raises(errors.InvalidArgumentError, match="have no order"):
                weft_distrib.all_reduce(wf.constant([1], dtype), 1, 1, 1, merge)
            continue
        for final in ("Id", "Div"):
            got = run_here(partial(member, merge, final), 3)
            want = ufunc.reduce(values).astype(dtype.as_numpy_dtype)
            if final == "Div":
                want = want // 3 if dtype.is_integer else want / want.dtype.type(3)
            for each in got:
                assert each.dtype == dtype.as_numpy_dtype
                np.testing.assert_array_equal(each, want)


def test_integers_are_divided_towards_zero() -> None:
    got = run_here(
        lambda i: weft_distrib.all_reduce(wf.constant([-7, 7, -8]), 2, 1, 1, "Max", "Div"), 2
    )
    np.testing.assert_array_equal(got[0], [-3, 3, -4])


@pytest.mark.parametrize("hint", HINTS)
def test_members_get_the_same_bits_whatever_the_shape(hint: str) -> None:
    for shape in ((), (0, 3), (1,), (2, 3), (40_000,), (3, 100_001)):
        values = np.random.RandomState(0).standard_normal((3, *shape)).astype(np.float32)
        got = run_here(
            lambda i: weft_distrib.all_reduce(values[i], 3, 1, 1, communication_hint=hint),  # noqa: B023
            3,
            2,
        )
        in_order = (values[0] + values[1]) + values[2]
        for each in got:
            assert np.shape(each) == shape
            np.testing.assert_array_equal(each, got[0])
            np.testing.assert_allclose(each, in_order, rtol=1e-3, atol=1e-5)
            if hint in ("ordered", "auto"):  # as sessions of one process are deterministic
                np.testing.assert_array_equal(each, in_order)


def test_gather_and_broadcast() -> None:
    rows = np.arange(12.0).reshape(3, 2, 2)
    for each in run_here(lambda i: weft_distrib.all_gather(rows[i], 3, 1, 1), 3, 2):
        np.testing.assert_array_equal(each, rows.reshape(6, 2))

    def build(i: int) -> Any:
        if i == 1:
            return weft_distrib.broadcast_send(wf.constant([True, False]), 3, 2, 1)
        return weft_distrib.broadcast_receive([None], wf.bool, 3, 2, 1)

    for each in run_here(build, 3, 2):
        np.testing.assert_array_equal(each, [True, False])
    with pytest.raises(errors.InvalidArgumentError, match="rank 1 or more"):
        weft_distrib.all_gather(1.0, 2, 1, 1)


def test_gradients_flow_back_to_all_members_to_second_order() -> None:
    x = [wf.constant([1.0, 2.0]), wf.constant([3.0, 5.0])]
    sums, losses = [], []
    for i in range(2):
        with wf.device(f"/cpu:{i}"):
            sums.append(weft_distrib.all_reduce(x[i] ** 2.0, 2, 1, 1, final_op="Div"))
            losses.append(wf.reduce_sum(sums[i] ** 2.0) * (i + 1.0))
    # d/dx_i of sum_j (j+1) s^2 with s = (x_0^2 + x_1^2) / 2: 3 * 2 s * x_i
    slopes = wf.gradients(losses, x)
    config = wf.ConfigProto(device_count={"CPU": 2})
    with wf.Session(config=config) as session:
        s, got = session.run([sums[0], slopes])
        np.testing.assert_allclose(got, [6 * s * [1, 2], 6 * s * [3, 5]])
        second = wf.gradients([wf.reduce_sum(slope) for slope in slopes], x)
        got = session.run(second)
    # d/dx_i of 6 s (x_0 + x_1) = 6 x_i (x_0 + x_1) + 6 s
    np.testing.assert_allclose(got, [6 * s + [24, 84], 6 * s + [72, 210]])
    most = weft_distrib.all_reduce(x[0], 1, 7, 1, "Max")
    with pytest.raises(errors.InvalidArgumentError, match="merge_op must be Add"):
        wf.gradients(most, [x[0]])


def test_iterations_of_a_loop_meet_their_own() -> None:
    def build(i: int) -> Any:
        def body(k: Any, total: Any) -> Any:
            return k + 1, total + weft_distrib.all_reduce(wf.cast(k * 10**i, wf.float32), 2, 1, 1)

        return wf.while_loop(lambda k, _: k < 9, body, [0, 0.0], parallel_iterations=4)[1]

    assert run_here(build, 2, 3) == [36 * 11.0, 36 * 11.0]


def test_what_members_do_not_agree_on_is_named() -> None:
    def wrong(build: Build, message: str) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            run_here(build, 2)

    wrong(
        lambda i: weft_distrib.all_reduce(1.0, 2, 1, 1, ("Add", "Max")[i]),
        r"instance 1 of group 1 is \['reduce', 'float32', 'Add', 'Id'\] on .*CPU:0 and .*'Max'",
    )
    wrong(
        lambda i: weft_distrib.all_reduce(wf.zeros([2 + i]), 2, 1, 1), "sent . elements of float32"
    )
    wrong(
        lambda i: weft_distrib.all_reduce(1.0, 2 + i, 1, 1),
        "all members must have the same group_size",
    )
    wrong(lambda i: weft_distrib.broadcast_send(1.0, 2, 1, 1), "exactly one sender, got 2")
    wrong(
        lambda i: [weft_distrib.all_reduce(1.0, 2, 1, 1), weft_distrib.all_reduce(2.0, 2, 1, 1)],
        "needs a unique instance key",
    )
    for bad in ({"merge_op": "Xor"}, {"final_op": "Half"}, {"communication_hint": "mpi"}):
        with pytest.raises(errors.InvalidArgumentError):
            weft_distrib.all_reduce(1.0, 2, 1, 1, **bad)
    with pytest.raises(errors.InvalidArgumentError):
        weft_distrib.all_reduce(1.0, 0, 1, 1)


def test_a_member_that_does_not_come_is_noticed_in_time() -> None:
    with wf.Session() as session:
        alone = weft_distrib.all_reduce(1.0, 2, 1, 1, timeout=0.05)
        with pytest.raises(errors.DeadlineExceededError, match=r"1 of 2 members after 0\.05 s"):
            session.run(alone)
        with pytest.raises(errors.DeadlineExceededError):
            late = weft_distrib.all_reduce(1.0, 2, 2, 1)
            session.run(late, options=wf.RunOptions(timeout_in_ms=50))


class Replica:
    """Run a session on a task with a sum of all members' feeds."""

    def __init__(self, target: str, task: int, size: int, **how: Any) -> None:
        with wf.Graph().as_default(), wf.device(f"/job:worker/task:{task}"):
            self.x = wf.placeholder(wf.float32, [None])
            self.sum = weft_distrib.all_reduce(self.x, size, 1, 1, **how)
            self.session = wf.Session(target)

    def run(self, value: float, count: int = 3) -> float:
        """The first element of the sum."""
        return float(self.session.run(self.sum, {self.x: np.full(count, value)})[0])


def together(replicas: list[Replica], count: int = 3) -> list[Any]:
    """Return the result or the error of each replica when all run."""
    works = [lambda r=r, i=i: r.run(i + 1.0, count) for i, r in enumerate(replicas)]
    with in_threads(*works) as threads:
        pass
    return [thread.outcome for thread in threads]


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3)], ids=["formed", "refused"])
def test_who_waits_no_more_has_no_timer(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[Timer] = []

    def kept(when: float, callback: Callable[[], None]) -> Timer:
        timers.append(call_at(when, callback))
        return timers[-1]

    monkeypatch.setattr(runtime, "call_at", kept)
    leader, outcomes = runtime.Leader(), list[Any]()
    take_back = [
        leader.join(1, size, Member(f"/job:a/task:{i}/device:CPU:0", i), 600, outcomes.append)
        for i, size in enumerate(sizes)
    ]
    answered = len(outcomes)
    assert [timer.callback is None for timer in timers] == [answered == 2, True]
    take_back[0]()
    assert timers[0].callback is None and len(outcomes) == answered


def test_sessions_on_several_tasks_meet_and_meet_again_after_one_left() -> None:
    with servers(jobs(ps=1, worker=3)) as (_, *workers):
        replicas = [Replica(worker.target, i, 3) for i, worker in enumerate(workers)]
        for count in (3, 100_000):
            assert together(replicas, count) == [6.0] * 3
        waiting = replicas[:2]
        with in_threads(*[lambda r=r: r.run(1.0) for r in waiting]) as threads:
            wait_until(lambda: all(w.master.running_steps for w in workers[:2]))
            replicas[2].session.close()
        for thread in threads:
            assert isinstance(thread.outcome, errors.AbortedError)
            assert "/job:worker/replica:0/task:2/device:CPU:0 has left" in thread.outcome.message
        replicas[2] = Replica(workers[2].target, 2, 3)
        assert together(replicas) == [6.0] * 3
        fewer = [Replica(worker.target, i, 2) for i, worker in enumerate(workers[:2])]
        assert together(fewer) == [3.0] * 2  # a new group of those who are there
        for replica in replicas + fewer:
            replica.session.close()


def test_who_is_done_first_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(jobs(worker=2)) as workers:
        for _ in range(5):
            replicas = [Replica(worker.target, i, 2) for i, worker in enumerate(workers)]

            def once(replica: Replica) -> float:
                found = replica.run(1.0, 300_000)
                replica.session.close()
                return found

            with in_threads(*[lambda r=r: once(r) for r in replicas]) as threads:
                pass
            assert [thread.outcome for thread in threads] == [2.0, 2.0]


@pytest.mark.parametrize("deterministic", [False, True])
def test_sums_in_one_step_over_tasks(deterministic: bool) -> None:
    values = np.random.RandomState(0).standard_normal((3, 40_000)).astype(np.float32)
    with servers(jobs(worker=3)) as workers, wf.Graph().as_default():
        sums = []
        for i in range(3):
            with wf.device(f"/job:worker/task:{i}"):
                sums.append(weft_distrib.all_reduce(values[i], 3, 1, 1))
        config = wf.ConfigProto()
        config.experimental.deterministic = deterministic
        with wf.Session(workers[0].target, config=config) as session:
            for _ in range(2):
                got = session.run(sums)
    for each in got:
        np.testing.assert_array_equal(each, got[0])
        if deterministic:
            np.testing.assert_array_equal(each, (values[0] + values[1]) + values[2])
        else:
            np.testing.assert_allclose(each, sum(values), rtol=1e-3, atol=1e-5)


def test_a_lost_member_is_named_and_comes_back() -> None:
    cluster = jobs(worker=2)
    with processes(cluster, "worker") as (_, lost):
        targets = [f"grpc://{address}" for address in cluster["worker"]]
        replicas = [Replica(target, i, 2) for i, target in enumerate(targets)]
        for lose in (lost.stop, lost.kill):
            assert together(replicas) == [3.0, 3.0]
            raised: list[errors.OpError] = []

            def run(replica: Replica = replicas[0], raised: list[errors.OpError] = raised) -> None:
                try:
                    replica.run(1.0)
                except errors.OpError as error:
                    raised.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            lose()
            thread.join(60)
            assert isinstance(raised[0], errors.UnavailableError)
            assert "/job:worker/replica:0/task:1 is lost" in raised[0].message
            lost.kill()
            lost.restart()
            replicas[1] = Replica(targets[1], 1, 2)
        assert together(replicas) == [3.0, 3.0]
