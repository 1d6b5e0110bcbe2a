"""GPU kernels of convolutions: by cuDNN if it is available, else by the array module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from weft_exec.gpu import cudnn
from weft_exec.kernels import conv
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_TYPES: Final = {"T": ("float16", "float32")}
"""Element types that cuDNN supports."""


def _by_library(library: Callable[..., Any], plain: KernelFactory) -> KernelFactory:
    def make(node: Node, device: Device) -> KernelFunction:
        result = library(conv.Convolution(node, device), device)
        return cudnn.with_fallback(result, plain(node, device))

    return make


kernel("Conv2D", "Conv3D", device="GPU", dtypes=_TYPES)(
    _by_library(cudnn.forward, conv.make_forward)
)
kernel(
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    device="GPU",
    host=("filter_sizes",),
    dtypes=_TYPES,
)(_by_library(cudnn.filter_gradient, conv.make_by_filter))
kernel(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    device="GPU",
    host=("input_sizes",),
    dtypes=_TYPES,
)(_by_library(cudnn.input_gradient, conv.make_by_input))
