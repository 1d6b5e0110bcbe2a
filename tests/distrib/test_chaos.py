"""A short training with faults: each role is lost, and one process freezes for a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHAOS = Path(__file__).parents[1] / "chaos"
FAULTS = [("kill", "ps-0"), ("freeze", "worker-0"), ("kill", "chief-0"), ("kill", "client-0")]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(CHAOS)
    monkeypatch.syspath_prepend(CHAOS.parents[1] / "examples" / "digits")
    import run

    yield run
    for name in ("run", "program", "network", "digits"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.timeout(300)
def test_training_survives_faults_and_leaves_nothing_behind(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "chaos"
    chaos = run.Chaos(folder, ps=1, workers=1, small=True, partitions=False)
    try:
        chaos.begin()
        for kind, name in FAULTS:
            fault = chaos.strike(kind, name, 1.0 if kind == "freeze" else 0.0)
            assert set(fault.went_on) == {"worker-0", "client-0"}, fault.line(fault.at)
            if (kind, name) == ("kill", "ps-0"):
                assert {name: kind for name, (_, kind) in fault.errors.items()} == {
                    "worker-0": "Unavailable",
                    "client-0": "Unavailable",
                }
        assert chaos.end() == []
    finally:
        chaos.close()
    assert chaos.left() == []
    _, step = run.accuracy(folder)
    assert step > 0


def test_every_fault_comes_before_any_comes_again(run: Any, tmp_path: Path) -> None:
    chaos = run.Chaos(tmp_path / "chaos", ps=1, workers=1, partitions=False)
    plans = chaos.plans()
    first = {next(plans)[:2] for _ in range(8)}
    assert len(first) == 8
    assert first == {next(plans)[:2] for _ in range(8)}
