"""Expressions of one element: what a program computes between its loads and its stores.

An expression is an immutable tree of constants, variables, loads, and applications of the
primitives that `weft_graph.ir.scalar` declares, whose meaning it shares: integers wrap around,
floating point follows IEEE 754.  Indices are expressions of type int64.

A tree has no sharing: what is used twice is worth a `Let`.  Two expressions are equal when they are
the same object; `same` compares what they compute.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from weft_graph.ir.scalar import PRIMITIVES, Scalar, applications, kind
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

INDEX: Final = dtypes.int64
"""The type of loop variables and of indices."""


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """An expression.

    Attributes:
      dtype: the type of its value.
    """

    dtype: DType

    def __str__(self) -> str:
        from weft_compiler.ir.printer import expression_text

        return expression_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    """A number.

    Attributes:
      value: of the Python type that fits: bool, int or float.
    """

    value: bool | int | float


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expr):
    """The variable of a loop, or the name that a `Let` or a `Var` gave."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    """An element of a buffer.

    Attributes:
      buffer: its name.
      indices: one for each dimension, each within bounds whenever the load may run; an operand of
        `where` runs whatever the condition is.
    """

    buffer: str
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Expr):
    """A primitive of some operands.

    Attributes:
      primitive: its name in `weft_graph.ir.scalar.PRIMITIVES`.
      operands: of the types that it takes.
    """

    primitive: str
    operands: tuple[Expr, ...]


def number(value: bool | int | float, dtype: DType) -> Constant:
    """A constant of an element type; integers wrap around as they do in its arithmetic."""
    if dtype.is_bool:
        return Constant(dtype, bool(value))
    if dtype.is_floating:
        return Constant(dtype, float(value))
    bits = 8 * dtype.size
    wrapped = int(value) & ((1 << bits) - 1)
    if not dtype.is_unsigned and wrapped >> (bits - 1):
        wrapped -= 1 << bits
    return Constant(dtype, wrapped)


def index(value: int) -> Constant:
    """A constant index."""
    return Constant(INDEX, value)


def apply(primitive: str, *operands: Expr, dtype: DType | None = None) -> Apply:
    """A primitive of operands.

    Args:
      dtype: the result's, for the primitives that are told theirs: `cast` and `complex`.
    Raises: InvalidTypeError: it is not defined for these operands.
    """
    declared = PRIMITIVES[primitive]
    of = operands[-1].dtype
    if len(operands) != declared.arity:
        raise errors.InvalidArgumentError(
            f"{primitive} requires {declared.arity} operands, got {len(operands)}"
        )
    if kind(of) not in declared.kinds:
        raise errors.InvalidTypeError(f"{primitive} is not defined for {of.name}")
    alike = operands[1:] if primitive == "where" else operands
    if any(operand.dtype is not of for operand in alike) or (
        primitive == "where" and not operands[0].dtype.is_bool
    ):
        got = ", ".join(operand.dtype.name for operand in operands)
        raise errors.InvalidTypeError(f"{primitive} requires operands of one type, got {got}")
    if (declared.result == "given") != (dtype is not None):
        raise errors.InvalidTypeError(f"{primitive} requires a type if and only if it is told it")
    results = {"same": of, "bool": dtypes.bool_, "real": of.real_dtype, "uint8": dtypes.uint8}
    return Apply(dtype or results[declared.result], primitive, operands)


def cast(x: Expr, dtype: DType) -> Expr:
    """X as another element type; itself where it has that."""
    return x if x.dtype is dtype else apply("cast", x, dtype=dtype)


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """X where the condition holds, else y; both are computed."""
    return apply("where", condition, x, y)


def add(*terms: Expr) -> Expr:
    """The sum of some terms, the first two first."""
    return reduce(lambda x, y: apply("add", x, y), terms)


def mul(*factors: Expr) -> Expr:
    """The product of some factors, the first two first."""
    return reduce(lambda x, y: apply("mul", x, y), factors)


def of_scalar(
    definition: Scalar,
    inputs: Callable[[int], Expr],
    attribute: Callable[[str], bool | int | float] | None = None,
) -> Expr:
    """Return the expression of a scalar definition, with expressions for its inputs.

    Args:
      inputs: from the position of an input to its element.
      attribute: from the name of an attribute to its number.
    Returns: an expression in which what the definition uses twice is one object.
    Raises: InvalidTypeError: it computes with complex numbers or text.
    """
    expressions: dict[int, Expr] = {}

    def part(scalar: Scalar) -> Expr:
        if scalar.name == "input":
            return inputs(scalar.value)
        if scalar.name == "constant":
            return number(scalar.value, scalar.dtype)
        if scalar.name == "attribute":
            assert attribute is not None
            return number(attribute(scalar.value), scalar.dtype)
        return expressions[id(scalar)]

    for each in applications(definition):
        given = PRIMITIVES[each.name].result == "given"
        operands = map(part, each.args)
        expressions[id(each)] = apply(each.name, *operands, dtype=each.dtype if given else None)
    return part(definition)


def children(expression: Expr) -> tuple[Expr, ...]:
    """The expressions that it is made of."""
    if isinstance(expression, Apply):
        return expression.operands
    return expression.indices if isinstance(expression, Load) else ()


def walk(expression: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of, operands first."""
    parts: list[Expr] = []
    _collect(expression, parts)
    return iter(parts)


def _collect(expression: Expr, parts: list[Expr]) -> None:
    # Nested generators would pass each part through one of them for each level.
    if isinstance(expression, Apply):
        for child in expression.operands:
            _collect(child, parts)
    elif isinstance(expression, Load):
        for child in expression.indices:
            _collect(child, parts)
    parts.append(expression)


def replace_children(expression: Expr, new: tuple[Expr, ...]) -> Expr:
    """Return the expression, made of others; itself if these are what it is made of."""
    old = children(expression)
    assert len(old) == len(new)
    if all(map(operator.is_, old, new)):
        return expression
    if isinstance(expression, Apply):
        return Apply(expression.dtype, expression.primitive, new)
    assert isinstance(expression, Load)
    return Load(expression.dtype, expression.buffer, new)


def substitute(expression: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with other expressions in the place of variables."""
    if isinstance(expression, Variable):
        return values.get(expression.name, expression)
    if isinstance(expression, Constant):
        return expression
    new = tuple([substitute(child, values) for child in children(expression)])
    return replace_children(expression, new)


def same(x: Expr, y: Expr) -> bool:
    """Return True if two expressions are written the same."""
    return x is y or str(x) == str(y)
