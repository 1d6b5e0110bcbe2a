"""Effects of statements: the names and the buffer elements that they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from weft_compiler.ir.expressions import INDEX, Constant, Expr, Load, Variable, walk
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
    bodies,
    expressions,
    operand_names,
)
from weft_compiler.ir.ranges import affine

Access = tuple[Expr, ...] | None
"""The indices of an access; `_ANY` is an unknown index. None means that all are unknown."""


@dataclass
class Effects:
    """The outer names and buffers that a statement reads, writes or defines; do not modify.

    Attributes:
      reads, writes: the accesses to the buffers that it loads from and stores to.
      uses, defines: the names that it uses, and that it defines or assigns.
      ends: True if it may end the program or run forever.
    """

    reads: dict[str, list[Access]] = field(default_factory=dict)
    writes: dict[str, list[Access]] = field(default_factory=dict)
    uses: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    ends: bool = False

    def add(self, other: Effects) -> None:
        """Add the effects of another statement."""
        for own_accesses, other_accesses in (
            (self.reads, other.reads),
            (self.writes, other.writes),
        ):
            for buffer, touched in other_accesses.items():
                own_accesses.setdefault(buffer, []).extend(touched)
        self.uses |= other.uses
        self.defines |= other.defines
        self.ends |= other.ends

    def conflicts(self, other: Effects) -> bool:
        """Return True if two statements cannot be exchanged."""
        return bool(
            self.defines & (other.uses | other.defines)
            or self.uses & other.defines
            or self.writes.keys() & (other.reads.keys() | other.writes.keys())
            or self.reads.keys() & other.writes.keys()
            or (self.ends and (other.ends or other.writes))
            or (other.ends and self.writes)
        )


Buffers = Mapping[str, Buffer]
Shape = tuple[int, ...]


def interface_buffers(program: Program) -> Buffers:
    """Return the inputs and outputs of a program."""
    return {buffer.name: buffer for buffer in (*program.inputs, *program.outputs)}


def with_allocations(buffers: Buffers, body: Iterable[Statement]) -> Buffers:
    """Add the buffers that a body allocates to others."""
    own_buffers = [statement.buffer for statement in body if isinstance(statement, Allocate)]
    return (
        {**buffers, **{statement.name: statement for statement in own_buffers}}
        if own_buffers
        else buffers
    )


def effects_of(statements: Iterable[Statement], buffers: Buffers) -> Effects:
    """Return the combined effects of some statements.

    Args:
      buffers: the buffers that are allocated outside the statements.
    """
    body = tuple(statements)
    if len(body) == 1:
        return _effects_of_one(body[0], with_allocations(buffers, body))[0]
    return _effects_of_body(body, buffers)[0]


def _effects_of_body(body: Body, buffers: Buffers) -> tuple[Effects, bool]:
    """Return the effects of a body, and whether they depend on the shapes of buffers."""
    buffers = with_allocations(buffers, body)
    total, depends = Effects(), False
    for statement in body:
        effects, by_shape = _effects_of_one(statement, buffers)
        total.add(effects)
        depends |= by_shape
    return total, depends


def _effects_of_one(statement: Statement, buffers: Buffers) -> tuple[Effects, bool]:
    """Return the effects of a statement, and whether they depend on the shapes of buffers."""
    if isinstance(statement, Call):
        return _effects_of_call(statement, buffers), True
    known_value: Effects | None = getattr(statement, "_effects", None)
    if known_value is not None:
        return known_value, False
    effects, depends = Effects(), False
    _add_one(statement, effects, buffers)
    for body in bodies(statement):
        inner, by_shape = _effects_of_body(body, buffers)
        effects.add(inner)
        depends |= by_shape
    if not depends:  # otherwise the effects of the statement depend on the shapes of buffers
        object.__setattr__(statement, "_effects", effects)
    return effects, depends


def _effects_of_call(call: Call, buffers: Buffers) -> Effects:
    """Return the effects of a call, cached for the shapes of its buffers."""
    shapes = [buffers[view.buffer].shape for view in call.views]
    known_values: tuple[list[Shape], Effects] | None = getattr(call, "_effects", None)
    if known_values is not None and known_values[0] == shapes:
        return known_values[1]
    effects = Effects()
    _add_one(call, effects, buffers)
    object.__setattr__(call, "_effects", (shapes, effects))
    return effects


def _add_one(statement: Statement, effects: Effects, buffers: Buffers) -> None:
    """Add the effects of a statement, without its bodies."""
    for expression in expressions(statement):
        for part in walk(expression):
            if isinstance(part, Variable):
                effects.uses.add(part.name)
            elif isinstance(part, Load) and not isinstance(statement, Call):
                effects.reads.setdefault(part.buffer, []).append(part.indices)
    match statement:
        case For(variable=name) | Let(name=name) | Var(name=name):
            effects.defines.add(name)
        case Assign(name=name):
            effects.defines.add(name)
            effects.uses.add(name)
        case Store(buffer=buffer, indices=indices, combine=combine):
            effects.writes.setdefault(buffer, []).append(indices)
            if combine is not None:
                effects.reads.setdefault(buffer, []).append(indices)
        case Allocate(buffer=allocated):
            effects.defines.add(allocated.name)
        case Call():
            names = operand_names(type(statement))
            for name, view in zip(names.views, statement.views, strict=True):
                viewed = buffers[view.buffer]
                span = statement.spans(viewed.dtype.size)[name]
                accesses = effects.writes if name in names.outputs else effects.reads
                touched = _view_access(view, viewed, span)
                accesses.setdefault(view.buffer, []).append(touched)
                if name in names.outputs and statement.reads_outputs:
                    effects.reads.setdefault(view.buffer, []).append(touched)
        case Check() | While():
            effects.ends = True


_ANY: Final = Variable(INDEX, "*")
"""An index whose value is unknown."""


def _view_access(view: Load, buffer: Buffer, span: int) -> Access:
    """Return the access of a routine that uses some elements from a view's first element onwards.

    If the last dimensions have at least that many elements, the access is within one index of the
    first dimensions.
    """
    inner, offset = 1, 0
    for axis in reversed(range(len(buffer.shape))):
        if offset + span <= inner:
            return (*view.indices[: axis + 1], *[_ANY] * (len(buffer.shape) - axis - 1))
        index, size = view.indices[axis], buffer.shape[axis]
        if isinstance(index, Constant):
            offset += int(index.value) * inner
        elif (step := _stride(index)) > 1 and size % step == 0 and offset + span <= step * inner:
            # It is in bounds, so the rest of the dimension has at least a step of elements.
            return (*view.indices[:axis], *[_ANY] * (len(buffer.shape) - axis))
        else:
            return None
        inner *= size
    return None


def _stride(index: Expr) -> int:
    """Return the factor if an index is a multiple of one variable; else 0."""
    terms = affine(index)
    if terms is None or len(terms) != 1 or "" in terms:
        return 0
    return next(iter(terms.values()))


def accesses(effects: Effects, buffer: str) -> Iterator[Access]:
    """Return all reads and writes of a buffer in some effects."""
    yield from effects.reads.get(buffer, ())
    yield from effects.writes.get(buffer, ())
