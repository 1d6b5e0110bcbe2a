"""Registration of the device type GPU, by an entry point.

The class of the devices is loaded only if there is a GPU.
"""

from __future__ import annotations

from typing import Final

from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device, Hardware, register_device
from weft_exec.gpu import discovery
from weft_exec.gpu.element_types import NUMBERS
from weft_exec.resources.resources import ResourceManager
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors

TYPE: Final = "GPU"


def _make(resources: ResourceManager, config: SessionConfig, task: DeviceParts) -> list[Device]:
    """Return the GPUs of a session; empty, at no cost, if CuPy is not installed."""
    count = config.device_count.get(TYPE)
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"device_count of GPU must be at least 0, got {count}")
    if count == 0:
        return []
    indices = discovery.visible_gpus(config.gpu)[:count]
    if not indices:
        return []
    from weft_exec.gpu.session_device import GpuDevice  # with the executor's and compiled code

    return [
        GpuDevice(
            discovery.get_gpu(index, config.gpu),
            DeviceSpec(*task[:3], TYPE, ordinal),
            resources,
            config,
        )
        for ordinal, index in enumerate(indices)
    ]


register_device(
    TYPE,
    _make,
    array_module="cupy",
    element_types=NUMBERS,
    kernels="weft_exec.gpu.kernels",
    hardware=Hardware(discovery.count, discovery.gpu_details, discovery.allocator),
)
