"""Descriptions of kernels for placement, for devices of this process or of another."""

from __future__ import annotations

from collections.abc import Sequence

from weft_exec.devices.description import DeviceDescription, KernelDescription, Kernels
from weft_exec.kernels.registry import (
    ANY_DEVICE,
    Kernel,
    find_kernel,
    kernels_of,
    registered_kernels,
)
from weft_graph.ir.node import Node


def describe_kernels(device_type: str) -> Kernels:
    """Return descriptions of all kernels that this process has for a device type."""
    ops = sorted({op for op, on in registered_kernels() if on in (device_type, ANY_DEVICE)})
    return {op: _registered_kernels(op, device_type) for op in ops}


def kernels_on(device: DeviceDescription, op: str) -> Sequence[KernelDescription]:
    """Return the descriptions of the kernels of an op on a device; empty if there are none."""
    if device.kernels is None:
        return _registered_kernels(op, device.type)
    return device.kernels.get(op, ())


def has_kernel_on(device: DeviceDescription, node: Node) -> bool:
    """Return True if a device has a kernel for a node."""
    if device.kernels is None:
        return find_kernel(node, device.type) is not None
    return any(_accepts(kernel, node) for kernel in kernels_on(device, node.type))


def may_wait_on(device: DeviceDescription, node: Node) -> bool:
    """Return True if a node on a device may wait for something other than its inputs."""
    if device.kernels is None:
        kernel = find_kernel(node, device.type)
        return kernel is not None and kernel.asynchronous
    return any(k.asynchronous for k in kernels_on(device, node.type) if _accepts(k, node))


def _registered_kernels(op: str, device_type: str) -> list[KernelDescription]:
    return [_describe_kernel(k) for on in (device_type, ANY_DEVICE) for k in kernels_of(op, on)]


def _describe_kernel(kernel: Kernel) -> KernelDescription:
    dtypes = {key: sorted(d.name for d in allowed) for key, allowed in kernel.dtypes.items()}
    return KernelDescription(dtypes, kernel.asynchronous)


def _accepts(kernel: KernelDescription, node: Node) -> bool:
    names = {key: getattr(node.attrs.get(key), "name", None) for key in kernel.dtypes}
    return all(names[key] in allowed for key, allowed in kernel.dtypes.items())
