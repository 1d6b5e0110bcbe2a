"""Readings of the clock in native code, for traces.

`weft_compiler/runtime/readings.c` has the type of an iterator over a list, which reads the clock
before each item and after the last. On x86 it reads the time-stamp counter if Linux uses it as its
clock, and converts the readings to CLOCK_MONOTONIC at the end of the iteration.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any, Final

from weft_compiler.codegen import runtime
from weft_compiler.codegen.targets import host
from weft_compiler.native.entry import are_headers_readable, function_of
from weft_compiler.native.linking import call_once
from weft_compiler.native.runtime import library
from weft_graph.ir.code_generators import ClockReader

_CLOCK_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")

_SLOTS: Final = (  # numbers of CPython's typeslots.h
    (1, runtime.EXPORT_READINGS),  # bf_getbuffer
    (45, runtime.NUM_READINGS),  # sq_length
    (52, runtime.FREE_READINGS),  # tp_dealloc
    (63, runtime.NEXT_READING),  # tp_iternext
)
_TP_ITER: Final = 62
_FLAGS: Final = 1 << 18 | 1 << 7  # the default ones, and no instances from Python


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


_NAME: Final = b"weft_compiler.Readings"  # the type refers to it


@call_once
def clock_reader() -> ClockReader | None:
    """Return functions that read the clock while a list is iterated over.

    Returns: None if this build of Python or this system does not support them.
    """
    if sys.platform != "linux" or not (are_headers_readable() and _are_lists_readable()):
        return None
    use_counter_if_reliable()
    readings = _type()
    begin = function_of(b"begin_readings", library().address(runtime.BEGIN_READINGS), readings)
    fail = function_of(b"fail_readings", library().address(runtime.FAIL_READINGS), None)
    return ClockReader(begin, fail)


@call_once
def use_counter_if_reliable() -> None:
    """Read the time-stamp counter if Linux takes it to be the same on all processors."""
    if not host().x86:
        return
    try:
        is_reliable = _CLOCK_SOURCE.read_text().strip() == "tsc"
    except OSError:
        return
    if is_reliable:
        ctypes.CFUNCTYPE(None)(library().address(runtime.USE_COUNTER))()


class _ListHeader(ctypes.Structure):
    """`weft_list`."""

    _fields_ = (
        ("num_references", ctypes.c_int64),
        ("type", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("items", ctypes.POINTER(ctypes.c_void_p)),
    )


def _are_lists_readable() -> bool:
    """Return True if the headers of lists have the expected layout."""
    items = [object(), object(), object()]
    header = _ListHeader.from_address(id(items))
    if header.type != id(list) or header.size != 3:
        return False
    return bool(header.items[:3] == [id(item) for item in items])


def _type() -> Any:
    code = library()
    slots = (_Slot * (len(_SLOTS) + 2))()
    for slot, (number, name) in zip(slots, _SLOTS, strict=False):
        slot.slot, slot.function = number, code.address(name)
    self_iter = ctypes.cast(ctypes.pythonapi.PyObject_SelfIter, ctypes.c_void_p).value
    slots[len(_SLOTS)] = _Slot(_TP_ITER, self_iter)
    size = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address(runtime.READINGS_SIZE))()
    spec = _Spec(_NAME, size, ctypes.sizeof(ctypes.c_int64), _FLAGS, slots)
    make = ctypes.pythonapi["PyType_FromSpec"]  # not the attribute, which others configure
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_Spec),)
    return make(ctypes.byref(spec))
