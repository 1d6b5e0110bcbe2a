"""Devices: a name, an array module, an allocator, and the state that kernels see.

Other packages add device types through the entry-point group `weft_exec.devices`; an entry is a
module that calls `register_device`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_exec.config import SessionConfig
from weft_exec.resources import ResourceManager
from weft_graph.device_spec import DeviceSpec
from weft_graph.registry import Registry
from weft_tensor import errors


class Device:
    """One device of a session.

    Attributes:
      name: `/job:localhost/replica:0/task:0/device:CPU:0`.
      spec: the same, parsed.
      type: "CPU".
      xp: the array module of its values, numpy or cupy.
      allocator: where results over 64 KB come from; has `empty(shape, dtype)`.
      resources: the session's variables, queues and counters.
      config: the session's options.
    """

    xp: Any = np

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
        self.allocator = allocator
        self.resources = resources
        self.config = config
        self.empty: Callable[[tuple[int, ...], Any], Any] = allocator.empty

    @property
    def memory_limit(self) -> int:
        """Bytes its allocator may hold; 0 for no limit."""
        return self.allocator.statistics().bytes_limit or 0

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


class DeviceAttributes:
    """What `Session.list_devices` says of a device."""

    __slots__ = ("device_type", "incarnation", "memory_limit_bytes", "name")

    def __init__(self, device: Device) -> None:
        self.name = device.name
        self.device_type = device.type
        self.memory_limit_bytes = device.memory_limit
        self.incarnation = id(device)

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes})"


DeviceFactory = Callable[[ResourceManager, SessionConfig], Sequence[Device]]

_factories: Registry[DeviceFactory] = Registry("device type", group="weft_exec.devices")


def register_device(device_type: str, factory: DeviceFactory) -> None:
    """Register what makes the devices of a type for a session.

    Args:
      device_type: "GPU".
      factory: from resources and options to devices; none where the hardware is missing.
    Raises: AlreadyExistsError: the type is registered already.
    """
    _factories.register(device_type, factory)


def make_devices(resources: ResourceManager, config: SessionConfig) -> list[Device]:
    """The devices of a new session, CPUs first."""
    types = sorted(_factories.keys(), key=lambda t: (t != "CPU", t))
    return [d for t in types for d in _factories.lookup(t)(resources, config)]


def _cpus(resources: ResourceManager, config: SessionConfig) -> list[Device]:
    from weft_tensor.allocator import cpu_allocator

    count = config.device_count.get("CPU", 1)
    if count < 1:
        raise errors.InvalidArgumentError(f"a session needs a CPU, got device_count CPU: {count}")
    allocator = cpu_allocator()
    return [
        Device(DeviceSpec("localhost", 0, 0, "CPU", i), allocator, resources, config)
        for i in range(count)
    ]


register_device("CPU", _cpus)
