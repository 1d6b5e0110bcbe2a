"""The examples in their short form: all stages from data to a device, and exact resumption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from weft_testing.workspace import ROOT

pytest.importorskip("matplotlib")
pytest.importorskip("onnx")
EXAMPLES = ROOT / "examples"
NAMES = sorted(
    path.parent.name
    for path in EXAMPLES.glob("*/train.py")
    if "from journey import" in path.read_text(encoding="utf-8")
)
FORMS = {"session", "device, float", "device, from-onnx", "device, int8"}


def start(name: str, directory: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / "run.py"), name, "--directory", str(directory)]
    return subprocess.Popen(
        [*command, "--short", "--device-python", sys.executable, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def results(directory: Path) -> dict[str, Any]:
    items = json.loads((directory / "result.json").read_text())
    return {item["form"]: item for item in items}


def test_all_journeys_are_tested() -> None:
    assert NAMES == [
        "images",
        "language",
        "reinforcement",
        "segmentation",
        "tabular",
        "transformer",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_short_journey_reaches_its_goal_in_all_forms(name: str, tmp_path: Path) -> None:
    program = start(name, tmp_path)
    output, _ = program.communicate(timeout=240)
    assert program.returncode == 0, output
    scores = results(tmp_path)
    assert scores.keys() == FORMS
    assert scores["device, float"]["score"] == pytest.approx(scores["session"]["score"], rel=0.01)
    assert scores["device, int8"]["size_bytes"] < scores["device, float"]["size_bytes"]
    assert (tmp_path / "curve.png").stat().st_size > 5_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["images", "segmentation", "transformer"])
def test_a_killed_training_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start(name, whole, "--deterministic").communicate(timeout=240)
    program = start(name, killed, "--deterministic")
    limit = time.monotonic() + 240
    while len(list(killed.glob("model.ckpt-*.index"))) < 2:
        assert program.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    again = start(name, killed, "--deterministic")
    resumed, _ = again.communicate(timeout=240)
    assert again.returncode == 0, resumed
    first, second = results(whole), results(killed)
    assert {k: v["score"] for k, v in first.items()} == {k: v["score"] for k, v in second.items()}
