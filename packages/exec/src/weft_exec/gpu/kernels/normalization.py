"""GPU kernels of fused batch normalization and local response normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_exec.gpu.kernels.conv import channels_last
from weft_exec.gpu.kernels.reduction import widened
from weft_exec.gpu.registration import REAL, gpu_kernel
from weft_exec.kernels.normalization import _check_vectors
from weft_exec.kernels.registry import KernelFunction
from weft_graph.ops.windows import channel_axis
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.device import Device
    from weft_graph.node import Node

_TYPES = {"T": REAL, "U": REAL}


def _sums(xp: Any, x: Any) -> Any:
    """The sums of each channel of (N, ..., C)."""
    return xp.sum(x, axis=tuple(range(x.ndim - 1)), dtype=x.dtype)


def _in_layout(xp: Any, x: Any, data_format: str) -> Any:
    return xp.ascontiguousarray(xp.moveaxis(x, -1, channel_axis(data_format)))


@gpu_kernel("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", types=_TYPES)
def _batch_norm(node: Node, device: Device) -> KernelFunction:
    op, data_format, xp = node.type, node.attrs["data_format"], device.xp
    epsilon, training = node.attrs["epsilon"], node.attrs["is_training"]
    reserved = len(node.outputs) - 3

    def run(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        x = channels_last(xp, x, data_format)
        _check_vectors(op, x.shape[-1], scale, offset)
        unbiased = variance
        if training:
            rows = x.size // x.shape[-1] if x.size else 0
            count = x.dtype.type(max(rows, 1))
            mean = _sums(xp, x) / count
            centered = x - mean
            variance = _sums(xp, xp.square(centered)) / count
            unbiased = variance * variance.dtype.type(rows / max(rows - 1, 1))
        else:
            _check_vectors(op, x.shape[-1], mean, variance)
            centered = x - mean
        factor = scale / xp.sqrt(variance + variance.dtype.type(epsilon))
        y = _in_layout(xp, centered * factor + offset, data_format)
        extra = tuple(xp.zeros(0, scale.dtype) for _ in range(reserved - 2))
        return (y, mean, unbiased, mean, variance, *extra)

    return run


@gpu_kernel("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", types=_TYPES)
def _batch_norm_grad(node: Node, device: Device) -> KernelFunction:
    op, data_format, xp = node.type, node.attrs["data_format"], device.xp
    epsilon, training = node.attrs["epsilon"], node.attrs["is_training"]

    def run(grad: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
        if grad.shape != x.shape:
            raise errors.InvalidArgumentError(
                f"{op} requires y_backprop and x of one shape, got {list(grad.shape)} and "
                f"{list(x.shape)}"
            )
        upstream, x = channels_last(xp, grad, data_format), channels_last(xp, x, data_format)
        _check_vectors(op, x.shape[-1], scale, mean, variance)
        inverse = variance.dtype.type(1) / xp.sqrt(variance + variance.dtype.type(epsilon))
        centered = x - mean
        by_offset = _sums(xp, upstream)
        by_scale = _sums(xp, upstream * centered) * inverse
        result = upstream
        if training:
            count = x.dtype.type(max(x.size // x.shape[-1], 1)) if x.size else x.dtype.type(1)
            result = upstream - by_offset / count - centered * (inverse * by_scale / count)
        by_x = _in_layout(xp, result * (scale * inverse), data_format)
        return by_x, by_scale, by_offset, xp.zeros(0, scale.dtype), xp.zeros(0, scale.dtype)

    return run


# ------------------------------------------------------------- local response normalization


def _near(xp: Any, x: Any, radius: int) -> Any:
    """Sums over the window of each channel of (N, ..., C)."""
    total, channels = x.copy(), x.shape[-1]
    for distance in range(1, min(radius, channels - 1) + 1):
        total[..., distance:] += x[..., :-distance]
        total[..., :-distance] += x[..., distance:]
    return total


def _norms(xp: Any, node: Node, x: Any) -> Any:
    attrs, kind = node.attrs, x.dtype.type
    squares = _near(xp, xp.square(x), attrs["depth_radius"])
    return squares * kind(attrs["alpha"]) + kind(attrs["bias"])


@gpu_kernel("LRN", types=_TYPES)
def _lrn(node: Node, device: Device) -> KernelFunction:
    xp, beta = device.xp, node.attrs["beta"]

    def run(x: Any) -> Any:
        x = widened(x)
        return x * xp.power(_norms(xp, node, x), x.dtype.type(-beta))

    return run


@gpu_kernel("LRNGrad", types=_TYPES)
def _lrn_grad(node: Node, device: Device) -> KernelFunction:
    xp, attrs = device.xp, node.attrs

    def run(grad: Any, x: Any, y: Any) -> Any:
        grad, x, y = widened(grad), widened(x), widened(y)
        kind = x.dtype.type
        norms = _norms(xp, node, x)
        shares = _near(xp, grad * y / norms, attrs["depth_radius"])
        scaled = grad * xp.power(norms, kind(-attrs["beta"]))
        return scaled - x * shares * kind(2 * attrs["alpha"] * attrs["beta"])

    return run
