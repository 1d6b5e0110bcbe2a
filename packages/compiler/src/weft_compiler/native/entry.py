"""Calls of programs from Python, by a C function that reads the headers of arrays.

`weft_enter` of the runtime (`weft_compiler/runtime/entry.c`) enters all programs. Its `self` is an
array whose data is the state of the program.

It returns None, or an error number; NotImplemented if an array does not match the compiled shapes
and types; and BUSY if no slot of the arena (`weft_compiler.native.arena`) is free and large enough.
In the last two cases nothing has run.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_compiler.codegen import runtime
from weft_compiler.native.layouts import (
    READABLE,
    WRITEABLE,
    ArrayHeader,
    BufferRequirement,
    ProgramState,
    ScalarHeader,
)
from weft_compiler.native.linking import call_once
from weft_compiler.native.runtime import library

BUSY: Final = -0x10000
"""Result of the C function if no slot is free: `WEFT_BUSY`."""
_FASTCALL: Final = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def are_headers_readable() -> bool:
    """Return True if the headers of arrays have the expected layout."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.implementation.name != "cpython":
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or hasattr(sys, "gettotalrefcount"):
        return False
    arrays: list[Any] = [np.zeros((3, 5), np.float32), np.zeros(7, np.int64)[::2], np.array(1.0)]
    arrays[0].flags.writeable = False
    return all(_as_expected(array) for array in arrays)


def _as_expected(array: Any) -> bool:
    """Return True if the header of an array matches its attributes."""
    header = ArrayHeader.from_address(id(array))
    if header.type != id(type(array)):
        return False
    if header.data != array.__array_interface__["data"][0]:
        return False
    if header.rank != array.ndim or header.sizes[: array.ndim] != list(array.shape):
        return False
    if header.dtype != id(array.dtype):
        return False
    return bool(header.flags & WRITEABLE == array.flags.num & WRITEABLE)


@functools.cache
def _scalar_type(dtype: Any) -> int:
    """Return the address of the scalar type of an element type if its layout is known, else 0.

    Such scalars are read-only values of rank 0.
    """
    sample, offset = dtype.type(1), ctypes.sizeof(ScalarHeader)
    fits = sys.getsizeof(sample) >= offset + dtype.itemsize
    value = ctypes.string_at(id(sample) + offset, dtype.itemsize) if fits else b""
    return id(dtype.type) if value == np.array(sample, dtype).tobytes() else 0


@functools.cache
def _maker() -> Any:
    maker = ctypes.pythonapi["PyCFunction_NewEx"]  # not the attribute, which others configure
    maker.restype = ctypes.py_object
    maker.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return maker


@call_once
def _definition() -> _MethodDef:
    address = library().address(runtime.ENTER)
    return _MethodDef(b"enter", address, _FASTCALL, b"Enter a compiled program.")


def entry(state: Any, owners: object) -> Any:
    """Return the C function for a program's state.

    Args:
      owners: the objects whose addresses the state contains; they live as long as the function.
    """
    return _maker()(ctypes.addressof(_definition()), state, owners)


def function_of(name: bytes, address: int, state: Any) -> Any:
    """Return a Python function for a C function of a state, an array of arguments and its size."""
    definition = _MethodDef(name, address, _FASTCALL, None)
    _definitions.append(definition)  # the function refers to it
    return _maker()(ctypes.addressof(definition), state, None)


_definitions: Final[list[_MethodDef]] = []


@dataclass(frozen=True, slots=True)
class BufferRequirements:
    """The requirements on the array of one buffer.

    Attributes:
      constant: the address of the array if it is a constant of the program, else 0.
    """

    dtype: Any
    shape: tuple[int, ...]
    written: bool
    constant: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The state of a program in memory.

    Attributes:
      memory: an array that contains the state and its buffers; the `self` of the C function.
      fields: the fields of the state; the caller sets those that depend on the program.
    """

    memory: Any
    fields: ProgramState


def state_of(rows: Sequence[BufferRequirements]) -> State:
    """Create the state of a program from the requirements on its buffers."""
    buffers = b"".join([_requirement(row) for row in rows])
    memory = np.zeros(ctypes.sizeof(ProgramState) + len(buffers), np.uint8)
    memory[ctypes.sizeof(ProgramState) :] = np.frombuffer(buffers, np.uint8)
    fields = ProgramState.from_buffer(memory.data)
    fields.num_arguments = sum(not row.constant for row in rows)
    fields.num_buffers = len(rows)
    fields.array_type = id(np.ndarray)
    fields.not_implemented, fields.none = id(NotImplemented), id(None)
    return State(memory, fields)


def _requirement(row: BufferRequirements) -> bytes:
    """Return the requirements on a buffer, followed by its dimensions, as bytes."""
    if row.constant:
        return bytes(BufferRequirement(constant=row.constant))
    flags = WRITEABLE if row.written else READABLE
    scalar = 0 if row.written or row.shape else _scalar_type(row.dtype)
    header = BufferRequirement(
        dtype=id(row.dtype), flags=flags, rank=len(row.shape), scalar_type=scalar
    )
    return bytes(header) + np.array(row.shape, np.int64).tobytes()
