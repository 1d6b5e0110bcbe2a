"""What placement has to know of a device: plain data, so that it may be one of another process."""

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
"""The memory space of a process's processors."""


@dataclass(frozen=True)
class KernelDescription:
    """One kernel of an op.

    Attributes:
      dtypes: the names of the allowed element types by type attribute; empty means all.
      asynchronous: whether a node may wait for something other than its inputs and its device.
    """

    dtypes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asynchronous: bool = False


Kernels = Mapping[str, Sequence[KernelDescription]]
"""Op types to their kernels."""


@dataclass(frozen=True)
class DeviceDescription:
    """One device, of this process or of another one.

    Attributes:
      name: `/job:worker/replica:0/task:1/device:GPU:0`.
      type: "GPU".
      performance: what its kernels reach.
      memory_limit: bytes that its allocator may hold; 0 for no limit.
      memory_space: where its values are; devices of one task and space share them without a copy.
      links: what carries values to other devices, by their names; for others the usual figures.
      kernels: what it can compute; None where that is what this process registers for its type.
      machine: the one whose memory its task can share with others; "" where it shares none.
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
        """The name, parsed."""
        return DeviceSpec.from_string(self.name)

    @property
    def task(self) -> DeviceParts:
        """The job, replica and task that it belongs to."""
        return DeviceParts(*self.spec.parts[:3])

    @cached_property
    def memory(self) -> str:
        """The memory that holds its values, of all that there are in a cluster."""
        return f"{self.task.to_string()}/memory:{self.memory_space}"

    def to_dict(self) -> dict[str, Any]:
        """It as numbers, strings, lists and dicts of them, such as JSON takes."""
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
        """What `to_dict` gave.

        Raises: InvalidArgumentError: it is no description of a device.
        """
        try:
            kernels = data["kernels"]
            made = cls(
                str(data["name"]),
                str(data["type"]),
                DevicePerformance(*map(float, data["performance"])),
                int(data["memory_limit"]),
                str(data["memory_space"]),
                {n: LinkPerformance(*map(float, link)) for n, link in data["links"].items()},
                None if kernels is None else {op: _kernels(found) for op, found in kernels.items()},
                str(data["machine"]),
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise _refused(repr(error)) from error
        made.check()
        return made

    def check(self) -> None:
        """Refuse what is no device's, such as half a name.

        Raises: InvalidArgumentError: it is so; the message says what.
        """
        spec = self.spec
        if None in spec.parts or spec.to_string() != self.name or not _JOB.fullmatch(str(spec.job)):
            raise _refused(
                "its name must be like /job:worker/replica:0/task:1/device:GPU:0, "
                f"got {self.name!r}"
            )
        if spec.device_type != self.type:
            raise _refused(f"{self.name} is of type {self.type!r}")
        if self.memory_limit < 0:
            raise _refused(f"the memory limit of {self.name} is {self.memory_limit}")
        least = self.performance.overhead, *[link.latency for link in self.links.values()]
        rates = *self.performance[:2], *[link.bandwidth for link in self.links.values()]
        if not (all(0 <= n < math.inf for n in least) and all(n > 0 for n in rates)):
            raise _refused(
                f"rates of {self.name} and its links must be positive, and times at least 0: "
                f"got {self.performance}, {dict(self.links)}"
            )


def _kernels(told: Any) -> list[KernelDescription]:
    made = []
    for kernel in told:
        dtypes, asynchronous = kernel["dtypes"], kernel["asynchronous"]
        named = {str(key): [str(name) for name in names] for key, names in dtypes.items()}
        made.append(KernelDescription(named, bool(asynchronous)))
    return made


def _refused(why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"no description of a device: {why}")


def check_all(devices: Sequence[DeviceDescription]) -> None:
    """Refuse devices that no graph can be placed on.

    Raises: InvalidArgumentError: there is none, two have one name, or `check` refuses one.
    """
    if not devices:
        raise errors.InvalidArgumentError("placement needs at least one device")
    seen: set[str] = set()
    for device in devices:
        device.check()
        if device.name in seen:
            raise errors.InvalidArgumentError(f"two devices have the name {device.name}")
        seen.add(device.name)


def gates(devices: Sequence[DeviceDescription]) -> dict[str, str]:
    """The devices with a memory that is not their host's, and that by which its host reaches them.

    That is the first one of their task with the host's memory, or else the first device of all.
    """
    hosts: dict[DeviceParts, str] = {}
    for device in devices:
        if device.memory_space == HOST:
            hosts.setdefault(device.task, device.name)
    first = devices[0].name
    found = {d.name: hosts.get(d.task, first) for d in devices if d.memory_space != HOST}
    return {name: gate for name, gate in found.items() if name != gate}


def link_between(source: DeviceDescription, target: DeviceDescription) -> LinkPerformance:
    """What carries values from one device to another one."""
    link = source.links.get(target.name) or target.links.get(source.name)
    if link is not None:
        return link
    if source.task != target.task:
        near = source.machine != "" and source.machine == target.machine
        return SAME_MACHINE if near else NETWORK
    return SAME_MEMORY if source.memory == target.memory else SAME_PROCESS
