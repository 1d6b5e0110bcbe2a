"""Kernels of fused batch normalization and local response normalization."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import map_rows, new_array, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.window_functions import (
    Array,
    channels_last,
    column_sums,
    contiguous,
    from_channels_last,
)
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_FORWARD = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_BACKWARD = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")


def _matrix(value: Array, data_format: str, device: Device) -> tuple[Array, tuple[int, ...]]:
    """Return a matrix (pixels, channels) in C order, and the shape with the channels last."""
    last = widen_value(channels_last(value, data_format))
    flat = contiguous(last, last.dtype, device).reshape(prod(last.shape[:-1]), last.shape[-1])
    return flat, last.shape


def check_vectors(op: str, channels: int, *vectors: Any) -> None:
    """Raise an error if a vector does not have one element for each channel."""
    for vector in vectors:
        if vector.shape != (channels,):
            raise errors.InvalidArgumentError(
                f"{op} requires vectors of {channels} entries, one per channel, "
                f"got shape {list(vector.shape)}"
            )


@kernel(*_FORWARD, alias=True)
def _make_batch_norm(node: Node, device: Device) -> KernelFunction:
    op, data_format = node.type, node.attrs["data_format"]
    epsilon, training = node.attrs["epsilon"], node.attrs["is_training"]
    exact, reserved = node.outputs[0].dtype.numpy, len(node.outputs) - 3

    def run(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        flat, shape = _matrix(x, data_format, device)
        check_vectors(op, shape[-1], scale, offset)
        result = new_array(device, flat.shape, flat.dtype)
        unbiased = variance
        if training:
            mean, variance = _moments(flat, result)
            count = flat.shape[0]
            unbiased = variance * variance.dtype.type(count / max(count - 1, 1))
        else:
            check_vectors(op, shape[-1], mean, variance)
            map_rows(np.subtract, flat, mean, result)
        factor = scale / np.sqrt(variance + variance.dtype.type(epsilon))
        map_rows(np.multiply, result, factor, result)
        map_rows(np.add, result, offset, result)
        y = from_channels_last(result.reshape(shape), data_format, exact, device)
        kind = scale.dtype
        mean, variance = mean.astype(kind, copy=False), variance.astype(kind, copy=False)
        extra = (np.empty(0, kind),) * (reserved - 2)
        return (y, mean, unbiased.astype(kind, copy=False), mean, variance, *extra)

    return run


def _moments(flat: Array, centered: Array) -> tuple[Array, Array]:
    """Return the mean and variance of the columns; store the rows minus the mean in `centered`."""
    count = flat.dtype.type(flat.shape[0])
    mean = column_sums(flat) / count  # NaN of no rows
    map_rows(np.subtract, flat, mean, centered)
    return mean, column_sums(np.square(centered)) / count


@kernel(*_BACKWARD)
def _make_batch_norm_grad(node: Node, device: Device) -> KernelFunction:
    op, data_format = node.type, node.attrs["data_format"]
    epsilon, training = node.attrs["epsilon"], node.attrs["is_training"]
    exact = node.outputs[0].dtype.numpy

    def run(grad: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
        upstream, shape = _matrix(grad, data_format, device)
        flat, x_shape = _matrix(x, data_format, device)
        if shape != x_shape:
            raise errors.InvalidArgumentError(
                f"{op} requires y_backprop and x of the same shape, got {list(grad.shape)} and "
                f"{list(x.shape)}"
            )
        check_vectors(op, shape[-1], scale, mean, variance)
        if not flat.shape[0]:
            mean, variance = (
                np.zeros_like(mean),
                np.ones_like(variance),
            )  # NaN where they are its own
        inverse = 1 / np.sqrt(variance + variance.dtype.type(epsilon))
        result = new_array(device, flat.shape, flat.dtype)
        centered = map_rows(np.subtract, flat, mean, new_array(device, flat.shape, flat.dtype))
        np.multiply(upstream, centered, out=result)
        by_offset = column_sums(upstream)
        by_scale = column_sums(result) * inverse
        if training:
            count = flat.dtype.type(max(flat.shape[0], 1))
            map_rows(np.multiply, centered, inverse * by_scale / count, centered)
            map_rows(np.subtract, upstream, by_offset / count, result)
            np.subtract(result, centered, out=result)
            map_rows(np.multiply, result, scale * inverse, result)
        else:
            map_rows(np.multiply, upstream, scale * inverse, result)
        by_x = from_channels_last(result.reshape(shape), data_format, exact, device)
        kind = scale.dtype
        empty = np.empty(0, kind)
        by_scale, by_offset = by_scale.astype(kind), by_offset.astype(kind)
        return by_x, by_scale, by_offset, empty, empty

    return run


# ------------------------------------------------------------- local response normalization


class _Neighbours:
    """Sums over nearby channels, and powers of these, for one node."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self.radius: int = attrs["depth_radius"]
        self.bias, self.alpha, self.beta = attrs["bias"], attrs["alpha"], attrs["beta"]
        self._band: Array | None = None

    def sums(self, flat: Array) -> Array:
        """Return sums over the neighbors of each channel of a matrix (pixels, channels)."""
        channels = flat.shape[1]
        if channels <= 256:
            # A product with a band matrix keeps BLAS busy; it spreads an infinity over all
            # channels of its pixel, so its result is discarded if one exists.
            total: Array = np.matmul(flat, self._band_matrix(channels, flat.dtype))
            if np.isfinite(total.sum()):
                return total
        total = flat.copy()
        for distance in range(1, min(self.radius, channels - 1) + 1):
            total[:, distance:] += flat[:, :-distance]
            total[:, :-distance] += flat[:, distance:]
        return total

    def _band_matrix(self, channels: int, dtype: np.dtype[Any]) -> Array:
        band = self._band
        if band is None or band.shape[0] != channels or band.dtype != dtype:
            index = np.arange(channels)
            is_neighbor = np.abs(index[:, None] - index) <= self.radius
            band = self._band = is_neighbor.astype(dtype)
        return band

    def norms(self, flat: Array) -> Array:
        """Return bias + alpha * the sum of squares."""
        total = self.sums(np.square(flat))
        np.multiply(total, total.dtype.type(self.alpha), out=total)
        np.add(total, total.dtype.type(self.bias), out=total)
        return total

    def power(self, norms: Array) -> Array:
        """Return norms ** -beta; for common exponents by square roots, which are much faster."""
        if self.beta == 0.5:
            return np.asarray(1 / np.sqrt(norms))
        if self.beta == 0.75:
            root = np.sqrt(norms)
            return np.asarray(1 / (root * np.sqrt(root)))
        if self.beta == 1.0:
            return np.asarray(1 / norms)
        return np.asarray(np.power(norms, norms.dtype.type(-self.beta)))


def _check_images(op: str, x: Any) -> None:
    if x.ndim != 4:
        raise errors.InvalidArgumentError(f"{op} requires images of rank 4, got {list(x.shape)}")


@kernel("LRN", heavy=True)
def _make_lrn(node: Node, device: Device) -> KernelFunction:
    neighbors, exact = _Neighbours(node), node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        _check_images(node.type, x)
        flat, shape = _matrix(x, "NHWC", device)
        result = new_array(device, flat.shape, flat.dtype)
        np.multiply(flat, neighbors.power(neighbors.norms(flat)), out=result)
        return contiguous(result.reshape(shape), exact, device)

    return run


@kernel("LRNGrad", heavy=True)
def _make_lrn_grad(node: Node, device: Device) -> KernelFunction:
    neighbors, exact = _Neighbours(node), node.outputs[0].dtype.numpy

    def run(grad: Any, x: Any, y: Any) -> Any:
        _check_images(node.type, x)
        upstream, _ = _matrix(grad, "NHWC", device)
        flat, shape = _matrix(x, "NHWC", device)
        norms = neighbors.norms(flat)
        result = new_array(device, flat.shape, flat.dtype)
        np.multiply(upstream, neighbors.power(norms), out=result)
        shares = neighbors.sums(upstream * _matrix(y, "NHWC", device)[0] / norms)
        np.multiply(shares, flat, out=shares)
        np.multiply(shares, flat.dtype.type(2 * neighbors.alpha * neighbors.beta), out=shares)
        np.subtract(result, shares, out=result)
        return contiguous(result.reshape(shape), exact, device)

    return run
