"""A trace of a few training steps, and its summary."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import weft as wf
from weft_distrib.client.recording import record_trace
from weft_trace.analysis.summary import summarize

NUM_STEPS = 5
"""Number of traced steps."""

MAX_SECONDS = 10.0
"""Time after which the trace of a cluster ends in any case."""

FIRST_STEP = 100
"""The step of a session at which the trace begins, or half of its steps if these are fewer."""


class TraceHook(wf.train.SessionRunHook):
    """Records some steps of a session to a file.

    Args:
      path: the file.
      num_steps: number of steps of the whole training.
      target: a task of the cluster, whose tasks are recorded; None to record this process.
    """

    def __init__(self, path: Path, num_steps: int, target: str | None = None) -> None:
        self._path = path
        self._num_steps = num_steps
        self._target = target
        self._step = wf.train.get_or_create_global_step()
        self._countdown = 0
        self._recording = ExitStack()

    def after_create_session(self, session: wf.Session, coord: wf.train.Coordinator) -> None:
        """Choose the steps to trace."""
        left = self._num_steps - int(session.run(self._step))
        self._countdown = min(FIRST_STEP, left // 2)

    def before_run(self, run_context: Any) -> None:
        """Begin or end the recording."""
        if self._countdown == 0:
            self._begin()
        elif self._countdown == -NUM_STEPS and self._target is None:
            self._recording.close()
        self._countdown -= 1

    def end(self, session: wf.Session) -> None:
        """End the recording if the training ends first; wait for that of a cluster."""
        self._recording.close()

    def _begin(self) -> None:
        if self._target is None:
            self._recording.enter_context(wf.trace(self._path))
            return
        arguments = (self._target, NUM_STEPS, self._path, MAX_SECONDS)
        thread = threading.Thread(target=record_trace, args=arguments)
        thread.start()  # the call returns when the steps have been recorded
        self._recording.callback(thread.join)


def print_summary(path: Path, console: Console) -> None:
    """Print where the time of the most expensive kind of step goes."""
    summary = summarize(wf.trace.load(path), rows=5, labels=1)
    if not summary["steps"]:
        return
    step = summary["steps"][0]
    categories = step["critical_path"]["categories"]
    total = sum(categories.values()) or 1
    shares = ", ".join(f"{name} {time / total:.0%}" for name, time in categories.items())
    median = step["median"] / 1e6
    text = f"trace of {step['num_steps']} steps in {path}: median {median:.1f} ms; critical path: "
    console.print(text + shares, soft_wrap=True)
    table = Table("longest parts", "op", "task", "line", "ms")
    for part in step["critical_path"]["longest"]:
        columns = [part["node"], part["op"], part["task"], Path(part["line"]).name]
        table.add_row(*columns, f"{part['time'] / 1e6:.2f}")
    console.print(table)
