"""The examples in their short form: all stages from data to a device, and exact resumption."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from weft_testing.workspace import ROOT

import weft as wf

pytest.importorskip("matplotlib")
pytest.importorskip("onnx")
EXAMPLES = ROOT / "examples"
NAMES = sorted(
    path.parent.name
    for path in EXAMPLES.glob("*/train.py")
    if "from journey import" in path.read_text(encoding="utf-8")
)
CLUSTERS = {
    "images": 0.35,
    "language": 1e-3,
    "tabular": 1e-3,
    "transformer": 0.01,
    "word2vec": 1e-3,
}
"""The tolerance of a loss: replicas of `images` normalize halves of a batch."""

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


def curve(directory: Path) -> dict[int, float]:
    """Return the losses by step."""
    points = {}
    for path in directory.glob("events.*"):
        for event in wf.train.summary_iterator(str(path)):
            points.update(
                (event.step, v.simple_value) for v in event.summary.value if v.tag == "loss"
            )
    return points


def test_all_journeys_are_tested() -> None:
    assert NAMES == [
        "images",
        "inception",
        "language",
        "reinforcement",
        "segmentation",
        "tabular",
        "transformer",
        "word2vec",
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
    assert "critical path: " in output
    assert wf.trace.load(tmp_path / "run.weft-trace").steps
    if name == "word2vec":
        check_projector(tmp_path)
    if name == "language":
        _, sample = output.split("a sample:\nThe ")
        assert len(sample) > 200


def check_projector(directory: Path) -> None:
    """Check that TensorBoard finds a vector for each word."""
    plugin = pytest.importorskip("tensorboard.plugins.projector.projector_config_pb2")
    config = text_format.Parse(
        (directory / "projector_config.pbtxt").read_text(), plugin.ProjectorConfig()
    )
    (table,) = config.embeddings
    vectors = np.loadtxt(directory / table.tensor_path, delimiter="\t")
    words = (directory / table.metadata_path).read_text().splitlines()
    assert len(words) == len(set(words)) == len(vectors) > 100


@pytest.mark.long
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_has_the_losses_of_one_machine(name: str, tmp_path: Path) -> None:
    options = ("--deterministic", "--no-deploy", "--steps", "20")
    for directory, others in (("one", ()), ("many", ("--cluster",))):
        program = start(name, tmp_path / directory, *options, *others)
        output, _ = program.communicate(timeout=240)
        assert program.returncode == 0, output
    one, many = curve(tmp_path / "one"), curve(tmp_path / "many")
    assert one.keys() == many.keys()
    steps = sorted(one)
    losses = [[points[step] for step in steps] for points in (one, many)]
    assert losses[0][0] != losses[0][-1]
    np.testing.assert_allclose(losses[1], losses[0], rtol=CLUSTERS[name])


@pytest.mark.long
def test_the_training_graph_of_inception_has_36000_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    inception = runpy.run_path(str(EXAMPLES / "inception" / "train.py"))["Inception"]
    journey = inception(tmp_path, 0, is_short=False)
    journey.__dict__["_lines"] = None, None  # the images, which need half a minute to draw
    with wf.Graph().as_default() as graph:
        journey.training()
    assert len(graph.get_operations()) >= 36_000


@pytest.mark.long
def test_a_step_of_inception_needs_two_of_three_workers(tmp_path: Path) -> None:
    program = start("inception", tmp_path, "--no-deploy", "--steps", "12", "--cluster")
    output, _ = program.communicate(timeout=240)
    assert program.returncode == 0, output
    assert max(curve(tmp_path)) > 6


@pytest.mark.long
@pytest.mark.parametrize("name", ["images", "inception", "segmentation", "transformer", "word2vec"])
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
