"""The text of one LLVM function, written line by line."""

from __future__ import annotations

import struct
from typing import Final

from weft_tensor import dtypes
from weft_tensor.dtypes import DType

HALVES: Final = (dtypes.float16, dtypes.bfloat16)
"""Types of 16 bits, which are computed with as float32 and rounded after each application."""


def register_type(dtype: DType) -> str:
    """The LLVM type of a value in a register."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_floating:
        return "double" if dtype is dtypes.float64 else "float"
    return f"i{8 * dtype.size}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of a value in memory."""
    if dtype.is_bool or dtype in HALVES:
        return f"i{8 * dtype.size}"
    return register_type(dtype)


def literal(value: bool | int | float, dtype: DType) -> str:
    """A number as an operand."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    bits = struct.unpack("<Q", struct.pack("<d", float(dtype.numpy.type(value))))[0]
    return f"0x{bits:016X}"


class Writer:
    """Writes instructions, and knows in which block they are.

    Attributes:
      lines: the instructions so far.
      block: the label of the current block.
    """

    def __init__(self, entry: str = "entry") -> None:
        self.lines: list[str] = []
        self.block = entry
        self._count = 0

    def name(self) -> str:
        """A fresh name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self) -> str:
        """A fresh name of a block."""
        self._count += 1
        return f"b{self._count}"

    def put(self, instruction: str) -> str:
        """Write an instruction; the name of its result."""
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

    def branch(self, condition: str, then: str, otherwise: str, suffix: str = "") -> None:
        """Jump to one of two blocks."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}{suffix}")

    def select(self, condition: str, kind: str, x: str, y: str) -> str:
        """One of two values."""
        return self.put(f"select i1 {condition}, {kind} {x}, {kind} {y}")

    def call(self, function: str, kind: str, *operands: str) -> str:
        """A function of operands of one type that gives that type."""
        return self.put(f"call {kind} @{function}({', '.join(f'{kind} {x}' for x in operands)})")
