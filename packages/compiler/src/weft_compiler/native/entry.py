"""Calls from Python: a C function that reads the headers of arrays and enters a program.

The function is the same for all programs.  Its `self` is an array of 64-bit words, the state of the
program:

    word 0   address of the program            5  1 to release the GIL
         1   number of array arguments         6  the type of arrays
         2   the slots of the arena            7  the interrupt flag
         3   required bytes of a slot          8  memory for timestamps
         4   maximal number of threads         9  NotImplemented
        10   None                              11  number of buffers of the program
    then for each buffer the requirements on its array: element type, flags, rank, the type of
    NumPy scalars that are accepted too, or 0, and sizes;
    or 0, the address of a constant, 0 and 0.

Flags are NumPy's: C-contiguous 1, aligned 0x100, writeable 0x400.

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

from weft_compiler.codegen.targets import Target, host
from weft_compiler.codegen.threads import BEGIN, END
from weft_compiler.native import helpers
from weft_compiler.native.arena import SLOT, SLOTS
from weft_compiler.native.linking import Library, once
from weft_compiler.native.shared_objects import load_shared

HEAD: Final = 12
_ROW: Final = 4
"""Number of words of a buffer before its sizes."""
READABLE: Final = 0x101
WRITEABLE: Final = 0x501
BUSY: Final = -0x10000
"""The result if no slot is free; smaller than any error number."""
_FASTCALL: Final = 0x80

_CALL: Final = "ptr %pointers, ptr %arena, ptr %interrupt, ptr %times, i64 %threads"
_TEXT: Final = """
target triple = "{triple}"
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLong(i64)
declare void @Py_IncRef(ptr)
declare void @{begin}(i64)
declare void @{end}()

define ptr @weft.enter(ptr %self, ptr %arguments, i64 %count) nounwind {{
  %p.state = getelementptr i8, ptr %self, i64 {data}
  %state = load ptr, ptr %p.state
  %p1 = getelementptr i64, ptr %state, i64 1
  %expected = load i64, ptr %p1
  %p6 = getelementptr i64, ptr %state, i64 6
  %array.type = load ptr, ptr %p6
  %p11 = getelementptr i64, ptr %state, i64 11
  %buffers = load i64, ptr %p11
  %pointers = alloca ptr, i64 %buffers, align 16
  %same.count = icmp eq i64 %count, %expected
  br i1 %same.count, label %check, label %refuse
check:
  %table = getelementptr i64, ptr %state, i64 {head}
  %any = icmp ne i64 %buffers, 0
  br i1 %any, label %buffer, label %take
buffer:
  %at = phi i64 [ 0, %check ], [ %at.next, %fits ], [ %at.next.c, %constant ]
  %from = phi i64 [ 0, %check ], [ %from.next, %fits ], [ %from, %constant ]
  %row = phi ptr [ %table, %check ], [ %row.next, %fits ], [ %row.next.c, %constant ]
  %p.pointer = getelementptr ptr, ptr %pointers, i64 %at
  %wanted.descr = load ptr, ptr %row
  %is.constant = icmp eq ptr %wanted.descr, null
  br i1 %is.constant, label %constant, label %array
constant:
  %p.constant = getelementptr i64, ptr %row, i64 1
  %constant.data = load ptr, ptr %p.constant
  store ptr %constant.data, ptr %p.pointer
  %row.next.c = getelementptr i64, ptr %row, i64 {row}
  %at.next.c = add i64 %at, 1
  %last.c = icmp eq i64 %at.next.c, %buffers
  br i1 %last.c, label %take, label %buffer
array:
  %p.argument = getelementptr ptr, ptr %arguments, i64 %from
  %argument = load ptr, ptr %p.argument
  %p.type = getelementptr i8, ptr %argument, i64 8
  %type = load ptr, ptr %p.type
  %is.array = icmp eq ptr %type, %array.type
  br i1 %is.array, label %header, label %other.type
other.type:
  %p.scalar = getelementptr i64, ptr %row, i64 3
  %scalar.type = load ptr, ptr %p.scalar
  %is.scalar = icmp eq ptr %type, %scalar.type
  br i1 %is.scalar, label %scalar, label %refuse
scalar:
  %p.value = getelementptr i8, ptr %argument, i64 {value}
  store ptr %p.value, ptr %p.pointer
  %row.next.s = getelementptr i64, ptr %row, i64 {row}
  br label %fits
header:
  %p.descr = getelementptr i8, ptr %argument, i64 {descr}
  %descr = load ptr, ptr %p.descr
  %same.descr = icmp eq ptr %descr, %wanted.descr
  %p.flags = getelementptr i8, ptr %argument, i64 {flags}
  %flags32 = load i32, ptr %p.flags
  %flags = zext i32 %flags32 to i64
  %p.wanted.flags = getelementptr i64, ptr %row, i64 1
  %wanted.flags = load i64, ptr %p.wanted.flags
  %has.flags = and i64 %flags, %wanted.flags
  %same.flags = icmp eq i64 %has.flags, %wanted.flags
  %p.nd = getelementptr i8, ptr %argument, i64 {nd}
  %nd32 = load i32, ptr %p.nd
  %nd = sext i32 %nd32 to i64
  %p.rank = getelementptr i64, ptr %row, i64 2
  %rank = load i64, ptr %p.rank
  %same.rank = icmp eq i64 %nd, %rank
  %ok1 = and i1 %same.descr, %same.flags
  %ok2 = and i1 %ok1, %same.rank
  br i1 %ok2, label %sizes, label %refuse
sizes:
  %p.data = getelementptr i8, ptr %argument, i64 {data}
  %data = load ptr, ptr %p.data
  store ptr %data, ptr %p.pointer
  %p.dimensions = getelementptr i8, ptr %argument, i64 {dimensions}
  %dimensions = load ptr, ptr %p.dimensions
  %wanted.sizes = getelementptr i64, ptr %row, i64 {row}
  %row.next.a = getelementptr i64, ptr %wanted.sizes, i64 %rank
  br label %size
size:
  %d = phi i64 [ 0, %sizes ], [ %d.next, %compare ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %compare, label %fits
compare:
  %p.size = getelementptr i64, ptr %dimensions, i64 %d
  %size.is = load i64, ptr %p.size
  %p.wanted.size = getelementptr i64, ptr %wanted.sizes, i64 %d
  %wanted.size = load i64, ptr %p.wanted.size
  %same.size = icmp eq i64 %size.is, %wanted.size
  %d.next = add i64 %d, 1
  br i1 %same.size, label %size, label %refuse
fits:
  %row.next = phi ptr [ %row.next.a, %size ], [ %row.next.s, %scalar ]
  %at.next = add i64 %at, 1
  %from.next = add i64 %from, 1
  %last = icmp eq i64 %at.next, %buffers
  br i1 %last, label %take, label %buffer
take:
  %p2 = getelementptr i64, ptr %state, i64 2
  %slots = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %state, i64 3
  %memory = load i64, ptr %p3
  %works = icmp ne i64 %memory, 0
  br i1 %works, label %slot, label %enter
slot:
  %at.slot = phi i64 [ 0, %take ], [ %at.other, %other ]
  %p.slot = getelementptr i8, ptr %slots, i64 %at.slot
  %busy = load atomic i64, ptr %p.slot monotonic, align 8
  %idle = icmp eq i64 %busy, 0
  br i1 %idle, label %fit, label %other
fit:
  %p.bytes = getelementptr i64, ptr %p.slot, i64 2
  %bytes = load atomic i64, ptr %p.bytes monotonic, align 8
  %enough = icmp uge i64 %bytes, %memory
  br i1 %enough, label %claim, label %other
claim:
  %taken = atomicrmw xchg ptr %p.slot, i64 1 acquire
  %free = icmp eq i64 %taken, 0
  br i1 %free, label %claimed, label %other
claimed:
  %bytes.now = load atomic i64, ptr %p.bytes monotonic, align 8
  %enough.now = icmp uge i64 %bytes.now, %memory
  %p.arena = getelementptr i64, ptr %p.slot, i64 1
  %arena.claimed = load ptr, ptr %p.arena
  br i1 %enough.now, label %enter, label %give.back
give.back:
  store atomic i64 0, ptr %p.slot release, align 8
  br label %other
other:
  %at.other = add i64 %at.slot, {slot}
  %more.slots = icmp ult i64 %at.other, {slots}
  br i1 %more.slots, label %slot, label %none.free
enter:
  %arena = phi ptr [ null, %take ], [ %arena.claimed, %claimed ]
  %claimed.slot = phi ptr [ null, %take ], [ %p.slot, %claimed ]
  %program = load ptr, ptr %state
  %p7 = getelementptr i64, ptr %state, i64 7
  %interrupt = load ptr, ptr %p7
  %p8 = getelementptr i64, ptr %state, i64 8
  %times = load ptr, ptr %p8
  %p4 = getelementptr i64, ptr %state, i64 4
  %threads = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %state, i64 5
  %release = load i64, ptr %p5
  %with.gil = icmp eq i64 %release, 0
  br i1 %with.gil, label %small, label %large
small:
  %result.small = call i32 %program({call})
  br label %leave
large:
  %thread.state = call ptr @PyEval_SaveThread()
  call void @{begin}(i64 %threads)
  %result.large = call i32 %program({call})
  call void @{end}()
  call void @PyEval_RestoreThread(ptr %thread.state)
  br label %leave
leave:
  %result = phi i32 [ %result.small, %small ], [ %result.large, %large ]
  br i1 %works, label %leave.slot, label %tell
leave.slot:
  store atomic i64 0, ptr %claimed.slot release, align 8
  br label %tell
tell:
  %fine = icmp eq i32 %result, 0
  br i1 %fine, label %done, label %wrong
done:
  %p10 = getelementptr i64, ptr %state, i64 10
  %none = load ptr, ptr %p10
  call void @Py_IncRef(ptr %none)
  ret ptr %none
wrong:
  %number = sext i32 %result to i64
  %told = call ptr @PyLong_FromLong(i64 %number)
  ret ptr %told
none.free:
  %told.busy = call ptr @PyLong_FromLong(i64 {busy})
  ret ptr %told.busy
refuse:
  %p9 = getelementptr i64, ptr %state, i64 9
  %no = load ptr, ptr %p9
  call void @Py_IncRef(ptr %no)
  ret ptr %no
}}
"""
_OFFSETS: Final = {"data": 16, "nd": 24, "dimensions": 32, "descr": 56, "flags": 64}
"""Offsets of the fields of NumPy 2 arrays in 64-bit CPython."""
_VALUE: Final = 16
"""Offset of the value in NumPy scalars."""


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def readable() -> bool:
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
    start = id(array)
    word = ctypes.c_uint64.from_address
    small = ctypes.c_int32.from_address
    if word(start + 8).value != id(type(array)):
        return False
    if word(start + _OFFSETS["data"]).value != array.__array_interface__["data"][0]:
        return False
    if small(start + _OFFSETS["nd"]).value != array.ndim:
        return False
    sizes = word(start + _OFFSETS["dimensions"]).value
    if [word(sizes + 8 * d).value for d in range(array.ndim)] != list(array.shape):
        return False
    if word(start + _OFFSETS["descr"]).value != id(array.dtype):
        return False
    flags = small(start + _OFFSETS["flags"]).value
    return bool(flags & WRITEABLE == array.flags.num & WRITEABLE)


@functools.cache
def _scalar_type(dtype: Any) -> int:
    """Return the address of the scalar type of an element type if its layout is known, else 0.

    Such scalars are read-only values of rank 0.
    """
    one = dtype.type(1)
    at_hand = sys.getsizeof(one) >= _VALUE + dtype.itemsize
    held = ctypes.string_at(id(one) + _VALUE, dtype.itemsize) if at_hand else b""
    return id(dtype.type) if held == np.array(one, dtype).tobytes() else 0


def text(target: Target) -> str:
    """Return the module of the function that enters programs."""
    names = {"begin": BEGIN, "end": END, "call": _CALL}
    numbers = {"head": HEAD, "row": _ROW, "value": _VALUE, "busy": BUSY}
    numbers |= {"slot": SLOT, "slots": SLOTS * SLOT}
    return _TEXT.format(triple=target.triple, **names, **numbers, **_OFFSETS)


@once
def _library() -> Library:
    target = host()
    imports = helpers.imports()
    return load_shared(
        "entry", text(target), target, lambda image: Library(image, ["weft.enter"], imports)
    )


@functools.cache
def _maker() -> Any:
    maker = ctypes.pythonapi["PyCFunction_NewEx"]  # not the attribute, which others configure
    maker.restype = ctypes.py_object
    maker.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return maker


@once
def _definition() -> _MethodDef:
    address = _library().address("weft.enter")
    return _MethodDef(b"enter", address, _FASTCALL, b"Enter a compiled program.")


def entry(state: Any, owners: object) -> Any:
    """Return the C function for a program's state.

    Args:
      owners: the objects whose addresses the state contains; they live as long as the function.
    """
    return _maker()(ctypes.addressof(_definition()), state, owners)


@dataclass(frozen=True, slots=True)
class Row:
    """The requirements on the array of a buffer.

    Attributes:
      constant: the address of the array if it belongs to the program, else 0.
    """

    dtype: Any
    shape: tuple[int, ...]
    written: bool
    constant: int = 0


def state_of(rows: Sequence[Row]) -> Any:
    """Return the state of a program; words 0, 2, 3, 4, 5, 7 and 8 are still to be set."""
    words = [0] * HEAD
    words[1] = sum(not row.constant for row in rows)
    words[6] = id(np.ndarray)
    words[9], words[10], words[11] = id(NotImplemented), id(None), len(rows)
    for row in rows:
        flags = WRITEABLE if row.written else READABLE
        scalar = 0 if row.written or row.shape else _scalar_type(row.dtype)
        words += (
            [0, row.constant, 0, 0]
            if row.constant
            else [id(row.dtype), flags, len(row.shape), scalar, *row.shape]
        )
    return np.array(words, np.uint64)
