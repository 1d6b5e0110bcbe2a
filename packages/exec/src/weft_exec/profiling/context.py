"""Profiles of the steps in a block of code."""

from __future__ import annotations

__all__ = ["ProfileContext"]

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from weft_exec.profiling.profile import ProfileNode, Profiler
from weft_exec.tracing.consumers import Consumer, add_consumer, remove_consumer
from weft_exec.tracing.step_trace import Span, StepTrace, ThreadLog
from weft_graph import proto
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

MAX_TRACED: Final = 100
"""Maximum number of steps that a context traces."""

_COMMANDS: Final = ("op", "scope", "graph")
_DEVICE: Final = "/job:localhost/replica:0/task:0/device:CPU:0"


class ProfileContext:
    """Traces steps of the sessions in a `with` block, and shows profiles of them.

    In TensorFlow 1.15 it is `tf.contrib.tfprof.ProfileContext`. The steps of all sessions of the
    process are numbered from 0.

    Args:
      profile_dir: directory of the dumped files; created if it is missing.
      trace_steps: numbers of the steps to trace; by default every step whose number is a power
        of 2.
      dump_steps: numbers of the steps after which the last traced step is written as a RunMetadata
        message, to the file "profile_<step>"; none by default.
      enabled: False to do nothing.
      debug: accepted for compatibility.
    Raises: InvalidArgumentError: there is no directory, or there are more than 100 `trace_steps`.

    Examples:
      >>> y = wf.reduce_sum(wf.random_uniform([100]), name="total")
      >>> builder = wf.profiler.ProfileOptionBuilder
      >>> quiet = builder(builder.time_and_memory()).with_empty_output().build()
      >>> with wf.profiler.ProfileContext("./profiles", trace_steps=[1, 2]) as context:
      ...     context.add_auto_profiling("op", quiet, [2])
      ...     with wf.Session() as session:
      ...         for _ in range(3):
      ...             result = session.run(y)
      ...     sorted(context.get_profiles("op"))
      [2]
    """

    def __init__(
        self,
        profile_dir: str | os.PathLike[str],
        trace_steps: Sequence[int] | None = None,
        dump_steps: Sequence[int] | None = None,
        enabled: bool = True,
        debug: bool = False,
    ) -> None:
        if enabled and not os.fspath(profile_dir):
            raise errors.InvalidArgumentError("profile_dir must be a directory, got ''")
        if trace_steps is not None and len(trace_steps) > MAX_TRACED:
            raise errors.InvalidArgumentError(
                f"trace_steps may have at most {MAX_TRACED} steps, got {len(trace_steps)}"
            )
        self._directory = Path(profile_dir)
        self._trace_steps = None if trace_steps is None else set(trace_steps)
        self._dump_steps = set(dump_steps or ())
        self._is_enabled = enabled
        self._automatic: list[tuple[str, Mapping[str, Any], Collection[int]]] = []
        self._views: dict[str, dict[int, ProfileNode]] = {}
        self._profiler: Profiler | None = None
        self._last: Any = None
        self._step = 0
        self._num_traced = 0
        self._consumer = _Steps(self)

    def add_auto_profiling(
        self, cmd: str, options: Mapping[str, Any], profile_steps: Sequence[int]
    ) -> None:
        """Profile the last traced step after some steps.

        Args:
          cmd: as for `profile`.
          options: as for `profile`.
          profile_steps: numbers of the steps.
        Raises: InvalidArgumentError: `cmd` is unknown.
        """
        if cmd not in _COMMANDS:
            raise errors.InvalidArgumentError(f"cmd must be one of {_COMMANDS}, got {cmd!r}")
        self._automatic.append((cmd, options, frozenset(profile_steps)))

    @property
    def profiler(self) -> Profiler:
        """The profiler of the default graph, with the traced steps."""
        if self._profiler is None:
            self._profiler = Profiler()
        return self._profiler

    def trace_next_step(self) -> None:
        """Trace the next step."""
        if self._trace_steps is None:
            self._trace_steps = set()
        self._trace_steps.add(self._step)

    def dump_next_step(self) -> None:
        """Write a file after the next step."""
        self._dump_steps.add(self._step)

    def get_profiles(self, cmd: str) -> dict[int, ProfileNode]:
        """Return the profiles of a command that `add_auto_profiling` requested, by step.

        Args:
          cmd: as for `profile`.
        Raises: InvalidArgumentError: none was requested.
        """
        if cmd not in self._views:
            raise errors.InvalidArgumentError(f"no step was profiled with the command {cmd!r}")
        return self._views[cmd]

    def _is_traced(self, step: int) -> bool:
        if self._num_traced >= MAX_TRACED:
            return False
        if self._trace_steps is None:
            return step & (step - 1) == 0
        return step in self._trace_steps

    def _step_ended(self, trace: StepTrace) -> None:
        step, self._step = self._step, self._step + 1
        if self._is_traced(step):
            from weft_exec.tracing.step_stats import fill_metadata

            self._last = proto.RunMetadata()
            fill_metadata(self._last, trace, _DEVICE)
            self.profiler.add_step(step, self._last)
            self._num_traced += 1
        if step in self._dump_steps and self._last is not None:
            path = self._directory / f"profile_{step}"
            with convert_os_errors("writing", str(path)):
                self._directory.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._last.SerializeToString())
        for cmd, options, steps in self._automatic:
            if step in steps:
                views = self._views.setdefault(cmd, {})
                views[step] = self.profiler._profile(cmd, {**options, "step": -1})

    def __enter__(self) -> Self:
        if self._is_enabled:
            add_consumer(self._consumer)
        return self

    def __exit__(self, *_: object) -> None:
        remove_consumer(self._consumer)


class _Steps(Consumer):
    """Sends the steps of a process to a context. Records of long loops are left out."""

    def __init__(self, context: ProfileContext) -> None:
        self._context = context

    def step_ended(self, trace: StepTrace) -> None:
        """See the base class."""
        self._context._step_ended(trace)

    def step_spilled(
        self, trace: StepTrace, log: ThreadLog, runs: Sequence[Any], spans: Sequence[Span]
    ) -> None:
        """See the base class."""

    def outside_steps(self, log: ThreadLog, spans: Sequence[Span]) -> None:
        """See the base class."""
