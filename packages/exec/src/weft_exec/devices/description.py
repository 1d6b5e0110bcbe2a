"""Descriptions of devices for placement: plain data, also of devices in other processes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from weft_exec.devices.performance import (
    NETWORK,
    SAME_MACHINE,
    SAME_MEMORY,
    SAME_PROCESS,
    DevicePerformance,
    LinkPerformance,
)
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors

_JOB: Final = re.compile("[A-Za-z0-9_.-]+")

HOST: Final = "host"
"""The memory space of the CPUs of a process."""


@dataclass(frozen=True)
class KernelDescription:
    """One kernel of an op.

    Attributes:
      dtypes: the names of the allowed element types by type attribute; empty means all.
      asynchronous: True if a node may wait for something other than its inputs and its device.
    """

    dtypes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asynchronous: bool = False


Kernels = Mapping[str, Sequence[KernelDescription]]
"""The kernels of a device, by op type."""


@dataclass(frozen=True)
class DeviceDescription:
    """One device, of this process or of another.

    Attributes:
      name: `/job:worker/replica:0/task:1/device:GPU:0`.
      type: "GPU".
      performance: speed of its kernels.
      memory_limit: bytes that its allocator may hold; 0 for no limit.
      memory_space: the memory that holds its values. Devices of one task with the same memory space
        share values without a copy.
      links: the link performance by the name of the other device; other links have default figures.
      kernels: its kernels; None for the kernels that this process registers for its type.
      machine: the machine whose memory its task can share with other tasks; "" if it cannot.
    """

    name: str
    type: str
    performance: DevicePerformance
    memory_limit: int = 0
    memory_space: str = HOST
    links: Mapping[str, LinkPerformance] = field(default_factory=dict)
    kernels: Kernels | None = None
    machine: str = ""

    @cached_property
    def spec(self) -> DeviceSpec:
        """The parsed name."""
        return DeviceSpec.from_string(self.name)

    @property
    def task(self) -> DeviceParts:
        """The job, replica and task of the device."""
        return DeviceParts(*self.spec.parts[:3])

    @cached_property
    def memory(self) -> str:
        """The identifier of the memory that holds its values, unique in a cluster."""
        return f"{self.task.to_string()}/memory:{self.memory_space}"

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON-compatible numbers, strings, lists and dicts."""
        return {
            "name": self.name,
            "type": self.type,
            "memory_limit": self.memory_limit,
            "memory_space": self.memory_space,
            "machine": self.machine,
            "performance": list(self.performance),
            "links": {name: list(link) for name, link in self.links.items()},
            "kernels": None
            if self.kernels is None
            else {
                op: [
                    {
                        "dtypes": {key: list(names) for key, names in kernel.dtypes.items()},
                        "asynchronous": kernel.asynchronous,
                    }
                    for kernel in kernels
                ]
                for op, kernels in self.kernels.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DeviceDescription:
        """Return the description encoded by `to_dict`.

        Raises: InvalidArgumentError: `data` does not describe a device.
        """
        try:
            kernels = data["kernels"]
            result = cls(
                str(data["name"]),
                str(data["type"]),
                DevicePerformance(*map(float, data["performance"])),
                int(data["memory_limit"]),
                str(data["memory_space"]),
                {n: LinkPerformance(*map(float, link)) for n, link in data["links"].items()},
                None
                if kernels is None
                else {op: _kernels(kernel) for op, kernel in kernels.items()},
                str(data["machine"]),
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise _refusal_error(repr(error)) from error
        result.check()
        return result

    def check(self) -> None:
        """Validate the description.

        Raises: InvalidArgumentError: a field is invalid, such as an incomplete name.
        """
        spec = self.spec
        if None in spec.parts or spec.to_string() != self.name or not _JOB.fullmatch(str(spec.job)):
            raise _refusal_error(
                "its name must have the form /job:worker/replica:0/task:1/device:GPU:0, got "
                f"{self.name!r}"
            )
        if spec.device_type != self.type:
            raise _refusal_error(f"{self.name} is of type {self.type!r}")
        if self.memory_limit < 0:
            raise _refusal_error(f"the memory limit of {self.name} is {self.memory_limit}")
        minimum = self.performance.overhead, *[link.latency for link in self.links.values()]
        rates = *self.performance[:2], *[link.bandwidth for link in self.links.values()]
        if not (all(0 <= n < math.inf for n in minimum) and all(n > 0 for n in rates)):
            raise _refusal_error(
                f"rates of {self.name} and its links must be positive, and times at least 0: "
                f"got {self.performance}, {dict(self.links)}"
            )


def _kernels(document: Any) -> list[KernelDescription]:
    result = []
    for kernel in document:
        dtypes, asynchronous = kernel["dtypes"], kernel["asynchronous"]
        named = {str(key): [str(name) for name in names] for key, names in dtypes.items()}
        result.append(KernelDescription(named, bool(asynchronous)))
    return result


def _refusal_error(reason: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"not a device description: {reason}")


def check_all(devices: Sequence[DeviceDescription]) -> None:
    """Validate the devices of a placement.

    Raises: InvalidArgumentError: the list is empty, two devices have the same name, or `check`
      rejects one.
    """
    if not devices:
        raise errors.InvalidArgumentError("placement needs at least one device")
    visited: set[str] = set()
    for device in devices:
        device.check()
        if device.name in visited:
            raise errors.InvalidArgumentError(
                f"devices must have different names, but {device.name} occurs twice"
            )
        visited.add(device.name)


def gateway_devices(devices: Sequence[DeviceDescription]) -> dict[str, str]:
    """Map each device with its own memory to the device that exchanges values with the host.

    That is the first device of its task with the host's memory, or else the first device of all.
    """
    hosts: dict[DeviceParts, str] = {}
    for device in devices:
        if device.memory_space == HOST:
            hosts.setdefault(device.task, device.name)
    first = devices[0].name
    result = {d.name: hosts.get(d.task, first) for d in devices if d.memory_space != HOST}
    return {name: gate for name, gate in result.items() if name != gate}


def link_between(source: DeviceDescription, target: DeviceDescription) -> LinkPerformance:
    """Return the link performance between two devices."""
    link = source.links.get(target.name) or target.links.get(source.name)
    if link is not None:
        return link
    if source.task != target.task:
        is_same_machine = source.machine != "" and source.machine == target.machine
        return SAME_MACHINE if is_same_machine else NETWORK
    return SAME_MEMORY if source.memory == target.memory else SAME_PROCESS
