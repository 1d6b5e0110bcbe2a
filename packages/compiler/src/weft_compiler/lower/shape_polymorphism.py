"""Shape polymorphism: one program for many sizes, whose numbers are functions of one size.

Batch sizes and sequence lengths vary, and compiling code for each would take too long. Lowering
works for one choice of shapes. However, the programs for two sizes differ only in numbers, such as
sizes of axes, loop bounds and strides, and each such number is a linear function a·n + b of the
size. Two programs are therefore compared and generalized to one that receives n as an input. For
each additional size, the nodes are lowered again, and the code is reused only if that program has
the same numbers as the polymorphic one. Lowering costs little compared with compiling.

Buffers whose inner axes vary have runtime strides: see `weft_compiler.lower.runtime_strides`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from weft_compiler.blas import addresses
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
from weft_compiler.ir.linear_functions import LinearFunction, is_same
from weft_compiler.ir.mutator import Mutator, map_expressions
from weft_compiler.ir.program import Allocate, Buffer, Call, Check, Let, Program, Statement
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.flat_loops import split_flat_loops
from weft_compiler.lower.runtime_strides import Layout, with_runtime_strides
from weft_compiler.routines.gemm import Gemm, SmallMatmul
from weft_graph.ir.gc_pause import pause_gc
from weft_tensor import errors

MIN_SIZE: Final = 2
"""The smallest size of a polymorphic program: size 1 broadcasts and is lowered separately."""
MAX_GROWTH: Final = 4
"""Ratio of the largest supported size of a program to the sizes it was derived from.

The largest size is rounded up to a power of 2. Unused memory is never touched and costs nothing.
"""


def extract_numbers(program: Program) -> VaryingNumbers:
    """Return the numbers of a program, and its text with the numbers removed."""
    result = _NumberCollector()
    with pause_gc():
        hollow = _map_numbers(canonical(program), result)
        constants = [(name, *_bits(value)) for name, value in sorted(hollow.constants.items())]
        return VaryingNumbers(result.numbers, f"{hollow}{constants}")


def _bits(value: object) -> tuple[str, bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.tobytes()


@dataclass(frozen=True, slots=True)
class VaryingNumbers:
    """The numbers that may differ between programs for several sizes.

    Attributes:
      numbers: in program order.
      rest: the text without the numbers, which must be equal.
    """

    numbers: list[int | float]
    rest: str


Varying = tuple[int, Sequence[tuple[int, int, int]]]
"""The maximal size, and the position, slope and offset of each number that depends on the size."""


class PolymorphicProgram:
    """A program that takes a size as input.

    Attributes:
      program: its first input is the size.
      varying: the numbers that vary; `restore_polymorphic` restores this program from them and from
        the program of any size.
      shapes: the shape of each input except the first and the constants, then of each output.
    """

    def __init__(
        self, lowered: Program, numbers: VaryingNumbers, lines: Sequence[LinearFunction], limit: int
    ) -> None:
        self._fixed_text = numbers.rest
        self._lines = lines
        self._max_size = limit
        changing = [(position, line) for position, line in enumerate(lines) if line.slope]
        self.varying: Varying = (
            limit,
            [(position, line.slope, int(line.offset)) for position, line in changing],
        )
        size = Variable(INDEX, "size")
        filler = _NumberFiller(lines, size, limit)
        template = _map_numbers(canonical(lowered), filler)
        self._layouts = filler.layouts
        self._min_size = filler.least
        runtime_inputs = [
            operand for operand in lowered.inputs if operand.name not in lowered.constants
        ]
        remaining = iter(lines)
        self.shapes = [
            list(islice(remaining, len(b.shape))) for b in (*runtime_inputs, *lowered.outputs)
        ]
        sizes = Buffer("sizes", INDEX, ())
        limits = apply(
            "bit_and",
            apply("greater_equal", size, index(self._min_size)),
            apply("less_equal", size, index(limit)),
        )
        check = Check(limits, "the size does not match")
        head = Let(size.name, Load(INDEX, sizes.name, ())), check
        program = replace(
            template,
            name=lowered.name,
            inputs=(sizes, *template.inputs),
            body=(*head, *template.body),
        )
        self.program = split_flat_loops(program, size.name)

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest size."""
        return self._min_size, self._max_size

    def size_of(self, numbers: VaryingNumbers) -> int | None:
        """Return the size for which this program equals a lowered one; None if there is none."""
        if numbers.rest != self._fixed_text or len(numbers.numbers) != len(self._lines):
            return None
        result = next(
            int((value - line.offset) // line.slope)
            for value, line in zip(numbers.numbers, self._lines, strict=True)
            if line.slope
        )
        fits = self._min_size <= result <= self._max_size and all(
            is_same(line.at(result), value)
            for value, line in zip(numbers.numbers, self._lines, strict=True)
        )
        return result if fits else None

    def with_runtime_strides(self, optimized: Program) -> Program:
        """Return the optimized program with buffers that are dense for the size of a call.

        Raises: UnimplementedError: a routine accesses a buffer that the passes have changed.
        """
        dense = with_runtime_strides(optimized, self._layouts)
        if dense is None:
            raise errors.UnimplementedError("a routine accesses a buffer of unknown strides")
        return dense

    def at(self, optimized: Program, lowered: Program) -> Program:
        """Return the optimized program with the input and output shapes of a lowered one."""
        inputs = (optimized.inputs[0], *_resize_buffers(optimized.inputs[1:], lowered.inputs))
        return replace(
            optimized, inputs=inputs, outputs=_resize_buffers(optimized.outputs, lowered.outputs)
        )


def _resize_buffers(buffers: Sequence[Buffer], templates: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple([replace(b, shape=a.shape) for b, a in zip(buffers, templates, strict=True)])


def generalize(
    numbers: VaryingNumbers, other_numbers: VaryingNumbers, first: Program
) -> PolymorphicProgram | None:
    """Generalize two lowered programs to a verified polymorphic one, or return None.

    Args:
      one, other: the numbers of the two programs.
      first: the first program.
    """
    if numbers.rest != other_numbers.rest or len(numbers.numbers) != len(other_numbers.numbers):
        return None
    pairs = [
        (x, y)
        for x, y in zip(numbers.numbers, other_numbers.numbers, strict=True)
        if not is_same(x, y)
    ]
    # The others are multiples of the one that differs least.
    sizes = min(pairs, key=lambda pair: abs(pair[1] - pair[0]), default=None)
    if sizes is None or not min(sizes) >= MIN_SIZE:
        return None
    lines = []
    for x, y in zip(numbers.numbers, other_numbers.numbers, strict=True):
        line = LinearFunction.through(x, y, int(sizes[0]), int(sizes[1]))
        if line is None:
            return None
        lines.append(line)
    for limit in _limits(int(max(sizes))):
        try:
            program = PolymorphicProgram(first, numbers, lines, limit)
            verify(program.program)
        except _NotPolymorphic:
            return None
        except errors.InternalError:  # an axis that does not vary may limit the size
            continue
        return program
    return None


def _limits(largest_size: int) -> Iterator[int]:
    """Yield the largest sizes to try for a program, in descending order.

    Args:
      largest_size: the larger one of the sizes that it is derived from.
    """
    limit = 1 << (MAX_GROWTH * largest_size - 1).bit_length()
    while limit > largest_size:
        yield limit
        limit //= 2
    yield largest_size


def restore_polymorphic(lowered: Program, varying: Varying) -> PolymorphicProgram | None:
    """Return the polymorphic program that has a lowered one as an instance, or None."""
    numbers = extract_numbers(lowered)
    maximum, changing = varying
    lines = [LinearFunction(0, value) for value in numbers.numbers]
    for position, slope, offset in changing:
        if not 0 <= position < len(lines):
            return None
        lines[position] = LinearFunction(slope, offset)
    try:
        family = PolymorphicProgram(lowered, numbers, lines, maximum)
    except _NotPolymorphic:
        return None
    return None if family.size_of(numbers) is None else family


class _NotPolymorphic(Exception):  # noqa: N818 - it is not an error of a program
    """Signal that a number varies that must be known at compile time."""


class _NumberVisitor:
    """Base of classes that map the numbers of a program in a fixed order."""

    def constant(self, constant: Constant) -> Expr:
        raise NotImplementedError

    def buffer(self, buffer: Buffer) -> Buffer:
        raise NotImplementedError

    def call(self, call: Call) -> Call:
        raise NotImplementedError


class _NumberCollector(_NumberVisitor):
    """Collects all numbers and removes them."""

    def __init__(self) -> None:
        self.numbers: list[int | float] = []

    def constant(self, constant: Constant) -> Expr:
        self.numbers.append(constant.value)
        return Constant(constant.dtype, 0.0 if constant.dtype.is_floating else 0)

    def buffer(self, buffer: Buffer) -> Buffer:
        self.numbers += buffer.shape
        return replace(buffer, shape=(0,) * len(buffer.shape))

    def call(self, call: Call) -> Call:
        self.numbers += [value for _, value in call.parameters]
        return _with_parameters(_general_call(call), {name: 0 for name, _ in call.parameters})


class _NumberFiller(_NumberVisitor):
    """Mutator that replaces numbers by functions of the size.

    Attributes:
      layouts: the layouts of buffers with axes that vary, by name.
      least: the smallest size for which all axes and parameters are positive.
    """

    def __init__(self, lines: Sequence[LinearFunction], size: Expr, limit: int) -> None:
        self._next = iter(lines)
        self._size = size
        self._max_size = limit
        self.layouts: dict[str, Layout] = {}
        self.least = MIN_SIZE

    def constant(self, constant: Constant) -> Expr:
        line = next(self._next)
        return cast(self._number(line), constant.dtype) if line.slope else constant

    def buffer(self, buffer: Buffer) -> Buffer:
        lines = [next(self._next) for _ in buffer.shape]
        shape = tuple([self._largest(line) for line in lines])
        sizes = [self._number(line) if line.slope else None for line in lines]
        self.layouts[buffer.name] = Layout(shape, sizes)
        return replace(buffer, shape=shape)

    def call(self, call: Call) -> Call:
        lines = {name: next(self._next) for name, _ in call.parameters}
        varying = {name: line for name, line in lines.items() if line.slope}
        if not varying:
            return call
        general = _general_call(call)
        if not varying.keys() <= general.symbolic_sizes:
            raise _NotPolymorphic
        largest = {name: self._largest(line) for name, line in lines.items()}
        sizes = tuple([(name, self._number(line)) for name, line in varying.items()])
        return replace(_with_parameters(general, largest), sizes=sizes)

    def _largest(self, line: LinearFunction) -> int:
        """Return the number for the largest size; update `least` so that the number is positive.

        Raises: _NotPolymorphic: the number decreases with the size.
        """
        if line.slope < 0:
            raise _NotPolymorphic
        if line.slope:
            self.least = max(self.least, -((int(line.offset) - 1) // line.slope))
        return int(line.at(self._max_size))

    def _number(self, line: LinearFunction) -> Expr:
        return plus(times(self._size, line.slope), int(line.offset))


def _general_call(call: Call) -> Call:
    """Replace a call for small products by the call that computes products of all sizes.

    Lowering chooses between the two by size, so programs for two sizes may differ.
    """
    if not isinstance(call, SmallMatmul) or call.views[0].dtype not in Gemm.dtypes:
        return call
    return call.convert(Gemm) if addresses() else call


def _with_parameters(call: Call, parameters: Mapping[str, int]) -> Call:
    """Return a call with other parameters."""
    values: dict[str, Any] = dict(parameters)
    return replace(call, **values)


class _NumberMutator(Mutator):
    """Mutator of the numbers of a program, in order."""

    def __init__(self, change: _NumberVisitor) -> None:
        self._change = change

    def rewrite_buffer(self, buffer: Buffer) -> Buffer:
        """Return a buffer with another shape."""
        return self._change.buffer(buffer)

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
    """Return a program with each number changed by `change`, in order."""
    mutator = _NumberMutator(change)
    inputs = [
        operand if operand.name in program.constants else mutator.rewrite_buffer(operand)
        for operand in program.inputs
    ]
    outputs = [mutator.rewrite_buffer(operand) for operand in program.outputs]
    body = mutator.rewrite_body(program.body)
    return replace(program, inputs=tuple(inputs), outputs=tuple(outputs), body=body)
