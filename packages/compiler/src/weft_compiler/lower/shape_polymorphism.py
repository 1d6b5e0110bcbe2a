"""One program for many sizes: two programs that differ in numbers alone, as one size tells.

Batches vary, and to compile for each of their sizes would never end. Lowering is for one choice of
shapes, and so are all rules; but the programs of two batches are the same but for numbers, sizes of
buffers in their first axis, ends of loops and divisors of means, each of which is a·n + b. So a
second program is compared with the first, and becomes a program that takes n. Whether it is right
for a third size is not believed but looked at: it has to be, number by number, what lowering gives
for that size. Only then its code is used, which takes no time to speak of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from weft_compiler.ir.canonical import canonical
from weft_compiler.ir.expressions import (
    INDEX,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    cast,
    index,
)
from weft_compiler.ir.indices import plus, times
from weft_compiler.ir.mutator import Mutator, map_expressions
from weft_compiler.ir.program import Allocate, Buffer, Call, Check, Let, Program, Statement

MIN_SIZE: Final = 2
"""The smallest size that a program of many is for: that of 1 broadcasts, and is lowered apart."""
MAX_GROWTH: Final = 4
"""A program is for sizes up to this many times those that it was made of, and the next power of 2.
Memory that is not touched costs nothing."""
_VARIABLE_PARAMETERS: Final = {
    "gemm": {"m", "k"},
    "matmul_packed": {"m"},
    "matmul_bytes": {"m"},
    "matmul_pairs": {"m"},
    "philox": {"blocks"},
}
"""Parameters that may be known at run only: of products rows, and what is summed over."""


def extract_numbers(program: Program) -> Numbers:
    """The numbers of a program, and what is left without them."""
    found = _NumberCollector()
    hollow = _map_numbers(canonical(program), found)
    constants = [(name, *_bits(value)) for name, value in sorted(hollow.constants.items())]
    return Numbers(found.numbers, f"{hollow}{constants}")


def _bits(value: object) -> tuple[str, bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.tobytes()


@dataclass(frozen=True, slots=True)
class Numbers:
    """All that programs for several sizes may differ in.

    Attributes:
      numbers: in their order.
      rest: what must be the same.
    """

    numbers: list[int | float]
    rest: str


Varying = tuple[int, Sequence[tuple[int, int, int]]]
"""The largest size, and of each number that varies its place, slope and offset."""


class PolymorphicProgram:
    """A program that takes a size.

    Attributes:
      program: its first input is the size.
      varying: what tells it, with the program of any of its sizes; see `restore_polymorphic`.
    """

    def __init__(
        self, lowered: Program, numbers: Numbers, lines: Sequence[Line], most: int
    ) -> None:
        self._rest = numbers.rest
        self._lines = lines
        self._most = most
        changing = [(at, line) for at, line in enumerate(lines) if line.slope]
        self.varying: Varying = most, [(at, each.slope, int(each.offset)) for at, each in changing]
        size = Variable(INDEX, "size")
        template = _map_numbers(canonical(lowered), _NumberFiller(lines, size, most))
        given = Buffer("sizes", INDEX, ())
        limits = apply(
            "bit_and",
            apply("greater_equal", size, index(MIN_SIZE)),
            apply("less_equal", size, index(most)),
        )
        head = Let(size.name, Load(INDEX, given.name, ())), Check(limits, "another size")
        self.program = replace(
            template,
            name=lowered.name,
            inputs=(given, *template.inputs),
            body=(*head, *template.body),
        )

    def size_of(self, numbers: Numbers) -> int | None:
        """The size for which it computes what a lowered program does; None if it does not."""
        if numbers.rest != self._rest or len(numbers.numbers) != len(self._lines):
            return None
        found = next(
            int((value - line.offset) // line.slope)
            for value, line in zip(numbers.numbers, self._lines, strict=True)
            if line.slope
        )
        fits = MIN_SIZE <= found <= self._most and all(
            _same(line.at(found), value)
            for value, line in zip(numbers.numbers, self._lines, strict=True)
        )
        return found if fits else None

    def at(self, optimized: Program, lowered: Program) -> Program:
        """What passes made of it, with the buffers that a lowered program has for its size."""
        inputs = (optimized.inputs[0], *_sized(optimized.inputs[1:], lowered.inputs))
        return replace(optimized, inputs=inputs, outputs=_sized(optimized.outputs, lowered.outputs))


def _sized(buffers: Sequence[Buffer], like: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple([replace(b, shape=a.shape) for b, a in zip(buffers, like, strict=True)])


@dataclass(frozen=True, slots=True)
class Line:
    """A number slope·n + offset; a slope of 0 is a number that stays."""

    slope: int
    offset: int | float

    def at(self, size: int) -> int | float:
        """The number for a size."""
        return self.slope * size + self.offset if self.slope else self.offset


def generalize(one: Numbers, other: Numbers, first: Program) -> PolymorphicProgram | None:
    """The program for the sizes of two lowered ones and others; None where there is none.

    Args:
      one, other: the numbers of the two.
      first: the first of them.
    """
    if one.rest != other.rest or len(one.numbers) != len(other.numbers):
        return None
    sizes = next(
        ((x, y) for x, y in zip(one.numbers, other.numbers, strict=True) if not _same(x, y)), None
    )
    if sizes is None or min(sizes) < MIN_SIZE:
        return None
    lines = []
    for x, y in zip(one.numbers, other.numbers, strict=True):
        line = _line(x, y, int(sizes[0]), int(sizes[1]))
        if line is None:
            return None
        lines.append(line)
    most = 1 << int(MAX_GROWTH * max(sizes) - 1).bit_length()
    try:
        return PolymorphicProgram(first, one, lines, most)
    except _NotPolymorphic:
        return None


def restore_polymorphic(lowered: Program, varying: Varying) -> PolymorphicProgram | None:
    """The family that a lowered program belonged to when it was made; None where it does not."""
    numbers = extract_numbers(lowered)
    most, changing = varying
    lines = [Line(0, value) for value in numbers.numbers]
    for at, slope, offset in changing:
        if not 0 <= at < len(lines):
            return None
        lines[at] = Line(slope, offset)
    try:
        family = PolymorphicProgram(lowered, numbers, lines, most)
    except _NotPolymorphic:
        return None
    return None if family.size_of(numbers) is None else family


def _line(x: float, y: float, first: int, second: int) -> Line | None:
    """The line through two numbers, at two sizes; None if it has no whole slope."""
    if _same(x, y):
        return Line(0, x)
    if x != int(x) or y != int(y) or (y - x) % (second - first):
        return None
    slope = int(y - x) // (second - first)
    return Line(slope, int(x) - slope * first)


def _same(x: float, y: float) -> bool:
    """Whether two numbers are the same, the sign of a zero too, and NaN as itself."""
    return (x == y and math.copysign(1, x) == math.copysign(1, y)) or (x != x and y != y)


class _NotPolymorphic(Exception):  # noqa: N818 - it is no error of a program
    """A number varies that has to be known when a program is made."""


class _NumberVisitor:
    """What becomes of the numbers of a program, which are met in one order."""

    def constant(self, of: Constant) -> Expr:
        raise NotImplementedError

    def axis(self, size: int, axis: int) -> int:
        raise NotImplementedError

    def call(self, of: Call) -> Call:
        raise NotImplementedError


class _NumberCollector(_NumberVisitor):
    """Notes all numbers, and leaves none."""

    def __init__(self) -> None:
        self.numbers: list[int | float] = []

    def constant(self, of: Constant) -> Expr:
        self.numbers.append(of.value)
        return Constant(of.dtype, 0.0 if of.dtype.is_floating else 0)

    def axis(self, size: int, axis: int) -> int:
        self.numbers.append(size)
        return 0

    def call(self, of: Call) -> Call:
        self.numbers += [value for _, value in of.parameters]
        return replace(of, parameters=tuple([(name, 0) for name, _ in of.parameters]))


class _NumberFiller(_NumberVisitor):
    """Puts what a size tells in the places of numbers."""

    def __init__(self, lines: Sequence[Line], size: Expr, most: int) -> None:
        self._next = iter(lines)
        self._size = size
        self._most = most

    def constant(self, of: Constant) -> Expr:
        line = next(self._next)
        return cast(self._number(line), of.dtype) if line.slope else of

    def axis(self, size: int, axis: int) -> int:
        line = next(self._next)
        if line.slope < 0 or (line.slope and axis):
            raise _NotPolymorphic  # only of the first axis no strides depend on its size
        return int(line.at(self._most))

    def call(self, of: Call) -> Call:
        lines = {name: next(self._next) for name, _ in of.parameters}
        varying = {name: line for name, line in lines.items() if line.slope}
        known = dict(of.parameters)
        # Which function of BLAS it is depends on what is 1, and on strides.
        alone = 1 in (known.get("m"), known.get("n"))
        if not varying.keys() <= _VARIABLE_PARAMETERS.get(of.routine, set()) or (
            alone and "k" in varying
        ):
            raise _NotPolymorphic
        most = tuple([(name, int(line.at(self._most))) for name, line in lines.items()])
        sizes = tuple([(name, self._number(line)) for name, line in varying.items()])
        return replace(of, parameters=most, sizes=sizes)

    def _number(self, line: Line) -> Expr:
        return plus(times(self._size, line.slope), int(line.offset))


class _NumberMutator(Mutator):
    """Rewrites the numbers of a program in their order."""

    def __init__(self, change: _NumberVisitor) -> None:
        self._change = change

    def rewrite_buffer(self, buffer: Buffer) -> Buffer:
        """Return a buffer with another shape."""
        shape = [self._change.axis(size, axis) for axis, size in enumerate(buffer.shape)]
        return replace(buffer, shape=tuple(shape))

    def rewrite_expression(self, expression: Expr) -> Expr:
        if isinstance(expression, Constant):
            return expression if expression.dtype.is_bool else self._change.constant(expression)
        return super().rewrite_expression(expression)

    def rewrite_statement(self, statement: Statement) -> Statement:
        new = map_expressions(statement, self.rewrite_expression)
        if isinstance(new, Allocate):
            new = replace(new, buffer=self.rewrite_buffer(new.buffer))
        elif isinstance(new, Call):
            new = self._change.call(new)
        return self.rewrite_bodies(new)


def _map_numbers(program: Program, change: _NumberVisitor) -> Program:
    """Return a program with its numbers changed, in their order."""
    mutator = _NumberMutator(change)
    inputs = [
        each if each.name in program.constants else mutator.rewrite_buffer(each)
        for each in program.inputs
    ]
    outputs = [mutator.rewrite_buffer(each) for each in program.outputs]
    body = mutator.rewrite_body(program.body)
    return replace(program, inputs=tuple(inputs), outputs=tuple(outputs), body=body)
