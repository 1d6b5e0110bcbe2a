"""Cluster specifications: all forms, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

import weft as wf
from weft import errors

JOBS = {"ps": ["p0:1", "p1:2"], "worker": ["w0:3"]}


@pytest.mark.parametrize(
    "form",
    [
        JOBS,
        {"ps": {0: "p0:1", 1: "p1:2"}, "worker": ("w0:3",)},
        wf.train.ClusterSpec(JOBS),
        wf.train.ClusterSpec(JOBS).as_cluster_def(),
    ],
)
def test_every_form_makes_the_same_cluster(form: Any) -> None:
    cluster = wf.train.ClusterSpec(form)
    assert cluster == wf.train.ClusterSpec(JOBS) and cluster
    assert cluster.as_dict() == JOBS
    assert cluster.jobs == ["ps", "worker"]
    assert cluster.num_tasks("ps") == 2
    assert cluster.job_tasks("ps") == JOBS["ps"]
    assert cluster.task_address("worker", 0) == "w0:3"


def test_a_job_may_know_some_of_its_tasks() -> None:
    cluster = wf.train.ClusterSpec({"worker": {1: "w1:1", 3: "w3:1"}})
    assert cluster.task_indices("worker") == [1, 3]
    assert cluster.job_tasks("worker") == [None, "w1:1", None, "w3:1"]
    assert cluster.as_dict() == {"worker": {1: "w1:1", 3: "w3:1"}}
    assert wf.train.ClusterSpec(cluster.as_cluster_def()) == cluster
    with pytest.raises(errors.InvalidArgumentError, match=r"has no task 0; it has \[1, 3\]"):
        cluster.task_address("worker", 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"a": ["x:1"], "b": ["x:1"]}, "same address 'x:1'"),
        ({"a": ["x"]}, "have the form host:2222, got 'x'"),
        ({"a": ["x:y"]}, "have the form host:2222"),
        ({"a": ["x:70000"]}, "have the form host:2222"),
        ({"a": [":1"]}, "have the form host:2222"),
        ({"a": [1]}, "must be a string"),
        ({"a": "x:1"}, "must have a list"),
        ({1: ["x:1"]}, "name of a job"),
        ({"a": {"0": "x:1"}}, "integers of at least 0"),
        ({"a": {-1: "x:1"}}, "integers of at least 0"),
        ("x:1", "a cluster must be"),
        (None, "a cluster must be"),
    ],
)
def test_what_is_wrong_is_named(wrong: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        wf.train.ClusterSpec(wrong)


def test_unknown_jobs_are_named_with_those_there_are() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"no job 'x'; it has ps, worker"):
        wf.train.ClusterSpec(JOBS).num_tasks("x")
    assert not wf.train.ClusterSpec({})
