"""A hook that writes pictures of steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import weft as wf
from weft_exec.tracing import consumers
from weft_tensor import errors
from weft_trace import Kind


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
    assert names == [
        f"timeline-{step}.{suffix}" for step in (1, 4) for suffix in ("json", "weft-trace")
    ]
    trace = wf.trace.load(tmp_path / "new" / "traces" / names[3])
    assert len(trace.steps) == 1 and not trace.warnings
    kernels = trace.events[trace.events["kind"] == Kind.KERNEL]
    assert "total" in {trace.nodes[node].name for node in kernels["node"]}
    events = json.loads((tmp_path / "new" / "traces" / names[2]).read_text())["traceEvents"]
    assert "total" in {event["args"].get("name") for event in events if event["ph"] == "X"}


def test_a_step_that_fails_ends_its_trace(tmp_path: Path) -> None:
    with wf.Graph().as_default():
        step = wf.train.get_or_create_global_step()
        x = wf.placeholder(wf.int32, [])
        train = wf.group(step.assign_add(1), wf.floordiv(1, x))
        hook = wf.train.ProfilerHook(save_steps=1, output_dir=tmp_path)
        session = wf.train.MonitoredTrainingSession(hooks=[hook])
        with pytest.raises(errors.InvalidArgumentError, match="zero"), session:
            session.run(train, {x: 1})
            session.run(train, {x: 0})
    assert consumers.is_active()
    hook.end(None)
    assert not consumers.is_active()
    assert not wf.trace.load(tmp_path / "timeline-2.weft-trace").warnings


def test_needs_one_interval_and_a_global_step() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="save_steps and save_secs"):
        wf.train.ProfilerHook()
    with wf.Graph().as_default():
        hook = wf.train.ProfilerHook(save_secs=1.0)
        with pytest.raises(errors.FailedPreconditionError, match="ProfilerHook"):
            hook.begin()
