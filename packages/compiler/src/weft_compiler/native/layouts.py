"""Structures that Python and the C runtime share: see `weft_compiler/runtime/runtime.h`.

The function `weft_layout` of the runtime lists its sizes and offsets; tests compare them with
these.
"""

from __future__ import annotations

import ctypes
from typing import Final

READABLE: Final = 0x101
"""Flags that NumPy inputs must have: C-contiguous (1) and aligned (0x100)."""
WRITEABLE: Final = 0x501
"""Flags that NumPy outputs must have: those of inputs, and writeable (0x400)."""


class ArenaSlot(ctypes.Structure):
    """`weft_arena_slot`: memory for the temporaries of one program, in a cache line."""

    _fields_ = (
        ("in_use", ctypes.c_int64),
        ("memory", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("padding", ctypes.c_byte * 40),
    )


class ArrayHeader(ctypes.Structure):
    """`weft_array`: the header of NumPy 2 arrays in 64-bit CPython."""

    _fields_ = (
        ("num_references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("base", ctypes.c_void_p),
        ("dtype", ctypes.c_void_p),
        ("flags", ctypes.c_int32),
    )


class ScalarHeader(ctypes.Structure):
    """`weft_scalar`: the header of NumPy scalars, before the value."""

    _fields_ = (
        ("num_references", ctypes.c_ssize_t),
        ("type", ctypes.c_void_p),
        ("value", ctypes.c_byte * 0),
    )


class _FlagsOrConstant(ctypes.Union):
    _fields_ = (("flags", ctypes.c_int64), ("constant", ctypes.c_void_p))


class BufferRequirement(ctypes.Structure):
    """`weft_buffer`: the requirements on an array; its dimensions follow, each an int64."""

    _anonymous_ = ("flags_or_constant",)
    _fields_ = (
        ("dtype", ctypes.c_void_p),
        ("flags_or_constant", _FlagsOrConstant),
        ("rank", ctypes.c_int64),
        ("scalar_type", ctypes.c_void_p),
    )


class ProgramState(ctypes.Structure):
    """`weft_program_state`: a program with everything that a call needs; its buffers follow."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("num_arguments", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("arena_size", ctypes.c_uint64),
        ("num_threads", ctypes.c_int64),
        ("releases_gil", ctypes.c_int64),
        ("array_type", ctypes.c_void_p),
        ("interrupt", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("not_implemented", ctypes.c_void_p),
        ("none", ctypes.c_void_p),
        ("num_buffers", ctypes.c_int64),
    )


class Timestamps(ctypes.Structure):
    """`weft_times`: readings of the clock between the nests of a program; they follow."""

    _fields_ = (("capacity", ctypes.c_int64), ("num_times", ctypes.c_int64))


_SHARED: Final[tuple[tuple[type[ctypes.Structure], str], ...]] = (
    (ArenaSlot, "sizeof in_use memory size"),
    (ArrayHeader, "sizeof type data rank sizes dtype flags"),
    (ScalarHeader, "value"),
    (BufferRequirement, "sizeof dtype flags constant rank scalar_type"),
    (
        ProgramState,
        "sizeof run num_arguments slots arena_size num_threads releases_gil array_type interrupt "
        "times not_implemented none num_buffers",
    ),
)


def layout() -> list[int]:
    """Return the sizes and offsets in the order of `weft_layout`."""
    return [
        ctypes.sizeof(structure) if name == "sizeof" else getattr(structure, name).offset
        for structure, names in _SHARED
        for name in names.split()
    ]
