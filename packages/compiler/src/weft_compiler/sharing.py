"""Code that several choices of shapes share: see `weft_compiler.lower.shape_polymorphism`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_compiler.codegen.options import options_of_regions
from weft_compiler.codegen.polls import work_of
from weft_compiler.codegen.targets import target_of
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.shape_polymorphism import (
    Numbers,
    PolymorphicProgram,
    Varying,
    extract_numbers,
    generalize,
    restore_polymorphic,
)
from weft_compiler.native.program import NativeProgram, load
from weft_compiler.passes.pipeline import optimize
from weft_tensor import errors

_COMPARED: Final = 4
"""Programs that one more size is compared with, to find what both have in common."""


class Made(NamedTuple):
    """What was made of a lowered program.

    Attributes:
      program: its code with the shapes that it is for.
      lowered: what it was made of.
      size: that the program is told before all inputs, if it is for many.
      shared: whose code it is, if it is not its own.
    """

    program: NativeProgram
    lowered: Program
    size: int | None = None
    shared: Shared | None = None


class Shared:
    """The code of a family of programs.

    Raises: InternalError: it is not seen that all indices are in bounds for all sizes.
    """

    def __init__(self, family: PolymorphicProgram) -> None:
        self.family = family
        options = options_of_regions()
        self._optimized = optimize(
            family.program, check=False, vector_bytes=target_of(options).vector_bytes
        ).program
        verify(self._optimized)
        self._code = load(self._optimized, options).code

    def made(self, lowered: Program, numbers: Numbers) -> Made | None:
        """What computes the same as a lowered program; None where its code does not."""
        size = self.family.size_of(numbers)
        if size is None:
            return None
        program = self.family.at(self._optimized, lowered)
        return Made(NativeProgram(program, self._code, work_of(lowered.body)), lowered, size, self)


def make(lowered: Program, like: Sequence[Made]) -> Made:
    """What computes a lowered program, by code that others have where there is some.

    Args:
      like: made of the same nodes, for other shapes.
    """
    return (like and _by_code_of(lowered, like)) or Made(loaded(lowered), lowered)


def made_again(
    program: NativeProgram, lowered: Program, size: int | None, varying: Varying | None
) -> Made:
    """What was restored from the disk, as `make` made it: for other sizes to be compared with.

    Args:
      lowered: what it is a program of.
      size, varying: as of `weft_compiler.native.kept.Restored`.
    """
    family = None if varying is None else restore_polymorphic(lowered, varying)
    try:
        shared = None if family is None else Shared(family)
    except (errors.InternalError, errors.UnimplementedError):
        shared = None  # as what was kept is not of this program
    return Made(program, lowered, size, shared)


def _by_code_of(lowered: Program, like: Sequence[Made]) -> Made | None:
    numbers = extract_numbers(lowered)
    for shared in dict.fromkeys(each.shared for each in like):
        made = None if shared is None else shared.made(lowered, numbers)
        if made is not None:
            return made
    for other in like[:_COMPARED]:
        family = generalize(extract_numbers(other.lowered), numbers, other.lowered)
        try:
            made = None if family is None else Shared(family).made(lowered, numbers)
        except (errors.InternalError, errors.UnimplementedError):
            continue  # an index that is not seen to be in bounds for all sizes
        if made is not None:
            return made
    return None


def loaded(lowered: Program) -> NativeProgram:
    """The program of a lowered one, with code of its own."""
    options = options_of_regions()
    vector_bytes = target_of(options).vector_bytes
    program = optimize(lowered, check=False, vector_bytes=vector_bytes).program
    verify(program)  # once: after each pass it is half of the passes' time
    return load(program, options)  # steps enter programs alone
