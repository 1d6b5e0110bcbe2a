"""First runs of a plan with kernels alone, until choosing compiled regions pays off.

To choose the regions of a plan, the compiler is imported (0.1 s) and inspects each node. A short
script should not pay for that. So the first plan of a step has no regions. It is replaced by a plan
with regions once its runs have taken as long as choosing regions will, if this delays the process
by 8 % at most, or less than a quarter of the time that an earlier run of the script took with
kernels. If that run used compiled code, the plan is replaced after its first run; most plans run
only once, such as those of initializers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from weft_exec.settings import jit_environment
from weft_graph.ir.code_generators import generators
from weft_graph.ir.jit_scope import COMPILED
from weft_graph.ir.node import Node
from weft_graph.ir.script_record import ScriptRecord, record_at_exit, script_record

OVERHEAD: Final = 0.08
"""Fraction of the processor time of a process that choosing and compiling regions may add together,
if no core is idle."""
_EXPECTED_FRACTION: Final = 0.25
"""Fraction of the seconds that an earlier run took with kernels that choosing regions may cost."""
_IMPORT_SECONDS: Final = 0.1
"""Processor seconds that importing the compiler takes, once per process."""
_SOURCE_SECONDS: Final = 0.3
"""The same if Python has no bytecode of it, as in the first run after an installation."""

_clock: Final = time.process_time


class WarmUp:
    """The processor time of a plan's runs with kernels, against the price of choosing its regions.

    The first run does not count, as it imports the kernels.

    Args:
      planning_seconds: processor seconds that the plan without regions took to derive. Choosing
        regions is assumed to take as long.

    Attributes:
      is_over: True once a plan with compiled regions should replace this one.
      total_seconds: seconds of all plans of this process.
      chosen_seconds: seconds that choosing regions took in this process.
      has_code: True once this process has used compiled code.
    """

    __slots__ = ("_has_run", "_price", "_seconds", "is_over")

    total_seconds = 0.0
    chosen_seconds = 0.0
    has_code = False
    _num_over = 0
    _is_recorded = False

    def __init__(self, planning_seconds: float) -> None:
        self._price = planning_seconds
        self._seconds = 0.0
        self._has_run = False
        self.is_over = False
        if not WarmUp._is_recorded:
            WarmUp._is_recorded = True
            record_at_exit(lambda: ScriptRecord(WarmUp.total_seconds, WarmUp.has_code))

    def begin(self) -> float:
        """Return the time at which a run begins, for `end`."""
        return _clock()

    def end(self, began: float) -> None:
        """Count a run that ends now. Several threads may do so: a lost count does not matter."""
        now = _clock()
        record = script_record()
        if self._has_run:
            self._seconds += now - began
            WarmUp.total_seconds += now - began
        if record.has_code or (self._has_run and self._seconds >= self._price):
            price = self._price if WarmUp._num_over else self._price + _import_seconds()
            paid = max(OVERHEAD * now, _EXPECTED_FRACTION * record.seconds)
            self.is_over = WarmUp.chosen_seconds + price <= paid
            WarmUp._num_over += self.is_over
        self._has_run = True


@contextmanager
def count_choosing_time() -> Iterator[None]:
    """Count the processor time inside as that of choosing regions."""
    began = _clock()
    try:
        yield
    finally:
        WarmUp.chosen_seconds += _clock() - began


@cache
def _import_seconds() -> float:
    """Return the processor seconds that importing the compiler will take."""
    return _IMPORT_SECONDS if generators.has_bytecode else _SOURCE_SECONDS


def can_warm_up(nodes: Iterable[Node]) -> bool:
    """Return True if a plan may begin without compiled regions.

    It may by default, unless the environment, the session's config or a scope of the program
    selects the nodes to compile.
    """
    return (
        not jit_environment()
        and generators.may_have_entries
        and not any(COMPILED in node.attrs for node in nodes)
    )
