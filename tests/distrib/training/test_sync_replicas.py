"""Replicas that train in step: the mean of their gradients, backup workers, and the end of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import jobs, servers

import weft as wf
from weft import errors
from weft_distrib.server import Server


class Replica:
    """One replica: its graph, with a number that it is fed as gradient, and a session."""

    def __init__(self, cluster: Any, server: Server, task: int, aggregate: int, total: int) -> None:
        self.graph = wf.Graph()
        worker = f"/job:worker/task:{task}"
        setter = wf.train.replica_device_setter(worker_device=worker, cluster=cluster)
        with self.graph.as_default(), wf.device(setter):
            self.step = wf.train.get_or_create_global_step()
            self.w = wf.get_variable("w", initializer=0.0)
            self.rows = wf.get_variable("rows", initializer=[[0.0], [0.0]])
            self.slope = wf.placeholder(wf.float32, [])
            row = wf.nn.embedding_lookup(self.rows, [task % 2])
            loss = self.w * self.slope + wf.reduce_sum(row)
            plain = wf.train.GradientDescentOptimizer(1.0)
            self.sync = wf.train.SyncReplicasOptimizer(plain, aggregate, total_num_replicas=total)
            self.train = self.sync.minimize(loss, global_step=self.step)
            self.local = wf.local_variables_initializer()
            self.all = wf.global_variables_initializer()
        self.session = wf.Session(server.target, graph=self.graph)

    def begin(self, chief: bool) -> None:
        if chief:
            self.session.run(self.all)
        self.session.run(self.local)
        self.session.run(self.sync.chief_init_op if chief else self.sync.local_step_init_op)

    def give(self, slope: float) -> threading.Thread:
        """Let the replica make a step, which ends when the step of all does."""
        feeds = {self.slope: slope}
        thread = threading.Thread(target=self.session.run, args=(self.train, feeds), daemon=True)
        thread.start()
        return thread

    def update(self) -> None:
        """Run the work of the chief's thread."""
        (update,) = self.sync.get_chief_queue_runner().enqueue_ops
        self.session.run(update)

    def values(self) -> tuple[int, float, list[float]]:
        step, w, rows = self.session.run([self.step, self.w, self.rows])
        return int(step), float(w), rows.ravel().tolist()


def joined(threads: Sequence[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


def test_an_update_is_the_mean_of_all_replicas() -> None:
    cluster = jobs(ps=2, worker=2)
    with servers(cluster) as made:
        replicas = [Replica(cluster, made[2 + i], i, 2, 2) for i in range(2)]
        for i, replica in enumerate(replicas):
            replica.begin(chief=i == 0)
        for step in range(1, 4):
            threads = [replica.give(slope) for replica, slope in zip(replicas, (1, 3), strict=True)]
            replicas[0].update()
            assert joined(threads)
            # The mean of a row is over those gradients that have it.
            assert replicas[1].values() == (step, -2.0 * step, [-step, -step])


def test_gradients_that_come_late_are_dropped() -> None:
    cluster = jobs(ps=1, worker=3)
    with servers(cluster) as made:
        replicas = [Replica(cluster, made[1 + i], i, 2, 3) for i in range(3)]
        for i, replica in enumerate(replicas):
            replica.begin(chief=i == 0)
        threads = [replicas[0].give(1), replicas[1].give(3)]
        replicas[0].update()
        assert joined(threads)
        late = replicas[2].give(100)  # takes the token that was left for it, and catches up
        assert joined([late])
        assert replicas[0].values()[:2] == (1, -2.0)
        threads = [replicas[1].give(2), replicas[2].give(4)]
        replicas[0].update()
        assert joined(threads)
        assert replicas[0].values()[:2] == (2, -5.0)


def test_the_end_does_not_wait_for_gradients_that_never_come() -> None:
    cluster = jobs(ps=1, worker=1)
    with servers(cluster) as (_, worker):
        replica = Replica(cluster, worker, 0, 1, 1)
        with replica.graph.as_default():
            hooks = [replica.sync.make_session_run_hook(True), wf.train.StopAtStepHook(5)]
            began = time.monotonic()
            with wf.train.MonitoredTrainingSession(worker.target, True, hooks=hooks) as session:
                while not session.should_stop():
                    session.run(replica.train, {replica.slope: 1.0})
        assert time.monotonic() - began < 60  # the threads of a session may take 120
        assert replica.values()[0] >= 5


def test_what_is_asked_too_early_or_wrongly() -> None:
    plain = wf.train.GradientDescentOptimizer(1.0)
    sync = wf.train.SyncReplicasOptimizer(plain, replicas_to_aggregate=3, total_num_replicas=1)
    with pytest.raises(errors.FailedPreconditionError, match="apply_gradients"):
        sync.get_chief_queue_runner()
    w = wf.Variable(1.0)
    with pytest.raises(errors.InvalidArgumentError, match="needs a global_step"):
        sync.apply_gradients([(wf.constant(1.0), w)])
    step = wf.train.get_or_create_global_step()
    with pytest.raises(errors.InvalidArgumentError, match="No gradients"):
        sync.apply_gradients([(None, w)], step)
    sync.minimize(w * w, step)
    with pytest.raises(errors.InvalidArgumentError, match="at least 2 tokens, got 1"):
        sync.get_init_tokens_op(1)
    with pytest.raises(errors.InvalidArgumentError, match="set together"):
        wf.train.SyncReplicasOptimizer(plain, 1, variables_to_average=[w])
    assert sync.get_slot_names() == [] and sync.variables() == []


def test_averages_follow_each_update() -> None:
    with wf.Session() as session:
        w = wf.Variable(0.0)
        step = wf.train.get_or_create_global_step()
        averages = wf.train.ExponentialMovingAverage(0.5)
        sync = wf.train.SyncReplicasOptimizer(
            wf.train.GradientDescentOptimizer(1.0), 1, 1, averages, [w]
        )
        give = sync.apply_gradients([(wf.constant(4.0), w)], step)
        session.run([wf.global_variables_initializer(), wf.local_variables_initializer()])
        session.run(sync.chief_init_op)
        session.run(sync.get_init_tokens_op())
        session.run(give)
        (update,) = sync.get_chief_queue_runner().enqueue_ops
        session.run(update)
        np.testing.assert_equal(session.run([w, averages.average(w)]), [-4.0, -2.0])


def test_a_global_step_of_int32() -> None:
    step = wf.Variable(3, trainable=False, name="global_step")
    w = wf.Variable(2.0)
    plain = wf.train.GradientDescentOptimizer(0.25)
    sync = wf.train.SyncReplicasOptimizer(plain, replicas_to_aggregate=1, total_num_replicas=1)
    train = sync.minimize(w * w, global_step=step)
    hook = sync.make_session_run_hook(is_chief=True)
    assert [each.op.name for each in wf.local_variables()] == ["sync_rep_local_step"]
    with wf.train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(3):
            session.run(train)
        assert session.raw_session().run(step) >= 5  # the first run waits for no update
