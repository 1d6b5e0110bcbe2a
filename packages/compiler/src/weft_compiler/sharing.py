"""Sharing of code between shapes: see `weft_compiler.lower.shape_polymorphism`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_compiler.codegen.interrupt_checks import work_of
from weft_compiler.codegen.options import options_of_regions
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
"""Maximal number of earlier programs that are compared with a program for a new size."""


class CompiledArtifact(NamedTuple):
    """A compiled program, and the lowered program that it was compiled from.

    Attributes:
      program: the compiled program, with its shapes.
      lowered: the lowered program.
      size: the size that is passed before all inputs, if the code is shape-polymorphic.
      shared: the polymorphic code, if other programs may share it.
    """

    program: NativeProgram
    lowered: Program
    size: int | None = None
    shared: Shared | None = None

    @property
    def varying(self) -> Varying | None:
        """The numbers that vary, from which polymorphic code is restored."""
        return None if self.shared is None else self.shared.family.varying


class Shared:
    """The code of a polymorphic program.

    Raises: InternalError: indices are not proven to be in bounds for all sizes.
    """

    def __init__(self, family: PolymorphicProgram) -> None:
        self.family = family
        options = options_of_regions()
        self._optimized = optimize(
            family.program, check=False, vector_bytes=target_of(options).vector_bytes
        ).program
        verify(self._optimized)
        self._optimized = family.with_runtime_strides(self._optimized)
        self._code = load(self._optimized, options).code

    def made(self, lowered: Program, numbers: Numbers) -> CompiledArtifact | None:
        """Return an instance of the code for a lowered program; None if it does not fit."""
        size = self.family.size_of(numbers)
        if size is None:
            return None
        program = self.family.at(self._optimized, lowered)
        return CompiledArtifact(
            NativeProgram(program, self._code, work_of(lowered.body)), lowered, size, self
        )


def make(lowered: Program, like: Sequence[CompiledArtifact]) -> CompiledArtifact:
    """Compile a lowered program, or reuse the code of another shape.

    Args:
      like: compiled programs of the same nodes for other shapes.
    """
    return (like and _by_code_of(lowered, like)) or CompiledArtifact(loaded(lowered), lowered)


def made_again(
    program: NativeProgram, lowered: Program, size: int | None, varying: Varying | None
) -> CompiledArtifact:
    """Return a program that was restored from disk, in the form that `make` returns.

    Args:
      lowered: the lowered program that it was compiled from.
      size, varying: as in `weft_compiler.native.code_index.Restored`.
    """
    family = None if varying is None else restore_polymorphic(lowered, varying)
    try:
        shared = None if family is None else Shared(family)
    except (errors.InternalError, errors.UnimplementedError):
        shared = None  # the entry is not of this program
    return CompiledArtifact(program, lowered, size, shared)


def _by_code_of(lowered: Program, like: Sequence[CompiledArtifact]) -> CompiledArtifact | None:
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
            continue  # an index is not proven to be in bounds for all sizes
        if made is not None:
            return made
    return None


def loaded(lowered: Program) -> NativeProgram:
    """Compile a lowered program to code of its own."""
    options = options_of_regions()
    vector_bytes = target_of(options).vector_bytes
    program = optimize(lowered, check=False, vector_bytes=vector_bytes).program
    verify(program)  # verified once: after each pass it would take half of the passes' time
    return load(program, options)  # steps enter programs alone
