"""Virtual devices: this machine's CPU split into several devices with memory limits."""

from __future__ import annotations

__all__ = [
    "VirtualDeviceConfiguration",
    "get_virtual_device_configuration",
    "set_virtual_device_configuration",
]

from collections.abc import Sequence
from typing import Final, NamedTuple

from weft_exec.devices.cpu_pools import cpu_limits, split_cpu
from weft_exec.devices.machine import CPU, PhysicalDevice, get_visible_devices
from weft_tensor import errors

_MEGABYTE: Final = 1 << 20


class VirtualDeviceConfiguration(NamedTuple):
    """One of the virtual devices of a physical device.

    Attributes:
      memory_limit: megabytes (2**20 bytes) that its pool may hold for results over 64 KB; None for
        no limit.

    Args:
      memory_limit: in megabytes; None for no limit.

    Examples:
      >>> wf.config.experimental.VirtualDeviceConfiguration(memory_limit=256)
      VirtualDeviceConfiguration(memory_limit=256)
    """

    memory_limit: int | None = None


class LogicalDevice(NamedTuple):
    """A device that sessions use.

    Args:
      name: "/device:CPU:0".
      device_type: "CPU".

    Examples:
      >>> wf.config.list_logical_devices("CPU")
      [LogicalDevice(name='/device:CPU:0', device_type='CPU')]
    """

    name: str
    device_type: str


def set_virtual_device_configuration(
    device: PhysicalDevice, virtual_devices: Sequence[VirtualDeviceConfiguration] | None
) -> None:
    """Split a device into virtual devices for new sessions.

    Args:
      device: the CPU of `list_physical_devices`.
      virtual_devices: the configurations of `/device:CPU:0`, `/device:CPU:1`, ...; None or an
        empty list for one device without a limit. `ConfigProto.device_count` may add further
        devices without limits.
    Raises: InvalidArgumentError: the device does not exist, or a limit is not positive.

    Examples:
      >>> experimental = wf.config.experimental
      >>> (cpu,) = experimental.list_physical_devices("CPU")
      >>> half = experimental.VirtualDeviceConfiguration(memory_limit=512)
      >>> experimental.set_virtual_device_configuration(cpu, [half, half])
      >>> len(wf.Session().list_devices())
      2
      >>> experimental.set_virtual_device_configuration(cpu, None)
    """
    _check(device)
    configurations = [] if virtual_devices is None else list(virtual_devices)
    for configuration in configurations:
        if not isinstance(configuration, VirtualDeviceConfiguration):
            raise errors.InvalidTypeError(
                "virtual_devices must be a list of VirtualDeviceConfiguration, got "
                f"{configuration!r}"
            )
        limit = configuration.memory_limit
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise errors.InvalidArgumentError(
                f"memory_limit must be a whole number of megabytes, at least 1, got {limit!r}"
            )
    limits = [configuration.memory_limit for configuration in configurations]
    split_cpu([None if limit is None else limit * _MEGABYTE for limit in limits])


def get_virtual_device_configuration(
    device: PhysicalDevice,
) -> list[VirtualDeviceConfiguration] | None:
    """Return the virtual devices of a device; None if it is not split.

    Args:
      device: the CPU of `list_physical_devices`.
    Raises: InvalidArgumentError: the device does not exist.

    Examples:
      >>> experimental = wf.config.experimental
      >>> (cpu,) = experimental.list_physical_devices("CPU")
      >>> experimental.get_virtual_device_configuration(cpu) is None
      True
    """
    _check(device)
    configurations = [
        VirtualDeviceConfiguration(None if limit is None else limit // _MEGABYTE)
        for limit in cpu_limits()
    ]
    return configurations or None


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices of new sessions; a ConfigProto may add more.

    Args:
      device_type: "CPU" or "GPU"; None for all types.

    Examples:
      >>> wf.config.list_logical_devices("CPU")
      [LogicalDevice(name='/device:CPU:0', device_type='CPU')]
    """
    kinds = [visible_device.device_type for visible_device in get_visible_devices(device_type)]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    if "CPU" in counts:
        counts["CPU"] = max(1, len(cpu_limits()))
    return [
        LogicalDevice(f"/device:{kind}:{i}", kind)
        for kind, count in counts.items()
        for i in range(count)
    ]


def _check(device: PhysicalDevice) -> None:
    if device != CPU:
        raise errors.InvalidArgumentError(f"only {CPU.name} can be split, got {device!r}")
