"""Categories of the time of a step."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from weft_trace.schema import Kind, Node


class Category(StrEnum):
    """Category of the time of a part of a step."""

    COMPUTE = "compute"
    """Kernels, regions, copies."""
    PEER = "wait for peers"
    """Waiting for a value that another task had not computed yet."""
    WIRE = "wire"
    """The transfer of a value, and messages that start work on other tasks."""
    QUEUEING = "queueing"
    """An event was ready, and its thread was busy with other steps or had not picked it up."""
    WAIT = "wait for input"
    """Waiting for a queue, a dataset or a lock."""
    PYTHON = "Python"
    """Python code: the session's own, and the program's between two steps."""
    COMPILE = "compile"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"
    """Nothing that the trace knows of."""


_OF_KIND: Final = {
    Kind.STEP: Category.PYTHON,
    Kind.PHASE: Category.PYTHON,
    Kind.KERNEL: Category.COMPUTE,
    Kind.REGION: Category.COMPUTE,
    Kind.GENERATED: Category.COMPUTE,
    Kind.COPY: Category.COMPUTE,
    Kind.RECEIVE: Category.PEER,
    Kind.TRANSFER: Category.WIRE,
    Kind.WAIT: Category.WAIT,
    Kind.PYTHON: Category.PYTHON,
    Kind.CHECKPOINT: Category.CHECKPOINT,
    Kind.BUFFER: Category.IDLE,
}


def category_of(kind: int, node: Node) -> Category:
    """Return the category of the events of a node.

    Args:
      kind: kind of the event: a `Kind`, or a number from a newer version.
    """
    if kind == Kind.PHASE and node.name == "compile":
        return Category.COMPILE
    return _OF_KIND.get(Kind(kind), Category.IDLE) if kind in _KINDS else Category.IDLE


_KINDS: Final[frozenset[Any]] = frozenset(Kind)
