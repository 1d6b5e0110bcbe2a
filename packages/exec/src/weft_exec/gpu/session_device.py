"""GPUs as devices of a session: kernels, compiled functions and graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from weft_exec.devices.device import KernelFactory, KernelFunction
from weft_exec.gpu.base_device import BaseGpuDevice
from weft_exec.gpu.captured_matmul import matmul_of
from weft_exec.gpu.compiled import GpuGenerator, make_launcher
from weft_exec.gpu.gpu_measurement import GpuMarks
from weft_exec.gpu.launch import launch_on_gpu
from weft_exec.gpu.step_graphs import replace_by_graphs

if TYPE_CHECKING:
    from weft_exec.executor.linear import Segment
    from weft_graph.ir.code_generators import CodeGenerator, DeviceCodeGenerator
    from weft_graph.ir.node import Node


class GpuDevice(BaseGpuDevice):
    """A GPU as one session sees it; its values are CuPy arrays."""

    def make_kernel(
        self, factory: KernelFactory, node: Node, host: Collection[str]
    ) -> KernelFunction:
        """Return a function that runs a node on the kernels' stream and copies its inputs there.

        See `launch.py`.
        """
        return launch_on_gpu(self, factory, node, host)

    @property
    def matmul(self) -> Callable[..., Any]:
        """The matrix product: CuPy's, or cuBLAS called directly while a graph is captured."""
        return matmul_of(self)

    def stream_marks(self) -> GpuMarks:
        """Return an empty sequence of events in the kernels' stream."""
        return GpuMarks(self)

    def graphed(self, segment: Segment) -> None:
        """Replace the instructions of a segment by CUDA graphs, if that is safe and enabled.

        Traced runs read the times of its kernels from the GPU's clock.
        """
        segment.mark_stream(self.name, self.stream_marks)
        replace_by_graphs(self, segment)

    def code_generator(self, inner: DeviceCodeGenerator) -> CodeGenerator:
        """Return a code generator for functions over arrays of this GPU."""
        return GpuGenerator(inner, self)

    def launched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of GPU values that calls a function over arrays of this GPU."""
        return make_launcher(self, function)
