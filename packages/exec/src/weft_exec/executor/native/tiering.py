"""Tier-up: which regions are compiled, and when.

A region starts in its kernels. When to compile it is a ski-rental problem (Karlin et al. 1988):
kernels are the rent, and the compile time is the price. `TierUpPolicy` decides from numbers alone;
`Compilation` (`background_compilation.py`) has the clocks and the thread around it.

- A region is compiled once its kernels have taken as long as compiling will, in this process and in
  earlier ones that ran the same nodes and shapes and did not compile them.
- On an idle core a fraction of that is enough, because a compile only delays the program while both
  need the interpreter.
- Without an idle core, compiling may delay the process by 8 % in total, and by three tenths if
  earlier processes have paid the whole price. Time that compiled code saves counts as earned.
- A region of small nodes spends its time between kernels, which compiled code surely saves. Its
  compile may delay the process by another 8 %.
  Compiling pauses when the budget is exhausted. The objects compiled so far are on the disk, so the
  next process continues.
- If earlier processes ran so long that compiled code will save its price, nothing limits it.
- Code that is slower than its kernels is dropped, and not compiled by later processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weft_exec.executor.native.region_profile import RegionProfile
from weft_exec.executor.native.warm_up import OVERHEAD

_IDLE_PRICE: Final = 0.25
"""Fraction of the price that an idle core leaves to the program: lowering holds the interpreter."""
_PREPAID_OVERHEAD: Final = 0.3
"""Fraction of the processor time of a process that compiling may add if kernels have taken the
price in earlier processes."""
_LEAST_PART: Final = 0.45
"""Fraction of the price at which a process begins to compile a part: lowering and passes, which
leave nothing, and a quarter of the objects."""
_MAX_ABANDONED: Final = 8
"""Processes that may compile parts of a region."""
_LEAST_GAIN: Final = 0.3
"""Fraction of the time of kernels that compiled code is assumed to save before it is measured."""
_IMPORT: Final = 0.15
"""Additional seconds of the first compile of a process: it imports LLVM."""


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
        elif profile is not None and profile.has_small_nodes:
            overhead *= 2.0
        return added + price <= overhead * by_kernels

    def choose(
        self, profiles: Iterable[RegionProfile], process_seconds: float, has_idle_core: bool
    ) -> list[RegionProfile]:
        """Return the regions to compile now, the one with the largest gain for its price first.

        If that one is too expensive, the budget is saved for it instead of being spent on others,
        unless the process would have to run twice as long to save enough.

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
        is_saving = False
        for profile in pays:
            price = profile.compile_cost(self.scale)
            is_prepaid = self.is_prepaid(profile)
            part = _LEAST_PART * price if is_prepaid else price
            if has_idle_core or self.pays_off_locally(profile):
                selected.append(profile)
            elif is_saving:
                continue
            elif self.is_affordable(planned + part, process_seconds, profile):
                planned += price
                selected.append(profile)
            else:
                is_saving = self.is_affordable(planned + part, 2.0 * process_seconds, profile)
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
