"""What devices and the links between them can do."""

from __future__ import annotations

__all__ = ["DevicePerformance", "LinkPerformance"]

import math
from typing import Final, NamedTuple


class DevicePerformance(NamedTuple):
    """What kernels reach on a device.

    Attributes:
      flops: floating-point operations per second.
      bandwidth: bytes of memory read or written per second.
      overhead: seconds that the launch of any kernel takes.
    """

    flops: float
    bandwidth: float
    overhead: float

    def seconds(self, flops: float, nbytes: float) -> float:
        """Time of a kernel that is bound by arithmetic or by memory, whichever is slower."""
        arithmetic, memory = flops / self.flops, nbytes / self.bandwidth
        return self.overhead + (arithmetic if arithmetic > memory else memory)


class LinkPerformance(NamedTuple):
    """What a link between two memories carries.

    Attributes:
      bandwidth: bytes per second; infinite where nothing is copied.
      latency: seconds until the first byte has arrived.
    """

    bandwidth: float
    latency: float

    def seconds(self, nbytes: float) -> float:
        """Time of one transfer."""
        return self.latency + nbytes / self.bandwidth


# One core with vector units and its share of the memory bus; one accelerator of a data center as
# array libraries drive it from Python; in between, for types that nothing is known of.
DEVICES: Final = {
    "CPU": DevicePerformance(flops=5e10, bandwidth=1e10, overhead=2e-6),
    "GPU": DevicePerformance(flops=1e13, bandwidth=5e11, overhead=1e-5),
}
UNKNOWN_DEVICE: Final = DevicePerformance(flops=5e11, bandwidth=5e10, overhead=1e-5)

SAME_MEMORY: Final = LinkPerformance(bandwidth=math.inf, latency=1e-5)
"""Between devices that share memory: a hand-over, no copy."""
SAME_PROCESS: Final = LinkPerformance(bandwidth=1e10, latency=2e-5)
"""Between memories of one process, such as over PCI Express."""
SAME_MACHINE: Final = LinkPerformance(bandwidth=5e9, latency=2.5e-4)
"""Between tasks that share memory: a message, and a copy. `benchmarks/cluster.py` measures it."""
NETWORK: Final = LinkPerformance(bandwidth=1e9, latency=2.5e-4)
"""Between other tasks."""


def default_performance(device_type: str) -> DevicePerformance:
    """The figures for a type of which no device tells its own."""
    return DEVICES.get(device_type, UNKNOWN_DEVICE)
