"""Training continues when a task is lost: from the last checkpoint, with the same result."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import Process, jobs, processes
from weft_testing.waiting import wait_until

import weft as wf
from weft_distrib.server import Server

STEPS = 60


class Strike(wf.train.SessionRunHook):
    """Loses a parameter server after so many steps, and starts it again when that was noticed."""

    def __init__(self, how: str, ps: Process, worker: Server, after: int) -> None:
        self.sessions = self.steps = 0
        self._how, self._ps, self._worker, self._after = how, ps, worker, after

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.sessions += 1

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps += 1
        if self.steps == self._after:
            threading.Thread(target=self._lose).start()

    def _lose(self) -> None:
        getattr(self._ps, self._how)()
        wait_until(lambda: not self._worker.master.open_sessions)
        self._ps.kill()
        self._ps.restart()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_parameter_server_is_lost_and_comes_back(how: str, tmp_path: Path) -> None:
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        processes(cluster, "ps") as (ps,),
        closing(Server(cluster, "worker", 0)) as worker,
    ):
        with wf.device(wf.train.replica_device_setter(cluster=cluster)):
            step, w, train = model()
        strike, seen = Strike(how, ps, worker, 25), []
        hooks = [strike, wf.train.StopAtStepHook(STEPS)]
        with wf.train.MonitoredTrainingSession(
            worker.target, True, str(tmp_path), hooks=hooks, save_checkpoint_steps=10
        ) as session:
            while not session.should_stop():
                seen.append(session.run([train, step, w])[1:])
    assert strike.sessions == 2 and strike.steps > STEPS
    assert seen[-1][0] == STEPS
    with wf.Graph().as_default(), wf.Session() as session:
        step, w, train = model()
        session.run(wf.global_variables_initializer())
        for _ in range(STEPS):
            wanted = session.run([train, step, w])[1:]
    assert seen[-1] == wanted


def model() -> tuple[Any, Any, Any]:
    step = wf.train.get_or_create_global_step()
    w = wf.get_variable("w", initializer=0.0)
    optimizer = wf.train.MomentumOptimizer(0.02, 0.9)
    return step, w, optimizer.minimize(wf.square(w - 10.0), global_step=step)


@pytest.mark.kernels
def test_lost_dropout_and_datasets_go_on_with_the_same_bits(tmp_path: Path) -> None:
    config = wf.ConfigProto()
    config.experimental.deterministic = True
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        processes(cluster, "ps") as (ps,),
        closing(Server(cluster, "worker", 0)) as worker,
    ):
        step, fetched, train = dropout_model("/job:ps/task:0")
        strike, seen = Strike("kill", ps, worker, 13), {}
        hooks = [strike, wf.train.StopAtStepHook(20)]
        with wf.train.MonitoredTrainingSession(
            worker.target, True, str(tmp_path), None, hooks, save_checkpoint_steps=5, config=config
        ) as session:
            while not session.should_stop():
                _, at, *found = session.run([train, step, *fetched])
                seen.setdefault(int(at), []).append(found)
    assert strike.sessions == 2
    with wf.Graph().as_default():
        step, fetched, train = dropout_model("")
        with wf.Session(config=config) as session:
            session.run(wf.global_variables_initializer())
            for _ in range(20):
                _, at, *want = session.run([train, step, *fetched])
                for found in seen[int(at)]:
                    np.testing.assert_array_equal(found[0], want[0])
                    np.testing.assert_array_equal(found[1], want[1])


def dropout_model(where: str) -> tuple[Any, list[Any], Any]:
    wf.set_random_seed(3)
    with wf.device(where):
        data = wf.data.Dataset.range(40).shuffle(13, seed=3).repeat().batch(4)
        x = wf.cast(wf.data.make_one_shot_iterator(data).get_next(), wf.float32)
        w = wf.get_variable("w", initializer=[1.0] * 4)
        y = wf.nn.dropout(x * w, rate=0.5)
        step = wf.train.get_or_create_global_step()
        train = wf.train.MomentumOptimizer(1e-4, 0.9).minimize(wf.reduce_sum(y * y), step)
    return step, [x, y], train
