"""A training that is killed loses the steps since its last checkpoint, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from weft_io.checkpoint.state import load_variable

PROGRAM = Path(__file__).parent / "programs" / "train.py"
EVERY = 5


def train(directory: Path, last: int, kill_after: int | None) -> list[int]:
    """The steps that a run has made; it is killed after so many, or a few more."""
    command = [sys.executable, str(PROGRAM), str(directory), str(EVERY), str(last)]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if len(lines) == kill_after:
                process.kill()
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    return [int(line) for line in lines if line.isdigit()]


def test_a_killed_training_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    reached = 0
    for kill_after in (13, 9, None):
        last = 10**9 if kill_after else reached + 12
        steps = train(tmp_path, last, kill_after)
        assert steps == list(range(steps[0], steps[-1] + 1))
        assert steps[0] <= reached + 2, "steps were left out"  # one may not have been told
        assert steps[0] > reached - EVERY, "more than the last steps were lost"
        reached = steps[-1]
    assert reached == last
    assert (load_variable(str(tmp_path), "w") == float(last)).all()
