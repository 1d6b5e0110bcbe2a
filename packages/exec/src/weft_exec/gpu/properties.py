"""Properties of a GPU, and its expected performance."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from weft_exec.devices.performance import (
    DEVICES,
    SAME_MEMORY,
    SAME_PROCESS,
    DevicePerformance,
    LinkPerformance,
)

_OVERHEAD: Final = 1e-5
_REACHED: Final = 0.6
"""The fraction of peak performance that kernels typically reach."""
_CORES: Final = {5: 128, 6: 64, 7: 64, 8: 64, 9: 128, 10: 128, 12: 128}
"""Number of float32 units of a multiprocessor, by the major compute capability."""
_OTHER_CORES: Final = {(6, 1): 128, (6, 2): 128, (8, 6): 128, (8, 7): 128, (8, 9): 128}


_FULL_DOUBLE: Final = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3)}
"""Compute capabilities with a 1:2 ratio of float64 to float32 units."""


class GpuProperties(NamedTuple):
    """Properties of a GPU as reported by CUDA.

    Attributes:
      name: the name of the product.
      compute_capability: the major and the minor number.
      memory: its size in bytes.
      multiprocessors: their number.
      clock, memory_clock: in Hz; 0 if CUDA does not report them.
      bus: width of the memory bus in bits.
    """

    name: str
    compute_capability: tuple[int, int]
    memory: int
    multiprocessors: int
    clock: float
    memory_clock: float
    bus: int


def read_properties(cupy: Any, index: int) -> GpuProperties:
    """Query the properties of a GPU; CUDA 13 reports clocks only as device attributes."""
    result = cupy.cuda.runtime.getDeviceProperties(index)
    attributes = cupy.cuda.Device(index).attributes
    name = result["name"]
    return GpuProperties(
        name.decode() if isinstance(name, bytes) else str(name),
        (int(result["major"]), int(result["minor"])),
        int(result["totalGlobalMem"]),
        int(result["multiProcessorCount"]),
        1e3 * (result.get("clockRate") or attributes.get("ClockRate", 0)),
        1e3 * (result.get("memoryClockRate") or attributes.get("MemoryClockRate", 0)),
        int(result.get("memoryBusWidth", 0)),
    )


def peak(properties: GpuProperties) -> tuple[float, float]:
    """Return the float32 and float64 operations per second, counting a multiply-add as two."""
    usual, capability = DEVICES["GPU"].flops, properties.compute_capability
    cores = _OTHER_CORES.get(capability) or _CORES.get(capability[0], 128)
    single = 2.0 * properties.multiprocessors * cores * properties.clock or usual
    return single, single / (2 if capability in _FULL_DOUBLE else 32 if capability < (8, 6) else 64)


def performance_of(properties: GpuProperties) -> DevicePerformance:
    """Return the float32 operations and the bytes per second that kernels are expected to reach."""
    usual = DEVICES["GPU"]
    flops = peak(properties)[0] * _REACHED if properties.clock else 0
    bandwidth = 2.0 * properties.memory_clock * properties.bus / 8 * _REACHED
    return DevicePerformance(flops or usual.flops, bandwidth or usual.bandwidth, _OVERHEAD)


def link_to_host(properties: GpuProperties) -> LinkPerformance:
    """Return the link for the GPU's PCI Express generation.

    Pinned memory reaches most of its speed.
    """
    generation = {6: 1.0, 7: 1.0, 8: 2.0, 9: 4.0, 10: 4.0, 12: 4.0}
    factor = generation.get(properties.compute_capability[0], 1.0)
    return LinkPerformance(1.2e10 * factor, SAME_PROCESS.latency)


def link_between_gpus(source: Any, target: Any) -> LinkPerformance:
    """Return the link between two GPUs, which is direct or through the host's memory."""
    if source.index == target.index:
        return SAME_MEMORY
    if source.cupy.cuda.runtime.deviceCanAccessPeer(target.index, source.index):
        return LinkPerformance(5e10, SAME_PROCESS.latency)
    return SAME_PROCESS
