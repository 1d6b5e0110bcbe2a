"""Readings of the clock before each instruction of a segment and after the last.

Native code of the compiler reads the clock, if that is installed: a reading then takes a tenth of
the time that it takes Python. Recordings load it when they begin.
"""

from __future__ import annotations

__all__ = ["begin_readings", "end_readings", "load_native_reader"]

from array import array
from typing import TYPE_CHECKING, Any

from weft_exec.tracing.step_trace import FAILED, clock

if TYPE_CHECKING:
    from weft_graph.ir.code_generators import ClockReader


_native: ClockReader | None = None
_is_native_known = False


def begin_readings(instructions: list[Any]) -> Any:
    """Return an iterator over a list, which reads the clock before each item and after the last.

    Returns: an empty list if there is no native code; then the caller iterates over the
      instructions, and appends the readings.
    """
    return [] if _native is None else _native.begin(instructions)


def end_readings(readings: Any, failed: bool = False) -> Any:
    """Return the readings of an iteration that has ended, or failed, as a buffer of int64.

    Those of a failure end with the time and `FAILED`.
    """
    if type(readings) is list:
        return array("q", (*readings, clock(), FAILED) if failed else readings)
    if failed:
        assert _native is not None
        _native.fail(readings)
    return readings


def load_native_reader(only_if_imported: bool = False) -> None:
    """Read the clock by native code from now on, if the compiler is installed.

    Args:
      only_if_imported: True to do nothing if the compiler has not been imported yet.
    """
    global _native, _is_native_known
    if _is_native_known:
        return
    from weft_graph.ir.code_generators import generators

    names = generators.registered if only_if_imported else generators.keys()
    for name in names:
        reader = getattr(generators.lookup(name), "clock_reader", None)  # others may lack it
        _native = None if reader is None else reader()
        if _native is not None:
            break
    _is_native_known = bool(names) or not only_if_imported
