"""GPUs as devices of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from weft_exec.config import SessionConfig
from weft_exec.devices.device import (
    Device,
    Hardware,
    KernelFactory,
    KernelFunction,
    register_device,
)
from weft_exec.devices.performance import LinkPerformance
from weft_exec.gpu.element_types import NUMBERS
from weft_exec.resources.resources import Done, ResourceManager, VariableState
from weft_graph.ir.device_spec import DeviceParts, DeviceSpec
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.executor.linear import Segment
    from weft_exec.gpu.measure import Clock
    from weft_graph.ir.code_generators import CodeGenerator, DeviceCodeGenerator
    from weft_graph.ir.node import Node
    from weft_tensor.shape import Dims

TYPE: Final = "GPU"
_ASIDE: Final = 1 << 20
"""Host values of more bytes are staged by a thread of the GPU."""


class GpuDevice(Device):
    """A GPU as one session sees it; its values are CuPy arrays.

    Attributes:
      hardware: the state shared with the devices of other sessions.
      core: a device of the host, for work done there.
      properties: name, compute capability (major, minor), bytes of memory, multiprocessors.
      performance: expected speed of its kernels, from its properties.
    """

    def __init__(
        self, hardware: Any, spec: DeviceSpec, resources: ResourceManager, config: SessionConfig
    ) -> None:
        from weft_exec.gpu.properties import performance_of, read_properties
        from weft_tensor.allocator import cpu_allocator

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
        found = self.properties
        major, minor = found.compute_capability
        return f"{found.name}, compute capability {major}.{minor}, {found.memory >> 20} MiB"

    def active(self) -> AbstractContextManager[None]:
        """Return a context in which CuPy uses this GPU, its pool and its kernels' stream."""
        found: AbstractContextManager[None] = self.hardware.active()
        return found

    def make_kernel(
        self, factory: KernelFactory, node: Node, host: Collection[str]
    ) -> KernelFunction:
        """Return a function that runs a node on the kernels' stream and copies its inputs.

        See `launch.py`.
        """
        from weft_exec.gpu.launch import launching

        return launching(self, factory, node, host)

    def new_variable(self, name: str, dtype: DType, dims: Dims) -> VariableState:
        """Return a variable; counters and flags are in the host's memory, where they are read."""
        from weft_exec.gpu.residency import keeps_variables

        if keeps_variables(dtype):
            return self.core.new_variable(name, dtype, dims)
        return super().new_variable(name, dtype, dims)

    @property
    def matmul(self) -> Callable[..., Any]:
        """CuPy's matrix product; cuBLAS itself while a graph is captured."""
        from weft_exec.gpu.products import matmul_of

        return matmul_of(self)

    def clock(self) -> Clock:
        """Return a clock that uses GPU events."""
        from weft_exec.gpu.measure import Clock

        return Clock(self)

    def in_graphs(self) -> bool:
        """Return True if graphs are allowed: all work is in one stream anyway.

        Not in deterministic sessions: cuBLAS may choose another algorithm in a graph.
        """
        from weft_exec.settings import graphs_environment

        return graphs_environment() and not self.config.deterministic

    def graphed(self, segment: Segment) -> None:
        """Launch a segment as CUDA graphs if that is safe and enabled."""
        from weft_exec.gpu.step_graphs import graphed

        graphed(self, segment)

    def code_generator(self, inner: DeviceCodeGenerator) -> CodeGenerator:
        """Return a code generator for functions of this GPU's arrays."""
        from weft_exec.gpu.compiled import GpuGenerator

        return GpuGenerator(inner, self)

    def launched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of GPU values for a function that works on this GPU's arrays."""
        from weft_exec.gpu.compiled import launched

        return launched(self, function)

    def link_to(self, other: Device) -> LinkPerformance | None:
        """Return the performance of the link to another device, or None if unknown."""
        from weft_exec.gpu.properties import link_between_gpus, link_to_host

        if isinstance(other, GpuDevice):
            return link_between_gpus(self.hardware, other.hardware)
        return link_to_host(self.properties) if other.type == "CPU" else None

    # ------------------------------------------------------------------ copies

    def is_own(self, value: Any) -> bool:
        """Return True if a value is an array in the memory of a GPU."""
        return isinstance(value, self.xp.ndarray)

    def own(self, value: Any) -> Any:
        """Return a value as an array of this GPU; objects are left unchanged."""
        from weft_exec.gpu.residency import is_of_host

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
        from weft_exec.gpu.residency import stays

        return value if stays(value) else self.hardware.bring_in(value)

    def send(self, value: Any, done: Done) -> None:
        """Call `done` with the value in the host's memory from another thread; does not wait."""
        if self.is_own(value):
            self.hardware.take_out_aside(value, done)
        else:
            done(value)

    def receive(self, value: Any, source: Device, done: Done) -> None:
        """Copy a value of the host or of another GPU."""
        from weft_exec.gpu.residency import is_of_host, stays

        if isinstance(source, GpuDevice) and self.is_own(value):
            done(self.hardware.bring_over(value, source.hardware))
        elif is_of_host(value) and not stays(value) and value.nbytes > _ASIDE:
            self.hardware.bring_in_aside(value, done)
        else:
            super().receive(value, source, done)


def _make(resources: ResourceManager, config: SessionConfig, task: DeviceParts) -> list[Device]:
    """Return the GPUs of a session; none, at no cost, if CuPy is not installed."""
    wanted = config.device_count.get(TYPE)
    if wanted is not None and wanted < 0:
        raise errors.InvalidArgumentError(f"device_count of GPU must be at least 0, got {wanted}")
    if wanted == 0:
        return []
    from weft_exec.gpu import discovery

    chosen = discovery.visible(config.gpu)[:wanted]
    if not chosen:
        return []
    return [
        GpuDevice(
            discovery.gpu(index, config.gpu),
            DeviceSpec(*task[:3], TYPE, ordinal),
            resources,
            config,
        )
        for ordinal, index in enumerate(chosen)
    ]


def _ask(question: str, *args: Any) -> Any:
    """Return the answer of `discovery`, which needs CuPy."""
    from weft_exec.gpu import discovery

    return getattr(discovery, question)(*args)


register_device(
    TYPE,
    _make,
    array_module="cupy",
    element_types=NUMBERS,
    kernels="weft_exec.gpu.kernels",
    hardware=Hardware(*[partial(_ask, each) for each in ("count", "details", "allocator")]),
)
