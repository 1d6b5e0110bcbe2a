"""Each role is killed or frozen at each moment; training ends with the same result."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from weft_testing.chief import MOMENTS, STEPS, model
from weft_testing.tasks import Process, jobs, processes

import weft as wf

LIMIT = 120.0
NOTICED = 6.0  # seconds after which a frozen task is started again
ROLES = {"ps": ("ps", 0), "worker": ("worker", 1)}

FEW = [
    ("ps", "SIGKILL", "in a step"),
    ("worker", "SIGKILL", "in a save"),
    ("chief", "SIGKILL", "in a save"),
    ("ps", "SIGSTOP", "before a save"),
]
ALL = [
    case
    for case in itertools.product(("ps", "worker", "chief"), ("SIGKILL", "SIGSTOP"), MOMENTS)
    if case not in FEW
] + [("chief", "SIGINT", "in a step")]


class Stage:
    """A cluster with a chief in a process, and a function that restarts killed processes.

    Restores follow a loss, so a moment of a restore is met in the chief's second life.
    """

    def __init__(self, case: tuple[str, str, str], directory: Path, tasks: dict[str, Any]) -> None:
        self.role, how, moment = case
        self.directory, self.tasks = directory, tasks
        self.told = {"directory": str(directory), "role": self.role, "how": how, "moment": moment}
        self.restores = "restore" in moment

    def train(self, cluster: Any) -> list[float]:
        """Run chiefs until one completes the training; return the trained values."""
        self.told["cluster"] = cluster
        end = time.monotonic() + LIMIT
        lives = 0
        while time.monotonic() < end:
            chief = subprocess.Popen(
                [sys.executable, "-m", "weft_testing.chief", json.dumps(self.told)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            lives += 1
            try:
                self._note("chief", chief.pid)
                if self.restores and lives == 1:
                    self._interrupt_when_saved(chief, end)
                else:
                    self._watch(chief, end)
            except BaseException:  # because nobody else ends it
                chief.kill()
                chief.communicate()
                raise
            out, error = chief.communicate()
            if chief.returncode == 0:
                assert (self.directory / "struck").exists(), "nothing was struck"
                found: list[float] = json.loads(out)
                return found
            assert chief.returncode in (-signal.SIGKILL, -signal.SIGINT, 1), error
            assert chief.returncode != 1 or "KeyboardInterrupt" in error, error
        raise AssertionError(f"training did not end: {error}")

    def _interrupt_when_saved(self, chief: Any, end: float) -> None:
        """Let the first life end as soon as there is something to restore."""
        while wf.train.latest_checkpoint(str(self.directory)) is None and chief.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        chief.kill()

    def _watch(self, chief: Any, end: float) -> None:
        """Restart processes that die or stay frozen, until the chief has ended."""
        frozen: dict[str, float] = {}
        while chief.poll() is None:
            for role, pid in [*((r, t.pid) for r, t in self.tasks.items()), ("chief", chief.pid)]:
                state = _state(pid)
                if state == "T":
                    since = frozen.setdefault(role, time.monotonic())
                    if time.monotonic() - since > (1.0 if role == "chief" else NOTICED):
                        os.kill(pid, signal.SIGKILL)
                        frozen.pop(role)
                elif state in "ZX" and role != "chief":
                    self.tasks[role].kill()
                    self.tasks[role].restart()
                    self._note(role, self.tasks[role].pid)
            if time.monotonic() > end:
                chief.kill()
            time.sleep(0.01)

    def _note(self, role: str, pid: int) -> None:
        (self.directory / f"{role}.pid").write_text(str(pid))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


@pytest.fixture(scope="module")
def wanted() -> list[float]:
    """Return the result of uninterrupted training."""
    with wf.Graph().as_default(), wf.Session() as session:
        _, w, train = model("")
        session.run(wf.global_variables_initializer())
        for _ in range(STEPS):
            found = session.run([train, w])[1]
    return [float(value) for value in found]


def strike(case: tuple[str, str, str], directory: Path, wanted: list[float]) -> None:
    cluster = jobs(ps=1, worker=2)
    with processes(cluster, "ps") as (ps,), Process(cluster, "worker", 1) as worker:
        stage = Stage(case, directory, {"ps": ps, "worker": worker})
        for role, task in stage.tasks.items():
            stage._note(role, task.pid)
        found = stage.train(cluster)
    assert found == wanted


@pytest.mark.parametrize("case", FEW, ids=" ".join)
def test_training_ends_with_the_same_result(
    case: tuple[str, str, str], tmp_path: Path, wanted: list[float]
) -> None:
    strike(case, tmp_path, wanted)


@pytest.mark.long
@pytest.mark.parametrize("case", ALL, ids=" ".join)
def test_training_ends_with_the_same_result_at_every_moment(
    case: tuple[str, str, str], tmp_path: Path, wanted: list[float]
) -> None:
    strike(case, tmp_path, wanted)
