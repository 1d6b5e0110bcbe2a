"""The functions of a pipeline, and their threads."""

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


_CALLS_AHEAD: Final = 4
"""Number of calls per processor that AUTOTUNE starts ahead."""


class FunctionCall:
    """A function of the graph's library that a pipeline applies to its elements.

    Args:
      function: the function.
      device: the device on which it runs; it uses the variables of that device's session.
    """

    def __init__(self, function: Function, device: Device) -> None:
        self._body = FunctionBody(function, device)

    def __call__(self, values: Sequence[Any]) -> Element:
        """Call the function and return its results."""
        arguments = [graph_value(value) if type(value) is bytes else value for value in values]
        return tuple([component(value) for value in self._body(arguments)])


def call_of(node: Node, attribute: str, device: Device) -> FunctionCall:
    """Return the function named by a node's attribute."""
    named = node.attrs[attribute]
    assert isinstance(named, NameAttrs)
    return FunctionCall(node.graph.functions[named.name], device)


def bind_captured(call: Call, captured: Sequence[Any]) -> Call:
    """Bind the last arguments of a call."""
    if not captured:
        return call
    remaining = tuple(captured)
    return lambda values: call((*values, *remaining))


def convert_end_of_sequence(call: Call) -> Call:
    """Wrap a call so that its OutOfRangeError becomes an error that does not end the dataset.

    A StopIteration of a Python function is therefore an error and does not end training.
    """

    def run(values: Sequence[Any]) -> Element:
        try:
            return call(values)
        except errors.OutOfRangeError as error:
            raise errors.InvalidArgumentError(
                f"the function of an element raised an OutOfRangeError: {error.message}",
                node=error.node,
                op=error.op,
            ) from error

    return run


def threads_for(calls: int, device: Device) -> tuple[int, ThreadPool]:
    """Return the number of calls to start ahead of their results, and the threads that run them.

    Args:
      calls: the number of concurrent calls; AUTOTUNE for one per processor that this process may
        use. In that case a few more calls are started, so that the threads have work while a batch
        is
        assembled.
    """
    processors = num_processors()
    if calls == AUTOTUNE:
        return _CALLS_AHEAD * processors, shared_pool(max(2, processors))
    return calls, shared_pool(max(2, min(calls, 4 * processors)))


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
