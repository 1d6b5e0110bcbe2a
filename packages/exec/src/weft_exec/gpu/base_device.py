"""A GPU as a session sees it: streams, arrays, variables and copies."""

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
from weft_exec.gpu.residency import is_of_host, keeps_variables_on_host, stays_on_host
from weft_exec.resources.resources import CompletionCallback, ResourceManager, VariableState
from weft_exec.settings import graphs_environment
from weft_graph.ir.device_spec import DeviceSpec
from weft_tensor.allocator import cpu_allocator
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.gpu.hardware import Gpu
    from weft_tensor.shape import Dims

_ASIDE: Final = 1 << 20
"""Host values larger than this many bytes are staged by a thread of the GPU."""


class BaseGpuDevice(Device):
    """A GPU without its kernels and graphs, which `GpuDevice` adds.

    Attributes:
      hardware: the state shared with the devices of other sessions.
      core: a device of the host, for work that runs there.
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
        """Return a context that makes CuPy use this GPU, its pool and its kernels' stream."""
        return self.hardware.active()

    def prefers_graphs(self) -> bool:
        """Return True if segments may be captured as graphs, because all work is in one stream.

        They are not captured in deterministic sessions, because cuBLAS may choose another algorithm
        in a graph.
        """
        return graphs_environment() and not self.config.deterministic

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> VariableState:
        """Return a variable.

        Counters and flags are in the host's memory, where programs read them.
        """
        if keeps_variables_on_host(dtype):
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
        """Return a value as an array of this GPU; objects are returned unchanged."""
        if is_of_host(value) and not value.dtype.hasobject:
            return self.hardware.copy_from_host(value)
        return value

    def to_host(self, value: Any) -> Any:
        """Wait for a value, and return it in the host's memory."""
        return self.hardware.take_out(value) if self.is_own(value) else value

    def from_host(self, value: Any) -> Any:
        """Return a value of the host as a value of the GPU, unless such values stay on the host.

        Raises: ResourceExhaustedError: it does not fit into the GPU's memory.
        """
        return value if stays_on_host(value) else self.hardware.copy_from_host(value)

    def send(self, value: Any, done: CompletionCallback) -> None:
        """Return immediately.

        Later call `done` from another thread, with the value in the host's memory.
        """
        if self.is_own(value):
            self.hardware.take_out_aside(value, done)
        else:
            done(value)

    def receive(self, value: Any, source: Device, done: CompletionCallback) -> None:
        """Copy a value of the host or of another GPU to this GPU."""
        if isinstance(source, BaseGpuDevice) and self.is_own(value):
            done(self.hardware.copy_from_gpu(value, source.hardware))
        elif is_of_host(value) and not stays_on_host(value) and value.nbytes > _ASIDE:
            self.hardware.copy_in_async(value, done)
        else:
            super().receive(value, source, done)
