"""Kernels of calls that are not inlined: recursive functions and functions that opt out.

The executable of a body is derived at the first call, and all calls of the function in one
executable share it. A body runs in a fixed order on the device of the call, and each call has its
own slots.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from weft_exec.executor import deep_calls
from weft_exec.executor.derivation import Placement
from weft_exec.executor.derive import derive
from weft_exec.executor.executable import Executable
from weft_exec.executor.linear import Compound
from weft_exec.executor.memory_budget import MemoryBudget
from weft_exec.functions.body import Derive, FunctionBody
from weft_exec.kernels.random_counters import current, run_in_call
from weft_exec.kernels.registry import Kernel, KernelFunction, find_kernel, kernel
from weft_exec.tracing.step_trace import LoopIteration
from weft_graph.functions.function import Function
from weft_graph.ir.graph import Graph
from weft_graph.ir.traits import Role
from weft_graph.passes.inline import function_of
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.executor.linear import Check, Segment
    from weft_exec.tracing.step_trace import ThreadLog
    from weft_graph.ir.node import Node
    from weft_graph.ir.step_graph import StepGraph


class OutlinedBody(FunctionBody):
    """The body of a function that is not inlined; it runs inside the step of the call."""

    def __init__(
        self, function: Function, device: Device, outputs: Sequence[int], bodies: OutlinedBodies
    ) -> None:
        super().__init__(function, device, outputs)
        self._bodies = bodies

    @property
    def segments(self) -> Sequence[Segment]:
        """Return the segments of the body; empty before it is derived."""
        executable = self._executable
        return () if executable is None or executable.linear is None else (executable.linear,)

    def _executable_of(
        self, step: StepGraph, placement: Placement, budget: MemoryBudget | None, make: Derive
    ) -> Executable:
        def place_here(node: Node) -> tuple[Device, Kernel]:
            try:
                return placement(node)
            except errors.OpError as error:
                error.message += (
                    f"; the calls of {self.function.name!r} are not inlined and run on one "
                    f"device, {self.device.name}"
                )
                raise

        _bodies[step.graph] = self._bodies
        executable = super()._executable_of(
            step, place_here, budget, derive
        )  # it is never replaced
        if executable.linear is None:
            raise _control_flow_error(step.live_nodes(), self.device, self.function)
        return executable


class OutlinedBodies:
    """The bodies of all calls in an executable that are not inlined."""

    def __init__(self) -> None:
        self._bodies_by_key: dict[tuple[Function, tuple[int, ...], str], OutlinedBody] = {}
        self._lock = threading.Lock()

    def find(self, function: Function, outputs: tuple[int, ...], device: Device) -> OutlinedBody:
        """Return the body of a function on a device."""
        with self._lock:
            key = (function, outputs, device.name)
            kept_body = self._bodies_by_key.get(key)
            if kept_body is None:
                kept_body = self._bodies_by_key[key] = OutlinedBody(function, device, outputs, self)
            return kept_body


_bodies: WeakKeyDictionary[Graph, OutlinedBodies] = WeakKeyDictionary()
"""The bodies for each graph: the context of a step, or of a body inside it."""


class OutlinedCall(Compound):
    """The function of a kernel that runs a body.

    Args:
      node: the call.
      body: the body of the called function.
    """

    def __init__(self, node: Node, device: Device, body: OutlinedBody) -> None:
        self._node = node
        self._device = device
        self._body = body
        self._count = len(node.outputs)
        self._executable: Executable | None = None
        self._single = self._count == 1 and body.outputs == (0,)

    def __call__(self, *inputs: Any) -> Any:
        """Return the results of the function."""
        executable = self._executable or self._derive_executable(inputs)
        line = executable.linear
        assert line is not None
        slots = executable.slots(inputs)
        self._run_guarded(run_in_call, self._node.name, line.run, slots)
        return self._results(executable, slots)

    def call_checked(self, check: Check, *inputs: Any) -> Any:
        """Call the function with `check` around each node of the body."""
        executable = self._executable or self._derive_executable(inputs)
        line = executable.linear
        assert line is not None
        slots = executable.slots(inputs)
        self._run_guarded(run_in_call, self._node.name, line.run_checked, slots, check)
        return self._results(executable, slots)

    def call_traced(self, log: ThreadLog, check: Check | None, *inputs: Any) -> Any:
        """Call the function, and record each node of the body in an iteration of the call."""
        executable = self._executable or self._derive_executable(inputs)
        line = executable.linear
        assert line is not None
        slots, outer_iteration = executable.slots(inputs), log.iteration

        def run() -> None:
            log.iteration = LoopIteration(self._node.name, 0, outer_iteration, current.tag)
            log.trim()
            line.run_traced(slots, log, check)

        try:
            self._run_guarded(run_in_call, self._node.name, run)
        finally:
            log.iteration = outer_iteration
        return self._results(executable, slots)

    @property
    def segments(self) -> Sequence[Segment]:
        """Return the segments of the body, so that closing a session can interrupt them."""
        return self._body.segments

    def _derive_executable(self, inputs: Sequence[Any]) -> Executable:
        self._executable = self._body.executable(inputs)
        return self._executable

    def _run_guarded(self, run: Callable[..., None], *arguments: Any) -> None:
        """Run the body one call deeper; errors name the call."""
        try:
            deep_calls.run(self._body.function.name, run, *arguments)
        except errors.OpError as error:
            node = self._node
            error.with_context(op=node.type, device=self._device.name, line=node.line or None)
            _name_call(error, node.name)
            # Drop the tracebacks of nested calls: there may be thousands.
            raise error.with_traceback(None) from error.__cause__

    def _results(self, executable: Executable, slots: list[Any]) -> Any:
        values = [slots[fetch.slot] for fetch in executable.fetches]
        if self._single:
            return values[0]
        if not self._count:
            return None
        results: list[Any] = [None] * self._count
        for output, value in zip(self._body.outputs, values, strict=True):
            results[output] = value
        return results[0] if self._count == 1 else tuple(results)


@kernel("PartitionedCall", "StatefulPartitionedCall", heavy=True, alias=True)
def _call(node: Node, device: Device) -> KernelFunction:
    function = function_of(node)
    bodies = _bodies.get(node.graph)
    if bodies is None:
        bodies = _bodies[node.graph] = OutlinedBodies()
    outputs = node.attrs.get("_used", tuple(range(len(node.outputs))))
    return OutlinedCall(node, device, bodies.find(function, outputs, device))


def _name_call(error: errors.OpError, call: str) -> None:
    """Prepend the names of the outermost and the innermost call to the node name of an error."""
    details = error.details
    details["calls"] = details.get("calls", 0) + 1
    if details["calls"] == 1:
        details["last_call"] = f"{call}/{error.node}" if error.node else call
        error.node = details["last_call"]
    else:
        separator = "/" if details["calls"] == 2 else "/.../"
        error.node = f"{call}{separator}{details['last_call']}"


def _control_flow_error(
    nodes: Sequence[Node], device: Device, function: Function
) -> errors.UnimplementedError:
    waiting = [
        f"{node.name!r} ({node.type})"
        for node in nodes
        if not node.traits.routes and node.role is not Role.CALL and _may_wait(node, device)
    ]
    reason = (
        f"{', '.join(waiting[:5])} may wait for something"
        if waiting
        else "its control flow was not built by cond or while_loop"
    )
    return errors.UnimplementedError(
        f"the function {function.name!r} cannot remain a call, which its recursion or _noinline "
        "requires: "
        f"{reason}"
    )


def _may_wait(node: Node, device: Device) -> bool:
    kernel = find_kernel(node, device.type)
    return kernel is not None and kernel.asynchronous
