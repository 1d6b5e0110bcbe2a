"""Profiles of the steps in a block."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft as wf
from weft_tensor import errors


def test_steps_are_traced_profiled_and_dumped(tmp_path: Path) -> None:
    builder = wf.profiler.ProfileOptionBuilder
    quiet = builder(builder.time_and_memory(min_micros=0, min_bytes=0)).with_empty_output().build()
    with wf.Graph().as_default():
        y = wf.reduce_sum(wf.random_uniform([100]), name="total")
        with wf.profiler.ProfileContext(tmp_path, [1], [2]) as context, wf.Session() as session:
            context.add_auto_profiling("op", quiet, [1, 3])
            for _ in range(4):
                session.run(y)
        session = wf.Session()
        session.run(y)  # outside of the block
    profiles = context.get_profiles("op")
    assert sorted(profiles) == [1, 3]
    assert "Sum" in {child.name for child in profiles[1].children}
    metadata = wf.RunMetadata.FromString((tmp_path / "profile_2").read_bytes())
    assert "total" in {n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats}
    assert [path.name for path in tmp_path.iterdir()] == ["profile_2"]


def test_errors_of_contexts(tmp_path: Path) -> None:
    context = wf.profiler.ProfileContext(tmp_path)
    for wrong in (
        lambda: wf.profiler.ProfileContext(""),
        lambda: wf.profiler.ProfileContext(tmp_path, range(101)),
        lambda: context.add_auto_profiling("code", {}, [1]),
        lambda: context.get_profiles("op"),
    ):
        with pytest.raises(errors.InvalidArgumentError):
            wrong()
