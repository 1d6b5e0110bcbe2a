"""The functions of a pipeline, and the threads that they run on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft_exec.functions.body import FunctionBody
from weft_exec.resources.threads import ThreadPool, shared_pool
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.node import Node
from weft_io.streams.prefetching import AUTOTUNE
from weft_io.streams.stream import Call, Element, component, graph_value
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.functions.function import Function


_AHEAD: Final = 4
"""Calls that AUTOTUNE begins ahead, for each processor."""


class FunctionCall:
    """A function of the graph's library that a pipeline applies to its elements.

    Args:
      function: the function.
      device: its device; the function uses the variables of the device's session.
    """

    def __init__(self, function: Function, device: Device) -> None:
        self._body = FunctionBody(function, device)

    def __call__(self, values: Sequence[Any]) -> Element:
        """Return the results for some arguments."""
        arguments = [graph_value(value) if type(value) is bytes else value for value in values]
        return tuple([component(value) for value in self._body(arguments)])


def call_of(node: Node, attribute: str, device: Device) -> FunctionCall:
    """Return the function that an attribute of a node names."""
    named = node.attrs[attribute]
    assert isinstance(named, NameAttrs)
    return FunctionCall(node.graph.functions[named.name], device)


def with_captured(call: Call, captured: Sequence[Any]) -> Call:
    """Return a call with its last arguments bound."""
    if not captured:
        return call
    remaining = tuple(captured)
    return lambda values: call((*values, *remaining))


def preserving(call: Call) -> Call:
    """Wrap a call that must not end a dataset: its OutOfRangeError is converted.

    So a StopIteration of a Python function is an error, not the end of training.
    """

    def run(values: Sequence[Any]) -> Element:
        try:
            return call(values)
        except errors.OutOfRangeError as error:
            raise errors.InvalidArgumentError(
                f"the function of an element gave an OutOfRangeError: {error.message}",
                node=error.node,
                op=error.op,
            ) from error

    return run


def threads_for(calls: int, device: Device) -> tuple[int, ThreadPool]:
    """Return how many calls are begun ahead of their results, and the threads that run them.

    Args:
      calls: the number of calls at a time; AUTOTUNE for one on each processor that this process may
        use. Some more are begun then, so that the threads have work while a batch is put together.
    """
    processors = num_processors()
    if calls == AUTOTUNE:
        return _AHEAD * processors, shared_pool(max(2, processors))
    return calls, shared_pool(max(2, min(calls, 4 * processors)))


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
