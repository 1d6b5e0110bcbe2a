"""Which regions are compiled next, and how much of the processor's time goes to compiling.

A compiled region is worth what its kernels took so far: what was used much will be. So a choice of
shapes is compiled for when its kernels have taken as long as compiling will, those first that gain
most for their cost. All compiling together gets a small share of the time that regions take by
kernels, and half of what compiled ones have saved: so a process is never behind by more than that
share, however many regions it has and however seldom their shapes come again. What turns out slower
than its kernels is given up.

What an earlier process compiled is looked for when kernels have taken as long as that takes, some
milliseconds, and is on no account: with all code on the disk the first dozens of steps find it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, Protocol

from weft_exec.executor.by_kernels import ByKernels
from weft_graph.ir.node import Node

_GIFT: Final = 0.05
"""Seconds of compiling that a process has from the start. With the share below a process that ends
within three seconds compiles nothing, and is as fast as by kernels."""
_BEGINNING: Final = 0.1
"""Seconds that the first region takes besides, for that."""
_SHARE: Final = 0.03
"""What part of the time of regions by kernels goes to compiling besides."""
_AGAIN: Final = 0.5
"""What part of the time that compiled regions save goes to compiling more; the rest is won."""
_FIXED, _MEMBER, _UPDATE = 0.02, 0.0015, 0.008
"""Seconds to compile a region, each node of it, and each update, until it is known how long it
takes here."""
_LOOK, _LOOK_MEMBER = 0.003, 0.00003
"""Seconds to look for code on the disk and load it, and for each node of the region."""
_FIRST_LOOK: Final = 0.05
"""Seconds of kernels before that is done at all: the first code to be found imports LLVM."""
_REST: Final = 0.005
"""Seconds of kernels between two looks for what to compile."""
_LOOKING: Final = 100
"""How many times as long as a look takes kernels have to run before the next one."""
_ALL: Final = 7
"""Runs by kernels that are timed; of later ones one of so many is, and counts for all of them. A
prime, so that of shapes which take turns each is met."""
_TRIAL: Final = 20
"""Runs after which a compiled region is compared with its kernels."""
_WATCHED: Final = 2000
"""Runs of a compiled region whose savings are counted; then it is called without a clock."""
_SLOWER: Final = 1.05

_log: Final = logging.getLogger(__name__)
_clock: Final = time.thread_time

Function = Callable[..., Any]


class Record(ByKernels):
    """What is known of a region for one choice of shapes.

    Attributes:
      runs, seconds, least: by kernels: how many, of all about, and of the fastest.
      look, cost: seconds that it will take to look for its code, and to compile it.
      looked: whether its code was looked for.
    """

    __slots__ = (
        "_best", "_pace", "_tries", "cost", "least", "look", "looked", "runs", "seconds",
    )  # fmt: skip

    def __init__(self, pace: Pace, members: Sequence[Node]) -> None:
        super().__init__()
        self._pace = pace
        self.runs, self.seconds, self.least = 0, 0.0, float("inf")
        self._tries, self._best = 0, float("inf")
        updates = sum(not node.outputs or node.outputs[0].dtype.is_ref for node in members)
        self.looked = False
        self.look = _LOOK + _LOOK_MEMBER * len(members)
        self.cost = _FIXED + _MEMBER * len(members) + _UPDATE * updates

    def begins(self, alone: bool) -> bool:
        """Whether a run by kernels that begins now is to be timed.

        Args:
          alone: whether all others run by kernels too, so that nobody has to ask for the next runs.
        """
        if alone and self.runs >= _ALL:
            self.runs += _ALL
            self.skips = _ALL - 1
            return True
        self.runs += 1
        return self.runs <= _ALL or self.runs % _ALL == 0

    def took(self, seconds: float) -> None:
        """Note how long the members took by kernels; not of the first run, which loads these."""
        if self.runs == 1:
            return
        runs = 1 if self.runs <= _ALL else _ALL
        self.seconds += runs * seconds
        self.least = min(self.least, seconds)
        self._pace.by_kernels(runs * seconds)

    def watched(self, run: Function, replace: Callable[[Function | None], None]) -> Function:
        """A function that counts what it saves until that is known.

        Args:
          run: the compiled function.
          replace: puts another one in its place: the function itself, or None for kernels.
        """
        mean = self.seconds / max(1, self.runs - 1)

        def call(inputs: Sequence[Any]) -> Any:
            start = _clock()
            values = run(inputs)
            taken = _clock() - start
            self._pace.saved(mean - taken)
            self._best = min(self._best, taken)
            self._tries += 1
            if self._tries == _TRIAL and self._best > _SLOWER * self.least:
                replace(None)
            elif self._tries == _WATCHED:
                replace(run)
            return values

        return call


class Candidate(Protocol):
    """A region, as far as it is asked what to compile."""

    def waiting(self) -> Iterable[Record]:
        """The records of shapes that it is not compiled for."""
        ...

    def find(self, record: Record) -> None:
        """Take what the disk has for one of these, if anything; it raises nothing."""
        ...

    def compile(self, record: Record) -> None:
        """Compile it for one of these; it raises nothing."""
        ...


class Pace:
    """The regions that may be compiled, and the time for it.

    Args:
      gift: seconds of compiling from the start.
      share: what part of the time of regions by kernels goes to compiling besides.
    Attributes:
      seen: seconds that regions took by kernels, about.
    """

    def __init__(self, gift: float = _GIFT, share: float = _SHARE) -> None:
        self._budget, self._share = gift, share
        self._scale = 1.0
        self._compiled = 0
        self._next_look = _REST
        self.seen = 0.0
        self._lock = threading.Lock()
        self._busy = False
        self._candidates: weakref.WeakSet[Candidate] = weakref.WeakSet()

    def add(self, candidate: Candidate) -> None:
        """Consider a region from now on."""
        with self._lock:
            self._candidates.add(candidate)

    def saved(self, seconds: float) -> None:
        """Note what a compiled region took less than its kernels."""
        with self._lock:
            self._budget += _AGAIN * seconds

    def by_kernels(self, seconds: float) -> None:
        """Note that a region ran by kernels, and compile where it is time."""
        with self._lock:
            self.seen += seconds
            self._budget += self._share * seconds
            if self._busy or self.seen < self._next_look:
                return
            self._next_look = self.seen + _REST
            self._busy = True
        chosen: Sequence[tuple[Candidate, Record]] = ()
        started = _clock()
        try:
            chosen, work = self._unknown(), self._find
            if not chosen:
                chosen, work = self._chosen(), self._compile
            if chosen:
                _background().submit(work, chosen)
        except RuntimeError:  # the interpreter is ending, and takes no more work
            chosen = ()
        finally:
            rest = _LOOKING * (_clock() - started)
            self._next_look = max(self._next_look, self.seen + rest)
            if not chosen:
                self._busy = False

    def _unknown(self) -> list[tuple[Candidate, Record]]:
        """What it is time to look for on the disk."""
        if self.seen < _FIRST_LOOK:
            return []
        with self._lock:
            candidates = list(self._candidates)
        return [
            (candidate, record)
            for candidate in candidates
            for record in candidate.waiting()
            if not record.looked and record.seconds >= record.look
        ]

    def _find(self, chosen: Sequence[tuple[Candidate, Record]]) -> None:
        try:
            for candidate, record in chosen:
                if not threading.main_thread().is_alive():
                    return
                record.looked = True
                candidate.find(record)
        finally:
            self._next_look = self.seen  # now it is known what has to be compiled
            self._busy = False

    def _chosen(self) -> list[tuple[Candidate, Record]]:
        """What there is time for, the best first."""
        with self._lock:
            candidates, left = list(self._candidates), self._budget
            left -= 0.0 if self._compiled else _BEGINNING
        found = [
            (record.seconds / record.cost, candidate, record)
            for candidate in candidates
            for record in candidate.waiting()
            if record.looked and record.seconds >= record.cost * self._scale
        ]
        found.sort(key=lambda each: each[0], reverse=True)
        chosen: list[tuple[Candidate, Record]] = []
        for _, candidate, record in found:
            left -= record.cost * self._scale
            if left >= 0:
                chosen.append((candidate, record))
        return chosen

    def _compile(self, chosen: Sequence[tuple[Candidate, Record]]) -> None:
        """Compile in the background, not longer than the program runs."""
        try:
            for candidate, record in chosen:
                if not threading.main_thread().is_alive():
                    return
                started = time.thread_time()
                candidate.compile(record)
                taken = time.thread_time() - started
                with self._lock:
                    self._budget -= taken
                    if self._compiled:  # the first one imports what compiles
                        self._scale += 0.5 * (taken / record.cost - self._scale)
                    self._compiled += 1
        finally:
            self._busy = False


@cache
def pace() -> Pace:
    """That of this process."""
    return Pace()


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="weft-compiler")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.cache_clear)  # threads are not forked
