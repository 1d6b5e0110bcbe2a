"""Devices: a name, an array module, an allocator, and the state that kernels see.

Other packages add device types through the entry-point group `weft_exec.devices`; an entry is a
module that calls `register_device`.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from weft_exec.config import SessionConfig
from weft_exec.devices.cpu_pools import cpu_allocators
from weft_exec.devices.description import HOST, DeviceDescription
from weft_exec.devices.performance import DevicePerformance, LinkPerformance, default_performance
from weft_exec.resources.resources import CompletionCallback, ResourceManager, VariableState
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_graph.ir.registry import Registry
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_graph.ir.node import Node
    from weft_tensor.allocator import AllocatorStatistics
    from weft_tensor.shape import Dims

_log = logging.getLogger("weft")

LOCAL: Final = DeviceParts("localhost", 0, 0)
"""The task of a session that is not in a cluster."""

LARGE_BYTES: Final = 1 << 16
"""Size in bytes above which results are allocated from the device's pool."""

KernelFunction = Callable[..., Any]
KernelFactory = Callable[["Node", "Device"], KernelFunction]
"""Creates the function that computes a node on a device."""


class Guard(Protocol):
    """Checks of a session, which reject kernels or wrap their functions."""

    def __call__(
        self, node: Node, make: Callable[[], KernelFunction], asynchronous: bool
    ) -> KernelFunction:
        """Return the function that computes a node; it may wrap the one that `make` returns.

        Raises: PermissionDeniedError: the session may not run it.
        """
        ...


class StreamMarks(Protocol):
    """Marks in the stream of a device, between its separately enqueued kernels."""

    def add(self) -> None:
        """Add a mark behind all kernels that are enqueued so far."""
        ...

    def times(self) -> list[int]:
        """Wait for the last mark, and return the time of each as a reading of the host's clock."""
        ...


class Device:
    """One device of a session.

    A device with its own memory sets `memory_space` and has kernels that compute there. It moves
    values to and from the host by `from_host` and `to_host`, and receives values of other devices
    by `receive`.

    Attributes:
      name: `/job:localhost/replica:0/task:0/device:CPU:0`.
      spec: the parsed name.
      type: "CPU".
      xp: the array module of its values, numpy or cupy.
      memory_space: the memory that holds its values; devices with the same memory space share them
        without a copy.
      allocator: allocates results over 64 KB, by `empty(shape, dtype)`.
      resources: the session's variables, queues and counters.
      config: the session's options.
      performance: speed of its kernels.
      guard: checks each kernel if other processes control the device.
    """

    memory_space: str = HOST
    guard: Guard | None = None

    def __init__(
        self,
        spec: DeviceSpec,
        allocator: Any,
        resources: ResourceManager,
        config: SessionConfig,
    ) -> None:
        self.spec = spec
        self.name = spec.to_string()
        self.type = spec.device_type or ""
        self.xp: Any = np
        self.allocator = allocator
        self.resources = resources
        self.config = config
        self.performance: DevicePerformance = default_performance(self.type)
        self.empty: Callable[[tuple[int, ...], Any], Any] = allocator.empty

    def seen_by(self, resources: ResourceManager, guard: Guard | None) -> Device:
        """Return a copy of this device for a session, with its own resources or with a guard."""
        copied_device = copy.copy(self)
        copied_device.resources, copied_device.guard = resources, guard
        return copied_device

    @property
    def memory_limit(self) -> int:
        """Bytes that the allocator may hold; 0 for no limit."""
        return self.allocator.statistics().bytes_limit or 0

    def link_to(self, other: Device) -> LinkPerformance | None:
        """Return the performance of the link to another device of the process.

        None for the default.
        """
        return None

    def describe(self, peers: Iterable[Device] = ()) -> DeviceDescription:
        """Return the description for placement, with links to other devices of the process."""
        links = {other.name: self.link_to(other) for other in peers if other is not self}
        return DeviceDescription(
            self.name,
            self.type,
            self.performance,
            self.memory_limit,
            self.memory_space,
            {name: link for name, link in links.items() if link is not None},
        )

    def make_kernel(
        self, factory: KernelFactory, node: Node, host: Collection[str]
    ) -> KernelFunction:
        """Return the function that runs a node on this device.

        A device that must do more than call the kernel, such as copy inputs to its memory, wraps
        the function that the factory returns.

        Args:
          factory: makes the kernel's function.
          host: the names of inputs that the function reads in the host's memory; see `Kernel`.
        """
        return factory(node, self)

    def stream_marks(self) -> StreamMarks | None:
        """Return an empty sequence of marks in the stream of its kernels.

        Return None if kernels have ended when their functions return.
        """
        return None

    def prefers_graphs(self) -> bool:
        """Return True if the device prefers long segments, which it can capture as graphs."""
        return False

    def graphed(self, segment: Any) -> None:
        """Process a new `Segment` of instructions.

        A device may replace its instructions by equivalent ones.
        """

    @property
    def matmul(self) -> Callable[..., Any]:
        """The matrix product of the array module, `matmul(a, b, out=None)`."""
        matmul: Callable[..., Any] = self.xp.matmul
        return matmul

    def new_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an uninitialized array; large ones come from the pool."""
        count = dtype.itemsize
        for size in shape:
            count *= size
        result: np.ndarray[Any, Any] = (
            self.empty(shape, dtype) if count > LARGE_BYTES else self.xp.empty(shape, dtype)
        )
        return result

    def array_factory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
        """Return a function that creates arrays of a fixed shape, as `new_array` does."""
        large = math.prod(shape) * dtype.itemsize > LARGE_BYTES
        return partial(self.empty if large else self.xp.empty, shape, dtype)

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> VariableState:
        """Return an uninitialized variable, in the memory that this device uses for its type."""
        return VariableState(name, dtype, dims, xp=self.xp, empty=self.new_array)

    def to_host(self, value: Any) -> Any:
        """Return a value of this device as an array or NumPy scalar in the host's memory."""
        return value

    def from_host(self, value: Any) -> Any:
        """Return a value of the host's memory as a value of this device.

        Small integers and bools, such as shapes and predicates, may stay in the host's memory,
        where kernels of the device can read them.
        Raises: ResourceExhaustedError: the value does not fit into the device's memory.
        """
        return value

    def send(self, value: Any, done: CompletionCallback) -> None:
        """Copy a value to the host's memory, and call `done(value)` or `done.fail(error)`.

        It may return before the copy is complete, and may be called from any thread.
        """
        done(self.to_host(value))

    def receive(self, value: Any, source: Device, done: CompletionCallback) -> None:
        """Copy a value from another device, and call `done(value)` or `done.fail(error)`.

        It may return before the copy is complete, and may be called from any thread. It is never
        called for a device with the same memory space. By default the value is copied through the
        host's memory, by `source.send`.
        """
        source.send(value, _HostCopy(self, done))

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


class _HostCopy:
    """Continuation that copies a value from the host's memory to a device."""

    __slots__ = ("_device", "_done")

    def __init__(self, device: Device, done: CompletionCallback) -> None:
        self._device = device
        self._done = done

    def __call__(self, value: Any = None) -> None:
        try:
            value = self._device.from_host(value)
        except Exception as raised:  # because a device may raise anything; it is located later
            self._done.fail(raised)
        else:
            self._done(value)

    def fail(self, error: BaseException) -> None:
        self._done.fail(error)


class DeviceAttributes:
    """One device in the result of `Session.list_devices`, possibly of another process.

    Args:
      device: its description.
      incarnation: a number that changes when the device is restarted.
      read: returns the statistics of its allocator; None if they are not accessible.
    """

    __slots__ = ("_read", "device_type", "incarnation", "memory_limit_bytes", "name")

    def __init__(
        self,
        device: DeviceDescription,
        incarnation: int,
        read: Callable[[], AllocatorStatistics] | None = None,
    ) -> None:
        self.name = device.name
        self.device_type = device.type
        self.memory_limit_bytes = device.memory_limit
        self.incarnation = incarnation
        self._read = read

    @property
    def statistics(self) -> AllocatorStatistics:
        """Return the statistics of the device's pool, such as current and peak bytes in use.

        Raises: UnimplementedError: the device belongs to another process, whose pools are not
          accessible.
        """
        if self._read is None:
            raise errors.UnimplementedError(
                f"{self.name}: memory statistics of devices of other processes are not accessible"
            )
        return self._read()

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes})"


DeviceFactory = Callable[[ResourceManager, SessionConfig, DeviceParts], Sequence[Device]]


class Hardware(NamedTuple):
    """The hardware of a device type on this machine; the functions receive the number of a device.

    Attributes:
      number: returns the number of devices.
      details: returns properties of one device by name.
      allocator: returns the allocator of one device; None if no session has used the device.
    """

    number: Callable[[], int]
    details: Callable[[int], dict[str, Any]]
    allocator: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class DeviceType:
    """A type of devices.

    Attributes:
      name: "GPU".
      factory: creates the devices of one task from resources, options, and the job, replica and
        task in their names; returns an empty sequence without the hardware.
      array_module: the name of the module that computes with its values, such as "cupy". Its
        devices run the kernels that are written for any array module, and if it is "numpy" also
        those of the CPU. None if they only run their own kernels.
      dtypes: the element types that its kernels support; None for all.
      asynchronous: True if its devices turn shared kernels into asynchronous functions.
      kernels: the module or package that registers its kernels, imported at the first lookup.
      hardware: the machine's hardware of this type, if it can be queried.
    """

    name: str
    factory: DeviceFactory
    array_module: str | None = None
    dtypes: frozenset[DType] | None = None
    asynchronous: bool = False
    kernels: str | None = None
    hardware: Hardware | None = None


_types: Registry[DeviceType] = Registry("device type", group="weft_exec.devices")
_unknown: set[str] = set()
"""Device types that are unknown and for which a warning was logged."""


def register_device(
    device_type: str,
    factory: DeviceFactory,
    *,
    array_module: str | None = None,
    element_types: Collection[Any] | None = None,
    asynchronous: bool = False,
    kernels: str | None = None,
    hardware: Hardware | None = None,
) -> None:
    """Register a type of devices.

    Args:
      device_type: "GPU".
      factory, array_module, asynchronous, kernels, hardware: see DeviceType.
      element_types: its `dtypes`, or their names.
    Raises: AlreadyExistsError: the type is already registered.
    """
    supported_types = (
        None if element_types is None else frozenset(map(dtypes.as_dtype, element_types))
    )
    _types.register(
        device_type,
        DeviceType(
            device_type, factory, array_module, supported_types, asynchronous, kernels, hardware
        ),
    )


def device_type_of(name: str) -> DeviceType | None:
    """Return a registered device type; None if it is unknown."""
    return _types.get(name)


def device_types() -> list[str]:
    """Return the names of all device types, the CPU first."""
    return sorted(_types.keys(), key=lambda name: (name != "CPU", name))


def make_devices(
    resources: ResourceManager, config: SessionConfig, task: DeviceParts = LOCAL
) -> list[Device]:
    """Create the devices of a new session, or of a task of a cluster, CPUs first.

    Args:
      task: the job, replica and task in their names.
    """
    types = device_types()
    for kind in sorted(config.device_count.keys() - set(types) - _unknown):
        _unknown.add(kind)
        _log.warning(
            "device_count names the unknown device type %r; known types: %s",
            kind,
            ", ".join(types),
        )
    return [d for t in types for d in _types.lookup(t).factory(resources, config, task)]


def _cpus(resources: ResourceManager, config: SessionConfig, task: DeviceParts) -> list[Device]:
    count = config.device_count.get("CPU")
    if count is not None and count < 1:
        raise errors.InvalidArgumentError(f"a session needs a CPU, got device_count CPU: {count}")
    return [
        Device(DeviceSpec(*task[:3], "CPU", i), allocator, resources, config)
        for i, allocator in enumerate(cpu_allocators(count))
    ]


register_device("CPU", _cpus, array_module="numpy")
