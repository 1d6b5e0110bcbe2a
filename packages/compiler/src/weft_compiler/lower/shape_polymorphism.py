"""Shape polymorphism: one program for many sizes, whose numbers are functions of one size.

Batch sizes vary, and compiling for each would never end. Lowering and its rules work for one choice
of shapes. But the programs of two batch sizes differ only in numbers: buffer sizes along the first
axis, loop bounds and divisors of means. Each such number is a·n + b. So two programs are compared
and generalized to a program that takes n as input. It is never assumed to be right for a third
size: its numbers must equal those that lowering returns for that size. Only then is its code
reused, which costs almost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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
"""The smallest size of a polymorphic program: size 1 broadcasts and is lowered separately."""
MAX_GROWTH: Final = 4
"""A program serves sizes up to this multiple of those it was derived from, rounded up to a power of
2. Memory that is not touched costs nothing."""


def extract_numbers(program: Program) -> Numbers:
    """Return the numbers of a program, and its text without them."""
    found = _NumberCollector()
    hollow = _map_numbers(canonical(program), found)
    constants = [(name, *_bits(value)) for name, value in sorted(hollow.constants.items())]
    return Numbers(found.numbers, f"{hollow}{constants}")


def _bits(value: object) -> tuple[str, bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.tobytes()


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers in which programs for several sizes may differ.

    Attributes:
      numbers: in program order.
      rest: the remaining text, which must be equal.
    """

    numbers: list[int | float]
    rest: str


Varying = tuple[int, Sequence[tuple[int, int, int]]]
"""The largest size, and the position, slope and offset of each number that varies."""


class PolymorphicProgram:
    """A program that takes a size as input.

    Attributes:
      program: its first input is the size.
      varying: with the program of any one size it suffices to restore this one; see
        `restore_polymorphic`.
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
        """Return the size for which it equals a lowered program, or None if there is none."""
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
        """Return the optimized program with the input and output sizes of a lowered one."""
        inputs = (optimized.inputs[0], *_sized(optimized.inputs[1:], lowered.inputs))
        return replace(optimized, inputs=inputs, outputs=_sized(optimized.outputs, lowered.outputs))


def _sized(buffers: Sequence[Buffer], like: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple([replace(b, shape=a.shape) for b, a in zip(buffers, like, strict=True)])


@dataclass(frozen=True, slots=True)
class Line:
    """The linear function slope·n + offset; the slope of a constant number is 0."""

    slope: int
    offset: int | float

    def at(self, size: int) -> int | float:
        """Return the number for a size."""
        return self.slope * size + self.offset if self.slope else self.offset


def generalize(one: Numbers, other: Numbers, first: Program) -> PolymorphicProgram | None:
    """Return a polymorphic program that covers two lowered ones, or None if there is none.

    Args:
      one, other: the numbers of the two programs.
      first: the first program.
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
    """Return the polymorphic program that a lowered one is an instance of, or None."""
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
    """Return the line through two numbers at two sizes; None if its slope is not an integer."""
    if _same(x, y):
        return Line(0, x)
    if x != int(x) or y != int(y) or (y - x) % (second - first):
        return None
    slope = int(y - x) // (second - first)
    return Line(slope, int(x) - slope * first)


def _same(x: float, y: float) -> bool:
    """Return True if two numbers are identical: signed zeros differ, NaN equals itself."""
    return (x == y and math.copysign(1, x) == math.copysign(1, y)) or (x != x and y != y)


class _NotPolymorphic(Exception):  # noqa: N818 - it is no error of a program
    """Raised if a number varies that must be known at compile time."""


class _NumberVisitor:
    """Base of the classes that map the numbers of a program, in one fixed order."""

    def constant(self, of: Constant) -> Expr:
        raise NotImplementedError

    def axis(self, size: int, axis: int) -> int:
        raise NotImplementedError

    def call(self, of: Call) -> Call:
        raise NotImplementedError


class _NumberCollector(_NumberVisitor):
    """Collects all numbers and removes them."""

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
        return _with_parameters(of, {name: 0 for name, _ in of.parameters})


class _NumberFiller(_NumberVisitor):
    """Replaces numbers with functions of the size."""

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
            raise _NotPolymorphic  # no stride depends on the size of the first axis
        return int(line.at(self._most))

    def call(self, of: Call) -> Call:
        lines = {name: next(self._next) for name, _ in of.parameters}
        varying = {name: line for name, line in lines.items() if line.slope}
        if not varying.keys() <= of.symbolic_sizes:
            raise _NotPolymorphic
        most = {name: int(line.at(self._most)) for name, line in lines.items()}
        sizes = tuple([(name, self._number(line)) for name, line in varying.items()])
        return replace(_with_parameters(of, most), sizes=sizes)

    def _number(self, line: Line) -> Expr:
        return plus(times(self._size, line.slope), int(line.offset))


def _with_parameters(call: Call, parameters: Mapping[str, int]) -> Call:
    """Return a call with other parameters."""
    values: dict[str, Any] = dict(parameters)
    return replace(call, **values)


class _NumberMutator(Mutator):
    """Rewrites the numbers of a program, in order."""

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
