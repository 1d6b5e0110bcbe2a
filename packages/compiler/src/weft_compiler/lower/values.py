"""Tensors as they are lowered: what one element of each is, and no loops yet.

A definition says what an element of a tensor is, as an expression of its indices, in which elements
of other tensors stand as `Element`s, and what is used twice may be one object.  Whether such an
element is loaded or computed on the spot is decided later, for all tensors together
(`weft_compiler.lower.writer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft_compiler.ir.expressions import Expr, Load, cast, index, where
from weft_compiler.ir.loops import Unique
from weft_compiler.ir.program import Buffer, If, Statement
from weft_tensor.dtypes import DType

Indices = tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """What must hold before a tensor is computed, such as that indices are in range.

    Attributes:
      space: sizes.
      condition: from indices in the space to a bool, all of which must be true.
      message: what was required.
    """

    space: tuple[int, ...]
    condition: Callable[..., Expr]
    message: str


@dataclass(eq=False)
class Value:
    """A tensor.

    Attributes:
      name: for people.
      dtype, shape: of its elements; sizes are known.
      definition: what its elements are; None of an input, whose memory the caller gives.
      constant: an input's array, where it is known.
      dense_of: a tensor with the same elements in the same order, in another shape.
      requires: what must hold, of values that the definition takes.
      count: of a list of rows, how many of them are meant, int64 of rank 0; None for all.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    definition: Definition | None = None
    constant: Any = None
    dense_of: Value | None = None
    requires: tuple[Requirement, ...] = ()
    count: Value | None = None

    def at(self, *indices: Expr | int) -> Expr:
        """One of its elements."""
        given = tuple([index(i) if isinstance(i, int) else i for i in indices])
        assert len(given) == len(self.shape), (self.name, self.shape, len(given))
        return Element(self.dtype, self, given)

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Element(Expr):
    """An element of a tensor; in definitions only."""

    value: Value
    indices: Indices

    def __str__(self) -> str:
        return f"{self.value.name}[{', '.join(map(str, self.indices))}]"


class Definition:
    """One of the classes below."""


@dataclass(eq=False)
class Elements(Definition):
    """Each element by itself.

    Attributes:
      element: from its indices to what it is; of one expression for each dimension.
    """

    element: Callable[..., Expr]


@dataclass(eq=False)
class Chosen(Elements):
    """Each element from one of two tensors of the same shape; the other may not have been computed.

    Attributes:
      predicate: decides which, of rank 0.
      then, otherwise: where it is True, and where it is False.
    """

    predicate: Value
    then: Value
    otherwise: Value


@dataclass(eq=False)
class Reduction(Definition):
    """Each element from the elements of some axes of a space.

    Attributes:
      space: the sizes of all axes.
      axes: those that are combined; the others are the result's, in their order.
      combine: one of the IR's COMBINERS.
      initial: what it begins with.
      element: from indices in the space to what is combined.
    """

    space: tuple[int, ...]
    axes: frozenset[int]
    combine: str
    initial: Expr
    element: Callable[..., Expr]


@dataclass(eq=False)
class Written(Definition):
    """All elements by statements of their own.

    Attributes:
      operands: tensors that they take from memory.
      write: from a function that makes names unique, the result's buffer and the operands', which
        may have other shapes, to the statements.
    """

    operands: Sequence[Value]
    write: Callable[..., Sequence[Statement]]


@dataclass(eq=False)
class Change:
    """What changes places of one variable, or of several together.

    Attributes:
      before: what they have before.
      operands: tensors that it takes from memory, which is no variable's.
      write: from a function that makes names unique, the memory of the variables, and that of the
        operands, which may have other shapes, to the statements.
    """

    before: Sequence[Value]
    operands: Sequence[Value]
    write: Callable[..., Sequence[Statement]]


@dataclass(eq=False)
class ScatterUpdate(Definition):
    """A variable after a change of its places; in memory that has what was before.

    Attributes:
      change: what happens.
      which: which of its variables it is.
    """

    change: Change
    which: int

    @property
    def before(self) -> Value:
        """What it was."""
        return self.change.before[self.which]

    @property
    def operands(self) -> Sequence[Value]:
        """The tensors that the change takes from memory."""
        return self.change.operands


def changed_if(path: Sequence[tuple[Value, bool]], new: Value) -> Value:
    """What a variable is after a change of its places that happens at the end of a path only.

    Args:
      path: predicates of rank 0, the outermost first, and how each must come out.
      new: what it is after the change; what this requires is for the caller to look at.
    """
    of = new.definition
    assert isinstance(of, ScatterUpdate)
    assert len(of.change.before) == 1
    change, count = of.change, len(of.change.operands)

    def write(unique: Unique, memory: Sequence[Buffer], *rest: Buffer) -> Sequence[Statement]:
        body = tuple(change.write(unique, memory, *rest[:count]))
        for (_, side), buffer in reversed(list(zip(path, rest[count:], strict=True))):
            decided = Load(buffer.dtype, buffer.name, ())
            body = (If(decided, body),) if side else (If(decided, (), body),)
        return body

    operands = [*change.operands, *[predicate for predicate, _ in path]]
    return Value(
        new.name, new.dtype, new.shape, ScatterUpdate(Change(change.before, operands, write), 0)
    )


def reduced(
    name: str,
    x: Value,
    axes: Sequence[int],
    combine: str,
    initial: Expr,
    element: Callable[..., Expr],
) -> Value:
    """A tensor reduced over some axes.

    Args:
      x: what is reduced.
      axes: from 0.
      element: from the indices of an element of `x` to what is combined.
    """
    kept = tuple([size for axis, size in enumerate(x.shape) if axis not in axes])
    definition = Reduction(x.shape, frozenset(axes), combine, initial, element)
    return Value(name, initial.dtype, kept, definition)


def computed(name: str, dtype: DType, shape: Sequence[int], element: Callable[..., Expr]) -> Value:
    """A tensor each of whose elements is an expression of its indices, cast to its type."""
    return Value(name, dtype, tuple(shape), Elements(lambda *i: cast(element(*i), dtype)))


def chosen(name: str, predicate: Value, then: Value, otherwise: Value) -> Value:
    """One of two tensors of the same type and shape, by a predicate of rank 0."""

    def element(*at: Expr) -> Expr:
        return where(predicate.at(), then.at(*at), otherwise.at(*at))

    return Value(name, then.dtype, then.shape, Chosen(element, predicate, then, otherwise))


def moved(
    name: str, x: Value, shape: Sequence[int], source: Callable[..., Any], dense: bool = False
) -> Value:
    """A tensor of the elements of another.

    Args:
      source: from the indices of an element to where it comes from.
      dense: they are all elements in their order.
    """
    elements = Elements(lambda *at: x.at(*source(*at)))
    return Value(name, x.dtype, tuple(shape), elements, dense_of=x if dense else None)


def broadcast(shape: Sequence[int], at: Sequence[Expr]) -> list[Expr | int]:
    """The indices of an operand where the result's are given: 0 where its size is 1."""
    rest = at[len(at) - len(shape) :]
    return [0 if size == 1 else i for size, i in zip(shape, rest, strict=True)]
