"""Wrapper of a GPU kernel's function: copies, streams, result types and the host fallback.

The function of a kernel receives arrays of the GPU, except for the inputs that its registration
names in `host`. The wrapper copies values to where the kernel needs them, makes CuPy use the
device's streams and pool, and converts results to exactly the declared types. Single bools are
copied to the host, because branches read them there.

Host fallback: a node runs by the CPU's kernel in three cases: all of its data is on the host, its
  variable is on the host, or the op is registered for it (`host=ALL`). Results are stored where
  values of their kind belong.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.residency import is_of_host, stays_on_host
from weft_exec.kernels.registry import (
    ALL,
    KernelFactory,
    KernelFunction,
    find_kernel,
    require_kernel,
)
from weft_exec.resources.resources import ResourceHandle, VariableState
from weft_tensor import dtypes

if TYPE_CHECKING:
    from weft_graph.ir.node import Node


def launch_on_gpu(
    device: BaseGpuDevice, factory: KernelFactory, node: Node, host: Collection[str]
) -> KernelFunction:
    """Return a function that runs a node on a GPU, as the module docstring describes."""
    if tuple(host) == ALL:
        return _HostFallback(device, node)
    of_host = host_inputs(node, host)
    data = [input_index for input_index in range(len(node.inputs)) if input_index not in of_host]
    with device.active():
        work = factory(node, device)
    run = _launch(work, device, of_host, _results(node))
    entry = find_kernel(node, "CPU")
    if not data or entry is None or entry.asynchronous:
        return run
    host_fallback = _HostFallback(device, node)
    if _has_handle(node):
        return _dispatch_by_variable(run, host_fallback)
    if node.op_def.stateful:  # such as an op that draws from its own random stream
        return run

    def choose(*inputs: Any) -> Any:
        for input_index in data:
            if not (is_of_host(inputs[input_index]) and stays_on_host(inputs[input_index])):
                return run(*inputs)
        return host_fallback(*inputs)

    return choose


def host_inputs(node: Node, names: Collection[str]) -> frozenset[int]:
    """Return the positions of a node's inputs that belong to some arguments of its op."""
    result: list[int] = []
    start = 0
    for arg in node.op_def.inputs:
        count = 1
        if arg.number_attr is not None:
            count = node.attrs[arg.number_attr]
        elif arg.list_attr is not None:
            count = len(node.attrs[arg.list_attr])
        if arg.name in names:
            result += range(start, start + count)
        start += count
    return frozenset(result)


def _results(node: Node) -> list[np.dtype[Any] | None]:
    """Return the exact types of a node's results; None for references and handles."""
    return [
        None if out.dtype.is_ref or out.dtype.numpy.kind == "O" else out.dtype.numpy
        for out in node.outputs
    ]


def _launch(
    work: KernelFunction,
    device: BaseGpuDevice,
    of_host: frozenset[int],
    results: Sequence[np.dtype[Any] | None],
) -> KernelFunction:
    active, to_own, to_host = device.active, device.own, device.to_host
    single = results[0] if len(results) == 1 else None

    def run(*inputs: Any) -> Any:
        with active():
            arguments = [to_host(v) if i in of_host else to_own(v) for i, v in enumerate(inputs)]
            result = work(*arguments)
            if single is not None:
                return finalize_result(device, result, single)
            if isinstance(result, tuple | list):
                pairs = zip(result, results, strict=True)
                return tuple([finalize_result(device, value, dtype) for value, dtype in pairs])
            return result

    return run


def finalize_result(device: BaseGpuDevice, value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Return a result in its exact type, stored where values of its kind belong."""
    if dtype is None:
        return value
    if not device.is_own(value):
        return device.from_host(value)
    if value.dtype != dtype:
        value = value.astype(dtype)
    return device.to_host(value) if dtype.kind == "b" and value.ndim == 0 else value


class _HostFallback:
    """The host fallback of a node, whose function is created at the first run."""

    __slots__ = ("_device", "_node", "_work")

    def __init__(self, device: BaseGpuDevice, node: Node) -> None:
        self._device = device
        self._node = node
        self._work: KernelFunction | None = None

    def __call__(self, *inputs: Any) -> Any:
        device = self._device
        work = self._work
        if work is None:
            work = self._work = require_kernel(self._node, "CPU").make(self._node, device.core)
        with np.errstate(all="ignore"):
            result = work(*[device.to_host(value) for value in inputs])
        if isinstance(result, tuple | list):
            return tuple([device.from_host(value) for value in result])
        return device.from_host(result)


def _has_handle(node: Node) -> bool:
    return any(source.dtype.is_ref or source.dtype is dtypes.resource for source in node.inputs)


def _dispatch_by_variable(run: KernelFunction, host_function: KernelFunction) -> KernelFunction:
    """Return a function that selects one of two by the location of the variable that is input 0."""

    def choose(first: Any, *other_inputs: Any) -> Any:
        state = first.resource if type(first) is ResourceHandle else first
        on_host = isinstance(state, VariableState) and state.xp is np
        return host_function(first, *other_inputs) if on_host else run(first, *other_inputs)

    return choose
