"""Restarts of tasks, and the end of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from weft import errors
from weft_distrib.launch import Job, Launch, TaskId
from weft_distrib.launch.spec import tf_config
from weft_distrib.launch.supervisor import Start, Stop, Supervisor

PS, W0, W1 = TaskId("ps", 0), TaskId("worker", 0), TaskId("worker", 1)


def supervisor(restarts: int = 0, program: tuple[str, ...] = ("train",)) -> Supervisor:
    jobs = [Job("ps", 1, program), Job("worker", 2, program)]
    made = Supervisor(Launch("test", jobs, restarts))
    assert made.begin() == [Start(PS), Start(W0), Start(W1)]
    return made


def test_all_is_over_when_the_workers_are_done() -> None:
    made = supervisor()
    assert made.handle_end(W0, 0) == []
    (stop,) = made.handle_end(W1, 0)
    assert isinstance(stop, Stop) and not made.over
    assert made.handle_end(PS, -15) == []
    assert made.over and made.code == 0


def test_who_fails_is_started_again_as_often_as_allowed() -> None:
    made = supervisor(restarts=2)
    assert made.handle_end(W0, 1) == made.handle_end(W0, -9) == [Start(W0)]
    assert made.handle_end(PS, 1) == [Start(PS)]
    assert isinstance(made.handle_end(W0, -11)[0], Stop)
    assert made.code == 128 + 11
    made.handle_end(W1, 7)
    made.handle_end(PS, 0)
    assert made.over and made.code == 128 + 11


def test_servers_alone_run_until_all_have_ended_or_somebody_interrupts() -> None:
    made = supervisor(program=())
    assert made.handle_end(W0, 0) == made.handle_end(PS, 0) == []
    assert isinstance(made.handle_end(W1, 0)[0], Stop) and made.over
    made = supervisor(program=())
    assert isinstance(made.handle_interrupt()[0], Stop)
    assert made.handle_interrupt() == [] and made.code == 130


def test_a_task_is_told_its_place() -> None:
    launch = Launch("test", [Job("ps", 1), Job("worker", 2)])
    cluster = launch.cluster(["a:1", "b:1", "b:2"])
    assert tf_config(cluster, W1) == {
        "TF_CONFIG": '{"cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]}, '
        '"task": {"type": "worker", "index": 1}}'
    }
    with pytest.raises(errors.InvalidArgumentError, match="3 tasks require 3 addresses, got 1"):
        launch.cluster(["a:1"])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Job("Ps", 1), "name of a job must consist of lowercase letters"),
        (lambda: Job("ps", 0), "must have 1 to 100000 tasks, got 0"),
        (lambda: Job("ps", 1, cpus=float("nan")), "cpus of job 'ps' must be 0 or more"),
        (lambda: Launch("a/b", [Job("ps", 1)]), "the name must consist of"),
        (lambda: Launch("a", []), "at least one job"),
        (lambda: Launch("a", [Job("ps", 1), Job("ps", 1)]), "'ps' is listed twice"),
        (lambda: Launch("a", [Job("ps", 1)], -1), "restarts must be 0 or more"),
        (lambda: Launch("a", [Job("ps", 1)], 0, {"TF_CONFIG": "{}"}), "cannot be one of"),
    ],
)
def test_what_cannot_be_launched_is_refused(make: Any, said: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        make()
