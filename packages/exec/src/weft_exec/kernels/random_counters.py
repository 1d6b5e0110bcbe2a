"""Counters that make random ops draw different numbers in each step and iteration.

A random kernel must know its step and iteration, but it is the same function in all of them. Code
that runs such kernels records step and iteration for the thread, by `run_in_new_step`, `run_at` and
`run_in_call`. So the numbers do not depend on threads, devices, or the order of iterations.
A device that runs kernels on its own threads passes the result of `current_iteration` to
`run_at` on the new thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from zlib import crc32

from weft_graph.functions.state import uses_rng
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.whole_loops import STRIDE

_MASK = 2**64 - 1

Executions = dict[Any, int]
"""The execution number of each stream that the step uses."""


class _CurrentIteration(threading.local):
    """The step and iteration of the current thread.

    Attributes:
      executions: the executions in the current step; None outside of steps that draw.
      tag: the tag of the current iteration.
    """

    def __init__(self) -> None:
        self.executions: Executions | None = None
        self.tag = 0


current = _CurrentIteration()


def needs_counters(node: Node) -> bool:
    """Return True if a node draws random numbers or counts its runs, or calls functions that do."""
    return node.role is Role.CALL or uses_rng(node) or node.traits.numbered


def next_counter(stream: Any) -> tuple[int, int]:
    """Begin the next execution of a stream; return its number and the tag of the iteration.

    Args:
      stream: the stream, which the caller has locked; `count` is the number of the next step that
        uses it.
    """
    executions = current.executions
    number = None if executions is None else executions.get(stream)
    if number is None:
        number = stream.count
        stream.count += 1
        if executions is not None:
            executions[stream] = number
    return number, current.tag


def iteration_tag(outer_tag: int, index: int) -> int:
    """Return the tag of a loop iteration; `outer_tag` is the tag of the enclosing iteration."""
    return (outer_tag * STRIDE + index) & _MASK


def current_iteration() -> tuple[Executions | None, int]:
    """Return the step and iteration of this thread, for `run_at` on another thread."""
    return current.executions, current.tag


def run_at(
    executions: Executions | None, tag: int, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Return `function(*arguments)`, run with the given step and iteration."""
    saved = current.executions, current.tag
    current.executions, current.tag = executions, tag
    try:
        return function(*arguments)
    finally:
        current.executions, current.tag = saved


def run_in_new_step(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)`, run as a separate step."""
    return run_at({}, 0, function, *arguments)


def run_in_call(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(*arguments)`, run with a tag that distinguishes calls of the same body."""
    tag = iteration_tag(current.tag, 1 + crc32(name.encode()))
    return run_at(current.executions, tag, function, *arguments)
