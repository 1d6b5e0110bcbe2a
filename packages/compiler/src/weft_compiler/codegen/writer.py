"""Writer of one LLVM function as text, with loops."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft_tensor import dtypes
from weft_tensor.dtypes import DType

HALVES: Final = (dtypes.float16, dtypes.bfloat16)
"""Names of 16-bit floats, which are computed as float32 and rounded after each operation."""


def register_type(dtype: DType) -> str:
    """Return the LLVM type of a value in a register."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_floating:
        return "double" if dtype is dtypes.float64 else "float"
    return f"i{8 * dtype.size}"


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of a value in memory."""
    if dtype.is_bool or dtype in HALVES:
        return f"i{8 * dtype.size}"
    return register_type(dtype)


def literal(value: bool | int | float, dtype: DType) -> str:
    """Return a number as an LLVM constant."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    bits = struct.unpack("<Q", struct.pack("<d", float(dtype.numpy.type(value))))[0]
    return f"0x{bits:016X}"


class Writer:
    """Writer of instructions that tracks the current block.

    Attributes:
      lines: the instructions written so far.
      block: the label of the current block.
    """

    def __init__(self, entry: str = "entry") -> None:
        self.lines: list[str] = []
        self.block = entry
        self._count = 0

    def name(self) -> str:
        """Return a fresh name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        """Return a fresh label of a block."""
        self._count += 1
        return f"b{self._count}"

    def put(self, instruction: str) -> str:
        """Write an instruction and return the name of its result."""
        name = self.name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def go(self, label: str, suffix: str = "") -> None:
        """Jump to a block."""
        self.do(f"br label %{label}{suffix}")

    def branch(self, condition: str, if_true: str, if_false: str, suffix: str = "") -> None:
        """Jump to one of two blocks."""
        self.do(f"br i1 {condition}, label %{if_true}, label %{if_false}{suffix}")

    def select(self, condition: str, kind: str, x: str, y: str) -> str:
        """Select one of two values."""
        return self.put(f"select i1 {condition}, {kind} {x}, {kind} {y}")

    def call(self, function: str, kind: str, *operands: str) -> str:
        """Call a function whose operands and result have one type."""
        return self.put(f"call {kind} @{function}({', '.join(f'{kind} {x}' for x in operands)})")


class Loops(Writer):
    """Writer of loops over integers."""

    @contextmanager
    def iterate(
        self, high: str, step: int | str = 1, low: str = "0", note: str = ""
    ) -> Iterator[str]:
        """Loop over [low, high)."""
        head, body, end = self.label(), self.label(), self.label()
        preheader = self.block
        self.go(head)
        self.begin(head)
        turn = self.name()
        line_index = len(self.lines)
        self.do("")
        self.branch(self.put(f"icmp slt i64 {turn}, {high}"), body, end)
        self.begin(body)
        yield turn
        following = self.put(f"add nsw i64 {turn}, {step}")
        self.lines[line_index] = (
            f"  {turn} = phi i64 [ {low}, %{preheader} ], [ {following}, %{self.block} ]"
        )
        self.go(head, note)
        self.begin(end)

    @contextmanager
    def emit_if(self, condition: str) -> Iterator[None]:
        """Emit statements that run if a condition is true; a context manager."""
        then, end = self.label(), self.label()
        self.branch(condition, then, end)
        self.begin(then)
        yield
        self.go(end)
        self.begin(end)

    def offset_address(self, pointer: str, kind: str, *terms: str) -> str:
        """Emit an address at an element offset from another address."""
        total = terms[0]
        for term in terms[1:]:
            total = self.put(f"add nsw i64 {total}, {term}")
        return self.put(f"getelementptr {kind}, ptr {pointer}, i64 {total}")

    def emit_min(self, x: str, y: str) -> str:
        """Emit the smaller of two integers."""
        return self.put(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")

    def broadcast(self, kind: str, x: str) -> str:
        """Broadcast a number to a vector of an LLVM type such as `<8 x float>`."""
        lanes, scalar = kind[1:-1].split(" x ")
        first_lane = self.put(f"insertelement {kind} poison, {scalar} {x}, i64 0")
        indices = f"<{lanes} x i32> zeroinitializer"
        return self.put(f"shufflevector {kind} {first_lane}, {kind} poison, {indices}")


class Metadata:
    """Numbered metadata at the end of a module."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, content: str, distinct: bool = False) -> str:
        """Add metadata; return the reference to it."""
        name = f"!{len(self.lines)}"
        self.lines.append(f"{name} = {'distinct ' if distinct else ''}!{{{content}}}")
        return name

    def add_self_reference(self, remainder: str) -> str:
        """Add metadata whose first operand is itself, as loop metadata needs."""
        return self.add(f"!{len(self.lines)}{remainder}", distinct=True)
