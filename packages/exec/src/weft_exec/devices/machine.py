"""The devices of this machine: all of them, those used by sessions, and their memory use."""

from __future__ import annotations

__all__ = [
    "get_device_details",
    "get_memory_growth",
    "get_memory_info",
    "get_memory_usage",
    "get_visible_devices",
    "list_physical_devices",
    "reset_memory_stats",
    "set_memory_growth",
    "set_visible_devices",
]

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft_exec.devices.cpu_pools import cpu_allocators
from weft_exec.devices.device import Hardware, device_type_of, device_types
from weft_exec.settings import settings
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_tensor.allocator import AllocatorStatistics


class PhysicalDevice(NamedTuple):
    """One device of this machine.

    Args:
      name: "/physical_device:CPU:0".
      device_type: "CPU".

    Examples:
      >>> wf.config.list_physical_devices("CPU")
      [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """

    name: str
    device_type: str


CPU: Final = PhysicalDevice("/physical_device:CPU:0", "CPU")
_LOGICAL: Final = re.compile(r"(?:/?device:)?([A-Za-z_]\w*):(\d+)")


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of this machine, including its CPU.

    Args:
      device_type: "CPU" or "GPU"; None for all types.

    Examples:
      >>> wf.config.experimental.list_physical_devices("CPU")
      [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    kinds = device_types() if device_type is None else [device_type]
    return [_physical(kind, i) for kind in kinds for i in range(_count(kind))]


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices that sessions use: all, unless restricted by `set_visible_devices`.

    Args:
      device_type: "CPU" or "GPU"; None for all types.

    Examples:
      >>> [device.name for device in wf.config.get_visible_devices("CPU")]
      ['/physical_device:CPU:0']
    """
    kinds = device_types() if device_type is None else [device_type]
    return [_physical(kind, i) for kind in kinds for i in _visible(kind)]


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Set the devices that new sessions use, and hide all others.

    A ConfigProto's `visible_device_list` takes precedence. The CPU is always visible.

    Args:
      devices: a device of `list_physical_devices`, or a list of devices; an empty list hides all.
      device_type: the type of devices to set, such as "GPU"; None for all types.
    Raises: InvalidArgumentError: a device does not exist or is of another type.

    Examples:
      >>> wf.config.set_visible_devices([], "GPU")
      >>> wf.config.get_visible_devices("GPU")
      []
      >>> wf.config.set_visible_devices(wf.config.list_physical_devices("GPU"), "GPU")
    """
    expected = [devices] if isinstance(devices, PhysicalDevice) else list(devices)
    kinds = device_types() if device_type is None else [device_type]
    selected: dict[str, list[int]] = {kind: [] for kind in kinds}
    for device in expected:
        index = _index(device)
        if device.device_type not in selected:
            raise errors.InvalidArgumentError(
                f"devices must be of the type {device_type!r}, got {device!r}"
            )
        selected[device.device_type].append(index)
    if device_type == "CPU" and not selected["CPU"]:
        raise errors.InvalidArgumentError("the CPU cannot be hidden: every session needs it")
    selected.pop("CPU", None)
    hidden = {kind: value for kind, value in settings.visible.items() if kind not in selected}
    visible = {kind: tuple(value) for kind, value in selected.items() if len(value) < _count(kind)}
    settings.visible = hidden | visible


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Return True if a GPU's memory is allocated on demand instead of all at once.

    Args:
      device: device returned by `list_physical_devices`.
    Raises: InvalidArgumentError: the device does not exist.

    Examples:
      >>> wf.config.experimental.get_memory_growth(wf.config.list_physical_devices()[0])
      True
    """
    index = _index(device)
    return device == CPU or settings.memory_growth.get((device.device_type, index), False)


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Allocate a GPU's memory on demand or all at once, as `gpu_options.allow_growth` does.

    Args:
      device: a device of `list_physical_devices` that no session has used yet.
      enable: True to allocate on demand.
    Raises: InvalidArgumentError: the device does not exist, or it is the CPU, whose memory always
      grows; FailedPreconditionError: a session has used it.

    Examples:
      >>> for gpu in wf.config.list_physical_devices("GPU"):
      ...     wf.config.experimental.set_memory_growth(gpu, True)
    """
    index = _index(device)
    if device == CPU:
        raise errors.InvalidArgumentError(
            "memory growth can only be set for GPUs; memory of the CPU always grows"
        )
    if _statistics_of(device.device_type, index) is not None:
        raise errors.FailedPreconditionError(
            f"{device.name} is already in use by a session; set its memory growth before that"
        )
    settings.memory_growth[device.device_type, index] = bool(enable)


def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
    """Return properties of a device.

    Args:
      device: device returned by `list_physical_devices`.
    Returns: for GPUs "device_name" and "compute_capability", such as (8, 0); empty for other
      devices.
    Raises: InvalidArgumentError: the device does not exist.

    Examples:
      >>> wf.config.experimental.get_device_details(wf.config.list_physical_devices("CPU")[0])
      {}
    """
    index = _index(device)
    hardware = _hardware(device.device_type)
    return {} if hardware is None else hardware.details(index)


def get_memory_info(device: str) -> dict[str, int]:
    """Return the current and the peak number of bytes that a device uses of its pool.

    The pool of a CPU holds kernel results over 64 KB; the pool of a GPU holds everything.

    Args:
      device: the name of a session's device, such as "GPU:0".
    Returns: "current" and "peak"; 0 before a session has used the device.
    Raises: InvalidArgumentError: the device does not exist.

    Examples:
      >>> sorted(wf.config.experimental.get_memory_info("CPU:0"))
      ['current', 'peak']
    """
    statistics = _statistics_of(*_type_and_index(device))
    if statistics is None:
        return {"current": 0, "peak": 0}
    return {"current": statistics.bytes_in_use, "peak": statistics.peak_bytes_in_use}


def get_memory_usage(device: str) -> int:
    """Return the number of bytes that a device uses of its pool: "current" of `get_memory_info`.

    Args:
      device: as for `get_memory_info`.

    Examples:
      >>> wf.config.experimental.get_memory_usage("CPU:0") >= 0
      True
    """
    return get_memory_info(device)["current"]


def reset_memory_stats(device: str) -> None:
    """Reset "peak" of `get_memory_info` to the current use.

    Args:
      device: as for `get_memory_info`.

    Examples:
      >>> wf.config.experimental.reset_memory_stats("CPU:0")
    """
    kind, index = _type_and_index(device)
    allocator = _allocator(kind, index)
    if allocator is not None:
        allocator.reset_peak()


def _physical(kind: str, index: int) -> PhysicalDevice:
    return PhysicalDevice(f"/physical_device:{kind}:{index}", kind)


def _hardware(kind: str) -> Hardware | None:
    device_type = device_type_of(kind)
    return None if device_type is None else device_type.hardware


def _count(kind: str) -> int:
    hardware = _hardware(kind)
    return int(kind == CPU.device_type) if hardware is None else hardware.number()


def _visible(kind: str) -> Iterable[int]:
    return settings.visible.get(kind, range(_count(kind)))


def _index(device: Any) -> int:
    """Return the number of a physical device."""
    kind = getattr(device, "device_type", "")
    for index in range(_count(kind)):
        if device == _physical(kind, index):
            return index
    names = ", ".join(physical_device.name for physical_device in list_physical_devices())
    raise errors.InvalidArgumentError(f"this machine has {names}, got {device!r}")


def _type_and_index(device: str) -> tuple[str, int]:
    """Return the type of a session's device, and its number on this machine."""
    match = _LOGICAL.fullmatch(device)
    kind, number = (match[1].upper(), int(match[2])) if match else ("", 0)
    if kind == CPU.device_type and _allocator(kind, number) is not None:
        return kind, number
    numbers = list(_visible(kind))
    if kind == CPU.device_type or number >= len(numbers):
        raise errors.InvalidArgumentError(
            f"unknown device {device!r}; expected a name such as 'GPU:0'"
        )
    return kind, numbers[number]


def _allocator(kind: str, index: int) -> Any:
    """Return the allocator of a device; None if no session has used the device."""
    if kind == CPU.device_type:
        pools = cpu_allocators(None)
        return pools[index] if index < len(pools) else None
    hardware = _hardware(kind)
    return None if hardware is None else hardware.allocator(index)


def _statistics_of(kind: str, index: int) -> AllocatorStatistics | None:
    allocator = _allocator(kind, index)
    return None if allocator is None else allocator.statistics()
