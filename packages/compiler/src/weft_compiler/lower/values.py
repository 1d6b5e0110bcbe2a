"""Tensors during lowering: definitions of their elements, without loops.

A definition computes an element from its indices; in its expression, elements of other tensors are
`Element`s. Shared subexpressions may be one object. `weft_compiler.lower.writer` decides later, for
all tensors together, whether such an element is loaded from memory or computed in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft_compiler.ir.expressions import Constant, Expr, Load, apply, cast, index, where
from weft_compiler.ir.loops import Unique
from weft_compiler.ir.program import Buffer, If, Statement
from weft_tensor.dtypes import DType

Indices = tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """A condition to check before a tensor is computed, such as indices in range.

    Attributes:
      space: the sizes of the index space.
      condition: maps indices in the space to a bool, which must be true for all indices.
      message: the error message, which states the requirement.
    """

    space: tuple[int, ...]
    condition: Callable[..., Expr]
    message: str


@dataclass(eq=False)
class Value:
    """A tensor.

    Attributes:
      name: for error messages and dumps.
      dtype, shape: its element type and its sizes, all known.
      definition: the computation of its elements; None for an input in the caller's memory.
      constant: the array, if the tensor is an input that is known.
      dense_of: a tensor with the same elements in the same order but another shape.
      requires: conditions on the values that the definition reads.
      count: for a list of rows, the number of valid rows, int64 of rank 0; None if all are valid.
      is_complex: True if callers pass it as a complex array, without the last axis.
      facts: cache of `weft_compiler.lower.analysis`.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    definition: Definition | None = None
    constant: Any = None
    dense_of: Value | None = None
    requires: tuple[Requirement, ...] = ()
    count: Value | None = None
    is_complex: bool = False
    facts: Any = None

    def at(self, *indices: Expr | int) -> Expr:
        """Return an element."""
        index_exprs = tuple([index(i) if isinstance(i, int) else i for i in indices])
        assert len(index_exprs) == len(self.shape), (self.name, self.shape, len(index_exprs))
        return Element(self.dtype, self, index_exprs)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Element(Expr):
    """An element of another tensor in a definition."""

    value: Value
    indices: Indices

    def __str__(self) -> str:
        return f"{self.value.name}[{', '.join(map(str, self.indices))}]"


class Definition:
    """Base of all definitions."""


@dataclass(eq=False)
class Elements(Definition):
    """A definition that computes each element separately.

    Attributes:
      element: maps one index expression for each dimension to the element.
    """

    element: Callable[..., Expr]


@dataclass(eq=False)
class ComplexElements(Elements):
    """A definition of complex elements, whose parts are indexed by the last axis.

    Attributes:
      parts: maps the indices of an element to its real and its imaginary part.
    """

    parts: Callable[..., tuple[Expr, Expr]]

    @staticmethod
    def of(parts: Callable[..., tuple[Expr, Expr]]) -> ComplexElements:
        """Return the definition of elements with these parts."""

        def element(*indices: Expr) -> Expr:
            *position, part_index = indices
            real, imaginary = parts(*position)
            if isinstance(part_index, Constant):
                return imaginary if part_index.value else real
            return where(apply("equal", part_index, index(0)), real, imaginary)

        return ComplexElements(element, parts)


@dataclass(eq=False)
class Select(Elements):
    """A select between two tensors of the same shape; only the selected one need be computed.

    Attributes:
      predicate: a bool of rank 0.
      then, otherwise: the tensors for True and for False.
    """

    predicate: Value
    then: Value
    otherwise: Value


@dataclass(eq=False)
class Reduction(Definition):
    """A definition of each element by a reduction over some axes of an index space.

    Attributes:
      space: the sizes of all axes.
      axes: the reduced axes; the other axes are those of the result, in order.
      combine: one of the IR's COMBINERS.
      initial: the initial value of the reduction.
      element: maps indices in the space to the term to combine.
    """

    space: tuple[int, ...]
    axes: frozenset[int]
    combine: str
    initial: Expr
    element: Callable[..., Expr]


@dataclass(eq=False)
class StatementDefinition(Definition):
    """A definition by statements that fill a complete tensor.

    Attributes:
      operands: tensors that the statements read from memory.
      write: returns the statements; receives a function that makes names unique, the result's
        buffer, and the operands' buffers, whose shapes may differ from those of the operands.
    """

    operands: Sequence[Value]
    write: Callable[..., Sequence[Statement]]


@dataclass(eq=False)
class PartialUpdate:
    """An in-place update of parts of one or several variables.

    Attributes:
      before: the old values of the variables.
      operands: other tensors that the update reads from memory.
      write: returns the statements; receives a function that makes names unique, the buffers of the
        variables, and those of the operands, whose shapes may differ from those of the operands.
    """

    before: Sequence[Value]
    operands: Sequence[Value]
    write: Callable[..., Sequence[Statement]]


@dataclass(eq=False)
class ScatterUpdate(Definition):
    """The value of a variable after an in-place update of the memory with its old value.

    Attributes:
      change: the update.
      which: the position of this variable among those of the update.
    """

    change: PartialUpdate
    which: int

    @property
    def before(self) -> Value:
        """The value of the variable before the update."""
        return self.change.before[self.which]

    @property
    def operands(self) -> Sequence[Value]:
        """The tensors that the update reads from memory."""
        return self.change.operands


def update_if(path: Sequence[tuple[Value, bool]], new: Value) -> Value:
    """Return the value of a variable after an in-place update that runs only under `path`.

    Args:
      path: predicates of rank 0, the outermost first, with the value that each must have.
      new: the value after the update; the caller checks its requirements.
    """
    definition = new.definition
    assert isinstance(definition, ScatterUpdate)
    assert len(definition.change.before) == 1
    change, count = definition.change, len(definition.change.operands)

    def write(unique: Unique, memory: Sequence[Buffer], *remaining: Buffer) -> Sequence[Statement]:
        body = tuple(change.write(unique, memory, *remaining[:count]))
        for (_, side), buffer in reversed(list(zip(path, remaining[count:], strict=True))):
            decided = Load(buffer.dtype, buffer.name, ())
            body = (If(decided, body),) if side else (If(decided, (), body),)
        return body

    operands = [*change.operands, *[predicate for predicate, _ in path]]
    return Value(
        new.name,
        new.dtype,
        new.shape,
        ScatterUpdate(PartialUpdate(change.before, operands, write), 0),
    )


def reduce_value(
    name: str,
    x: Value,
    axes: Sequence[int],
    combine: str,
    initial: Expr,
    element: Callable[..., Expr],
) -> Value:
    """Return the reduction of a tensor over some axes.

    Args:
      x: the tensor to reduce.
      axes: non-negative axes.
      element: maps the indices of an element of `x` to the term to combine.
    """
    result_shape = tuple([size for axis, size in enumerate(x.shape) if axis not in axes])
    definition = Reduction(x.shape, frozenset(axes), combine, initial, element)
    return Value(name, initial.dtype, result_shape, definition)


def compute_value(
    name: str, dtype: DType, shape: Sequence[int], element: Callable[..., Expr]
) -> Value:
    """Return a tensor whose elements are computed from their indices and cast to `dtype`."""
    return Value(name, dtype, tuple(shape), Elements(lambda *i: cast(element(*i), dtype)))


def select_value(name: str, predicate: Value, if_true: Value, if_false: Value) -> Value:
    """Return one of two tensors of the same type and shape, selected by a predicate of rank 0."""

    def element(*position: Expr) -> Expr:
        return where(predicate.at(), if_true.at(*position), if_false.at(*position))

    return Value(name, if_true.dtype, if_true.shape, Select(element, predicate, if_true, if_false))


def move_elements(
    name: str, x: Value, shape: Sequence[int], source: Callable[..., Any], dense: bool = False
) -> Value:
    """Return a tensor with the elements of another tensor at different positions.

    Args:
      source: maps the indices of an element to its indices in `x`.
      dense: True if these are all elements of `x` in the same order.
    """
    elements = Elements(lambda *position: x.at(*source(*position)))
    return Value(name, x.dtype, tuple(shape), elements, dense_of=x if dense else None)


def broadcast(shape: Sequence[int], position: Sequence[Expr]) -> list[Expr | int]:
    """Map result indices to indices of an operand that broadcasts: 0 on axes of size 1."""
    remaining = position[len(position) - len(shape) :]
    return [0 if size == 1 else i for size, i in zip(shape, remaining, strict=True)]
