"""Expressions: the computation of one element between the loads and stores of a program.

An expression is an immutable tree of constants, variables, loads, and applications of the
primitives that `weft_graph.ir.scalar` declares, whose meaning it shares: integers wrap around,
floating point follows IEEE 754.  Indices are expressions of type int64.

Subexpressions are not shared: a value that is used twice should be a `Let`. `==` compares identity;
  `is_same` compares structure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from weft_graph.ir.scalar import PRIMITIVES, Scalar, applications, kind
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

INDEX: Final = dtypes.int64
"""The type of loop variables and of indices."""


INFIX: Final = {
    "less": ("<", 1),
    "less_equal": ("<=", 1),
    "greater": (">", 1),
    "greater_equal": (">=", 1),
    "equal": ("==", 1),
    "not_equal": ("!=", 1),
    "add": ("+", 2),
    "sub": ("-", 2),
    "mul": ("*", 3),
    "div": ("/", 3),
}
"""The infix primitives, with their symbol and precedence."""


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """An expression.

    Attributes:
      dtype: the type of its value.
    """

    dtype: DType

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expr):
    """A number.

    Attributes:
      value: a bool, an int or a float, according to the type.
    """

    value: bool | int | float


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expr):
    """The variable of a loop, or a name that a `Let` or a `Var` defines."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    """An element of a buffer.

    Attributes:
      buffer: its name.
      indices: one for each dimension. They must be in bounds whenever the load may run; both
        operands of `where` always run.
    """

    buffer: str
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Expr):
    """A primitive applied to operands.

    Attributes:
      primitive: its name in `weft_graph.ir.scalar.PRIMITIVES`.
      operands: operands of the types that it accepts.
    """

    primitive: str
    operands: tuple[Expr, ...]


def number(value: bool | int | float, dtype: DType) -> Constant:
    """Return a constant of an element type; integers wrap around as in arithmetic of that type."""
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
    """Return a constant index."""
    return Constant(INDEX, value)


def apply(primitive: str, *operands: Expr, dtype: DType | None = None) -> Apply:
    """Apply a primitive to operands.

    Args:
      dtype: element type of the result, for primitives with a type parameter: `cast` and `complex`.
    Raises: InvalidTypeError: the primitive is not defined for these operands.
    """
    declared = PRIMITIVES[primitive]
    operand_type = operands[-1].dtype
    if len(operands) != declared.arity:
        raise errors.InvalidArgumentError(
            f"{primitive} requires {declared.arity} operands, got {len(operands)}"
        )
    if kind(operand_type) not in declared.kinds:
        raise errors.InvalidTypeError(f"{primitive} is not defined for {operand_type.name}")
    same_typed = operands[1:] if primitive == "where" else operands
    if any(operand.dtype is not operand_type for operand in same_typed) or (
        primitive == "where" and not operands[0].dtype.is_bool
    ):
        actual = ", ".join(operand.dtype.name for operand in operands)
        raise errors.InvalidTypeError(
            f"{primitive} requires operands of the same type, got {actual}"
        )
    if (declared.result == "given") != (dtype is not None):
        raise errors.InvalidTypeError(
            f"{primitive} requires a type exactly if it has a type parameter"
        )
    results = {
        "same": operand_type,
        "bool": dtypes.bool_,
        "real": operand_type.real_dtype,
        "uint8": dtypes.uint8,
    }
    return Apply(dtype or results[declared.result], primitive, operands)


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert x to an element type; return x itself if it has that type."""
    return x if x.dtype is dtype else apply("cast", x, dtype=dtype)


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """Return x if the condition holds, else y; both are computed."""
    return apply("where", condition, x, y)


def add(*terms: Expr) -> Expr:
    """Return the sum of some terms, added from left to right."""
    return reduce(lambda x, y: apply("add", x, y), terms)


def mul(*factors: Expr) -> Expr:
    """Return the product of some factors, multiplied from left to right."""
    return reduce(lambda x, y: apply("mul", x, y), factors)


def scalar_expression(
    definition: Scalar,
    inputs: Callable[[int], Expr],
    attribute: Callable[[str], bool | int | float] | None = None,
) -> Expr:
    """Return the expression of a scalar definition, with expressions for its inputs.

    Args:
      inputs: maps the position of an input to its element.
      attribute: maps the name of an attribute to its number.
    Returns: an expression whose shared subexpressions are one object.
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

    for application in applications(definition):
        takes_dtype = PRIMITIVES[application.name].result == "given"
        operands = map(part, application.args)
        expressions[id(application)] = apply(
            application.name, *operands, dtype=application.dtype if takes_dtype else None
        )
    return part(definition)


def children(expression: Expr) -> tuple[Expr, ...]:
    """Return the operands or indices of an expression."""
    if isinstance(expression, Apply):
        return expression.operands
    return expression.indices if isinstance(expression, Load) else ()


def walk(expression: Expr) -> Iterator[Expr]:
    """Yield an expression and all of its subexpressions, operands first."""
    parts: list[Expr] = []
    _collect(expression, parts)
    return iter(parts)


def _collect(expression: Expr, parts: list[Expr]) -> None:
    # Iterative, because nested generators would pass each part through all levels.
    if isinstance(expression, Apply):
        for child in expression.operands:
            _collect(child, parts)
    elif isinstance(expression, Load):
        for child in expression.indices:
            _collect(child, parts)
    parts.append(expression)


def replace_children(expression: Expr, new: tuple[Expr, ...]) -> Expr:
    """Return the expression with other operands; itself if they are unchanged."""
    old = children(expression)
    assert len(old) == len(new)
    if all(map(operator.is_, old, new)):
        return expression
    if isinstance(expression, Apply):
        return Apply(expression.dtype, expression.primitive, new)
    assert isinstance(expression, Load)
    return Load(expression.dtype, expression.buffer, new)


def substitute(expression: Expr, values: Mapping[str, Expr]) -> Expr:
    """Return the expression with variables replaced by other expressions."""
    if isinstance(expression, Variable):
        return values.get(expression.name, expression)
    if isinstance(expression, Constant):
        return expression
    new = tuple([substitute(child, values) for child in children(expression)])
    return replace_children(expression, new)


def is_same(x: Expr, y: Expr) -> bool:
    """Return True if two expressions have the same structure."""
    return x is y or str(x) == str(y)


def expression_text(expression: Expr, binding: int = 0) -> str:
    """Return the text of an expression, with parentheses if an operator around it binds tighter."""
    match expression:
        case Constant():
            return _number(expression)
        case Variable(name=name):
            return name
        case Load(buffer=buffer, indices=indices):
            return f"{buffer}[{_listed(indices)}]"
        case Apply(primitive="cast", operands=(x,)):
            return f"cast({x}, {expression.dtype.name})"
        case Apply(primitive=primitive, operands=(x, y)) if primitive in INFIX:
            sign, precedence = INFIX[primitive]
            # Comparisons cannot be chained.
            left_text = expression_text(x, precedence + (precedence == 1))
            text = f"{left_text} {sign} {expression_text(y, precedence + 1)}"
            return f"({text})" if precedence < binding else text
    assert isinstance(expression, Apply)
    return f"{expression.primitive}({_listed(expression.operands)})"


def _listed(expressions: Iterable[Expr]) -> str:
    return ", ".join(map(expression_text, expressions))


def _number(constant: Constant) -> str:
    if constant.dtype.is_bool:
        return "true" if constant.value else "false"
    plain = constant.dtype in (INDEX, dtypes.float32)
    return repr(constant.value) + ("" if plain else f":{constant.dtype.name}")
