"""Reports of tasks about themselves and about others."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest
from weft_testing.tasks import jobs, processes

import weft as wf
from weft_distrib.cluster import reports
from weft_distrib.launch.status import HEADER, Rates, duration, reports_of, size
from weft_distrib.protocol.messages import Report


def by_task(address: str) -> dict[str, Report]:
    return {report.task.removeprefix("/job:"): report for report in reports_of(address)}


def test_steps_bytes_and_sessions_are_counted() -> None:
    cluster = jobs(ps=1, worker=1)
    with (
        wf.Graph().as_default(),
        closing(wf.train.Server(cluster, "ps", 0)),
        closing(wf.train.Server(cluster, "worker", 0)) as worker,
        wf.Session(worker.target) as session,
    ):
        with wf.device("/job:ps/task:0"):
            kept = wf.Variable(wf.zeros([1000]))
        with wf.device("/job:worker/task:0"):
            doubled = kept * 2.0
        session.run(kept.initializer)
        before = by_task(cluster["ps"][0])
        for _ in range(5):
            session.run(doubled)
        after = by_task(cluster["ps"][0])
    ps, own = "ps/replica:0/task:0", "worker/replica:0/task:0"
    assert after[ps].steps == before[ps].steps + 5
    assert after[own].sessions == 1 and after[ps].sessions == 0
    assert after[own].state == "idle" and after[own].running == 0
    assert after[own].bytes_in - before[own].bytes_in >= 5 * 4000


def test_a_task_that_does_not_answer_is_seen_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "REPORT_SECONDS", 1.0)  # the server that is asked is here
    cluster = jobs(ps=2, worker=1)
    with (
        processes(cluster, "ps") as (stopped, killed),
        closing(wf.train.Server(cluster, "worker", 0)) as worker,
        wf.Session(worker.target),
    ):
        stopped.stop()
        killed.kill()
        lines = subprocess.run(
            [sys.executable, "-m", "weft", "cluster", "status", worker.target],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    assert tuple(rows[0]) == HEADER
    assert [row[:2] for row in rows[1:]] == [
        ["ps:0", "stopped"],
        ["ps:1", "unreachable"],
        ["worker:0", "idle"],
    ]


def test_rates_are_of_one_life() -> None:
    rates = Rates()

    def row(now: float, **numbers: Any) -> dict[str, str]:
        report = Report(task="/job:ps/replica:0/task:3", state="idle", **numbers)
        return dict(zip(HEADER, *rates.rows(now, [report]), strict=True))

    first = row(10.0, incarnation=1, steps=100, bytes_in=5000, milliseconds=61_000)
    assert (first["task"], first["steps"], first["steps/s"], first["up"]) == (
        "ps:3",
        "100",
        "",
        "1:01",
    )
    second = row(12.0, incarnation=1, steps=150, bytes_in=3_005_000)
    assert (second["steps/s"], second["in"], second["in/s"]) == ("25.0", "3.0 MB", "1.5 MB")
    assert row(14.0, incarnation=2, steps=1)["steps/s"] == ""


def test_sizes_and_times_in_a_few_digits() -> None:
    assert [size(n) for n in (0, 999, 1000, 99_949, 99_960, 999_600, 1.5e9)] == [
        "0 B", "999 B", "1.0 kB", "99.9 kB", "100 kB", "1.0 MB", "1.5 GB",
    ]  # fmt: skip
    assert duration(3661.9) == "1:01:01"
