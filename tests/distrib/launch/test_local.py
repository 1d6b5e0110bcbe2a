"""Clusters of real processes: output, termination, and remaining processes and files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from weft_testing.waiting import in_threads, wait_until

import weft as wf
from weft_distrib.launch import Job, Launch
from weft_distrib.launch.local import LocalCluster
from weft_distrib.launch.supervisor import INTERRUPTED

PROGRAM = """
import json, os, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["index"], "of", task["type"])
folder, how = sys.argv[1:]
open(f"{folder}/{task['type']}{task['index']}-{os.getpid()}", "w").close()
if task["type"] == "worker" and how == "end":
    while not any(name.startswith("ps0") for name in os.listdir(folder)):
        time.sleep(0.01)
    sys.exit(0)
if task["type"] == "worker" and task["index"] == 1 and how == "fail":
    sys.exit(7)
time.sleep(600)
"""


def started(folder: Path, how: str, *options: str) -> subprocess.Popen[str]:
    arguments = ["--local", "--ps", "1", "--worker", "2", *options, "--", sys.executable, "-c"]
    return subprocess.Popen(
        [sys.executable, "-m", "weft", "launch", *arguments, PROGRAM, str(folder), how],
        stdout=subprocess.PIPE,
        text=True,
    )


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def tasks(folder: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in folder.iterdir()]


def test_it_ends_when_the_workers_are_done(tmp_path: Path) -> None:
    process = started(tmp_path, "end")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    for label in ("[ps:0]     0 of ps", "[worker:0] 0 of worker", "[worker:1] 1 of worker"):
        assert label in out.splitlines()
    assert not any(map(runs, tasks(tmp_path)))


def test_who_fails_is_started_again_until_it_ends_all(tmp_path: Path) -> None:
    process = started(tmp_path, "fail", "--restarts", "2")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 7
    assert len(list(tmp_path.glob("worker1-*"))) == 3
    assert out.count("[launch]   worker:1 exited with 7; restarting it") == 2
    assert not any(map(runs, tasks(tmp_path)))


def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    process = started(tmp_path, "wait")
    wait_until(lambda: len(tasks(tmp_path)) == 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not any(map(runs, tasks(tmp_path)))


def test_a_launcher_that_is_killed_takes_its_tasks_along(tmp_path: Path) -> None:
    process = started(tmp_path, "wait")
    wait_until(lambda: len(tasks(tmp_path)) == 3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    wait_until(lambda: not any(map(runs, tasks(tmp_path))))


def test_a_program_that_is_not_there() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "weft", "launch", "--local", "--worker", "1", "--", "no-such-thing"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 1
    assert "[worker:0] cannot run no-such-thing: No such file or directory" in found.stdout


def test_plain_servers_are_announced_to_sessions_of_this_user() -> None:
    """The tasks find the token themselves; other users are rejected without it."""
    told: list[str] = []
    cluster = LocalCluster(
        Launch("plain", [Job("worker", 1)]), lambda task_id, line: told.append(line)
    )
    address = cluster.cluster.task_address("worker", 0)

    def run_and_interrupt() -> Any:
        try:
            with wf.Graph().as_default(), wf.Session(f"grpc://{address}") as session:
                return session.run(wf.constant(2.0) * 3.0)
        finally:
            cluster.interrupt()

    with in_threads(run_and_interrupt) as (session,):
        assert cluster.run() == INTERRUPTED
    assert session.outcome == 6.0
    assert f"worker:0 is grpc://{address}; this user's sessions need no token" in told
