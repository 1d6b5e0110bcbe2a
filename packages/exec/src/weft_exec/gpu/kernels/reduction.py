"""GPU kernels of reductions, positions of extremes and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.gpu.element_types import INEXACT, INTEGERS, REAL
from weft_exec.kernels.reduction import positions
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_graph.ops.shape_rules import normal_axes, normal_axis

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Axes = tuple[int, ...]
Reduce = Callable[[Any, Any, Axes, bool], Any]
"""From the array module, a value, axes and keep_dims to the reduced value."""

_NUMERIC = {"T": (*INEXACT, *INTEGERS)}
_ORDERED = {"T": (*REAL, *INTEGERS)}


def widened(x: Any) -> Any:
    """A float16 value as float32, any other as it is."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _reducing(reduce: Reduce) -> KernelFactory:
    def make(node: Node, device: Device) -> KernelFunction:
        keep, xp = node.attrs["keep_dims"], device.xp

        def run(x: Any, axes: Any) -> Any:
            where = tuple(normal_axes(np.reshape(axes, -1).tolist(), x.ndim))
            if not where:
                return _of_single_elements(xp, reduce, x)
            return reduce(xp, widened(x), where, keep)

        return run

    return make


def _of_single_elements(xp: Any, reduce: Reduce, x: Any) -> Any:
    """What no axes at all mean: each element is reduced by itself."""
    return reduce(xp, widened(x)[..., None], (x.ndim,), False)


def _sum(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    return xp.sum(x, axis=axes, dtype=x.dtype, keepdims=keep)


def _prod(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    return xp.prod(x, axis=axes, dtype=x.dtype, keepdims=keep)


def _all(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    return xp.all(x, axis=axes, keepdims=keep)


def _any(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    return xp.any(x, axis=axes, keepdims=keep)


def _extreme(name: str) -> Reduce:
    def reduce(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
        if x.size:
            return getattr(xp, name)(x, axis=axes, keepdims=keep)
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        return xp.full(shape, _extreme_of_none(x.dtype, name == "max"), x.dtype)

    return reduce


def _extreme_of_none(dtype: np.dtype[Any], largest: bool) -> Any:
    if dtype.kind == "f":
        return -np.inf if largest else np.inf
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


def _mean(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if x.dtype.kind not in "iu":
        return _sum(xp, x, axes, keep) / x.dtype.type(count)
    wide = np.dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
    total, divisor = xp.sum(x, axis=axes, dtype=wide, keepdims=keep), wide.type(max(count, 1))
    return xp.floor_divide(total - xp.fmod(total, divisor), divisor)


def _euclidean_norm(xp: Any, x: Any, axes: Axes, keep: bool) -> Any:
    if x.dtype.kind == "c":
        squares = xp.square(x.real) + xp.square(x.imag)
    else:
        squares = xp.square(x.astype(np.float64) if x.dtype.kind in "iu" else x)
    return xp.sqrt(xp.sum(squares, axis=axes, keepdims=keep))


kernel("Sum", device="GPU", host=("reduction_indices",), dtypes=_NUMERIC)(_reducing(_sum))
kernel("Prod", device="GPU", host=("reduction_indices",), dtypes=_NUMERIC)(_reducing(_prod))
kernel("All", device="GPU", host=("reduction_indices",))(_reducing(_all))
kernel("Any", device="GPU", host=("reduction_indices",))(_reducing(_any))
kernel("Max", device="GPU", host=("reduction_indices",), dtypes=_ORDERED)(
    _reducing(_extreme("max"))
)
kernel("Min", device="GPU", host=("reduction_indices",), dtypes=_ORDERED)(
    _reducing(_extreme("min"))
)
kernel("Mean", device="GPU", host=("reduction_indices",), dtypes=_NUMERIC)(_reducing(_mean))
kernel("EuclideanNorm", device="GPU", host=("reduction_indices",), dtypes=_NUMERIC)(
    _reducing(_euclidean_norm)
)


kernel("ArgMax", "ArgMin", device="GPU", host=("dimension",), dtypes=_ORDERED)(positions)


@kernel("Cumsum", "Cumprod", device="GPU", host=("axis",), dtypes=_NUMERIC)
def _scan(node: Node, device: Device) -> KernelFunction:
    xp = device.xp
    exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]
    scan = xp.cumsum if node.type == "Cumsum" else xp.cumprod
    first = 0 if node.type == "Cumsum" else 1

    def run(x: Any, axis: Any) -> Any:
        source = xp.moveaxis(widened(x), normal_axis(int(axis), x.ndim), 0)
        if reverse:
            source = source[::-1]
        if exclusive and source.shape[0]:
            head = xp.full((1, *source.shape[1:]), first, source.dtype)
            source = xp.concatenate([head, source[:-1]], axis=0)
        result = scan(source, axis=0, dtype=source.dtype) if source.size else source
        if reverse:
            result = result[::-1]
        return xp.ascontiguousarray(xp.moveaxis(result, 0, normal_axis(int(axis), x.ndim)))

    return run
