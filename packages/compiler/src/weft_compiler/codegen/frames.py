"""What a parallel loop sees of values around it, and how many of its turns are worth a thread."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.codegen.writer import Writer
from weft_compiler.ir.expressions import Load, Variable, walk as parts
from weft_compiler.ir.program import (
    Allocate,
    Call,
    For,
    Let,
    Statement,
    Store,
    Var,
    expressions,
    walk,
)
from weft_compiler.passes.parallelize import estimate_work

_GRAIN: Final = 20_000
"""Operations that a thread does at a time, at least."""

_LANES: Final = 1024
"""Turns of an innermost loop that a thread does are a multiple of this, for the sake of lanes."""

CHUNKS: Final = 4
"""Into how many chunks a thread's part of a loop is cut, so that who is late has fewer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that a parallel loop sees.

    Attributes:
      kind: its type, with what is said of it as a parameter.
      value: what it is where the loop is offered.
    """

    kind: str
    value: str


def grain_of(loop: For, innermost: bool) -> int:
    """Turns of a loop that are worth another thread: what takes some microseconds."""
    inner = sum(map(estimate_work, loop.body)) + 1
    turns = max(1, -(-_GRAIN // inner))
    return -(-turns // _LANES) * _LANES if innermost else turns


def names_of(statement: Statement, immediate: Container[str]) -> list[str]:
    """Names of values and buffers that a statement uses and does not define.

    Args:
      immediate: buffers whose one element is known, which are not loaded.
    """
    found: dict[str, None] = {}
    inside = set()
    for each in walk((statement,)):
        for expression in expressions(each):
            for part in parts(expression):
                if isinstance(part, Variable):
                    found[part.name] = None
                elif isinstance(part, Load) and part.buffer not in immediate:
                    found[part.buffer] = None
        match each:
            case Store(buffer=buffer):
                found[buffer] = None
            case Call(views=views):
                found |= dict.fromkeys(view.buffer for view in views)
            case For(variable=name) | Let(name=name) | Var(name=name):
                inside.add(name)
            case Allocate(buffer=allocated):
                inside.add(allocated.name)
    return [name for name in found if name not in inside]


def plain(kind: str) -> str:
    """A type without what is said of a parameter besides."""
    return kind.partition(" ")[0]


def thunk(name: str, seen: Sequence[Seen]) -> str:
    """The function that calls another with what a frame has for it."""
    w = Writer()
    given = []
    for at, each in enumerate(seen):
        kind = plain(each.kind)
        place = w.put(f"getelementptr i64, ptr %frame, i64 {at}")
        value = w.put(f"load {'i8' if kind == 'i1' else kind}, ptr {place}, align 8")
        if kind == "i1":
            value = w.put(f"trunc i8 {value} to i1")
        given.append(f"{kind} {value}")
    turns = "i64 %thread, i64 %low, i64 %high"
    found = w.put(f"call i32 @{name}({turns}, {', '.join(given)})")
    w.do(f"ret i32 {found}")
    head = f"define internal i32 @{name}.call(ptr %frame, {turns}) #0"
    return "\n".join([f"{head} {{\nentry:", *w.lines, "}", ""])
