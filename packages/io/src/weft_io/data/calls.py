"""Running the functions of a pipeline: each is an executable of its own, derived once."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_exec.executor.context import StepContext
from weft_exec.executor.derive import derive
from weft_exec.executor.driver import Driver
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.pool import ThreadPool, shared_pool
from weft_exec.executor.quiet import quietly
from weft_exec.passes.fold import fold_constants
from weft_exec.placement import Placer
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.gc_pause import paused_gc
from weft_graph.ir.node import Node
from weft_graph.passes import eliminate_common_subexpressions, prune, simplify
from weft_graph.passes.inline import inline_calls
from weft_io.data.streams import Call, Element, component, graph_value

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.functions.function import Function


class FunctionCall:
    """A function of the graph's library, ready to run on a device's session.

    Args:
      function: what to run.
      device: where; its session's variables are those that the function sees.
    """

    def __init__(self, function: Function, device: Device) -> None:
        self._function = function
        self._device = device
        self._lock = threading.Lock()
        self._executable: Executable | None = None

    def __call__(self, values: Sequence[Any]) -> Element:
        """The results for some arguments."""
        executable = self._executable or self._derived()
        slots = executable.template.copy()
        for slot, value in zip(executable.feed_slots, values, strict=True):
            slots[slot] = graph_value(value) if type(value) is bytes else value
        if executable.run_line is not None:
            quietly(executable.run_line, slots)
        else:
            self._drive(executable, slots)
        return tuple([component(value) for value in executable.results(slots)])

    def _drive(self, executable: Executable, slots: list[Any]) -> None:
        context = StepContext(None, self._device.resources.default_container)
        quietly(Driver(executable, slots, context, None, None).run)

    def _derived(self) -> Executable:
        with self._lock:
            if self._executable is None:
                self._executable = _derive(self._function, self._device)
            return self._executable


def _derive(function: Function, device: Device) -> Executable:
    config = device.config
    with paused_gc():
        step = prune(function.inputs, function.outputs[: function.results], function.effects)
        inline_calls(step)
        if config.optimize:
            simplify(step)
            fold_constants(step, device)
            eliminate_common_subexpressions(step)
        placer = Placer([device], config)
        placer.extend(function.graph.nodes)
        return derive(step, placer.place, Overlap.NOTHING)


def call_of(node: Node, attribute: str, device: Device) -> FunctionCall:
    """The function that an attribute of a node names."""
    named = node.attrs[attribute]
    assert isinstance(named, NameAttrs)
    return FunctionCall(node.graph.functions[named.name], device)


def with_captured(call: FunctionCall, captured: Sequence[Any]) -> Call:
    """A call whose last arguments are known."""
    if not captured:
        return call
    rest = tuple(captured)
    return lambda values: call((*values, *rest))


def threads_for(calls: int, device: Device) -> tuple[int, ThreadPool]:
    """How many calls to run at once, and on what; -1 calls for as many as there are processors."""
    processors = os.cpu_count() or 1
    most = calls if calls > 0 else processors
    return most, shared_pool(max(2, min(most, 4 * processors)))
