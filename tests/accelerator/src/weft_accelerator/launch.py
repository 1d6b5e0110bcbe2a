"""Kernel launches in an accelerator's stream, on values in its memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_accelerator.memory import DeviceMemory, stays
from weft_accelerator.variables import DeviceVariable
from weft_exec.devices.device import KernelFunction
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.random_counters import current_iteration, run_at
from weft_exec.resources.resources import CompletionCallback, ResourceHandle
from weft_graph.ir.node import Node
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_accelerator.device import AccelDevice


class Launch:
    """One run of a kernel, from its submission to the stream until it is done or cancelled."""

    def __init__(
        self,
        device: AccelDevice,
        node: Node,
        work: KernelFunction,
        inputs: Sequence[Any],
        done: CompletionCallback,
        context: StepContext,
    ) -> None:
        self._device = device
        self._node = node
        self._work = work
        self._inputs = inputs
        self._done = done
        self._cancellation = context.cancellation
        self._where = current_iteration()
        self._claims = itertools.count()
        self._token = self._cancellation.register(self._cancel)

    def __call__(self) -> None:
        """Run the kernel, unless it was cancelled; called by the stream."""
        if next(self._claims):
            return
        self._cancellation.deregister(self._token)
        inputs, self._inputs = self._inputs, ()
        try:
            result = self._device.hardware.run(self._node, self._compute, inputs)
        except Exception as error:  # because the step that waits must be told
            self._done.fail(error)
        else:
            self._done(result)

    def _cancel(self, error: errors.OpError) -> None:
        if not next(self._claims):
            self._inputs = ()
            self._done.fail(error.copy())

    def _compute(self, *inputs: Any) -> Any:
        memory = self._device.hardware.memory
        seen = [_seen(value, memory) for value in inputs]
        result = run_at(*self._where, self._work, *seen)
        if isinstance(result, tuple | list):
            return tuple([_given(value, memory, inputs, seen) for value in result])
        return _given(result, memory, inputs, seen)


def _seen(value: Any, memory: DeviceMemory) -> Any:
    """Return an input as an array for kernels over NumPy."""
    if isinstance(value, ResourceHandle):
        inner = _seen(value.resource, memory)
        return ResourceHandle(value.device, value.container, value.name, inner)
    if isinstance(value, DeviceVariable) and value.memory is memory:
        return value.inner
    if hasattr(value, "assign"):
        raise errors.InvalidArgumentError(f"variable {value.name} is not on {memory.name}")
    return memory.look(value)


def _given(value: Any, memory: DeviceMemory, inputs: Sequence[Any], seen: Sequence[Any]) -> Any:
    """Return the result of a kernel over NumPy as a value of the accelerator."""
    for mine, theirs in zip(inputs, seen, strict=True):
        if value is theirs and not isinstance(value, np.ndarray | np.generic):
            return mine
    return value if stays(value) else memory.put(value)


def launching(device: AccelDevice, work: KernelFunction, node: Node) -> KernelFunction:
    """Return an asynchronous kernel that submits `work` to the accelerator's stream."""

    def run(context: StepContext, inputs: Sequence[Any], done: CompletionCallback) -> None:
        device.hardware.compute.submit(Launch(device, node, work, inputs, done, context))

    return run
