"""What makes the numbers of a random op differ from step to step and from iteration to iteration.

A random kernel has to know which step it runs in and which iteration, and it is the same function
in all of them.  Whoever runs kernels that draw tells the thread: `in_new_step`, `run_at`,
`in_call`.  The numbers so depend on neither threads nor devices, nor on which iteration happens to
come first.  A device that runs kernels on threads of its own asks `here` when one is started, and
runs it by `run_at`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from zlib import crc32

from weft_graph.functions.state import draws
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.whole_loops import STRIDE

_MASK = 2**64 - 1

Executions = dict[Any, int]
"""For each stream that was used in a step, the number of its execution."""


class _Current(threading.local):
    """Where this thread is.

    Attributes:
      executions: of the step that it runs; None outside of steps that draw.
      tag: of the iteration.
    """

    def __init__(self) -> None:
        self.executions: Executions | None = None
        self.tag = 0


current = _Current()


def needs_counters(node: Node) -> bool:
    """Whether a node draws random numbers or numbers its runs, or may run what does."""
    return node.role is Role.CALL or draws(node) or node.traits.numbered


def next_counter(stream: Any) -> tuple[int, int]:
    """The number of a stream's execution that begins now, and the tag of the iteration.

    Args:
      stream: has `count`, the number of the next step that uses it. Held by the caller alone.
    """
    executions = current.executions
    number = None if executions is None else executions.get(stream)
    if number is None:
        number = stream.count
        stream.count += 1
        if executions is not None:
            executions[stream] = number
    return number, current.tag


def iteration_tag(around: int, index: int) -> int:
    """The tag of an iteration of a loop that was entered in an iteration with the tag `around`."""
    return (around * STRIDE + index) & _MASK


def here() -> tuple[Executions | None, int]:
    """Where this thread is, for `run_at` on another one."""
    return current.executions, current.tag


def run_at(
    executions: Executions | None, tag: int, function: Callable[..., Any], *arguments: Any
) -> Any:
    """`function(*arguments)` in a step and an iteration."""
    before = current.executions, current.tag
    current.executions, current.tag = executions, tag
    try:
        return function(*arguments)
    finally:
        current.executions, current.tag = before


def in_new_step(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a step of its own."""
    return run_at({}, 0, function, *arguments)


def in_call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a call, whose body other calls run in the same iteration."""
    tag = iteration_tag(current.tag, 1 + crc32(name.encode()))
    return run_at(current.executions, tag, function, *arguments)
