"""Tasks find their places in environments as Slurm has set them."""

from __future__ import annotations

import pytest

from weft import errors
from weft_distrib.launch import Job, Launch, TaskId
from weft_distrib.launch.slurm import expand, layout, task_from_slurm, tasks_per_node

LAUNCH = Launch("digits", [Job("ps", 1, ("train",)), Job("worker", 4, ("train",))])

# srun -N3 -n5 of a job with three nodes, as its tasks see it (other variables left out)
BLOCK = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NODELIST": "tux[07-09]",
    "SLURM_STEP_NODELIST": "tux[07-09]",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_NTASKS": "5",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_DISTRIBUTION": "block",
}
# srun -N2 -n5 --distribution=cyclic --resv-ports=3
CYCLIC = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NODELIST": "gpu-a,gpu-b",
    "SLURM_STEP_NODELIST": "gpu-a,gpu-b",
    "SLURM_STEP_TASKS_PER_NODE": "3,2",
    "SLURM_STEP_RESV_PORTS": "12000-12002",
    "SLURM_PROCID": "4",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "2",
    "SLURM_DISTRIBUTION": "cyclic",
}


def test_blocks() -> None:
    found = task_from_slurm(LAUNCH, BLOCK)
    first = 20_000 + 4242 * 64 % 10_000
    assert found.task_id == TaskId("worker", 2)
    assert found.cluster.as_dict() == {
        "ps": [f"tux07:{first}"],
        "worker": [f"tux07:{first + 1}", f"tux08:{first}", f"tux08:{first + 1}", f"tux09:{first}"],
    }


def test_in_turn_on_reserved_ports() -> None:
    found = task_from_slurm(LAUNCH, CYCLIC)
    assert found.task_id == TaskId("worker", 3)
    assert found.cluster.as_dict() == {
        "ps": ["gpu-a:12000"],
        "worker": ["gpu-b:12000", "gpu-a:12001", "gpu-b:12001", "gpu-a:12002"],
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"SLURM_PROCID": "9"}, "SLURM_PROCID is 9, but the step has 5 tasks"),
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID must be a number, got 'x'"),
        ({"SLURM_NODEID": "x"}, "SLURM_NODEID must be a number, got 'x'"),
        ({"SLURM_NODEID": "2"}, "rank 3 is on node 2 instead of node 1"),
        ({"SLURM_DISTRIBUTION": "plane"}, "distributed in blocks or cyclically, got .*'plane'"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2,2"}, "Slurm names 3 nodes but task counts for 2"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, "5 tasks in total, but the Slurm step has 6"),
        ({"SLURM_STEP_RESV_PORTS": "12000"}, "a node has 2 tasks, but the reserved ports"),
        ({"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "start this command with srun"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        task_from_slurm(LAUNCH, {**BLOCK, **change})


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("a", ["a"]),
        ("a[1,3-4]", ["a1", "a3", "a4"]),
        ("a[098-101]", ["a098", "a099", "a100", "a101"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a[1-2].x,b", ["a1.x", "a2.x", "b"]),
    ],
)
def test_lists_of_nodes(nodes: str, found: list[str]) -> None:
    assert expand(nodes) == found


@pytest.mark.parametrize(
    "nodes", ["", "a,,b", "a[", "a]", "a[]", "a[2-1]", "a[1-]", "a[[1]]", "a b", "a[1-999999999]"]
)
def test_no_lists_of_nodes(nodes: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="list of"):
        expand(nodes)


@pytest.mark.parametrize("counts", ["", "a", "2(x", "2(3)", "1(x999999999)", "999999999"])
def test_no_numbers_of_tasks(counts: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        tasks_per_node(counts)


def test_layouts() -> None:
    assert list(layout([2, 1], "block:cyclic")) == [(0, 0), (0, 1), (1, 0)]
    assert list(layout([1, 2], "cyclic")) == [(0, 0), (1, 0), (1, 1)]
