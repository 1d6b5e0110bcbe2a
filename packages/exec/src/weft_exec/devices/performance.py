"""Performance figures of devices and of the links between them."""

from __future__ import annotations

__all__ = ["DevicePerformance", "LinkPerformance"]

import math
from typing import Final, NamedTuple


class DevicePerformance(NamedTuple):
    """Performance of a device's kernels.

    Attributes:
      flops: floating-point operations per second.
      bandwidth: bytes of memory read or written per second.
      overhead: seconds to launch any kernel.
    """

    flops: float
    bandwidth: float
    overhead: float

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return the time of a kernel, which is limited by arithmetic or by memory traffic."""
        arithmetic, memory = flops / self.flops, nbytes / self.bandwidth
        return self.overhead + (arithmetic if arithmetic > memory else memory)


class LinkPerformance(NamedTuple):
    """Performance of a link between two memories.

    Attributes:
      bandwidth: bytes per second; infinite if nothing is copied.
      latency: seconds until the first byte has arrived.
    """

    bandwidth: float
    latency: float

    def seconds(self, nbytes: float) -> float:
        """Return the time of one transfer."""
        return self.latency + nbytes / self.bandwidth


# A CPU is one core with vector units and its share of the memory bus. A GPU is a data center
# accelerator driven from Python by array libraries. Unknown types are in between.
DEVICES: Final = {
    "CPU": DevicePerformance(flops=5e10, bandwidth=1e10, overhead=2e-6),
    "GPU": DevicePerformance(flops=1e13, bandwidth=5e11, overhead=1e-5),
}
UNKNOWN_DEVICE: Final = DevicePerformance(flops=5e11, bandwidth=5e10, overhead=1e-5)

SAME_MEMORY: Final = LinkPerformance(bandwidth=math.inf, latency=1e-5)
"""Link between devices that share memory: a value is passed by reference."""
SAME_PROCESS: Final = LinkPerformance(bandwidth=1e10, latency=2e-5)
"""Link between two memories of one process, such as PCI Express."""
SAME_MACHINE: Final = LinkPerformance(bandwidth=5e9, latency=2.5e-4)
"""Link between tasks that share memory: a message and a copy.

Measured by `benchmarks/cluster.py`.
"""
NETWORK: Final = LinkPerformance(bandwidth=1e9, latency=2.5e-4)
"""Link between tasks on different machines."""


def default_performance(device_type: str) -> DevicePerformance:
    """Return the default figures of a device type."""
    return DEVICES.get(device_type, UNKNOWN_DEVICE)
