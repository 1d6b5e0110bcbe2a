"""A job that is killed within an epoch continues with exactly the examples that it had not used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft_io.records.tfrecord import TFRecordWriter

PROGRAM = Path(__file__).parent / "programs" / "epoch.py"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Files of 0, 11, 22, ... records that contain their own position."""
    found = []
    for i in range(5):
        path = str(tmp_path / f"part-{i}")
        with TFRecordWriter(path) as writer:
            for j in range(11 * i):
                writer.write(b"%d-%d" % (i, j))
        found.append(path)
    return found


def run(way: str, readers: int, directory: Path, files: list[str], kill_at: int) -> list[str]:
    """Return the examples that the program used; None if it was killed."""
    command = [sys.executable, str(PROGRAM), way, str(readers), str(directory), *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for saved, line in enumerate(process.stdout, 1):
            what, _, rest = line.strip().partition(" ")
            if what == "end":
                return rest.split(" ")
            if saved == kill_at:
                process.kill()  # in the next step, or in the next checkpoint
                break
        process.stdout.read()
    assert process.returncode < 0, "the program failed"
    return []


@pytest.mark.parametrize("way", ["queue", "dataset"])
def test_a_killed_job_goes_on_with_another_number_of_readers(
    tmp_path: Path, files: list[str], way: str
) -> None:
    directory = tmp_path / "model"
    used: list[str] = []
    for readers, kill_at in ((2, 4), (3, 6), (1, 5), (4, 7), (2, 0)):
        assert not used, "the epoch was over before the last run"
        used = run(way, readers, directory, files, kill_at)
    assert sorted(used) == sorted(f"{i}-{j}" for i in range(5) for j in range(11 * i))
