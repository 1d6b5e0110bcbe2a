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
from weft_exec.devices.description import HOST, DeviceDescription
from weft_exec.devices.performance import DevicePerformance, LinkPerformance, default_performance
from weft_exec.resources.resources import Done, ResourceManager, VariableState
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
"""The task of a session without a cluster."""

LARGE_BYTES: Final = 1 << 16
"""Results of more bytes than this come from the device's pool."""

KernelFunction = Callable[..., Any]
KernelFactory = Callable[["Node", "Device"], KernelFunction]
"""From a node and the device on which it runs to the function that computes it."""


class Guard(Protocol):
    """Refuses kernels that a session may not run, or watches over what they do."""

    def __call__(
        self, node: Node, make: Callable[[], KernelFunction], asynchronous: bool
    ) -> KernelFunction:
        """The function that computes a node, instead of what `make` gives.

        Raises: PermissionDeniedError: the session may not run it.
        """
        ...


class Device:
    """One device of a session.

    A device with memory of its own says so in `memory_space`, has kernels whose values are there,
    and brings values in and out by `from_host` and `to_host`, or from other devices by `receive`.

    Attributes:
      name: `/job:localhost/replica:0/task:0/device:CPU:0`.
      spec: the same, parsed.
      type: "CPU".
      xp: the array module of its values, numpy or cupy.
      memory_space: where its values are; devices of one space share them without a copy.
      allocator: where results over 64 KB come from; has `empty(shape, dtype)`.
      resources: the session's variables, queues and counters.
      config: the session's options.
      performance: what its kernels reach.
      guard: where others than this process decide what it runs, asked for each kernel.
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
        """The same device, for a session that has state of its own, or is watched by a guard."""
        seen = copy.copy(self)
        seen.resources, seen.guard = resources, guard
        return seen

    @property
    def memory_limit(self) -> int:
        """Bytes its allocator may hold; 0 for no limit."""
        return self.allocator.statistics().bytes_limit or 0

    def link_to(self, other: Device) -> LinkPerformance | None:
        """What carries values to another device of the process; None for the usual figures."""
        return None

    def describe(self, others: Iterable[Device] = ()) -> DeviceDescription:
        """What placement has to know of it; with links to other devices of the process."""
        links = {other.name: self.link_to(other) for other in others if other is not self}
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
        """The function by which this device runs a node.

        A device that does more around each run of a kernel than to call it, such as to bring inputs
        to the side on which they are wanted, wraps what the factory makes.

        Args:
          factory: of the kernel.
          host: names of inputs that the function takes in the host's memory, see `Kernel`.
        """
        return factory(node, self)

    def clock(self) -> Any:
        """What measures the time that the device takes from now on: `nanoseconds()`.

        None where the host's clock tells as much.
        """
        return None

    def in_graphs(self) -> bool:
        """Whether long runs of instructions are worth more than to begin with some of them."""
        return False

    def graphed(self, segment: Any) -> None:
        """Take note of instructions that will run in a line, a `Segment`.

        A device may put something in their place that does the same.
        """

    @property
    def matmul(self) -> Callable[..., Any]:
        """The product of matrices of the array module, `matmul(a, b, out=None)`."""
        found: Callable[..., Any] = self.xp.matmul
        return found

    def new_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An uninitialised array, from the pool when it is large."""
        count = dtype.itemsize
        for size in shape:
            count *= size
        made: np.ndarray[Any, Any] = (
            self.empty(shape, dtype) if count > LARGE_BYTES else self.xp.empty(shape, dtype)
        )
        return made

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Any]:
        """What makes arrays as `new_array` does, each time of one shape."""
        large = math.prod(shape) * dtype.itemsize > LARGE_BYTES
        return partial(self.empty if large else self.xp.empty, shape, dtype)

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> VariableState:
        """A variable without a value, in the memory in which this device keeps those of a type."""
        return VariableState(name, dtype, dims, xp=self.xp, empty=self.new_array)

    def to_host(self, value: Any) -> Any:
        """A value of this device as an array or NumPy scalar in the host's memory."""
        return value

    def from_host(self, value: Any) -> Any:
        """A value in the host's memory as one of this device.

        Small integers and bools, such as shapes and predicates, may stay where they are: kernels of
        the device take them from there.
        Raises: ResourceExhaustedError: it does not fit into the device's memory.
        """
        return value

    def send(self, value: Any, done: Done) -> None:
        """Take a value out to the host's memory, and call `done(value)`, or `done.fail(error)`.

        It may return before, and be called from any thread.
        """
        done(self.to_host(value))

    def receive(self, value: Any, source: Device, done: Done) -> None:
        """Bring in a value of another device, and call `done(value)`, or `done.fail(error)`.

        It may return before, and be called from any thread. Never called within one memory space.
        By default the value goes through the host's memory, as soon as `source` has sent it there.
        """
        source.send(value, _BringIn(self, done))

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


class _BringIn:
    """Takes a value in the host's memory, and hands it on as one of a device."""

    __slots__ = ("_device", "_done")

    def __init__(self, device: Device, done: Done) -> None:
        self._device = device
        self._done = done

    def __call__(self, value: Any = None) -> None:
        try:
            value = self._device.from_host(value)
        except Exception as raised:  # because a device may raise anything; the receiver locates it
            self._done.fail(raised)
        else:
            self._done(value)

    def fail(self, error: BaseException) -> None:
        self._done.fail(error)


class DeviceAttributes:
    """What `Session.list_devices` says of a device, which may be of another process.

    Args:
      device: what is known of it.
      incarnation: another number for each life of the device.
      read: asks its allocator; None where that is out of reach.
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
        """What its pool holds now: bytes in use, the most there were, and more.

        Raises: UnimplementedError: it is of another process, whose pools nobody can ask from here.
        """
        if self._read is None:
            raise errors.UnimplementedError(f"{self.name} does not tell what its pool holds")
        return self._read()

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes})"


DeviceFactory = Callable[[ResourceManager, SessionConfig, DeviceParts], Sequence[Device]]


class Hardware(NamedTuple):
    """What the machine has of a type of devices; each is asked for by its number there.

    Attributes:
      number: how many there are.
      details: what is known of one, by names.
      allocator: what has the memory of one; None as long as no session has used it.
    """

    number: Callable[[], int]
    details: Callable[[int], dict[str, Any]]
    allocator: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class DeviceType:
    """What is known of all devices of a type, before there is one.

    Attributes:
      name: "GPU".
      factory: makes the devices of one task from resources, options, and the job, replica and task
        that their names begin with; none where the hardware is missing.
      array_module: the name of the module that computes with its values, "cupy"; its devices run
        the kernels that are written over the array module, and those of the CPU where it is
        "numpy". None where they run kernels of their own alone.
      dtypes: the element types that its kernels compute with; None for all.
      asynchronous: whether its devices make asynchronous functions of the kernels that they share.
      kernels: the module or package that registers its kernels, imported when one is looked up.
      hardware: what the machine has of them, where that can be asked.
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
"""Types of devices that nobody has, and that were warned of."""


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
    Raises: AlreadyExistsError: the type is registered already.
    """
    known = None if element_types is None else frozenset(map(dtypes.as_dtype, element_types))
    _types.register(
        device_type,
        DeviceType(device_type, factory, array_module, known, asynchronous, kernels, hardware),
    )


def device_type_of(name: str) -> DeviceType | None:
    """What is known of a type of devices; None when nobody has them."""
    return _types.get(name)


def device_types() -> list[str]:
    """The names of all types of devices, the CPU first."""
    return sorted(_types.keys(), key=lambda name: (name != "CPU", name))


def make_devices(
    resources: ResourceManager, config: SessionConfig, task: DeviceParts = LOCAL
) -> list[Device]:
    """The devices of a new session, or of a task of a cluster, CPUs first.

    Args:
      task: the job, replica and task that their names begin with.
    """
    types = device_types()
    for kind in sorted(config.device_count.keys() - set(types) - _unknown):
        _unknown.add(kind)
        _log.warning(
            "device_count names %r, for which no package has devices; there are %s",
            kind,
            ", ".join(types),
        )
    return [d for t in types for d in _types.lookup(t).factory(resources, config, task)]


def _cpus(resources: ResourceManager, config: SessionConfig, task: DeviceParts) -> list[Device]:
    from weft_exec.devices.virtual import cpu_allocators

    count = config.device_count.get("CPU")
    if count is not None and count < 1:
        raise errors.InvalidArgumentError(f"a session needs a CPU, got device_count CPU: {count}")
    return [
        Device(DeviceSpec(*task[:3], "CPU", i), allocator, resources, config)
        for i, allocator in enumerate(cpu_allocators(count))
    ]


register_device("CPU", _cpus, array_module="numpy")
