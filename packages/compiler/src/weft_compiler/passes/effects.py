"""What a statement reads and writes: the names and the places of buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from weft_compiler.ir.expressions import Expr, Load, Variable, walk
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Call,
    Check,
    For,
    Let,
    Statement,
    Store,
    Var,
    While,
    bodies,
    expressions,
)
from weft_compiler.routines import routine

Place = tuple[Expr, ...] | None
"""The indices of an access; None where a routine touches what it will."""


@dataclass
class Effects:
    """What a statement does to what is outside of it.

    Attributes:
      reads, writes: the places of buffers that it loads and stores.
      uses, defines: names that it uses and that it defines or assigns.
      ends: it may end the program, or not end itself.
    """

    reads: dict[str, list[Place]] = field(default_factory=dict)
    writes: dict[str, list[Place]] = field(default_factory=dict)
    uses: set[str] = field(default_factory=set)
    defines: set[str] = field(default_factory=set)
    ends: bool = False

    def conflicts(self, other: Effects) -> bool:
        """Whether two statements cannot change places."""
        return bool(
            self.defines & (other.uses | other.defines)
            or self.uses & other.defines
            or self.writes.keys() & (other.reads.keys() | other.writes.keys())
            or self.reads.keys() & other.writes.keys()
            or (self.ends and (other.ends or other.writes))
            or (other.ends and self.writes)
        )


def effects_of(statements: Iterable[Statement]) -> Effects:
    """What some statements do, one after the other."""
    found = Effects()
    for statement in statements:
        _add(statement, found)
    return found


def _add(statement: Statement, found: Effects) -> None:
    for expression in expressions(statement):
        for part in walk(expression):
            if isinstance(part, Variable):
                found.uses.add(part.name)
            elif isinstance(part, Load) and not isinstance(statement, Call):
                found.reads.setdefault(part.buffer, []).append(part.indices)
    match statement:
        case For(variable=name) | Let(name=name) | Var(name=name):
            found.defines.add(name)
        case Assign(name=name):
            found.defines.add(name)
            found.uses.add(name)
        case Store(buffer=buffer, indices=indices, combine=combine):
            found.writes.setdefault(buffer, []).append(indices)
            if combine is not None:
                found.reads.setdefault(buffer, []).append(indices)
        case Allocate(buffer=allocated):
            found.defines.add(allocated.name)
        case Call(routine=name, views=views):
            for view, what in zip(views, routine(name).views, strict=True):
                places = found.writes if what in routine(name).writes else found.reads
                places.setdefault(view.buffer, []).append(None)
        case Check() | While():
            found.ends = True
    for body in bodies(statement):
        for inner in body:
            _add(inner, found)


def places(effects: Effects, buffer: str) -> Iterator[Place]:
    """All places of a buffer that are read or written."""
    yield from effects.reads.get(buffer, ())
    yield from effects.writes.get(buffer, ())
