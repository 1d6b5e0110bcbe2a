"""A hook that writes pictures of steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import weft as wf
from weft_tensor import errors


def test_writes_every_so_many_steps(tmp_path: Path) -> None:
    with wf.Graph().as_default():
        step = wf.train.get_or_create_global_step()
        x = wf.reduce_sum(wf.random_uniform([3]), name="total")
        train = wf.group(step.assign_add(1), x)
        hook = wf.train.ProfilerHook(
            save_steps=3, output_dir=tmp_path / "new" / "traces", show_memory=True
        )
        with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(train)
    names = sorted(path.name for path in (tmp_path / "new" / "traces").iterdir())
    assert names == ["timeline-1.json", "timeline-4.json"]
    events = json.loads((tmp_path / "new" / "traces" / names[1]).read_text())["traceEvents"]
    assert "total" in {event["args"].get("name") for event in events if event["ph"] == "X"}


def test_needs_one_interval_and_a_global_step() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="save_steps and save_secs"):
        wf.train.ProfilerHook()
    with wf.Graph().as_default():
        hook = wf.train.ProfilerHook(save_secs=1.0)
        with pytest.raises(errors.FailedPreconditionError, match="ProfilerHook"):
            hook.begin()
