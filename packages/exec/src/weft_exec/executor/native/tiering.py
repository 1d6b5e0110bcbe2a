"""Tier-up: which regions are compiled, and when.

A region starts in its kernels. When to compile it is a ski-rental problem (Karlin et al. 1988):
kernels are the rent, and the compile time is the price. `TierUpPolicy` decides from numbers alone;
`Compilation` has the clocks and the thread around it.

- A region is compiled once its kernels have taken as long as compiling will, in this process and in
  earlier ones that ran the same nodes and shapes and did not compile them.
- On an idle core a fraction of that is enough, because a compile only delays the program while both
  need the interpreter.
- Without an idle core, compiling may delay the process by 8 % in total, and by three tenths if
  earlier processes have paid the whole price. Time that compiled code saves counts as earned.
  Compiling pauses when the budget is exhausted. The objects compiled so far are on the disk, so the
  next process continues.
- If earlier processes ran so long that compiled code will save its price, nothing limits it.
- Code that turns out slower than its kernels is dropped, and not compiled by later processes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple, Protocol

from weft_exec import progress
from weft_exec.devices.device import Device
from weft_exec.executor.kernel_fallback import KernelFallback
from weft_exec.executor.native.idle_cores import IdleCores
from weft_exec.executor.native.region_measurements import History, read_history, write_history
from weft_exec.executor.native.warm_up import OVERHEAD, WarmUp
from weft_exec.executor.step_check import raise_if_ended
from weft_graph.ir.code_generators import ProfileStore
from weft_graph.ir.compile_pauses import CompilationAbandoned, may_pause, pause_with
from weft_graph.ir.node import Node
from weft_graph.ir.script_record import script_record

_IDLE_PRICE: Final = 0.25
"""Fraction of the price that an idle core leaves to the program: lowering holds the interpreter."""
_REGION_SECONDS, _NODE_SECONDS = 0.13, 0.0029
"""Seconds to compile a region and each node of it, until they are measured here. Fitted to seven
regions of 12 to 777 nodes, without routines: a wheel brings these."""
_KIND_SECONDS, _REPEATED_NODE_SECONDS = 0.0135, 0.0003
"""Seconds for each kind of node and for each node, if that is less: loops that differ only in their
arrays are compiled once. Fitted to ten regions of 43 to 1,000 nodes of 2 to 112 kinds."""
_PREPAID_OVERHEAD: Final = 0.3
"""Fraction of the processor time of a process that compiling may add if kernels have taken the
price in earlier processes."""
_LEAST_PART: Final = 0.45
"""Fraction of the price for which a process begins to compile a part: lowering and passes, which
leave nothing, and a quarter of the objects."""
_MAX_ABANDONED: Final = 8
"""Processes that may compile parts of a region."""
_LEAST_GAIN: Final = 0.3
"""Fraction of the time of kernels that compiled code is assumed to save before it is measured."""
_IMPORT: Final = 0.15
"""Additional seconds of the first compile of a process: it imports LLVM."""
_LOOK_SECONDS, _LOOK_NODE_SECONDS = 0.003, 0.00003
"""Seconds to look for code and measurements on the disk, and for each node of the region."""
_LOAD_SECONDS: Final = 0.4
"""Seconds to load the first code from the disk: it imports LLVM. The first look waits until kernels
have taken as long, so that short scripts pay nothing."""
_DECISION_INTERVAL: Final = 0.005
"""Seconds of kernels between two decisions."""
_MIN_REST_RATIO: Final = 100
"""Minimum ratio of the time of kernels between two decisions to the time of a decision."""
_TIMED_RUNS: Final = 7
"""Number of first runs with kernels that are timed. Later, one run in this many is timed and
counted for all. A prime, so that each of several alternating shapes is met."""
_TRIAL: Final = 20
"""Runs after which compiled code is compared with its kernels."""
_WATCHED: Final = 2000
"""Runs of compiled code whose savings are counted; then it is called without a clock."""
_SLOWER: Final = 1.05
_WORTH_WRITING: Final = 0.05
"""Seconds of kernels from which on a region's measurements are written to the disk."""
_MAX_LOOKED: Final = 1024
"""Maximum number of regions whose measurements are held until the process ends."""
_NOTICEABLE: Final = 0.1
"""Fraction of the time of all kernels above which an uncompiled region delays full speed."""
_FEW_CHOICES: Final = 2
"""Choices of shapes of a region whose sizes vary little: one of them may be the last batch."""
_POLL_SECONDS: Final = 0.02

_clock: Final = time.thread_time

Function = Callable[..., Any]


class Measurements:
    """Measurements of a region, for all choices of its shapes.

    Attributes:
      seconds: processor seconds of runs with kernels in this process, for choices that one compile
        may serve.
      runs: the number of these runs.
      num_choices: the number of choices.
      history: measurements of earlier processes; empty before the look.
      is_spent: True if earlier processes have paid for a compile of this process already.
      key: the fingerprint under which measurements are kept, or None.
    """

    __slots__ = ("history", "is_spent", "key", "num_choices", "runs", "seconds")

    def __init__(self) -> None:
        self.seconds, self.runs, self.num_choices = 0.0, 0, 0
        self.history = History()
        self.is_spent = False
        self.key: str | None = None

    def remove(self, profile: RegionProfile) -> None:
        """Do not count the kernels of a choice any more: it has code of its own."""
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
      measurements: those of all choices of the region.

    Attributes:
      runs: runs with kernels.
      seconds: processor seconds of all runs with kernels, extrapolated from those that are timed.
      least: processor seconds of the fastest run.
      estimate: seconds to compile it, before any measurement.
      look: seconds that a look for its code on the disk takes.
      looked: True once its code was looked for.
      is_compiled: True once it was compiled, or could not be.
      is_leader: True if its compile may serve all choices, and pays by the kernels of all.
    """

    __slots__ = (
        "_best", "_compilation", "_counted", "_members", "_tries", "_weight", "estimate",
        "is_compiled", "is_leader", "least", "look", "looked", "measurements", "name", "runs",
        "seconds",
    )  # fmt: skip

    def __init__(
        self,
        compilation: Compilation,
        members: Sequence[Node],
        name: str = "",
        measurements: Measurements | None = None,
    ) -> None:
        super().__init__()
        self._compilation = compilation
        self.name = name or members[-1].name
        self._members = len(members)
        self.measurements = measurements or Measurements()
        self.measurements.num_choices += 1
        self.runs, self.seconds, self.least = 0, 0.0, float("inf")
        self._counted, self._tries, self._best = 0, 0, float("inf")
        self._weight = 1
        self.looked = self.is_compiled = False
        self.is_leader = True
        self.look = _LOOK_SECONDS + _LOOK_NODE_SECONDS * len(members)
        self.estimate = _REGION_SECONDS + _estimate(members)

    @property
    def history(self) -> History:
        """Measurements of earlier processes that a compile of this choice may rely on."""
        total = self.measurements
        return total.history if self.is_leader and not total.is_spent else History()

    def compile_cost(self, scale: float) -> float:
        """Return the processor seconds that compiling takes.

        Args:
          scale: measured seconds over estimated ones, of what was compiled in this process.
        """
        measured = self.history.compile_seconds
        return scale * self.estimate if measured is None else measured

    def discount(self, factor: float) -> None:
        """Lower the estimate: another choice of shapes has code that can be shared."""
        self.estimate *= factor

    @property
    def local_seconds(self) -> float:
        """Seconds of kernels in this process for all shapes that compiling may serve."""
        return max(self.seconds, self.measurements.seconds) if self.is_leader else self.seconds

    @property
    def accrued_seconds(self) -> float:
        """Seconds of kernels for all shapes that compiling may serve, in all processes."""
        return self.local_seconds + self.history.kernel_seconds

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

    def record_time(self, seconds: float) -> None:
        """Add a run with kernels; the first one of a region is ignored, since it loads them."""
        total, runs = self.measurements, self._weight
        total.runs += runs
        if total.runs == 1:
            return
        self._counted += runs
        self.seconds += runs * seconds
        total.seconds += runs * seconds
        self.least = min(self.least, seconds)
        self._compilation.record_kernel_run(runs * seconds)

    def watch(self, run: Function, replace: Callable[[Function | None], None]) -> Function:
        """Return a function that calls `run` and counts the time it saves, for its first runs.

        Args:
          run: the compiled function.
          replace: puts another function in its place: the function itself, or None for kernels.
        """
        total = self.measurements
        mean_seconds = self.seconds / max(1, self._counted)
        # The first run of a region is counted but not timed; see `record_time`.
        mean = mean_seconds or total.seconds / max(1, total.runs - 1)

        def call(inputs: Sequence[Any]) -> Any:
            start = _clock()
            values = run(inputs)
            duration = _clock() - start
            self._compilation.record_savings(mean - duration)
            self._best = min(self._best, duration)
            self._tries += 1
            if self._tries >= _WATCHED:
                replace(run)
            # The fastest runs are compared, since other work on the machine disturbs them least.
            elif self._tries >= _TRIAL and self._best > _SLOWER * self.least:
                if total.num_choices == 1:
                    total.history = total.history._replace(is_slower=True)
                    self._compilation.write(self)
                replace(None)
            return values

        return call

    def encode_history(self, history: History) -> bytes:
        """Return the history of this region in the form that is stored on disk."""
        return write_history(history, self.name, self._members)


def _estimate(members: Sequence[Node]) -> float:
    """Return the approximate seconds to compile nodes."""
    kinds = {
        (node.type, node.outputs[0].dims, node.inputs[0].dims)
        if node.inputs and node.outputs
        else (node.type, None, None)
        for node in members
    }
    repeated = _KIND_SECONDS * len(kinds) + _REPEATED_NODE_SECONDS * len(members)
    return min(_NODE_SECONDS * len(members), repeated)


class TierUpPolicy:
    """Decides by numbers alone which regions are compiled.

    Args:
      overhead: fraction of the processor time of a process that compiling may add without an idle
        core.
    Attributes:
      compile_seconds: processor seconds that compiling took.
      other_seconds: processor seconds of choosing regions, and of looking for their code.
      saved_seconds: processor seconds that compiled code took less than its kernels.
      scale: measured compile time over the estimates, a moving average.
    """

    def __init__(self, overhead: float = OVERHEAD) -> None:
        self._overhead = overhead
        self.compile_seconds = self.other_seconds = self.saved_seconds = 0.0
        self.scale = 1.0

    def is_affordable(
        self,
        price: float,
        process_seconds: float,
        profile: RegionProfile | None = None,
        spent_seconds: float = 0.0,
    ) -> bool:
        """Return True if compiling keeps the process within its overhead.

        For a region whose price was paid, this process is assumed to take as long as earlier ones.

        Args:
          price: seconds of everything that is to be compiled now.
          process_seconds: processor seconds of this process so far, compiling included.
          profile: the region that is compiled; None for the limit of regions that were not paid.
          spent_seconds: seconds of a compile that is not finished.
        """
        added = self.compile_seconds + self.other_seconds + spent_seconds - self.saved_seconds
        by_kernels, overhead = process_seconds - added, self._overhead
        if profile is not None and self.is_prepaid(profile):
            overhead = max(overhead, _PREPAID_OVERHEAD)
            by_kernels += max(0.0, profile.expected_seconds)
        return added + price <= overhead * by_kernels

    def choose(
        self, profiles: Iterable[RegionProfile], process_seconds: float, has_idle_core: bool
    ) -> list[RegionProfile]:
        """Return the regions to compile now, the one with the largest gain for its price first.

        Args:
          profiles: profiles of regions that are not compiled and have no code on the disk.
          process_seconds: as for `is_affordable`.
          has_idle_core: True if a core would be idle without the compile.
        """
        fraction = _IDLE_PRICE if has_idle_core else 1.0
        planned = 0.0 if self.compile_seconds else _IMPORT
        pays = [
            profile
            for profile in profiles
            if not profile.history.is_slower
            and not profile.awaits_second_shape
            and profile.accrued_seconds >= fraction * profile.compile_cost(self.scale)
        ]
        pays.sort(
            key=lambda profile: profile.accrued_seconds / profile.compile_cost(self.scale),
            reverse=True,
        )
        selected: list[RegionProfile] = []
        for profile in pays:
            price = profile.compile_cost(self.scale)
            is_prepaid = self.is_prepaid(profile)
            part = _LEAST_PART * price if is_prepaid else price
            if has_idle_core or self.pays_off_locally(profile):
                selected.append(profile)
            elif self.is_affordable(planned + part, process_seconds, profile):
                planned += price
                selected.append(profile)
        return selected

    def is_prepaid(self, profile: RegionProfile) -> bool:
        """Return True if kernels took the price in earlier processes, and few began to compile."""
        history = profile.history
        has_paid = history.kernel_seconds >= profile.compile_cost(self.scale)
        return has_paid and history.abandoned < _MAX_ABANDONED

    def pays_off_locally(self, profile: RegionProfile) -> bool:
        """Return True if compiled code will save its price, judging by earlier processes."""
        return _LEAST_GAIN * profile.expected_seconds >= profile.compile_cost(self.scale)

    def is_worth_waiting(self, profile: RegionProfile, has_idle_core: bool) -> bool:
        """Return True if the step should wait for a compile instead of running concurrently.

        Without an idle core both take turns, so waiting is shorter if enough runs are left, judging
        by earlier processes.
        """
        return not has_idle_core and self.pays_off_locally(profile)

    def compiled(self, profile: RegionProfile, seconds: float, is_first: bool) -> None:
        """Add a measured compile.

        Args:
          is_first: True for the first one of a process, which imports LLVM.
        """
        self.compile_seconds += seconds
        if not is_first:
            self.scale += 0.5 * (seconds / profile.estimate - self.scale)


class RegionState(NamedTuple):
    """The state of a region: compiled, waiting, or left to kernels.

    Attributes:
      nodes: names of its nodes.
      num_compiled: choices of shapes that run by compiled code.
      num_by_kernels: choices of shapes that stay with kernels: compiling failed, or was no gain.
      waiting: for each choice of shapes that may be compiled later, the processor seconds that its
        kernels have taken, in earlier processes too, and those that compiling will take.
    """

    nodes: frozenset[str]
    num_compiled: int
    num_by_kernels: int
    waiting: Sequence[tuple[float, float]]

    def __str__(self) -> str:
        parts = []
        if self.num_compiled:
            shapes = f" for {self.num_compiled} choices of shapes" if self.num_compiled > 1 else ""
            parts.append(f"compiled{shapes}")
        parts += [
            f"waits for an idle core or a share of the processor time: "
            f"kernels took {spent_seconds:.2f} s, compiling will take about {price:.1f} s"
            for spent_seconds, price in self.waiting
        ]
        if self.num_by_kernels:
            parts.append(f"stays with kernels for {self.num_by_kernels} choices of shapes")
        return "; ".join(parts) or "not run yet"


class Candidate(Protocol):
    """Interface of a region or a loop to `Compilation`; see `SpecializationCache`."""

    @property
    def device(self) -> Device:
        """The device that it runs on."""
        ...

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that are computed together."""
        ...

    def num_compiled(self) -> tuple[int, int]:
        """Return how many choices of shapes run by compiled code, and how many never will."""
        ...

    @property
    def store(self) -> ProfileStore:
        """Store of its measurements between processes."""
        ...

    def waiting(self) -> Iterable[RegionProfile]:
        """Return the profiles of shapes that it is not compiled for."""
        ...

    def fingerprint(self, profile: RegionProfile) -> str | None:
        """Return a name for the nodes and shapes of a profile that is the same in all processes."""
        ...

    def find(self, profile: RegionProfile) -> bool:
        """Use code from the disk for these shapes, if there is any; never raises.

        Returns: True if there was code.
        """
        ...

    def compile(self, profile: RegionProfile) -> bool:
        """Compile the region for the shapes of a profile; never raises.

        Returns: False if each choice of shapes has to pay for its own code, so there is none yet.
        """
        ...


_Chosen = Sequence[tuple[Candidate, RegionProfile]]


class Compilation:
    """Compilation of regions in the background, as a policy decides.

    Args:
      policy: decides which regions are compiled.
      idle_cores: returns True if a core is idle.
      process_clock: returns the processor seconds of this process.
    Attributes:
      seen: approximate seconds that regions took with kernels.
    """

    def __init__(
        self,
        policy: TierUpPolicy | None = None,
        idle_cores: Callable[[], bool] | None = None,
        process_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.policy = policy or TierUpPolicy()
        self._has_idle_core = idle_cores or IdleCores()
        self._process_clock = process_clock
        self._num_compiled = 0
        self._other_seconds = -WarmUp.chosen_seconds  # counts from now on
        self._next_look = _DECISION_INTERVAL
        self.seen = 0.0
        self._lock = threading.Lock()
        self._busy = self._is_paused = False
        self._candidates: weakref.WeakSet[Candidate] = weakref.WeakSet()
        self._looked: dict[str, tuple[ProfileStore, RegionProfile]] = {}
        self._is_announced = self._is_complete = self._has_looked = False

    def add(self, candidate: Candidate) -> None:
        """Consider a region from now on."""
        with self._lock:
            self._candidates.add(candidate)

    def states(self, device: Device) -> list[RegionState]:
        """Return how the regions of a device run."""
        with self._lock:
            candidates = [candidate for candidate in self._candidates if candidate.device is device]
        scale = self.policy.scale
        return [
            RegionState(
                frozenset([node.name for node in candidate.nodes]),
                *candidate.num_compiled(),
                [
                    (profile.accrued_seconds, profile.compile_cost(scale))
                    for profile in candidate.waiting()
                ],
            )
            for candidate in candidates
        ]

    def after_fork(self) -> None:
        """Reset the state of the parent's thread in a forked process."""
        self._lock = threading.Lock()
        self._busy = False

    def record_savings(self, seconds: float) -> None:
        """Add the time that a compiled region took less than its kernels."""
        with self._lock:
            self.policy.saved_seconds += seconds

    def record_kernel_run(self, seconds: float) -> None:
        """Add the time of a region run with kernels, and compile if it is time.

        Raises: the error that ends the step of this thread while it waits for a compile.
        """
        with self._lock:
            self.seen += seconds
            if self._busy or self.seen < self._next_look:
                return
            self._next_look = self.seen + _DECISION_INTERVAL
            self._busy = True
        started = _clock()
        waits = False
        thread: threading.Thread | None = None
        try:
            thread, waits = self._begin()
        except RuntimeError:  # the interpreter is shutting down and accepts no more work
            return
        finally:
            # The rest is proportional to the decision, so decisions take at most a percent of the
            # kernels' time.
            min_pause = _MIN_REST_RATIO * (_clock() - started)
            self._next_look = max(self._next_look, self.seen + min_pause)
            if thread is None:
                self._busy = False
        while waits and thread is not None and thread.is_alive() and not self._is_paused:
            thread.join(_POLL_SECONDS)
            raise_if_ended()

    def _begin(self) -> tuple[threading.Thread | None, bool]:
        """Begin to look for code, or to compile; returns if the step should wait for it."""
        if unknown := self._find_unloaded():
            return _start_thread(self._look, unknown), False
        has_idle_core = self._has_idle_core()
        if not (selected := self._select_regions(has_idle_core)):
            return None, False
        waits = any(self.policy.is_worth_waiting(p, has_idle_core) for _, p in selected)
        self._announce(selected, waits)
        return _start_thread(self._compile, selected), waits

    def _waiting(self) -> list[tuple[Candidate, RegionProfile]]:
        with self._lock:
            candidates = list(self._candidates)
        return [(candidate, each) for candidate in candidates for each in candidate.waiting()]

    def _find_unloaded(self) -> _Chosen:
        """Return the regions that it is time to look for on the disk."""
        if not self._has_looked:
            fraction = _IDLE_PRICE if self._has_idle_core() else 1.0
            record = script_record()
            seconds = max(self.seen + WarmUp.total_seconds, 0.5 * record.seconds)
            if seconds < fraction * _LOAD_SECONDS and not record.has_code:
                return []
            self._has_looked = True
        return [
            (candidate, profile)
            for candidate, profile in self._waiting()
            if not profile.looked and profile.local_seconds >= profile.look
        ]

    def _look(self, unknown: _Chosen) -> None:
        """Look for code on the disk, and if there is none, for measurements."""
        started = time.thread_time()
        try:
            for candidate, profile in unknown:
                if not threading.main_thread().is_alive():
                    return
                profile.looked = True
                if candidate.find(profile):
                    WarmUp.has_code = True
                    continue
                total = profile.measurements
                if total.key is None and (key := candidate.fingerprint(profile)) is not None:
                    total.key = key
                    total.history = read_history(candidate.store.read(key))
                    self._write_at_exit(key, candidate.store, profile)
        finally:
            self._other_seconds += time.thread_time() - started
            self._next_look = self.seen  # so that compiles are decided at the next run
            self._busy = False

    def _write_at_exit(self, key: str, store: ProfileStore, profile: RegionProfile) -> None:
        """Have the measurements written when the process ends."""
        with self._lock:
            if not self._looked:
                atexit.register(self.write_all)
            self._looked[key] = store, profile
            oldest = next(iter(self._looked))
            left = self._looked.pop(oldest) if len(self._looked) > _MAX_LOOKED else None
        if left is not None:
            _write_kernels(oldest, *left)

    def write_all(self) -> None:
        """Write the measurements of regions that run with kernels, for later processes."""
        with self._lock:
            looked, self._looked = self._looked, {}
        for key, (store, profile) in looked.items():
            _write_kernels(key, store, profile)

    def write(self, profile: RegionProfile) -> None:
        """Write the measurements of a region that was compiled."""
        total = profile.measurements
        with self._lock:
            looked = self._looked.get(total.key or "")
        if looked is not None and looked[1].measurements is total:
            looked[0].write(total.key or "", profile.encode_history(total.history))

    def _select_regions(self, has_idle_core: bool) -> _Chosen:
        """Return the regions to compile now."""
        waiting = {id(profile): (c, profile) for c, profile in self._waiting() if profile.looked}
        with self._lock:
            profiles = [profile for _, profile in waiting.values()]
            self.policy.other_seconds = WarmUp.chosen_seconds + self._other_seconds
            selected = self.policy.choose(profiles, self._process_clock(), has_idle_core)
        return [waiting[id(profile)] for profile in selected]

    def _compile(self, selected: _Chosen) -> None:
        """Compile in the background, not longer than the program runs."""
        try:
            for candidate, profile in selected:
                started, total = time.thread_time(), profile.measurements
                try:
                    with pause_with(partial(self._pause, profile, started)):
                        may_pause()
                        is_compiled = candidate.compile(profile)
                except CompilationAbandoned:
                    # The objects compiled so far are on the disk. The count ends a series of
                    # processes that are all too short to finish.
                    abandoned = total.history.abandoned + 1
                    total.history = total.history._replace(abandoned=abandoned)
                    return
                duration = time.thread_time() - started
                if not is_compiled:
                    self._other_seconds += duration
                    continue
                profile.is_compiled = WarmUp.has_code = True
                with self._lock:
                    self.policy.compiled(profile, duration, not self._num_compiled)
                    self._num_compiled += 1
                total.history = total.history._replace(compile_seconds=duration)
                self.write(profile)
            self._log_completion()
        finally:
            self._busy = False

    def _pause(self, profile: RegionProfile, started: float) -> None:
        """Wait until compiling keeps the process within its overhead.

        Raises: CompilationAbandoned: the program has ended.
        """
        while threading.main_thread().is_alive():
            duration = time.thread_time() - started
            policy = self.policy
            with self._lock:
                is_affordable = policy.is_affordable(0.0, self._process_clock(), profile, duration)
            if is_affordable or policy.pays_off_locally(profile) or self._has_idle_core():
                self._is_paused = False
                return
            self._is_paused = True  # the program has to run, also if it was waiting
            threading.main_thread().join(_POLL_SECONDS)
        raise CompilationAbandoned

    def _announce(self, selected: _Chosen, waits: bool) -> None:
        """Log, once in a process, that and how long regions are compiled."""
        if self._is_announced:
            return
        self._is_announced = True
        price = sum(profile.compile_cost(self.policy.scale) for _, profile in selected)
        names = ", ".join([profile.name for _, profile in selected[:3]])
        progress.log.info(
            "compiling %s (%s%s), about %.1f s; the program %s (disable with WEFT_JIT=off)",
            progress.regions_text(len(selected)),
            names,
            ", ..." if len(selected) > 3 else "",
            price,
            "waits for it, since earlier runs took longer"
            if waits
            else "runs with kernels meanwhile",
        )

    def _log_completion(self) -> None:
        """Log, once in a process, that all regions that take a noticeable time are compiled."""
        left = [p for _, p in self._waiting() if p.local_seconds > _NOTICEABLE * self.seen]
        if left or self._is_complete or not self._num_compiled:
            return
        self._is_complete = True
        progress.log.info(
            "full speed after %.1f s of processor time: %s compiled in %.1f s",
            self._process_clock(),
            progress.regions_text(self._num_compiled),
            self.policy.compile_seconds,
        )


def _write_kernels(key: str, store: ProfileStore, profile: RegionProfile) -> None:
    """Write the measurements of a region that runs with kernels, if it is worth a file."""
    total = profile.measurements
    if not profile.is_compiled and total.seconds >= _WORTH_WRITING:
        store.write(key, profile.encode_history(total.measured()))


@cache
def compilation() -> Compilation:
    """Return the compilation of this process."""
    return Compilation()


def _start_thread(work: Callable[[_Chosen], None], selected: _Chosen) -> threading.Thread:
    """Return a thread that does some work.

    It is not a thread of a pool: the interpreter waits for those before it ends the main thread, so
    they could not tell that the program has ended.
    """
    thread = threading.Thread(target=work, args=(selected,), name="weft-compiler")
    thread.start()
    return thread


def _after_fork() -> None:
    """Begin anew in a forked process, which has no threads: nothing is being compiled in it."""
    if compilation.cache_info().currsize:
        compilation().after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
