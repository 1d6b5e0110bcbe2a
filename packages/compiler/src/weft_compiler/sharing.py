"""Sharing of code between shapes: see `weft_compiler.lower.shape_polymorphism`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from weft_compiler.codegen.interrupt_checks import work_of
from weft_compiler.codegen.options import Options, options_of_regions
from weft_compiler.codegen.targets import target_of
from weft_compiler.ir.program import Check, Program, walk
from weft_compiler.ir.verifier import verify
from weft_compiler.lower.folded_values import FoldedValues
from weft_compiler.lower.registry import Unsupported
from weft_compiler.lower.request_numbers import (
    AnyRequest,
    RequestNumbers,
    numbers_of,
    with_numbers,
)
from weft_compiler.lower.shape_polymorphism import (
    MIN_SIZE,
    PolymorphicProgram,
    Varying,
    VaryingNumbers,
    extract_numbers,
    generalize,
    restore_polymorphic,
)
from weft_compiler.native.polymorphic_code import PolymorphicCode
from weft_compiler.native.program import NativeProgram, load
from weft_compiler.passes.pipeline import optimize
from weft_graph.ir.code_generators import MonomorphicCode
from weft_graph.ir.compile_pauses import may_pause
from weft_graph.ir.gc_pause import pause_gc
from weft_tensor import errors

_COMPARED: Final = 4
"""Maximum number of earlier programs that are compared with a program for a new size."""
_TOGETHER: Final = 2
"""Maximum number of other requests that a first compilation also tries to support."""


Lower = Callable[[AnyRequest], Program]
"""Lowers a request to a program."""


class CompiledArtifact(NamedTuple):
    """A compiled program, and the lowered program that it was compiled from.

    Attributes:
      program: the compiled program, with its shapes; None if it was only lowered.
      lowered: the lowered program.
      request: the numbers of the request that was lowered.
      size: the size that is passed before all inputs, if the code is shape-polymorphic.
      shared: the polymorphic code, if other programs may share it.
    """

    program: NativeProgram | None
    lowered: Program
    request: RequestNumbers
    size: int | None = None
    shared: SharedCode | None = None

    @property
    def varying(self) -> Varying | None:
        """The numbers that vary, for restoring polymorphic code."""
        return None if self.shared is None else self.shared.family.varying


class SharedCode:
    """The code of a polymorphic program.

    Attributes:
      code: its code, for the sizes that it was verified for.
    Raises: InternalError: indices are not proven to be in bounds for all sizes.
    """

    def __init__(self, family: PolymorphicProgram) -> None:
        self.family = family
        options = options_of_regions()
        with pause_gc():
            optimized = family.with_runtime_strides(_optimized(family.program, options))
        messages = [
            statement.message for statement in walk(optimized.body) if isinstance(statement, Check)
        ]
        code = load(optimized, options).code
        self.code = PolymorphicCode(optimized, code, messages, family.shapes)

    def verify(
        self, lowered: Program, numbers: VaryingNumbers, request: RequestNumbers
    ) -> int | None:
        """Return the size of a lowered program that this code computes; None if it does not."""
        size = self.family.size_of(numbers)
        if size is not None:
            self.code.add(size, request, work_of(lowered.body))
        return size

    def made(
        self, lowered: Program, numbers: VaryingNumbers, request: RequestNumbers
    ) -> CompiledArtifact | None:
        """Return an instance that computes a lowered program; None if this code does not."""
        size = self.verify(lowered, numbers, request)
        if size is None:
            return None
        program = self.code.instance(size)
        return CompiledArtifact(program, lowered, request, size, self)

    def verify_range(self, request: AnyRequest, lower: Lower) -> None:
        """Verify more sizes by lowering, until all sizes of a range are supported.

        Args:
          request: one of the requests that the code was made for.
        """
        folded = FoldedValues(request)
        if self.code.numbers_at(MIN_SIZE) is None or not folded.are_evaluated:
            return
        minimum, maximum = self.family.limits
        low, high = self.code.limits
        for size in (maximum, maximum // 2, maximum // 4):
            if high < size <= maximum and self._verify_size(size, request, lower, folded):
                break
        for size in (minimum | 1, low // 2 | 1):
            if minimum <= size < low and self._verify_size(size, request, lower, folded):
                break
        low, high = self.code.limits
        middle = (low + high) // 2
        for size in (middle | 1, middle - middle % 16):
            if not self.code.is_dense and low < size < high:
                self._verify_size(size, request, lower, folded)

    def _verify_size(
        self, size: int, request: AnyRequest, lower: Lower, folded: FoldedValues
    ) -> bool:
        may_pause()
        numbers = self.code.numbers_at(size)
        if numbers is None or not self.code.is_linear_at(size, folded):
            return False
        resized = with_numbers(request, numbers)
        try:
            lowered = lower(resized)
        except (Unsupported, errors.OpError, ValueError):  # nodes do not accept this size
            return False
        result = self.verify(lowered, extract_numbers(lowered), numbers_of(resized))
        return result == size


def make(
    request: AnyRequest,
    lower: Lower,
    origins: Sequence[CompiledArtifact],
    other_choices: Iterable[AnyRequest] = (),
) -> CompiledArtifact:
    """Compile a request, or reuse the code of another shape.

    Args:
      lower: lowers requests.
      origins: compiled programs of the same nodes for other shapes.
      other_choices: requests for other shapes, some of which the code must also support.
    Raises: MonomorphicCode: it would support none of them.
    """
    lowered, request_numbers = lower(request), numbers_of(request)
    candidates: Iterable[CompiledArtifact] = {
        id(origin.lowered): origin for origin in origins
    }.values()
    distinct: list[AnyRequest] = []
    if not origins:
        distinct = [choice for choice in other_choices if numbers_of(choice) != request_numbers][
            :_TOGETHER
        ]
        candidates = (
            CompiledArtifact(None, lower(origin), numbers_of(origin)) for origin in distinct
        )
    result = _instantiate(lowered, request_numbers, origins) or _generalize(
        lowered, request_numbers, islice(candidates, _COMPARED)
    )
    if result is not None:
        return result
    if distinct:
        raise MonomorphicCode("more than one size varies, or an operation fixes it")
    return CompiledArtifact(compile_program(lowered), lowered, request_numbers)


def restore_artifact(
    program: NativeProgram,
    lowered: Program,
    request: RequestNumbers,
    size: int | None,
    varying: Varying | None,
) -> CompiledArtifact:
    """Return a program that was restored from disk, in the form that `make` returns.

    Args:
      lowered: the lowered program that it was compiled from.
      request: the numbers of its request.
      size, varying: as in `weft_compiler.native.code_index.IndexEntry`.
    """
    family = None if varying is None else restore_polymorphic(lowered, varying)
    try:
        shared = None if family is None else SharedCode(family)
    except (errors.InternalError, errors.UnimplementedError):
        shared = None  # the entry is not of this program
    return CompiledArtifact(program, lowered, request, size, shared)


def _instantiate(
    lowered: Program, request: RequestNumbers, origins: Sequence[CompiledArtifact]
) -> CompiledArtifact | None:
    """Return a program that uses the polymorphic code of another program, or None."""
    codes = {origin.shared: None for origin in origins if origin.shared is not None}
    numbers = extract_numbers(lowered) if codes else None
    for shared in codes:
        if numbers is not None and (artifact := shared.made(lowered, numbers, request)):
            return artifact
    return None


def _generalize(
    lowered: Program, request: RequestNumbers, origins: Iterable[CompiledArtifact]
) -> CompiledArtifact | None:
    """Return a program with new code that another program shares, or None."""
    numbers: VaryingNumbers | None = None
    for origin in origins:
        numbers = numbers or extract_numbers(lowered)
        other_numbers = extract_numbers(origin.lowered)
        family = generalize(other_numbers, numbers, origin.lowered)
        try:
            shared = None if family is None else SharedCode(family)
        except (errors.InternalError, errors.UnimplementedError):
            continue  # an index is not proven to be in bounds for all sizes
        if shared is not None:
            shared.verify(origin.lowered, other_numbers, origin.request)
            if artifact := shared.made(lowered, numbers, request):
                return artifact
    return None


def compile_program(lowered: Program) -> NativeProgram:
    """Compile a lowered program separately."""
    options = options_of_regions()
    with pause_gc():
        program = _optimized(lowered, options)
    return load(program, options)  # steps enter programs alone


def _optimized(program: Program, options: Options) -> Program:
    """Return a verified optimized program.

    It is verified once, because verification after each pass would take half of the passes' time.
    """
    vector_bytes = target_of(options).vector_bytes
    optimized = optimize(program, check=False, vector_bytes=vector_bytes).program
    verify(optimized)
    return optimized
