"""GPU kernels of convolutions: by cuDNN where it is at hand, else as products of matrices.

Without cuDNN, windows are copied out as the rows of a matrix, for as many images at a time as a
bounded scratch holds, and cuBLAS does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu import cudnn
from weft_exec.gpu.element_types import REAL
from weft_exec.kernels.common import widened
from weft_exec.kernels.conv import _Convolution, _Depthwise
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.windows import channel_axis

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Sizes = tuple[int, ...]

SCRATCH_BYTES: Final = 1 << 28
"""Windows that one product reads: enough to keep a GPU busy, small beside its memory."""
_FLOATING = {"T": REAL}


def windows(xp: Any, x: Any, taps: Sizes, strides: Sizes, dilations: Sizes, counts: Sizes) -> Any:
    """A view (N, counts..., taps..., C) of all windows of `x` (N, ..., C)."""
    inner = x.strides[1:-1]
    steps = tuple(s * stride for s, stride in zip(inner, strides, strict=True))
    within = tuple(s * dilation for s, dilation in zip(inner, dilations, strict=True))
    shape = (x.shape[0], *counts, *taps, x.shape[-1])
    view = xp.lib.stride_tricks.as_strided
    return view(x, shape, (x.strides[0], *steps, *within, x.strides[-1]))


def channels_last(xp: Any, x: Any, data_format: str) -> Any:
    """A view with the channels on the last axis; float32 for float16."""
    return widened(xp.moveaxis(x, channel_axis(data_format), -1))


def _in_layout(xp: Any, x: Any, data_format: str) -> Any:
    return xp.ascontiguousarray(xp.moveaxis(x, -1, channel_axis(data_format)))


def _padded(xp: Any, x: Any, before: Sizes, after: Sizes) -> Any:
    if not any(before) and not any(after):
        return xp.ascontiguousarray(x)
    return xp.pad(x, [(0, 0), *zip(before, after, strict=True), (0, 0)])


def _images(batch: int, image_bytes: int) -> Iterator[slice]:
    step = max(1, SCRATCH_BYTES // max(image_bytes, 1))
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


class _ByProducts:
    """One convolution as products of matrices."""

    def __init__(self, node: Node, device: Device) -> None:
        self.conv = _Convolution(node, device)
        self.xp = device.xp

    def columns(self, x: Any, taps: Sizes, counts: Sizes) -> Iterator[tuple[slice, Any]]:
        """Images, and their windows as the rows of a matrix."""
        conv, depth = self.conv, prod(taps) * x.shape[-1]
        view = windows(self.xp, x, taps, conv.strides, conv.dilations, counts)
        for images in _images(x.shape[0], prod(counts) * depth * x.dtype.itemsize):
            part = view[images]
            yield images, part.reshape(part.shape[0] * prod(counts), depth)

    def forward(self, x: Any, filters: Any) -> Any:
        conv, xp = self.conv, self.xp
        x, filters = channels_last(xp, x, conv.data_format), widened(filters)
        conv.check(x.shape, filters.shape)
        taps, depth = filters.shape[:-2], filters.shape[-1]
        counts, before, after = conv.geometry(x.shape[1:-1], taps)
        x = _padded(xp, x, before, after)
        result = xp.zeros((x.shape[0], *counts, depth), x.dtype)
        if result.size and x.size:
            matrix = filters.reshape(-1, depth)
            for images, rows in self.columns(x, taps, counts):
                result[images] = xp.matmul(rows, matrix).reshape(-1, *counts, depth)
        return _in_layout(xp, result, conv.data_format)

    def by_filter(self, x: Any, filter_sizes: Any, grad: Any) -> Any:
        conv, xp = self.conv, self.xp
        shape = tuple(int(n) for n in filter_sizes)
        x = channels_last(xp, x, conv.data_format)
        grad = channels_last(xp, grad, conv.data_format)
        conv.check(x.shape, shape)
        counts, before, after = conv.geometry(x.shape[1:-1], shape[:-2])
        conv.check_grad(grad.shape, x.shape[0], counts, shape[-1])
        x = _padded(xp, x, before, after)
        total = xp.zeros((prod(shape[:-1]), shape[-1]), x.dtype)
        if grad.size and x.size:
            for images, rows in self.columns(x, shape[:-2], counts):
                total += xp.matmul(rows.T, grad[images].reshape(-1, shape[-1]))
        return total.reshape(shape)

    def by_input(self, input_sizes: Any, filters: Any, grad: Any) -> Any:
        conv, xp = self.conv, self.xp
        shape = conv.last_shape(input_sizes)
        grad, filters = channels_last(xp, grad, conv.data_format), widened(filters)
        conv.check(shape, filters.shape)
        taps, (channels, depth) = filters.shape[:-2], filters.shape[-2:]
        counts, before, after = conv.geometry(shape[1:-1], taps)
        conv.check_grad(grad.shape, shape[0], counts, depth)
        sizes = [b + n + a for b, n, a in zip(before, shape[1:-1], after, strict=True)]
        whole = xp.zeros((shape[0], *sizes, channels), grad.dtype)
        matrix = filters.reshape(-1, depth).T
        row_bytes = prod(counts) * prod(taps) * channels * grad.dtype.itemsize
        for images in _images(shape[0], row_bytes) if grad.size and filters.size else ():
            shares = xp.matmul(grad[images].reshape(-1, depth), matrix)
            shares = shares.reshape(-1, *counts, *taps, channels)
            for tap in product(*map(range, taps)):
                inner = tuple(
                    slice(t * d, t * d + (n - 1) * s + 1, s)
                    for t, d, s, n in zip(tap, conv.dilations, conv.strides, counts, strict=True)
                )
                lead = (slice(None),) * (1 + len(counts))
                whole[(images, *inner)] += shares[(*lead, *tap)]
        inside = tuple(slice(b, b + n) for b, n in zip(before, shape[1:-1], strict=True))
        return _in_layout(xp, whole[(slice(None), *inside)], conv.data_format)


@kernel("Conv2D", "Conv3D", device="GPU", dtypes=_FLOATING)
def _forward(node: Node, device: Device) -> KernelFunction:
    plain = _ByProducts(node, device)
    return cudnn.either(cudnn.forward(plain.conv, device), plain.forward)


@kernel(
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    device="GPU",
    host=("filter_sizes",),
    dtypes=_FLOATING,
)
def _by_filter(node: Node, device: Device) -> KernelFunction:
    plain = _ByProducts(node, device)
    return cudnn.either(cudnn.by_filter(plain.conv, device), plain.by_filter)


@kernel(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    device="GPU",
    host=("input_sizes",),
    dtypes=_FLOATING,
)
def _by_input(node: Node, device: Device) -> KernelFunction:
    plain = _ByProducts(node, device)
    return cudnn.either(cudnn.by_input(plain.conv, device), plain.by_input)


# ----------------------------------------------------------------------------- depthwise


@kernel("DepthwiseConv2dNative", device="GPU", dtypes=_FLOATING)
def _depthwise(node: Node, device: Device) -> KernelFunction:
    conv, xp = _Depthwise(node, device), device.xp

    def run(x: Any, filters: Any) -> Any:
        x, filters = channels_last(xp, x, conv.data_format), widened(filters)
        conv.check(x.shape, filters.shape)
        channels, multiplier = filters.shape[2:]
        counts, before, _ = conv.geometry(x.shape[1:-1], filters.shape[:2])
        result = xp.zeros((x.shape[0], *counts, channels, multiplier), x.dtype)
        for tap, outs, ins in conv.taps(x.shape[1:-1], filters.shape[:2], counts, before):
            result[(slice(None), *outs)] += x[(slice(None), *ins)][..., None] * filters[tap]
        flat = result.reshape(*result.shape[:3], channels * multiplier)
        return _in_layout(xp, flat, conv.data_format)

    return run


@kernel("DepthwiseConv2dNativeBackpropInput", device="GPU", host=("input_sizes",), dtypes=_FLOATING)
def _depthwise_by_input(node: Node, device: Device) -> KernelFunction:
    conv, xp = _Depthwise(node, device), device.xp

    def run(input_sizes: Any, filters: Any, grad: Any) -> Any:
        shape, filters = conv.last_shape(input_sizes), widened(filters)
        conv.check(shape, filters.shape)
        channels, multiplier = filters.shape[2:]
        counts, before, _ = conv.geometry(shape[1:-1], filters.shape[:2])
        grad = channels_last(xp, grad, conv.data_format)
        conv.check_grad(grad.shape, shape[0], counts, channels * multiplier)
        grad = grad.reshape(*grad.shape[:-1], channels, multiplier)
        result = xp.zeros(shape, grad.dtype)
        for tap, outs, ins in conv.taps(shape[1:-1], filters.shape[:2], counts, before):
            shares = grad[(slice(None), *outs)] * filters[tap]
            result[(slice(None), *ins)] += xp.sum(shares, axis=-1)
        return _in_layout(xp, result, conv.data_format)

    return run


@kernel(
    "DepthwiseConv2dNativeBackpropFilter", device="GPU", host=("filter_sizes",), dtypes=_FLOATING
)
def _depthwise_by_filter(node: Node, device: Device) -> KernelFunction:
    conv, xp = _Depthwise(node, device), device.xp

    def run(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in filter_sizes)
        x = channels_last(xp, x, conv.data_format)
        grad = channels_last(xp, grad, conv.data_format)
        conv.check(x.shape, shape)
        channels, multiplier = shape[2:]
        counts, before, _ = conv.geometry(x.shape[1:-1], shape[:2])
        conv.check_grad(grad.shape, x.shape[0], counts, channels * multiplier)
        grad = grad.reshape(*grad.shape[:-1], channels, multiplier)
        result = xp.zeros(shape, x.dtype)
        for tap, outs, ins in conv.taps(x.shape[1:-1], shape[:2], counts, before):
            shares = x[(slice(None), *ins)][..., None] * grad[(slice(None), *outs)]
            result[tap] = xp.sum(shares, axis=(0, 1, 2), dtype=np.dtype(x.dtype))
        return result

    return run
