"""Accelerators as devices of weft."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_accelerator.array import DeviceArray
from weft_accelerator.hardware import Accelerator, accelerator
from weft_accelerator.memory import stays
from weft_accelerator.variables import DeviceVariable
from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device, KernelFactory, KernelFunction, register_device
from weft_exec.resources.resources import CompletionCallback, ResourceManager
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_graph.ir.node import Node
    from weft_tensor.shape import Dims

TYPE = "ACCEL"
NUMBERS: Final = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
)


class AccelDevice(Device):
    """An accelerator, as one session sees it.

    Attributes:
      hardware: what it shares with the devices of other sessions.
    """

    def __init__(
        self,
        hardware: Accelerator,
        spec: DeviceSpec,
        resources: ResourceManager,
        config: SessionConfig,
    ) -> None:
        super().__init__(spec, hardware.memory, resources, config)
        self.hardware = hardware
        self.memory_space = hardware.name

    def make_kernel(
        self, factory: KernelFactory, node: Node, host: Collection[str]
    ) -> KernelFunction:
        """Return a kernel over NumPy that runs in the accelerator's stream."""
        from weft_accelerator.launch import launching

        return launching(self, factory(node, self), node)

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> DeviceVariable:
        """Return a variable without a value, in the accelerator's memory."""
        return DeviceVariable(name, dtype, dims, self.hardware.memory)

    def to_host(self, value: Any) -> Any:
        """Return a value in host memory, after the simulated transfer time."""
        return value if stays(value) else self.hardware.outward.at_once(value, _content)

    def from_host(self, value: Any) -> Any:
        """Return a value in the accelerator's memory, after the simulated transfer time."""
        if stays(value):
            return value
        return self.hardware.inward.at_once(value, self.hardware.memory.put)

    def send(self, value: Any, done: CompletionCallback) -> None:
        """Call `done` with the value in host memory after the simulated transfer time."""
        if stays(value):
            done(value)
        else:
            self.hardware.outward.transfer(value, _content, done)

    def receive(self, value: Any, source: Device, done: CompletionCallback) -> None:
        """Copy in a value of the host or another accelerator after the simulated transfer time."""
        if stays(value):
            done(value)
        elif isinstance(value, np.ndarray | np.generic):
            self.hardware.inward.transfer(value, self.hardware.memory.put, done)
        elif isinstance(value, DeviceArray):
            self.hardware.inward.transfer(value, self._from_beside, done)
        else:
            super().receive(value, source, done)

    def _from_beside(self, value: DeviceArray) -> DeviceArray:
        return self.hardware.memory.put(value.content)


def _content(value: DeviceArray) -> Any:
    return np.array(value.content)[()] if value.ndim == 0 else np.array(value.content)


def _make(resources: ResourceManager, config: SessionConfig, task: DeviceParts) -> list[Device]:
    count = config.device_count.get(TYPE, 0)
    return [
        AccelDevice(accelerator(i), DeviceSpec(*task[:3], TYPE, i), resources, config)
        for i in range(count)
    ]


register_device(TYPE, _make, array_module="numpy", element_types=NUMBERS, asynchronous=True)
