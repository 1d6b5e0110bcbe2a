"""Servers as actors of a real Ray, one of whose processes is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from weft_testing.waiting import rounds, wait_until

import weft as wf
from weft import errors
from weft_distrib.launch import Job, Launch, TaskId
from weft_distrib.launch.ray import RayCluster

ray = pytest.importorskip("ray", reason="Ray is not installed (hatch run ray:test)")
pytestmark = pytest.mark.long  # starting Ray takes ten seconds and more


@pytest.fixture(scope="module", autouse=True)
def connection() -> Iterator[None]:
    with pytest.raises(errors.FailedPreconditionError, match="connect to Ray first"):
        RayCluster(Launch("none", [Job("ps", 1)]))
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_a_killed_actor_comes_back_as_another_life_at_the_same_address() -> None:
    back: list[TaskId] = []
    launch = Launch("test", [Job("ps", 1), Job("worker", 1)], restarts=1)
    with (
        RayCluster(launch, host="127.0.0.1", on_restart=back.append) as cluster,
        wf.Graph().as_default(),
    ):
        with wf.device("/job:ps/task:0"):
            kept = wf.Variable(3.0)
        with wf.device("/job:worker/task:0"):
            doubled = kept * 2.0
        with wf.Session(cluster.target("worker")) as session:
            session.run(kept.initializer)
            assert session.run(doubled) == 6.0
            life, address = cluster.incarnation("ps"), cluster.target("ps")
            os.kill(cluster.process("ps"), signal.SIGKILL)
            with pytest.raises(errors.UnavailableError, match="/job:ps/replica:0/task:0 is lost"):
                for _ in rounds():
                    session.run(doubled)
        wait_until(lambda: back)
        assert back == [TaskId("ps", 0)]
        assert cluster.incarnation("ps") != life and cluster.target("ps") == address
        with wf.Session(cluster.target("worker")) as session:
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
                session.run(doubled)
            session.run(kept.initializer)
            assert session.run(doubled) == 6.0


def test_programs_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="tasks on Ray are servers"):
        RayCluster(Launch("test", [Job("worker", 1, ("train",))]))
