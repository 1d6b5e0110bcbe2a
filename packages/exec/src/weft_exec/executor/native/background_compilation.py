"""Compilation of regions in the background: the clocks and the thread around `TierUpPolicy`."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Final, NamedTuple, Protocol

from weft_exec import progress
from weft_exec.devices.device import Device
from weft_exec.executor.native.idle_cores import IdleCores
from weft_exec.executor.native.region_measurements import read_history
from weft_exec.executor.native.region_profile import RegionProfile
from weft_exec.executor.native.tiering import TierUpPolicy
from weft_exec.executor.native.warm_up import WarmUp
from weft_exec.executor.step_check import raise_if_ended
from weft_graph.ir.code_generators import ProfileStore
from weft_graph.ir.compile_pauses import CompilationAbandoned, may_pause, pause_with
from weft_graph.ir.node import Node
from weft_graph.ir.script_record import script_record

_IDLE_PRICE: Final = 0.25
"""Fraction of the price that an idle core leaves to the program: lowering holds the interpreter."""
_LOAD_SECONDS: Final = 0.4
"""Seconds to load the first code from the disk: it imports LLVM. The first look waits until kernels
have taken as long, so that short scripts pay nothing."""
_DECISION_INTERVAL: Final = 0.005
"""Seconds of kernels between two decisions."""
_MIN_REST_RATIO: Final = 100
"""Minimum ratio of the time of kernels between two decisions to the time of a decision."""
_WORTH_WRITING: Final = 0.05
"""Minimum kernel seconds of a region whose measurements are written to the disk."""
_MAX_LOOKED: Final = 1024
"""Maximum number of regions whose measurements are held until the process ends."""
_NOTICEABLE: Final = 0.1
"""Fraction of the time of all kernels above which an uncompiled region delays full speed."""
_POLL_SECONDS: Final = 0.02
_clock: Final = time.thread_time


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

        Returns: False if each choice of shapes needs its own code, which does not exist yet.
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
        return [(candidate, profile) for candidate in candidates for profile in candidate.waiting()]

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
        """Look for code on the disk, or else for measurements."""
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
            evicted = self._looked.pop(oldest) if len(self._looked) > _MAX_LOOKED else None
        if evicted is not None:
            _write_kernels(oldest, *evicted)

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
                for _, waiting in self._waiting():
                    waiting.discount_equal(profile)
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
        """Log once per process that regions are compiled, and how long this takes."""
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
            else "runs with kernels in the meantime",
        )

    def _log_completion(self) -> None:
        """Log, once in a process, that all regions that take a noticeable time are compiled."""
        slow_profiles = [p for _, p in self._waiting() if p.local_seconds > _NOTICEABLE * self.seen]
        if slow_profiles or self._is_complete or not self._num_compiled:
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

    It is not a thread of a pool: the interpreter waits for pool threads before it ends the main
    thread, so they could not detect the end of the program.
    """
    thread = threading.Thread(target=work, args=(selected,), name="weft-compiler")
    thread.start()
    return thread


def _after_fork() -> None:
    """Start again in a forked process, which has no threads: nothing is being compiled in it."""
    if compilation.cache_info().currsize:
        compilation().after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
