"""Machine code for many sizes, found by the numbers of a request.

The sizes of all inputs are linear functions of one size. Lowering has verified the code for some
sizes. It supports all sizes between them if they differ enough to rule out other lowering
decisions: three or more, of which one is odd and one is a multiple of 16. Choices of lowering
depend on limits and on divisibility, and a nonlinear function differs from a line at one of these
sizes. Values that lowering computes from sizes could depend on a size in any way, such as by its
remainder modulo 3. They are evaluated for each additional size, which is supported only if they are
linear functions of the size (`weft_compiler.lower.folded_values`). The verifier has proven for all
sizes that no index is out of bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from weft_compiler.codegen.interrupt_checks import WorkEstimate
from weft_compiler.ir.linear_functions import LinearFunction
from weft_compiler.ir.program import Buffer, Program
from weft_compiler.lower.folded_values import FoldedValues, Values, is_on_line
from weft_compiler.lower.request_numbers import RequestNumbers
from weft_compiler.native.program import MachineCode, NativeProgram

_LEAST_VERIFIED: Final = 3
_MULTIPLE: Final = 16


@dataclass(frozen=True)
class VerifiedSize:
    """A size whose lowered program equals the compiled one.

    Attributes:
      numbers: the numbers of the request.
      work: the estimated work of a call.
    """

    numbers: Sequence[int]
    work: WorkEstimate


class PolymorphicCode:
    """Machine code for many sizes.

    Args:
      program: the compiled program; its statements are not needed. Its first input is the size.
      messages: the messages of its checks.
      shapes: the shape of each input except the first and the constants, then of each output.
      rest: as in `RequestNumbers`; None before the first request.
      verified: sizes that are verified already.
    """

    def __init__(
        self,
        program: Program,
        code: MachineCode,
        messages: Sequence[str],
        shapes: Sequence[Sequence[LinearFunction]],
        remainder: str | None = None,
        verified: Mapping[int, VerifiedSize] | None = None,
    ) -> None:
        self.program = program
        self.code = code
        self.messages = messages
        self.shapes = shapes
        self.rest = remainder
        self.verified: Mapping[int, VerifiedSize] = dict(verified or {})
        self._lines = self._request_lines()
        self._folded: dict[int, Values | None] = {}

    def add(self, size: int, numbers: RequestNumbers, work: WorkEstimate) -> None:
        """Add a verified size."""
        if self.rest not in (None, numbers.rest):
            return
        self.rest = numbers.rest
        known_values = {**self.verified, size: VerifiedSize(numbers.numbers, work)}
        self.verified = dict(sorted(known_values.items()))
        self._lines = self._request_lines()

    def _request_lines(self) -> list[LinearFunction] | None:
        """Return the numbers of a request as functions of the size; None if they are not known."""
        sizes = list(self.verified)
        if len(sizes) < 2:
            return None
        first, last = self.verified[sizes[0]], self.verified[sizes[-1]]
        if len(first.numbers) != len(last.numbers):
            return None
        pairs = zip(first.numbers, last.numbers, strict=True)
        lines = [LinearFunction.through(x, y, sizes[0], sizes[-1]) for x, y in pairs]
        known_values = [line for line in lines if line is not None]
        if len(known_values) < len(lines) or not any(line.slope for line in known_values):
            return None
        for size, instance in self.verified.items():
            if tuple(instance.numbers) != tuple([line.at(size) for line in known_values]):
                return None
        return known_values

    @property
    def is_dense(self) -> bool:
        """True if all sizes between the verified ones are supported."""
        return (
            self._lines is not None
            and len(self.verified) >= _LEAST_VERIFIED
            and any(size % 2 for size in self.verified)
            and any(size % _MULTIPLE == 0 for size in self.verified)
        )

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest verified size."""
        return min(self.verified), max(self.verified)

    def numbers_at(self, size: int) -> list[int] | None:
        """Return the numbers of a request for a size, if they are known."""
        return None if self._lines is None else [int(line.at(size)) for line in self._lines]

    def size_of(self, numbers: RequestNumbers, folded: FoldedValues) -> int | None:
        """Return the size that a request is for; None if this code does not support it.

        Args:
          folded: the folded values of the request, which decide about unverified sizes.
        """
        lines = self._lines
        if lines is None or self.rest != numbers.rest or len(lines) != len(numbers.numbers):
            return None
        pairs = list(zip(lines, numbers.numbers, strict=True))
        size = next(
            (number - int(line.offset)) // line.slope for line, number in pairs if line.slope
        )
        if any(line.at(size) != number for line, number in pairs):
            return None
        if size in self.verified:
            return size
        low, high = self.limits
        is_between = self.is_dense and low < size < high
        return size if is_between and self.is_linear_at(size, folded) else None

    def is_linear_at(self, size: int, folded: FoldedValues) -> bool:
        """Return True if the folded values at a size are on the lines through the verified sizes.

        Args:
          size: not verified.
        """
        if not folded.are_evaluated or self._lines is None:
            return False
        for verified in self.limits:
            if verified not in self._folded:
                self._folded[verified] = folded.at(self.verified[verified].numbers)
        numbers = [int(line.at(size)) for line in self._lines]
        low, high = self.limits
        values = {low: self._folded[low], high: self._folded[high], size: folded.at(numbers)}
        return is_on_line(values, size)

    def instance(self, size: int) -> NativeProgram:
        """Return the program for a size that `size_of` has returned."""
        shapes = iter(self.shapes)

        def sized(buffer: Buffer) -> Buffer:
            if buffer.name in self.program.constants:
                return buffer
            return replace(buffer, shape=tuple([int(line.at(size)) for line in next(shapes)]))

        program = replace(
            self.program,
            inputs=(self.program.inputs[0], *map(sized, self.program.inputs[1:])),
            outputs=tuple(map(sized, self.program.outputs)),
        )
        return NativeProgram(program, self.code, self._work(size), self.messages)

    def _work(self, size: int) -> WorkEstimate:
        """Return the estimated work of a call for a size."""
        known_values = [instance.work for instance in self.verified.values()]
        logs = np.log([max(1, work.statements) for work in known_values])
        statements = np.exp(np.interp(np.log(size), np.log(list(self.verified)), logs))
        return WorkEstimate(int(statements), all(work.is_bounded for work in known_values))
