"""The demo: its accuracy, and its continuation after Ctrl-C and after SIGKILL."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

import pytest

pytest.importorskip("matplotlib")

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "train.py"


def start(directory: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(PROGRAM),
        "--directory",
        str(directory),
        *arguments,
        "--no-deploy",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def accuracy(output: str) -> float:
    found = re.search(r"held-out accuracy ([\d.]+)%", output)
    assert found, output
    return float(found[1])


def test_ten_epochs_are_enough_for_97_percent(tmp_path: pathlib.Path) -> None:
    program = start(tmp_path, "--epochs", "10")
    output, _ = program.communicate(timeout=200)
    assert program.returncode == 0, output
    assert accuracy(output) >= 97.0
    assert (tmp_path / "curve.png").stat().st_size > 10_000


@pytest.mark.long
def test_the_median_of_five_seeds_is_at_least_98_percent(tmp_path: pathlib.Path) -> None:
    reached = []
    for seed in range(5):
        program = start(tmp_path / str(seed), "--seed", str(seed))
        output, _ = program.communicate(timeout=200)
        assert program.returncode == 0, output
        reached.append(accuracy(output))
    assert statistics.median(reached) >= 98.0, reached


def epochs_done(directory: pathlib.Path) -> int:
    try:
        return len(json.loads((directory / "curve.json").read_text()))
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_goes_on_where_it_was_interrupted(tmp_path: pathlib.Path, how: signal.Signals) -> None:
    program = start(tmp_path, "--epochs", "5")
    limit = time.monotonic() + 120
    while epochs_done(tmp_path) < 2:
        assert program.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    program.send_signal(how)
    output, _ = program.communicate(timeout=120)
    assert program.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL), output
    again = start(tmp_path, "--epochs", "5")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    resumed = re.search(r"going on after epoch (\d+) of 5", output)
    assert resumed and int(resumed[1]) >= 1, output
    assert epochs_done(tmp_path) == 5
    assert accuracy(output) > 95


@pytest.mark.long
def test_devices_recognize_as_much(tmp_path: pathlib.Path) -> None:
    """The wheel is built and, where qemu is, a program for AArch64."""
    command = [sys.executable, str(PROGRAM), "--directory", str(tmp_path), "--epochs", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [float(part) for part in re.findall(r": ([\d.]+)%", done.stdout.replace("\n", ""))]
    assert len(found) in (2, 4)
    assert all(abs(each - accuracy(done.stdout)) < 1.0 for each in found)
