"""The memory of a GPU as one session sees it: streams, arrays, variables and copies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device
from weft_exec.devices.performance import LinkPerformance
from weft_exec.gpu.properties import (
    link_between_gpus,
    link_to_host,
    performance_of,
    read_properties,
)
from weft_exec.gpu.residency import is_of_host, keeps_variables, stays
from weft_exec.resources.resources import Done, ResourceManager, VariableState
from weft_exec.settings import graphs_environment
from weft_graph.ir.device_spec import DeviceSpec
from weft_tensor.allocator import cpu_allocator
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.gpu.hardware import Gpu
    from weft_tensor.shape import Dims

_ASIDE: Final = 1 << 20
"""Host values of more bytes are staged by a thread of the GPU."""


class BaseGpuDevice(Device):
    """A GPU without its kernels and graphs, which `GpuDevice` adds.

    Attributes:
      hardware: the state shared with the devices of other sessions.
      core: a device of the host, for work done there.
      properties: name, compute capability (major, minor), bytes of memory, multiprocessors.
      performance: expected speed of its kernels, from its properties.
    """

    def __init__(
        self, hardware: Gpu, spec: DeviceSpec, resources: ResourceManager, config: SessionConfig
    ) -> None:
        super().__init__(spec, hardware.allocator, resources, config)
        self.hardware = hardware
        self.xp = hardware.cupy
        self.memory_space = f"gpu {hardware.index}"
        self.core = Device(spec, cpu_allocator(), resources, config)
        self.properties = read_properties(hardware.cupy, hardware.index)
        self.performance = performance_of(self.properties)

    @property
    def description(self) -> str:
        """Name, compute capability and memory as text."""
        properties = self.properties
        major, minor = properties.compute_capability
        return (
            f"{properties.name}, compute capability {major}.{minor}, {properties.memory >> 20} MiB"
        )

    def active(self) -> AbstractContextManager[None]:
        """Return a context in which CuPy uses this GPU, its pool and its kernels' stream."""
        return self.hardware.active()

    def in_graphs(self) -> bool:
        """Return True if graphs are allowed: all work is in one stream anyway.

        Not in deterministic sessions: cuBLAS may choose another algorithm in a graph.
        """
        return graphs_environment() and not self.config.deterministic

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> VariableState:
        """Return a variable; counters and flags are in the host's memory, where they are read."""
        if keeps_variables(dtype):
            return self.core.new_variable(name, dtype, dims)
        return super().new_variable(name, dtype, dims)

    def link_to(self, other: Device) -> LinkPerformance | None:
        """Return the performance of the link to another device, or None if unknown."""
        if isinstance(other, BaseGpuDevice):
            return link_between_gpus(self.hardware, other.hardware)
        return link_to_host(self.properties) if other.type == "CPU" else None

    # ------------------------------------------------------------------ copies

    def is_own(self, value: Any) -> bool:
        """Return True if a value is an array in the memory of a GPU."""
        return isinstance(value, self.xp.ndarray)

    def own(self, value: Any) -> Any:
        """Return a value as an array of this GPU; objects are left unchanged."""
        if is_of_host(value) and not value.dtype.hasobject:
            return self.hardware.bring_in(value)
        return value

    def to_host(self, value: Any) -> Any:
        """Return a value in the host's memory; waits for it."""
        return self.hardware.take_out(value) if self.is_own(value) else value

    def from_host(self, value: Any) -> Any:
        """Return a value of the host on the GPU, unless it is of a kind that stays on the host.

        Raises: ResourceExhaustedError: it does not fit into the GPU's memory.
        """
        return value if stays(value) else self.hardware.bring_in(value)

    def send(self, value: Any, done: Done) -> None:
        """Call `done` with the value in the host's memory from another thread; does not wait."""
        if self.is_own(value):
            self.hardware.take_out_aside(value, done)
        else:
            done(value)

    def receive(self, value: Any, source: Device, done: Done) -> None:
        """Copy a value of the host or of another GPU."""
        if isinstance(source, BaseGpuDevice) and self.is_own(value):
            done(self.hardware.bring_over(value, source.hardware))
        elif is_of_host(value) and not stays(value) and value.nbytes > _ASIDE:
            self.hardware.bring_in_aside(value, done)
        else:
            super().receive(value, source, done)
