"""Programs: buffers, and the statements that fill them.

    program softmax(x: float32[4, 10]) -> (y: float32[4, 10]):
      parallel i in 4:
        var m: float32 = -inf
        for j in 10:
          m maximum= x[i, j]
        var s: float32 = 0.0
        for j in 10:
          s add= exp(x[i, j] - m)
        for j in 10:
          y[i, j] = exp(x[i, j] - m) / s

A program reads inputs and fills outputs. The memory of outputs must not overlap with inputs or
other outputs. Outputs that it updates, `-> (update v: float32[8])`, have old values, which it may
read until it stores new ones. Buffers are dense, in C order. Statements are immutable; passes
create new ones. Names are unique within a program, except that loops side by side may share a
variable name.

`weft_compiler.ir.verifier.verify` checks the rules of each statement, after every pass.
`weft_compiler.interpreter.interpret` defines the meaning of each statement.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias

from weft_compiler.ir.expressions import Expr, Load, walk as parts
from weft_tensor import errors
from weft_tensor.dtypes import DType, complex64, complex128, float32


@dataclass(frozen=True, slots=True)
class Buffer:
    """Dense memory with a single element type.

    Attributes:
      name: unique in the program.
      dtype: bool, an integer or a floating-point type.
      shape: the sizes of its dimensions.
      is_complex: True if callers pass it as a complex array, without the last axis.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_complex: bool = False

    @property
    def array_type(self) -> tuple[DType, tuple[int, ...]]:
        """The element type and the shape of the array that callers pass."""
        if not self.is_complex:
            return self.dtype, self.shape
        return (complex64 if self.dtype is float32 else complex128), self.shape[:-1]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.size

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance between neighbors in each dimension, in elements."""
        return tuple(math.prod(self.shape[index + 1 :]) for index in range(len(self.shape)))


class _Analyzed:
    """Base of immutable objects with a slot for cached results of analyses."""

    __slots__ = ("_effects",)


@dataclass(frozen=True, slots=True, eq=False)
class Statement(_Analyzed):
    """Base of all statements; immutable, so that analyses may cache results by statement."""

    def __str__(self) -> str:
        from weft_compiler.ir.printer import statement_text

        return statement_text(self)


Body = tuple[Statement, ...]


class Order(enum.Enum):
    """The order in which the iterations of a loop may run.

    SERIAL: in sequence.
    PARALLEL: in any order, by several threads; iterations are independent.
    VECTOR: in any order, several together in the lanes of a register; innermost loops only.
    """

    SERIAL = "for"
    PARALLEL = "parallel"
    VECTOR = "vector"


COMBINERS: Final = frozenset(("add", "mul", "minimum", "maximum", "bit_and", "bit_or", "bit_xor"))
"""The primitives that may combine values in any order and grouping."""


@dataclass(frozen=True, slots=True, eq=False)
class For(Statement):
    """A loop over start, start + 1, ..., extent - 1.

    Attributes:
      variable: an index that is visible in the body.
      extent: an int64 expression, evaluated once before the loop; no iteration runs if it is not
        above `start`.
      start: a non-negative int64 expression; None for 0. Must be None for PARALLEL loops.
    """

    variable: str
    extent: Expr
    body: Body
    order: Order = Order.SERIAL
    start: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class While(Statement):
    """A loop that runs as long as a condition is true; the body changes the condition.

    It polls the interrupt flag of the program.
    """

    condition: Expr
    body: Body


@dataclass(frozen=True, slots=True, eq=False)
class If(Statement):
    """A branch to one of two bodies."""

    condition: Expr
    then: Body
    otherwise: Body = ()


@dataclass(frozen=True, slots=True, eq=False)
class Let(Statement):
    """A name for a value, visible to the end of the enclosing body."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Var(Statement):
    """An assignable variable with its initial value, visible to the end of the enclosing body."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Statement):
    """An assignment to a `Var`.

    Attributes:
      combine: one of COMBINERS; the new value is this primitive of the old value and `value`.
        Iterations of enclosing loops may be combined in any order. If None, the new value is
        `value`.
    """

    name: str
    value: Expr
    combine: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Store(Statement):
    """A store to an element of an output or an allocated buffer.

    Attributes:
      combine: as in `Assign`.
    """

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    combine: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Statement):
    """A buffer with undefined content, visible to the end of the enclosing body.

    Each iteration of enclosing loops has its own.
    """

    buffer: Buffer


FOR_KERNELS: Final = "kernels compute this: "
"""Prefix of the message of a check whose failure is not an error: the program deoptimizes to
kernels.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Check(Statement):
    """A condition that ends the program if it is false.

    If it is false, the outputs are undefined. If it compares a name with constants, the rest of the
    body may rely on the resulting bounds.

    Attributes:
      message: the requirement.
    """

    condition: Expr
    message: str


Input: TypeAlias = Load
"""A view that a call reads; the field has its first element."""
Output: TypeAlias = Load
"""A view that a call writes and may read; the field has its first element."""

Views: TypeAlias = Mapping[str, tuple[DType, int]]
"""For each view of a call, the element type and the number of elements up to the end of its buffer.
"""


class OperandNames(NamedTuple):
    """The names of the operands of a routine.

    Attributes:
      views: the first elements of the memory that it accesses.
      outputs: the views that it writes.
      parameters: its sizes, strides and flags.
      numbers: its integers that depend on loops.
    """

    views: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    numbers: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Call(Statement):
    """A call of a routine, such as a matrix product.

    Each routine is a subclass (see `weft_compiler.routines`), whose fields are its operands. Fields
    of the types `Input` and `Output` are views. Fields of type `int` are parameters. Fields of type
    `Expr` are numbers: integers that may depend on loops and contain no loads.

    Attributes:
      routine: the name of the routine.
      sizes: the parameters that are known only at run time and are at least 1; their fields have
        the maximum.
    """

    routine: ClassVar[str] = ""

    sizes: tuple[tuple[str, Expr], ...] = field(default=(), kw_only=True)

    @classmethod
    def bind(
        cls,
        views: Sequence[Load],
        parameters: Sequence[tuple[str, int]],
        numbers: Sequence[Expr] = (),
        sizes: tuple[tuple[str, Expr], ...] = (),
    ) -> Self:
        """Return a call with operands in order, as its text has them.

        Raises: InvalidArgumentError: the operands do not match those of the routine.
        """
        names = operand_names(cls)
        counts = len(views), tuple([name for name, _ in parameters]), len(numbers)
        if counts != (len(names.views), names.parameters, len(names.numbers)):
            settings = [f"{name}=" for name in names.parameters]
            form = ", ".join(
                [*names.views, *settings, *(f"at {number}" for number in names.numbers)]
            )
            raise errors.InvalidArgumentError(f"{cls.routine} requires {cls.routine}({form})")
        named = zip((*names.views, *names.numbers), (*views, *numbers), strict=True)
        fields: dict[str, Any] = {**dict(named), **dict(parameters), "sizes": sizes}
        return cls(**fields)

    @property
    def views(self) -> tuple[Load, ...]:
        """All views."""
        names = operand_names(type(self)).views
        return tuple([getattr(self, name) for name in names])

    @property
    def outputs(self) -> tuple[Load, ...]:
        """The views that the call writes."""
        return tuple([getattr(self, name) for name in operand_names(type(self)).outputs])

    @property
    def parameters(self) -> tuple[tuple[str, int], ...]:
        """All parameters by name."""
        names = operand_names(type(self)).parameters
        return tuple([(name, getattr(self, name)) for name in names])

    @property
    def numbers(self) -> tuple[Expr, ...]:
        """All numbers."""
        names = operand_names(type(self)).numbers
        return tuple([getattr(self, name) for name in names]) if names else ()

    @property
    def reads_outputs(self) -> bool:
        """True if the call adds to its outputs."""
        return bool(getattr(self, "accumulate", 0))

    @property
    def symbolic_sizes(self) -> frozenset[str]:
        """The parameters that may be known only at run time."""
        return frozenset()

    @property
    def work(self) -> int:
        """The number of multiplications."""
        raise NotImplementedError

    def spans(self, size: int) -> Mapping[str, int]:
        """Return the number of elements that the call may access in each view.

        Args:
          size: bytes of an element.
        """
        raise NotImplementedError

    def error(self, views: Views) -> str:
        """Return why the operands are invalid, or ""."""
        raise NotImplementedError

    def reference(self, *operands: Any) -> None:
        """Compute the result of the call with NumPy; `sizes` is empty.

        Args:
          operands: flat arrays that begin with the first element of each view, then the numbers.
        """
        raise NotImplementedError


def operand_names(routine: type[Call]) -> OperandNames:
    """Return the names of a routine's operands, from the annotations of its fields."""
    names = _OPERAND_NAMES.get(routine)
    if names is None:
        names = _OPERAND_NAMES[routine] = _find_operand_names(routine)
    return names


def _find_operand_names(routine: type[Call]) -> OperandNames:
    kinds = {field.name: field.type for field in fields(routine) if field.name != "sizes"}
    unknown = {name for name, kind in kinds.items() if kind not in _OPERAND_TYPES}
    assert not unknown, f"{routine.__name__}: operands of another type: {sorted(unknown)}"

    def names_of_types(*types: str) -> tuple[str, ...]:
        return tuple([name for name, kind in kinds.items() if kind in types])

    return OperandNames(
        names_of_types("Input", "Output"),
        names_of_types("Output"),
        names_of_types("int"),
        names_of_types("Expr"),
    )


_OPERAND_NAMES: Final[dict[type[Call], OperandNames]] = {}
_OPERAND_TYPES: Final = ("Input", "Output", "int", "Expr")


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The computation of a region.

    Attributes:
      name: for dumps, traces and assembly.
      inputs: buffers that it reads.
      outputs: buffers that it fills, with every element.
      constants: the values of known inputs, as arrays of their types and shapes.
      updated: the names of the outputs that have old values.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Body
    constants: dict[str, Any] = field(default_factory=dict)
    updated: frozenset[str] = frozenset()

    def __str__(self) -> str:
        from weft_compiler.ir.printer import program_text

        return program_text(self)

    @property
    def buffers(self) -> dict[str, Buffer]:
        """All buffers by name, including allocated ones."""
        buffers = {buffer.name: buffer for buffer in (*self.inputs, *self.outputs)}
        for statement in walk(self.body):
            if isinstance(statement, Allocate):
                buffers[statement.buffer.name] = statement.buffer
        return buffers


def bodies(statement: Statement) -> tuple[Body, ...]:
    """Return the bodies of a statement."""
    if isinstance(statement, For | While):
        return (statement.body,)
    return (statement.then, statement.otherwise) if isinstance(statement, If) else ()


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions of a statement, not including those in its bodies."""
    match statement:
        case For(extent=extent, start=start):
            return (extent,) if start is None else (start, extent)
        case Let(value=value) | Var(value=value) | Assign(value=value):
            return (value,)
        case While(condition=value) | If(condition=value) | Check(condition=value):
            return (value,)
        case Store(indices=indices, value=value):
            return (*indices, value)
        case Call(sizes=sizes):
            return (*statement.views, *statement.numbers, *[size for _, size in sizes])
    return ()


def loads(body: Body) -> Iterator[Load]:
    """Return all loads in a body, including the input views of its calls."""
    for statement in walk(body):
        for expression in expressions(statement):
            yield from (part for part in parts(expression) if isinstance(part, Load))


def walk(body: Body) -> Iterator[Statement]:
    """Yield all statements in pre-order: each before those in its bodies."""
    statements: list[Statement] = []
    _collect(body, statements)
    return iter(statements)


def _collect(body: Iterable[Statement], statements: list[Statement]) -> None:
    # Iterative, because nested generators would pass each statement through all levels.
    for statement in body:
        statements.append(statement)
        for inner in bodies(statement):
            _collect(inner, statements)
