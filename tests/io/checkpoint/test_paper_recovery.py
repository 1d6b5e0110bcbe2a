"""Consistent checkpointing and recovery as the paper's section 3.3 has it, with the nodes alone.

Each variable is connected to a Save node, which is executed every N iterations, and to a Restore
node, which is enabled in the first iteration after a restart only. What is enabled in a Run is what
its fetches need (section 4.2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft_exec import Session
from weft_graph import Graph
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import group
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_io.checkpoint.state import checkpoint_exists
from weft_io.ops.checkpoint import restore_v2, save_v2
from weft_io.training.timers import SecondOrStepTimer
from weft_tensor import dtypes

EVERY = 4


class FailureError(Exception):
    """The worker dies."""


class Worker:
    """The program of a worker: it is the same before and after a restart."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "model")
        self.graph = Graph()
        with self.graph.as_default():
            self.x = placeholder(dtypes.float64, [3], "x")
            self.step = Variable(np.int64(0), name="step")
            self.w = Variable(np.zeros(3), name="w")
            self.b = Variable(np.zeros(3), name="b", use_resource=True)
            variables = {"step": self.step, "w": self.w, "b": self.b}
            self.train = group(
                self.w.assign_add(self.x, read_value=False),
                self.b.assign_add(2.0 * self.x, read_value=False),
                self.step.assign_add(np.int64(1), read_value=False),
            )
            self.save = save_v2(self.path, list(variables), [""] * 3, list(variables.values()))
            types = [v.dtype.base_dtype for v in variables.values()]
            values = restore_v2(self.path, list(variables), [""] * 3, types)
            pairs = zip(variables.values(), values, strict=True)
            puts = [v.assign(x, read_value=False) for v, x in pairs]
            self.restore = group(*puts)
            self.start = global_variables_initializer()

    def run(self, iterations: int, fail_at: int | None = None) -> list[str]:
        """Train; return the nodes that were enabled in each iteration in addition to training."""
        enabled = []
        timer = SecondOrStepTimer(every_steps=EVERY)
        with Session(graph=self.graph) as session:
            first: Any = self.restore if checkpoint_exists(self.path) else self.start
            enabled.append(first.name)
            session.run(first)  # the first iteration after a (re)start, and no other
            step = int(session.run(self.step))
            timer.update_last_triggered_step(step)
            while step < iterations:
                if step == fail_at:
                    raise FailureError
                session.run(self.train, {self.x: np.full(3, step + 1.0)})
                step += 1
                if timer.should_trigger_for_step(step):
                    session.run(self.save)
                    timer.update_last_triggered_step(step)
                    enabled.append(f"{self.save.name} at {step}")
            self.result = session.run([self.step, self.w, self.b])
        return enabled


def test_recovery_continues_where_the_last_save_was(tmp_path: Path) -> None:
    alone = Worker(tmp_path / "alone")
    assert alone.run(11) == ["init", "SaveV2 at 4", "SaveV2 at 8"]

    directory = tmp_path / "failing"
    with pytest.raises(FailureError):
        Worker(directory).run(11, fail_at=3)  # before any save: from scratch
    with pytest.raises(FailureError):
        Worker(directory).run(11, fail_at=7)
    restarted = Worker(directory)
    assert restarted.run(11) == ["group_deps_1", "SaveV2 at 8"]
    assert all(np.array_equal(a, b) for a, b in zip(restarted.result, alone.result, strict=True))
    assert restarted.result[0] == 11 and restarted.result[1][0] == 66.0


def test_a_restore_that_is_not_fetched_has_no_effect(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    with Session(graph=worker.graph) as session:
        session.run(worker.start)
        session.run(worker.save)
        session.run(worker.train, {worker.x: np.ones(3)})
        assert session.run(worker.w).tolist() == [1.0] * 3
        session.run(worker.restore)
        assert session.run(worker.w).tolist() == [0.0] * 3
