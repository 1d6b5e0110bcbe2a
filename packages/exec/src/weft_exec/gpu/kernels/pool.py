"""GPU kernels of pools: one pass over the input for each position in the window."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.kernels.reduction import widened
from weft_exec.gpu.registration import INTEGERS, REAL, gpu_kernel
from weft_exec.kernels.pool import _Fit, _Pool
from weft_exec.kernels.registry import KernelFunction
from weft_exec.kernels.sliding import tap_slices

if TYPE_CHECKING:
    from weft_exec.device import Device
    from weft_graph.node import Node

Index = tuple[slice, ...]


def _taps(fit: _Fit) -> Iterator[tuple[Index, Index]]:
    """For each position in the window: the outputs that it belongs to, the inputs it meets."""
    pool = fit.pool
    for tap in pool.taps:
        places = [
            tap_slices(t, n, s, b, c)
            for t, n, s, b, c in zip(
                tap, fit.shape, pool.strides, fit.before, fit.counts, strict=True
            )
        ]
        if all(out.stop > out.start for out, _ in places):
            yield tuple(out for out, _ in places), tuple(at for _, at in places)


def _largest(xp: Any, fit: _Fit, x: Any) -> Any:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    result = xp.full(fit.counts, low, x.dtype)
    for outs, ins in _taps(fit):
        result[outs] = xp.maximum(result[outs], x[ins])
    return result


def _winners(xp: Any, fit: _Fit, x: Any, y: Any) -> Iterator[tuple[Index, Index, Any]]:
    """For each position in the window: outputs, inputs, and where it is the first maximum."""
    free = xp.ones(fit.counts, np.bool_)
    for outs, ins in _taps(fit):
        a, b = x[ins], y[outs]
        here = a == b
        if x.dtype.kind == "f":
            here |= xp.isnan(a) & xp.isnan(b)  # a NaN is its window's maximum
        here &= free[outs]
        free[outs] &= ~here
        yield outs, ins, here


@gpu_kernel("MaxPool", "MaxPool3D", types={"T": (*REAL, *INTEGERS)})
def _max_pool(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp
    return lambda x: _largest(xp, pool.fit(x.shape), x)


@gpu_kernel("MaxPoolGrad", "MaxPool3DGrad", types={"T": (*REAL, *INTEGERS), "TInput": REAL})
def _max_pool_grad(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp

    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, fit.counts)
        grad = widened(grad)
        result = xp.zeros(x.shape, grad.dtype)
        for outs, ins, here in _winners(xp, fit, x, y):
            result[ins] += xp.where(here, grad[outs], grad.dtype.type(0))
        return result

    return run


@gpu_kernel("MaxPoolGradGrad", "MaxPool3DGradGrad", types={"T": (*REAL, *INTEGERS)})
def _max_pool_grad_grad(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp

    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, x.shape)
        result = xp.zeros(y.shape, y.dtype)
        for outs, ins, here in _winners(xp, fit, x, y):
            result[outs] = xp.where(here, grad[ins], result[outs])
        return result

    return run


def _numbers(xp: Any, shape: tuple[int, ...], with_batch: bool) -> Any:
    image = prod(shape[1:])
    numbers = xp.arange(prod(shape) if with_batch else image, dtype=np.int64)
    return xp.broadcast_to(numbers.reshape(-1 if with_batch else 1, *shape[1:]), shape)


@gpu_kernel("MaxPoolWithArgmax", types={"T": (*REAL, *INTEGERS)})
def _max_pool_with_argmax(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp
    with_batch = node.attrs["include_batch_in_index"]

    def run(x: Any) -> Any:
        fit = pool.fit(x.shape)
        y = _largest(xp, fit, x)
        places = xp.zeros(fit.counts, np.int64)
        numbers: Any = _numbers(xp, x.shape, with_batch) if x.size else None
        for outs, ins, here in _winners(xp, fit, x, y) if x.size else ():
            places[outs] = xp.where(here, numbers[ins], places[outs])
        return y, places

    return run


@gpu_kernel("MaxPoolGradWithArgmax", types={"T": (*REAL, *INTEGERS)})
def _max_pool_grad_with_argmax(node: Node, device: Device) -> KernelFunction:
    from weft_exec.gpu.kernels.scatter import add_rows

    pool, xp = _Pool(node, device), device.xp
    with_batch = node.attrs["include_batch_in_index"]

    def run(x: Any, grad: Any, argmax: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("grad", grad.shape, fit.counts)
        fit.require("argmax", argmax.shape, fit.counts)
        grad = widened(grad)
        result = xp.zeros(x.size, grad.dtype)
        places = argmax.astype(np.int64)
        if not with_batch:
            images = xp.arange(x.shape[0], dtype=np.int64) * prod(x.shape[1:])
            places = places + images.reshape(-1, 1, 1, 1)
        add_rows(xp, result, places.reshape(-1), grad.reshape(-1))
        return result.reshape(x.shape)

    return run


# -------------------------------------------------------------------------------- means


def _window_sizes(xp: Any, fit: _Fit, dtype: np.dtype[Any]) -> Any:
    """How many positions of each window are inside the input; broadcasts to the output."""
    total, pool, rank = xp.ones((), dtype), fit.pool, len(fit.shape)
    for axis in pool.active:
        positions = np.arange(fit.counts[axis]) * pool.strides[axis] - fit.before[axis]
        low = np.maximum(positions, 0)
        high = np.minimum(positions + pool.ksize[axis], fit.shape[axis])
        inside = xp.asarray((high - low).astype(dtype))
        total = total * inside.reshape((-1,) + (1,) * (rank - 1 - axis))
    return total


@gpu_kernel("AvgPool", "AvgPool3D", types={"T": REAL})
def _avg_pool(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp

    def run(x: Any) -> Any:
        fit, x = pool.fit(x.shape), widened(x)
        total = xp.zeros(fit.counts, x.dtype)
        for outs, ins in _taps(fit):
            total[outs] += x[ins]
        return total / _window_sizes(xp, fit, x.dtype)

    return run


@gpu_kernel("AvgPoolGrad", "AvgPool3DGrad", host=(0,), types={"T": REAL})
def _avg_pool_grad(node: Node, device: Device) -> KernelFunction:
    pool, xp = _Pool(node, device), device.xp

    def run(sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in sizes)
        fit = pool.fit(shape)
        fit.require("grad", grad.shape, fit.counts)
        grad = widened(grad)
        part = grad / _window_sizes(xp, fit, grad.dtype)
        result = xp.zeros(shape, grad.dtype)
        for outs, ins in _taps(fit):
            result[ins] += part[outs]
        return result

    return run
