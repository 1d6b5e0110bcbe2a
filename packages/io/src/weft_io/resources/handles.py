"""Lookup of the resources of nodes and edges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import KernelFunction
from weft_exec.resources.resources import Resource, ResourceHandle
from weft_io.resources.values import Array, Empty
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

R = TypeVar("R", bound=Resource)


class RefHandle(ResourceHandle):
    """The value of a reference edge, used by older ops; fetched as container and name."""

    __slots__ = ()

    def read(self) -> Array:
        """Return the value of the reference in steps that fetch it: string, shape (2,)."""
        return np.array([self.container.encode(), self.name.encode()], object)


def find(
    node: Node,
    device: Device,
    cls: type[R],
    make: Callable[[str], R],
    check: Callable[[R], None] | None = None,
    is_private: bool = False,
) -> R:
    """Return the resource of a node with the attributes `container` and `shared_name`.

    Args:
      make: function that creates the resource from its name if it does not exist.
      check: function that raises if an existing resource does not meet the node's requirements.
      is_private: make a resource without `shared_name` private to the session.
    """
    shared = node.attrs["shared_name"]
    name = shared or node.name
    resources = device.resources.own if is_private and not shared else device.resources
    result = resources.lookup_or_create(node.attrs["container"], name, cls, lambda: make(name))
    if check is not None:
        check(result)
    return result


def holder(
    node: Node,
    device: Device,
    cls: type[R],
    make: Callable[[str], R],
    check: Callable[[R], None] | None = None,
    owns: bool = True,
) -> KernelFunction:
    """Return the kernel of a node whose output is a resource handle; for arguments see `find`."""
    handle: ResourceHandle | None = None
    kind = RefHandle if node.outputs[0].dtype.is_ref else ResourceHandle

    def run() -> ResourceHandle:
        nonlocal handle
        current = handle
        if current is None or current.resource.closed:
            result = find(node, device, cls, make, check, owns)
            handle = current = kind(device.name, result.container, result.name, result)
        return current

    return run


def resource_of(value: Any, cls: type[R]) -> R:
    """Return the resource of a value on a resource edge.

    Raises: InvalidArgumentError: it is another kind of resource, or belongs to another process.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()  # a handle that went through a tensor of handles
    resource = getattr(value, "resource", None)
    if not isinstance(resource, cls):
        name = (
            type(value).__name__ if resource is None else f"a {getattr(resource, 'kind', resource)}"
        )
        raise errors.InvalidArgumentError(f"requires the handle of a {cls.kind}, got {name}")
    return resource


def allocator(device: Device) -> Empty:
    """Return the function that allocates the results of kernels on `device`."""

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype) if dtype.hasobject else new_array(device, shape, dtype)

    return empty


def deadline_in(timeout_ms: int) -> float | None:
    """Return the deadline of an attribute `timeout_ms`, as `time.monotonic`; None for -1."""
    return None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
