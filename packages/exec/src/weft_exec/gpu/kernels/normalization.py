"""GPU kernels of fused batch normalization and local response normalization.

Each uses two or three launches, while the array module would launch a kernel for each step of a
formula.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu import cudnn, cudnn_norm
from weft_exec.gpu.element_types import REAL
from weft_exec.gpu.generated import THREADS, Program, Source
from weft_exec.kernels.normalization import check_vectors
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.windows import channel_axis
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_ONE: Final = {"T": REAL}
_TWO: Final = {"T": REAL, "U": REAL}
_FORWARD: Final = Source("batch_norm", T=REAL, U=REAL[1:])
_BACKWARD: Final = Source("batch_norm_grad", T=REAL, U=REAL[1:])
_LRN: Final = Source("lrn", T=REAL)
_LANES: Final = 32
"""Number of adjacent channels that a block processes, so that their elements are read together."""
_HEIGHT: Final = 8
"""Minimum number of elements of a channel for each thread."""
_PARTS: Final = 128
"""Maximum number of blocks that divide the elements of a channel."""


class _Layout:
    """The shape of a tensor around its channels: (outer, channels, inner)."""

    def __init__(self, shape: tuple[int, ...], data_format: str) -> None:
        axis = channel_axis(data_format) % len(shape)
        self.channels = shape[axis]
        self.inner = prod(shape[axis + 1 :])
        self.count = prod(shape[:axis]) * self.inner
        width = min(_LANES, 1 << (self.channels - 1).bit_length()) if self.channels else 1
        self.lanes = width if self.inner == 1 else 1
        heap = THREADS // self.lanes * _HEIGHT
        self.parts = max(1, min(_PARTS, -(-self.count // heap)))


def _statistics(
    program: Program, name: str, xp: Any, layout: _Layout, width: int, *arrays: Any
) -> Any:
    """Return `width` partial statistics for each block and channel."""
    result = xp.empty((layout.parts, layout.channels, width), program.wide)
    if layout.channels:
        grid = (-(-layout.channels // layout.lanes), layout.parts)
        sizes = (layout.channels, layout.inner, layout.count, layout.lanes)
        program.launch(name, grid, THREADS, *arrays, result, *sizes)
    return result


class _BatchNorm:
    """The launches of one node."""

    def __init__(self, node: Node, device: Device, source: Source) -> None:
        self.xp = device.xp
        self.data_format = node.attrs["data_format"]
        self.epsilon = float(node.attrs["epsilon"])
        types = node.attrs
        self.kind: np.dtype[Any] = types.get("U", types["T"]).numpy
        self.program = source.program(device.xp, T=types["T"].numpy, U=self.kind)

    def vectors(self, count: int, channels: int, dtype: np.dtype[Any]) -> list[Any]:
        """Return vectors with one number for each channel."""
        return [self.xp.empty(channels, dtype) for _ in range(count)]

    def nothing(self, count: int) -> tuple[Any, ...]:
        """Return empty results."""
        return tuple([self.xp.empty(0, self.kind) for _ in range(count)])


@kernel("FusedBatchNorm", device="GPU", dtypes=_ONE)
@kernel("FusedBatchNormV2", "FusedBatchNormV3", device="GPU", dtypes=_TWO)
def _batch_norm(node: Node, device: Device) -> KernelFunction:
    op, batch_norm, xp = node.type, _BatchNorm(node, device, _FORWARD), device.xp
    training, reserved = node.attrs["is_training"], len(node.outputs) - 3
    program = batch_norm.program

    def run(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        x, layout = xp.ascontiguousarray(x), _Layout(x.shape, batch_norm.data_format)
        channels = layout.channels
        check_vectors(op, channels, scale, offset)
        center, factor = batch_norm.vectors(2, channels, program.wide)
        unbiased, tail = variance, (center, factor, batch_norm.epsilon)
        if training:
            result = _statistics(program, "moments_of_parts", xp, layout, 3, x)
            mean, variance, unbiased = batch_norm.vectors(3, channels, batch_norm.kind)
            targets = (scale, mean, variance, unbiased)
            program.launch_elements(
                "moments", channels, result, *targets, *tail, layout.count, layout.parts
            )
        else:
            check_vectors(op, channels, mean, variance)
            program.launch_elements("given_moments", channels, scale, mean, variance, *tail)
        y = xp.empty(x.shape, x.dtype)
        sizes = (channels, layout.inner)
        program.launch_elements("normalize", x.size, x, center, factor, offset, y, *sizes)
        return (y, mean, unbiased, mean, variance, *batch_norm.nothing(reserved - 2))

    return run


class _BatchNormGrad(_BatchNorm):
    """The launches of the gradients of one node."""

    def __init__(self, node: Node, device: Device) -> None:
        super().__init__(node, device, _BACKWARD)
        self.op = node.type
        self.training = bool(node.attrs["is_training"])
        dtype = node.attrs["T"].numpy
        result = cudnn_norm.gradients(device, self.data_format, dtype, self.kind)
        self.library = result if self.training else None

    def check(self, grad: Any, x: Any, *vectors: Any) -> tuple[Any, Any, _Layout]:
        """Return the images in C order, with the layout of their channels."""
        if grad.shape != x.shape:
            raise errors.InvalidArgumentError(
                f"{self.op} requires y_backprop and x of the same shape, got "
                f"{list(grad.shape)} and "
                f"{list(x.shape)}"
            )
        layout = _Layout(x.shape, self.data_format)
        check_vectors(self.op, layout.channels, *vectors)
        return self.xp.ascontiguousarray(grad), self.xp.ascontiguousarray(x), layout

    def by_library(self, grad: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
        """Compute the gradients by cuDNN, which does not support empty images."""
        assert self.library is not None
        if not x.size:
            return self.by_launches(grad, x, scale, mean, variance)
        grad, x, layout = self.check(grad, x, scale, mean, variance)
        inverse, by_scale, by_offset = self.vectors(3, layout.channels, self.kind)
        self.program.launch_elements(
            "inverse_roots", layout.channels, variance, inverse, self.epsilon
        )
        by_x = self.xp.empty(x.shape, x.dtype)
        self.library(
            grad=grad, x=x, scale=scale, mean=mean, inverse=inverse,
            by_x=by_x, by_scale=by_scale, by_offset=by_offset,
        )  # fmt: skip
        return by_x, by_scale, by_offset, *self.nothing(2)

    def by_launches(self, grad: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
        """Compute the gradients by three launches: partial sums, sums, and elements."""
        grad, x, layout = self.check(grad, x, scale, mean, variance)
        if not x.size:
            none = self.xp.zeros(layout.channels, self.kind)
            return self.xp.empty(x.shape, x.dtype), none, none.copy(), *self.nothing(2)
        program, channels = self.program, layout.channels
        match = _statistics(program, "sums_of_parts", self.xp, layout, 2, grad, x, mean)
        by_scale, by_offset = self.vectors(2, channels, self.kind)
        rates = self.vectors(3, channels, program.wide)
        targets = (scale, variance, by_scale, by_offset, *rates, self.epsilon)
        program.launch_elements("sums", channels, match, *targets, layout.count, layout.parts)
        result, sizes = self.xp.empty(x.shape, x.dtype), (self.training, channels, layout.inner)
        program.launch_elements("by_input", x.size, grad, x, mean, *rates, result, *sizes)
        return result, by_scale, by_offset, *self.nothing(2)


@kernel("FusedBatchNormGrad", device="GPU", dtypes=_ONE)
@kernel("FusedBatchNormGradV2", "FusedBatchNormGradV3", device="GPU", dtypes=_TWO)
def _batch_norm_grad(node: Node, device: Device) -> KernelFunction:
    batch_norm = _BatchNormGrad(node, device)
    preferred = None if batch_norm.library is None else batch_norm.by_library
    operation = "the gradient of a batch normalization, which is now a generated kernel"
    return cudnn.with_fallback(preferred, batch_norm.by_launches, operation)


# ------------------------------------------------------------- local response normalization


@kernel("LRN", device="GPU", dtypes=_ONE)
def _lrn(node: Node, device: Device) -> KernelFunction:
    xp, attrs = device.xp, node.attrs
    program = _LRN.program(xp, T=attrs["T"].numpy)
    numbers = [attrs["depth_radius"], *(float(attrs[key]) for key in ("bias", "alpha", "beta"))]

    def run(x: Any) -> Any:
        x, y = xp.ascontiguousarray(x), xp.empty(x.shape, x.dtype)
        program.launch_elements("lrn", x.size, x, y, x.shape[-1], *numbers)
        return y

    return run


@kernel("LRNGrad", device="GPU", dtypes=_ONE)
def _lrn_grad(node: Node, device: Device) -> KernelFunction:
    xp, attrs = device.xp, node.attrs
    program = _LRN.program(xp, T=attrs["T"].numpy)
    radius, bias = attrs["depth_radius"], float(attrs["bias"])
    alpha, beta = float(attrs["alpha"]), float(attrs["beta"])

    def run(*inputs: Any) -> Any:
        grad, x, y = [xp.ascontiguousarray(value) for value in inputs]
        norms, shares = (xp.empty(x.shape, program.wide) for _ in range(2))
        size, channels, result = x.size, x.shape[-1], xp.empty(x.shape, x.dtype)
        arguments = (norms, shares, channels, radius)
        program.launch_elements("lrn_shares", size, grad, x, y, *arguments, bias, alpha)
        rates = (beta, 2 * alpha * beta)
        program.launch_elements(
            "lrn_grad", size, grad, x, norms, shares, result, channels, radius, *rates
        )
        return result

    return run
