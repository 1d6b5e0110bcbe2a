"""Measurements of a region, from which tier-up is decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

from weft_exec.executor.kernel_fallback import KernelFallback
from weft_exec.executor.native.region_measurements import History, write_history
from weft_graph.ir.node import Node

_REGION_SECONDS, _NODE_SECONDS = 0.13, 0.0029
"""Seconds to compile a region and each node of it, until they are measured here. Fitted to seven
regions of 12 to 777 nodes, without routines: a wheel brings these."""
_KIND_SECONDS, _REPEATED_NODE_SECONDS = 0.0135, 0.0003
"""Seconds for each kind of node and for each node, if that is less: loops that differ only in their
arrays are compiled once. Fitted to ten regions of 43 to 1,000 nodes of 2 to 112 kinds."""
_EQUAL_REGION: Final = 0.1
"""Approximate fraction of the compile time of a region that is left if an equal one has code."""
_SMALL_NODE: Final = 1e-5
"""Mean seconds of a node with kernels below which most of them are the interpreter's. Compiled code
saves 0.6 to 0.9 of the time of such regions."""
_LOOK_SECONDS, _LOOK_NODE_SECONDS = 0.003, 0.00003
"""Seconds to look for code and measurements on the disk, and for each node of the region."""
_TIMED_RUNS: Final = 7
"""Number of first runs with kernels that are timed. Later, one run in this many is timed and
counted for all. A prime, so that each of several alternating shapes is met."""
_TRIAL: Final = 20
"""Runs after which compiled code is compared with its kernels."""
_WATCHED: Final = 2000
"""Runs of compiled code whose savings are counted; then it is called without a clock."""
_SLOWER: Final = 1.05
_FEW_CHOICES: Final = 2
"""Choices of shapes of a region whose sizes vary little: one of them may be the last batch."""
_clock: Final = time.thread_time
Function = Callable[..., Any]


class TimeRecorder(Protocol):
    """Interface of a `RegionProfile` to what decides when its region is compiled."""

    def record_kernel_run(self, seconds: float) -> None:
        """Add the time of a region run with kernels."""
        ...

    def record_savings(self, seconds: float) -> None:
        """Add the time that a compiled region took less than its kernels."""
        ...

    def write(self, profile: RegionProfile) -> None:
        """Write the measurements of a region that was compiled."""
        ...


class Measurements:
    """Measurements of a region, for all choices of its shapes.

    Attributes:
      seconds: processor seconds of runs with kernels in this process, for choices that one
        compilation may support.
      runs: the number of these runs.
      num_choices: the number of choices.
      history: measurements of earlier processes; empty before the look.
      is_spent: True if kernel time of earlier processes has already paid for a compilation in this
        process.
      key: the fingerprint under which measurements are kept, or None.
    """

    __slots__ = ("history", "is_spent", "key", "num_choices", "runs", "seconds")

    def __init__(self) -> None:
        self.seconds, self.runs, self.num_choices = 0.0, 0, 0
        self.history = History()
        self.is_spent = False
        self.key: str | None = None

    def remove(self, profile: RegionProfile) -> None:
        """Do not count the kernels of a choice any more: it has separate code."""
        self.seconds = max(0.0, self.seconds - profile.seconds)
        self.is_spent = True

    def measured(self) -> History:
        """Return the measurements of all processes, this one included."""
        history = self.history
        return history._replace(
            processes=history.processes + 1,
            runs=history.runs + self.runs,
            kernel_seconds=history.kernel_seconds + self.seconds,
            varies=history.varies or self.num_choices > _FEW_CHOICES,
        )


class RegionProfile(KernelFallback):
    """Measurements of a region for one choice of shapes, in this process.

    Args:
      recorder: receives its times.
      members: the nodes of the region.
      name: its name in messages; by default that of its last node.
      measurements: those of all choices of the region.

    Attributes:
      runs: runs with kernels.
      seconds: processor seconds of all runs with kernels, extrapolated from those that are timed.
      least: processor seconds of the fastest run.
      estimate: seconds to compile it, before any measurement.
      look: seconds needed to look for its code on the disk.
      looked: True once its code was looked for.
      is_compiled: True once it was compiled, or could not be.
      is_leader: True if its compilation may support all choices, and the kernel time of all counts.
    """

    __slots__ = (
        "_best", "_counted", "_kinds", "_members", "_node_runs", "_recorder", "_tries", "_weight",
        "estimate", "is_compiled", "is_leader", "least", "look", "looked",
        "measurements", "name", "runs", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        recorder: TimeRecorder,
        members: Sequence[Node],
        name: str = "",
        measurements: Measurements | None = None,
    ) -> None:
        super().__init__()
        self._recorder = recorder
        self.name = name or members[-1].name
        self._members = len(members)
        self.measurements = measurements or Measurements()
        self.measurements.num_choices += 1
        self.runs, self.seconds, self.least = 0, 0.0, float("inf")
        self._counted, self._tries, self._best = 0, 0, float("inf")
        self._node_runs = 0
        self._weight = 1
        self.looked = self.is_compiled = False
        self.is_leader = True
        self.look = _LOOK_SECONDS + _LOOK_NODE_SECONDS * len(members)
        self._kinds: Hashable = (kinds := _kinds(members), len(members))
        self.estimate = _REGION_SECONDS + _estimate(len(members), len(kinds))

    @property
    def history(self) -> History:
        """Measurements of earlier processes that a compile of this choice may rely on."""
        total = self.measurements
        return total.history if self.is_leader and not total.is_spent else History()

    def compile_cost(self, scale: float) -> float:
        """Return the processor seconds that compiling takes.

        Args:
          scale: ratio of measured to estimated seconds of the compilations in this process.
        """
        measured = self.history.compile_seconds
        return scale * self.estimate if measured is None else measured

    def discount(self, factor: float) -> None:
        """Lower the estimate: another choice of shapes has code that can be shared."""
        self.estimate *= factor

    def discount_equal(self, compiled: RegionProfile) -> None:
        """Lower the estimate if a region of equal nodes, such as another layer, was compiled."""
        is_other = compiled.measurements is not self.measurements
        if is_other and self._kinds is not None and compiled._kinds == self._kinds:
            self.discount(_EQUAL_REGION)
            self._kinds = None

    @property
    def local_seconds(self) -> float:
        """Kernel seconds in this process for all shapes that the compilation may support."""
        return max(self.seconds, self.measurements.seconds) if self.is_leader else self.seconds

    @property
    def accrued_seconds(self) -> float:
        """Kernel seconds, over all processes, for all shapes that the compilation may support."""
        return self.local_seconds + self.history.kernel_seconds

    @property
    def has_small_nodes(self) -> bool:
        """True if most of the time with kernels is spent between them."""
        return self.seconds < _SMALL_NODE * self._node_runs

    @property
    def awaits_second_shape(self) -> bool:
        """True if it is better compiled when a second choice of shapes is known."""
        total = self.measurements
        history = total.history
        return total.num_choices == 1 and history.varies and not history.is_monomorphic

    @property
    def expected_seconds(self) -> float:
        """Seconds of kernels that this process is still expected to take, as earlier ones did."""
        history = self.history
        return history.kernel_seconds / max(1, history.processes) - self.local_seconds

    def should_time(self, is_only_region: bool) -> bool:
        """Return True if the run with kernels that begins now is to be timed.

        Args:
          is_only_region: True if all other choices of shapes run with kernels too; then the next
            runs need not ask.
        """
        if is_only_region and self.measurements.runs >= _TIMED_RUNS:
            self._weight, self.skips = _TIMED_RUNS, _TIMED_RUNS - 1
            self.runs += _TIMED_RUNS
            return True
        self.runs += 1
        self._weight = 1 if self.runs <= _TIMED_RUNS else _TIMED_RUNS
        return self.runs <= _TIMED_RUNS or self.runs % _TIMED_RUNS == 0

    def record_time(self, seconds: float, iterations: int = 1) -> None:
        """Add a run with kernels; the first one of a region is ignored, since it loads them."""
        total, runs = self.measurements, self._weight
        total.runs += runs
        if total.runs == 1:
            return
        self._counted += runs
        self._node_runs += runs * iterations * self._members
        self.seconds += runs * seconds
        total.seconds += runs * seconds
        self.least = min(self.least, seconds)
        self._recorder.record_kernel_run(runs * seconds)

    def watch(self, run: Function, replace: Callable[[Function | None], None]) -> Function:
        """Return a function that calls `run` and counts the time it saves, for its first runs.

        Args:
          run: the compiled function.
          replace: replaces the returned function: by the function itself, or by None for kernels.
        """
        total = self.measurements
        mean_seconds = self.seconds / max(1, self._counted)
        # The first run of a region is counted but not timed; see `record_time`.
        mean = mean_seconds or total.seconds / max(1, total.runs - 1)

        def call(inputs: Sequence[Any]) -> Any:
            start = _clock()
            values = run(inputs)
            duration = _clock() - start
            self._recorder.record_savings(mean - duration)
            self._best = min(self._best, duration)
            self._tries += 1
            if self._tries >= _WATCHED:
                replace(run)
            # The fastest runs are compared, since other work on the machine disturbs them least.
            elif self._tries >= _TRIAL and self._best > _SLOWER * self.least:
                if total.num_choices == 1:
                    total.history = total.history._replace(is_slower=True)
                    self._recorder.write(self)
                replace(None)
            return values

        return call

    def encode_history(self, history: History) -> bytes:
        """Return the history of this region in the form that is stored on disk."""
        return write_history(history, self.name, self._members)


def _kinds(members: Sequence[Node]) -> frozenset[Any]:
    """Return the ops of nodes, with the shapes of the first input and output of each."""
    return frozenset(
        (node.type, node.outputs[0].dims, node.inputs[0].dims)
        if node.inputs and node.outputs
        else (node.type, None, None)
        for node in members
    )


def _estimate(num_nodes: int, num_kinds: int) -> float:
    """Return the approximate seconds to compile nodes."""
    repeated = _KIND_SECONDS * num_kinds + _REPEATED_NODE_SECONDS * num_nodes
    return min(_NODE_SECONDS * num_nodes, repeated)
