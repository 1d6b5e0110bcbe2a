"""Captured values of parallel loops, and the minimal number of iterations for a thread."""

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
from weft_compiler.ir.work import estimate_work

_GRAIN: Final = 20_000
"""Minimum number of operations that are worth handing to a thread."""

_LANES: Final = 1024
"""Threads run a multiple of this many iterations of an innermost loop, to fill vector lanes."""

CHUNKS: Final = 4
"""Number of chunks of a thread's part of a loop; other threads take chunks of a late thread."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A value captured by a parallel loop.

    Attributes:
      kind: its type with parameter attributes.
      value: its operand in the function that contains the loop.
    """

    kind: str
    value: str


def parallel_grain(loop: For, innermost: bool) -> int:
    """Return the number of iterations that are worth a thread: some microseconds of work."""
    inner = sum(map(estimate_work, loop.body)) + 1
    iterations = max(1, -(-_GRAIN // inner))
    return -(-iterations // _LANES) * _LANES if innermost else iterations


def free_names(statement: Statement, immediate: Container[str]) -> list[str]:
    """Return the names of values and buffers that a statement uses and does not define.

    Args:
      immediate: buffers whose only element is known; they are not loaded.
    """
    names: dict[str, None] = {}
    defined = set()
    for inner in walk((statement,)):
        for expression in expressions(inner):
            for part in parts(expression):
                if isinstance(part, Variable):
                    names[part.name] = None
                elif isinstance(part, Load) and part.buffer not in immediate:
                    names[part.buffer] = None
        match inner:
            case Store(buffer=buffer):
                names[buffer] = None
            case Call(views=views):
                names |= dict.fromkeys(view.buffer for view in views)
            case For(variable=name) | Let(name=name) | Var(name=name):
                defined.add(name)
            case Allocate(buffer=allocated):
                defined.add(allocated.name)
    return [name for name in names if name not in defined]


def strip_attributes(kind: str) -> str:
    """Return a type without its parameter attributes."""
    return kind.partition(" ")[0]


def thunk(name: str, captures: Sequence[Capture]) -> str:
    """Return a function that loads the values of a frame and calls another function with them."""
    w = Writer()
    arguments = []
    for index, capture in enumerate(captures):
        kind = strip_attributes(capture.kind)
        address = w.put(f"getelementptr i64, ptr %frame, i64 {index}")
        value = w.put(f"load {'i8' if kind == 'i1' else kind}, ptr {address}, align 8")
        if kind == "i1":
            value = w.put(f"trunc i8 {value} to i1")
        arguments.append(f"{kind} {value}")
    iterations = "i64 %thread, i64 %low, i64 %high"
    result = w.put(f"call i32 @{name}({iterations}, {', '.join(arguments)})")
    w.do(f"ret i32 {result}")
    head = f"define internal i32 @{name}.call(ptr %frame, {iterations}) #0"
    return "\n".join([f"{head} {{\nentry:", *w.lines, "}", ""])
