"""The devices of this machine: what there is, what sessions see, and how memory is used."""

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

from weft_exec.devices.device import Hardware, device_type_of, device_types
from weft_exec.settings import settings
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_tensor.allocator import AllocatorStatistics


class PhysicalDevice(NamedTuple):
    """What this machine has.

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
    """The devices of this machine; its processor is one of them.

    Args:
      device_type: "CPU" or "GPU"; None for all types.

    Examples:
      >>> wf.config.experimental.list_physical_devices("CPU")
      [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    kinds = device_types() if device_type is None else [device_type]
    return [_physical(kind, i) for kind in kinds for i in range(_count(kind))]


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices that sessions use: all, unless `set_visible_devices` said otherwise.

    Args:
      device_type: "CPU" or "GPU"; None for all types.

    Examples:
      >>> [device.name for device in wf.config.get_visible_devices("CPU")]
      ['/physical_device:CPU:0']
    """
    kinds = device_types() if device_type is None else [device_type]
    return [_physical(kind, i) for kind in kinds for i in _visible(kind)]


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Let sessions that are made from now on use these devices, and hide the others from them.

    A ConfigProto's `visible_device_list` goes before it. The processor is always there.

    Args:
      devices: a device of `list_physical_devices`, or a list of some; none hides all.
      device_type: "GPU", where the others are to stay as they are; None for all types.
    Raises: InvalidArgumentError: there is no such device, or it is of another type.

    Examples:
      >>> wf.config.set_visible_devices([], "GPU")
      >>> wf.config.get_visible_devices("GPU")
      []
      >>> wf.config.set_visible_devices(wf.config.list_physical_devices("GPU"), "GPU")
    """
    wanted = [devices] if isinstance(devices, PhysicalDevice) else list(devices)
    kinds = device_types() if device_type is None else [device_type]
    chosen: dict[str, list[int]] = {kind: [] for kind in kinds}
    for device in wanted:
        index = _index(device)
        if device.device_type not in chosen:
            raise errors.InvalidArgumentError(
                f"devices must be of the type {device_type!r}, got {device!r}"
            )
        chosen[device.device_type].append(index)
    if device_type == "CPU" and not chosen["CPU"]:
        raise errors.InvalidArgumentError("a session needs the processor: it cannot be hidden")
    chosen.pop("CPU", None)
    hidden = {kind: some for kind, some in settings.visible.items() if kind not in chosen}
    told = {kind: tuple(some) for kind, some in chosen.items() if len(some) < _count(kind)}
    settings.visible = hidden | told


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Whether a GPU's memory is taken when it is needed, and not all at once.

    Args:
      device: of `list_physical_devices`.
    Raises: InvalidArgumentError: there is no such device.

    Examples:
      >>> wf.config.experimental.get_memory_growth(wf.config.list_physical_devices()[0])
      True
    """
    index = _index(device)
    return device == CPU or settings.memory_growth.get((device.device_type, index), False)


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Let a GPU's memory be taken when it is needed, as `gpu_options.allow_growth` does.

    Args:
      device: of `list_physical_devices`, which no session has used yet.
      enable: whether it is.
    Raises: InvalidArgumentError: there is no such device, or it is the processor, whose memory
      grows always; FailedPreconditionError: a session has used it.

    Examples:
      >>> for gpu in wf.config.list_physical_devices("GPU"):
      ...     wf.config.experimental.set_memory_growth(gpu, True)
    """
    index = _index(device)
    if device == CPU:
        raise errors.InvalidArgumentError("the processor's memory always grows")
    if _statistics_of(device.device_type, index) is not None:
        raise errors.FailedPreconditionError(f"a session has used {device.name} already")
    settings.memory_growth[device.device_type, index] = bool(enable)


def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
    """What is known of a device.

    Args:
      device: of `list_physical_devices`.
    Returns: for GPUs "device_name" and "compute_capability", as (8, 0); nothing for others.
    Raises: InvalidArgumentError: there is no such device.

    Examples:
      >>> wf.config.experimental.get_device_details(wf.config.list_physical_devices("CPU")[0])
      {}
    """
    index = _index(device)
    hardware = _hardware(device.device_type)
    return {} if hardware is None else hardware.details(index)


def get_memory_info(device: str) -> dict[str, int]:
    """How many bytes of its pool a device uses, and the most that it did.

    Results of kernels over 64 KB come from the pool of a CPU device, and everything from a GPU's.

    Args:
      device: the name of a device of sessions, "GPU:0".
    Returns: "current" and "peak"; 0 before a session has used the device.
    Raises: InvalidArgumentError: there is no such device.

    Examples:
      >>> sorted(wf.config.experimental.get_memory_info("CPU:0"))
      ['current', 'peak']
    """
    found = _statistics_of(*_place_of(device))
    if found is None:
        return {"current": 0, "peak": 0}
    return {"current": found.bytes_in_use, "peak": found.peak_bytes_in_use}


def get_memory_usage(device: str) -> int:
    """How many bytes of its pool a device uses: "current" of `get_memory_info`.

    Args:
      device: as for `get_memory_info`.

    Examples:
      >>> wf.config.experimental.get_memory_usage("CPU:0") >= 0
      True
    """
    return get_memory_info(device)["current"]


def reset_memory_stats(device: str) -> None:
    """Let "peak" of `get_memory_info` begin again from what is used now.

    Args:
      device: as for `get_memory_info`.

    Examples:
      >>> wf.config.experimental.reset_memory_stats("CPU:0")
    """
    kind, index = _place_of(device)
    allocator = _allocator(kind, index)
    if allocator is not None:
        allocator.reset_peak()


def _physical(kind: str, index: int) -> PhysicalDevice:
    return PhysicalDevice(f"/physical_device:{kind}:{index}", kind)


def _hardware(kind: str) -> Hardware | None:
    known = device_type_of(kind)
    return None if known is None else known.hardware


def _count(kind: str) -> int:
    hardware = _hardware(kind)
    return int(kind == CPU.device_type) if hardware is None else hardware.number()


def _visible(kind: str) -> Iterable[int]:
    return settings.visible.get(kind, range(_count(kind)))


def _index(device: Any) -> int:
    """The number of a physical device."""
    kind = getattr(device, "device_type", "")
    for index in range(_count(kind)):
        if device == _physical(kind, index):
            return index
    there = ", ".join(each.name for each in list_physical_devices())
    raise errors.InvalidArgumentError(f"this machine has {there}, got {device!r}")


def _place_of(device: str) -> tuple[str, int]:
    """The type and the number, on this machine, of a device of sessions."""
    found = _LOGICAL.fullmatch(device)
    kind, number = (found[1].upper(), int(found[2])) if found else ("", 0)
    if kind == CPU.device_type and _allocator(kind, number) is not None:
        return kind, number
    numbers = list(_visible(kind))
    if kind == CPU.device_type or number >= len(numbers):
        raise errors.InvalidArgumentError(f"sessions have no device {device!r}, such as 'GPU:0'")
    return kind, numbers[number]


def _allocator(kind: str, index: int) -> Any:
    """What has the memory of a device; None where no session has used it."""
    if kind == CPU.device_type:
        from weft_exec.devices.virtual import cpu_allocators

        pools = cpu_allocators(None)
        return pools[index] if index < len(pools) else None
    hardware = _hardware(kind)
    return None if hardware is None else hardware.allocator(index)


def _statistics_of(kind: str, index: int) -> AllocatorStatistics | None:
    allocator = _allocator(kind, index)
    return None if allocator is None else allocator.statistics()
