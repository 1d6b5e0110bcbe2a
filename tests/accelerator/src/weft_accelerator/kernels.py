"""Kernels of accelerators: those of the CPU on values in the accelerator's memory.

Importing this registers them for every op that computes with numbers, and for variables. What is
about strings, handles of other resources, files, queues, functions, Python and lists of mixed types
stays on the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from weft_accelerator.device import TYPE, AccelDevice
from weft_accelerator.memory import DeviceMemory, stays
from weft_accelerator.variables import DeviceVariable
from weft_exec.devices.device import Device
from weft_exec.kernels.context import StepContext
from weft_exec.kernels.random_counters import here, run_at
from weft_exec.kernels.registry import (
    Kernel,
    KernelFunction,
    find_kernel,
    kernel,
    kernels_of,
    registered_kernels,
)
from weft_exec.resources.resources import Done, ResourceHandle
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import OpDef, lookup_op
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import compatible_dims, format_dims

NUMBERS: Final = frozenset(
    {dtypes.as_dtype(f"int{bits}") for bits in (8, 16, 32, 64)}
    | {dtypes.as_dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
    | {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}
    | {dtypes.complex64, dtypes.complex128, dtypes.as_dtype("bool")}
)
HOLDERS: Final = ("Variable", "VariableV2", "VarHandleOp")
_ON_VARIABLES: Final = ("state", "training", "slicing")
_WITH_STREAMS: Final = ("random", "candidates")
_OF_THE_HOST: Final = ("control", "control_flow", "functional", "strings", "stack", "tensor_array")


class Launch:
    """One run of a kernel, from its submission to the stream until it is done or cancelled."""

    def __init__(
        self,
        device: AccelDevice,
        node: Node,
        work: KernelFunction,
        inputs: Sequence[Any],
        done: Done,
        context: StepContext,
    ) -> None:
        self._device = device
        self._node = node
        self._work = work
        self._inputs = inputs
        self._done = done
        self._cancellation = context.cancellation
        self._where = here()
        self._claims = itertools.count()
        self._token = self._cancellation.register(self._cancel)

    def __call__(self) -> None:
        """Run it, unless it was cancelled; called by the stream."""
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
    """An input as the CPU's kernels take it."""
    if isinstance(value, ResourceHandle):
        inner = _seen(value.resource, memory)
        return ResourceHandle(value.device, value.container, value.name, inner)
    if isinstance(value, DeviceVariable) and value.memory is memory:
        return value.inner
    if hasattr(value, "assign"):
        raise errors.InvalidArgumentError(f"variable {value.name} is not on {memory.name}")
    return memory.look(value)


def _given(value: Any, memory: DeviceMemory, inputs: Sequence[Any], seen: Sequence[Any]) -> Any:
    """What one of the CPU's kernels returned, as a value of the accelerator."""
    for mine, theirs in zip(inputs, seen, strict=True):
        if value is theirs and not isinstance(value, np.ndarray | np.generic):
            return mine
    return value if stays(value) else memory.put(value)


def _wrapped(node: Node, device: Device) -> KernelFunction:
    """The kernel of the CPU, run in the accelerator's stream."""
    mine = cast(AccelDevice, device)
    host = find_kernel(node, "CPU")
    assert host is not None
    work = host.make(node, mine.core)

    def run(context: StepContext, inputs: Sequence[Any], done: Done) -> None:
        mine.hardware.compute.submit(Launch(mine, node, work, inputs, done, context))

    return run


# --------------------------------------------------------------------------- variables


def _state(node: Node, device: AccelDevice) -> DeviceVariable:
    name = node.attrs["shared_name"] or node.name
    dtype, dims, memory = node.attrs["dtype"], node.attrs["shape"], device.hardware.memory
    found = device.resources.lookup_or_create(
        node.attrs["container"],
        name,
        DeviceVariable,
        lambda: DeviceVariable(name, dtype, dims, memory),
    )
    if found.memory is not memory:
        raise errors.InvalidArgumentError(
            f"variable {name!r} is in the memory of {found.memory.name}, not of {memory.name}"
        )
    if found.dtype is not dtype or not compatible_dims(found.dims, dims):
        raise errors.InvalidArgumentError(
            f"the container has a variable {name!r} of type {found.dtype.name} and shape "
            f"{format_dims(found.dims)}, got {dtype.name} and {format_dims(dims)}"
        )
    return found


def _holder(node: Node, device: Device) -> KernelFunction:
    """The variable, or its handle; looked up again when it was deleted."""
    mine = cast(AccelDevice, device)
    as_handle = node.type == "VarHandleOp"

    def find() -> tuple[DeviceVariable, Any]:
        state = _state(node, mine)
        if not as_handle:
            return state, state
        return state, ResourceHandle(device.name, state.container, state.name, state)

    state, value = find()

    def run() -> Any:
        nonlocal state, value
        if state.closed:
            state, value = find()
        return value

    return run


# --------------------------------------------------------------------------- registration


def _is_fit(entry: Kernel, op_def: OpDef) -> bool:
    """Whether a kernel of the CPU computes with numbers or variables alone."""
    package, _, family = entry.factory.__module__.rpartition(".")
    core = package == "weft_exec.kernels"
    if entry.asynchronous or package.startswith("weft_io") or (core and family in _OF_THE_HOST):
        return False
    args = (*op_def.inputs, *op_def.outputs)
    if any(arg.list_attr or arg.dtype in (dtypes.string, dtypes.variant) for arg in args):
        return False
    handles = any(arg.is_ref or arg.dtype is dtypes.resource for arg in args)
    if handles:
        first = op_def.inputs[:1]
        takes = any(arg.is_ref or arg.dtype is dtypes.resource for arg in first)
        return core and family in _ON_VARIABLES and takes
    return not op_def.stateful or (core and family in _WITH_STREAMS)


def _types(entry: Kernel, op_def: OpDef) -> Mapping[str, Sequence[DType]] | None:
    """The element types per type attribute that are numbers; None where there are none."""
    found = {}
    for name, attr in op_def.attrs.items():
        if attr.type == "list(type)":
            return None
        if attr.type == "type":
            allowed = entry.dtypes.get(name) or attr.allowed or NUMBERS
            found[name] = tuple(NUMBERS.intersection(allowed))
            if not found[name]:
                return None
    return found


def cover(*ops: str) -> None:
    """Register what can be had for ops that the CPU has kernels of; those covered before stay."""
    for op in ops:
        if kernels_of(op, TYPE):
            continue
        if op in HOLDERS:
            kernel(op, device=TYPE, dtypes={"dtype": tuple(NUMBERS)})(_holder)
            continue
        op_def = lookup_op(op)
        for entry in kernels_of(op, "CPU"):
            types = _types(entry, op_def) if _is_fit(entry, op_def) else None
            if types is not None:
                register = kernel(
                    op, device=TYPE, dtypes=types, alias=entry.alias, asynchronous=True
                )
                register(_wrapped)


cover(*[op for op, device_type in registered_kernels() if device_type == "CPU"])
