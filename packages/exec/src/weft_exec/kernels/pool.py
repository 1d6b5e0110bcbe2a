"""Kernels of pooling.

A window may extend over any axes, so the layout does not matter. The maximum or sum of a window is
computed axis by axis, by a few ufuncs over strided views, or over `phases` if there are few
channels. The gradient of max pooling finds the tap with each window's first maximum, also axis by
axis, and adds gradients at those positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import accumulation_dtype, new_array, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.shifted_windows import SHORT, Phases, fold, lowest_value, window_maxima
from weft_exec.kernels.window_functions import Array, Sizes, contiguous, tap_slices
from weft_graph.ops.pool import check_window
from weft_graph.ops.windows import slide
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_BLOCK_BYTES = 1 << 20
_MIN_BLOCKED_SIZE = 1 << 12
"""Number of elements below which the call overhead of NumPy exceeds the time of its loops."""


class PoolGeometry:
    """The geometry of a pool for inputs of a fixed shape; immutable, because runs share kernels.

    Attributes:
      shape: shape of the input.
      counts: the number of windows along each axis, which is the shape of the output.
      before: the number of positions of the first window that are before the input, along each
        axis.
    """

    def __init__(self, pool: Pool, shape: Sizes) -> None:
        if len(shape) != len(pool.ksize):
            raise errors.InvalidArgumentError(
                f"{pool.op} requires an input of rank {len(pool.ksize)}, got shape {list(shape)}"
            )
        result = [
            slide(n, k, s, 1, pool.padding)
            for n, k, s in zip(shape, pool.ksize, pool.strides, strict=True)
        ]
        self.pool = pool
        self.shape = shape
        self.counts = tuple(count for count, _, _ in result)
        self.before = tuple(before for _, before, _ in result)

    @cached_property
    def offsets(self) -> tuple[Array, Array]:
        """Flat positions of taps relative to a window's origin, and of origins in an image.

        The last entry, for windows without a maximum, is a position inside the input. Origins are
        relative to an image, or to the whole input if windows extend over several images.
        """
        steps = [prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        taps = [*self.pool.taps, self.before]
        table = [sum(t * s for t, s in zip(tap, steps, strict=True)) for tap in taps]
        origins: Any = np.zeros((), np.intp)
        for axis in range(1 if self.pool.per_image else 0, len(steps)):
            index = np.arange(self.counts[axis]) * self.pool.strides[axis] - self.before[axis]
            origins = origins[..., None] + index * steps[axis]
        return np.array(table, np.intp), origins

    @cached_property
    def places(self) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """For each tap, the windows whose tap is inside the input, and the tap's positions.

        They are for all images; if windows extend over several images, for one block.
        """
        result = []
        for tap in self.pool.taps:
            axes = zip(tap, self.shape, self.pool.strides, self.before, self.counts, strict=True)
            slices = [tap_slices(t, n, s, b, c) for t, n, s, b, c in axes]
            if self.pool.per_image:
                slices[0] = (slice(None), slice(None))
            outs, ins = zip(*slices, strict=True)
            result.append((outs, ins))
        return result

    def phases(self, axis: int) -> Phases:
        """Return the phases of windows along an axis."""
        pool = self.pool
        return Phases(
            self.shape[axis], pool.ksize[axis], pool.strides[axis], self.before[axis],
            self.counts[axis],
        )  # fmt: skip

    def require(self, label: str, sizes: Sizes, expected: Sizes) -> None:
        """Raise InvalidArgumentError unless the shapes are equal."""
        if sizes != expected:
            raise errors.InvalidArgumentError(
                f"{self.pool.op} requires {label} of shape {list(expected)}, got {list(sizes)}"
            )


class Pool:
    """The attributes of one pool.

    Args:
      ksize, strides: sizes and strides of the windows; the node's attributes by default.
    """

    def __init__(
        self, node: Node, device: Device, ksize: Sizes | None = None, strides: Sizes | None = None
    ) -> None:
        self.op = node.type
        self.device = device
        self.ksize: Sizes = node.attrs["ksize"] if ksize is None else ksize
        self.strides: Sizes = node.attrs["strides"] if strides is None else strides
        self.padding: str = node.attrs["padding"]
        self.taps = list(product(*map(range, self.ksize)))
        self.per_image = self.ksize[0] == 1 and self.strides[0] == 1
        self.active = [
            axis
            for axis, (k, s) in enumerate(zip(self.ksize, self.strides, strict=True))
            if k > 1 or s > 1
        ]
        self._last: PoolGeometry | None = None

    def fit(self, shape: Sizes) -> PoolGeometry:
        """Return the geometry for inputs of a shape, which is cached."""
        result = self._last
        if result is None or result.shape != shape:
            result = self._last = PoolGeometry(self, shape)
        return result


def fold_windows(fit: PoolGeometry, x: Array, function: Callable[..., Any]) -> Array:
    """Apply `function` (maximum or add) over windows, axis by axis.

    Without axes return a view of x.
    """
    for axis in fit.pool.active:
        x = _fold_axis(fit, x, axis, function)
    return x


def _fold_axis(fit: PoolGeometry, x: Array, axis: int, function: Callable[..., Any]) -> Array:
    pool = fit.pool
    size, stride = x.shape[axis], pool.strides[axis]
    leading, count = fit.before[axis], fit.counts[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    result = new_array(pool.device, shape, x.dtype)
    run = prod(x.shape[axis + 1 :])
    if (
        pool.ksize[axis] > 1
        and run < SHORT
        and x.size >= _MIN_BLOCKED_SIZE
        and x.flags.c_contiguous
    ):
        fill = x.dtype.type(0) if function is np.add else lowest_value(x.dtype)
        out = result.reshape(-1, count, run)
        flat = x.reshape(-1, size, run)
        for rows, matches in fold(fit.phases(axis), flat, function, fill, _BLOCK_BYTES):
            out[rows] = matches[:, :count]
        return result
    lead = (slice(None),) * axis
    tap_ranges = [tap_slices(tap, size, stride, leading, count) for tap in range(pool.ksize[axis])]
    full_windows = [ins for outs, ins in tap_ranges if outs == slice(0, count)]
    partial = [(outs, ins) for outs, ins in tap_ranges if outs != slice(0, count)]
    # The tap at `leading` is inside the input for every window, so `whole` is never empty.
    if len(full_windows) == 1:
        np.copyto(result, x[(*lead, full_windows[0])])
    else:
        function(x[(*lead, full_windows[0])], x[(*lead, full_windows[1])], out=result)
    for ins in full_windows[2:]:
        function(result, x[(*lead, ins)], out=result)
    for outs, ins in partial:
        view = result[(*lead, outs)]
        function(view, x[(*lead, ins)], out=view)
    return result


def _with_window(make: Callable[[Pool, Node, Device], KernelFunction]) -> Any:
    """Return a kernel factory for pools whose last two inputs are the window's sizes and strides.

    Args:
      make: returns the kernel of a pool; the kernel of the last window is cached.
    """

    def make_kernel(node: Node, device: Device) -> KernelFunction:
        rank = len(node.attrs["data_format"])
        last: tuple[tuple[Sizes, Sizes], KernelFunction] | None = None

        def run(*inputs: Any) -> Any:
            nonlocal last
            *values, ksize, strides = inputs
            if ksize.ndim != 1 or strides.ndim != 1:
                check_window(node.type, rank, ksize.tolist(), strides.tolist())
            window = tuple(ksize.tolist()), tuple(strides.tolist())
            result = last
            if result is None or result[0] != window:
                check_window(node.type, rank, *window)
                result = last = window, make(Pool(node, device, *window), node, device)
            return result[1](*values)

        return run

    return make_kernel


def _with_attributes(make: Callable[[Pool, Node, Device], KernelFunction]) -> Any:
    """Return a kernel factory for pools whose window is in the node's attributes."""
    return lambda node, device: make(Pool(node, device), node, device)


def _make_max(pool: Pool, node: Node, device: Device) -> KernelFunction:
    def run(x: Any) -> Any:
        fit = pool.fit(x.shape)
        if 0 in fit.counts:
            return np.empty(fit.counts, x.dtype)
        result = fold_windows(fit, x, np.maximum)
        return x.copy() if result is x else result

    return run


kernel("MaxPool", "MaxPool3D", heavy=True)(_with_attributes(_make_max))
kernel("MaxPoolV2", heavy=True)(_with_window(_make_max))


# --------------------------------------------------------------------- where the maxima are


class _Winners:
    """Positions of the first maximum of each window in a block of the input.

    Attributes:
      places: flat positions in each image, shape (images, windows), or in the whole block if
        windows extend over several images, shape (1, windows).
      unmatched: a mask of the windows whose output equals none of their inputs, or None.
    """

    __slots__ = ("places", "unmatched")

    def __init__(self, fit: PoolGeometry, x: Array, y: Array) -> None:
        pool = fit.pool
        self.unmatched: Array | None = None
        index = _first_largest(fit, x, y)
        missing: Any = None
        if index is None:
            index, missing = _first_match(fit, x, y, np.not_equal)
            if missing.any():
                index, missing = _first_match(fit, x, y, _differ)  # a NaN is its window's maximum
        rows = y.shape[0] if pool.per_image else 1
        if missing is not None and missing.any():
            self.unmatched = missing.reshape(rows, -1)
        table, origins = fit.offsets
        positions = new_array(pool.device, y.shape, table.dtype)
        np.take(table, index, out=positions, mode="clip")
        np.add(positions, origins, out=positions)
        self.places = positions.reshape(rows, -1)

    def scatter(self, grad: Array, target: Array) -> None:
        """Add each window's element of `grad` to `target` at its maximum."""
        positions, values = self._flat_positions(target), grad.reshape(-1)
        if self.unmatched is not None:
            mask = ~self.unmatched.reshape(-1)
            positions, values = positions[mask], values[mask]
        np.add.at(target.reshape(-1), positions, values)

    def gather(self, source: Array, target: Array) -> None:
        """Copy the element of `source` at each window's maximum to `target`."""
        values = target.reshape(-1)
        np.take(source.reshape(-1), self._flat_positions(source), out=values, mode="clip")
        if self.unmatched is not None:
            values[self.unmatched.reshape(-1)] = 0

    def _flat_positions(self, images: Array) -> Array:
        """Return the flat positions in all images."""
        rows = len(self.places)
        if rows == 1:
            return self.places.reshape(-1)
        starts = np.arange(0, images.size, images.size // rows).reshape(-1, 1)
        return (self.places + starts).reshape(-1)


def _differ(a: Array, b: Array, out: Array) -> None:
    np.not_equal(a, b, out=out)
    out &= ~(np.isnan(a) & np.isnan(b))


def _first_largest(fit: PoolGeometry, x: Array, y: Array) -> Array | None:
    """Return the number of the first tap with the maximum, found axis by axis from the last one.

    Return None if that is ambiguous, because an output is not a maximum, is a NaN, or equals the
    padding value, or if the array is too small for this to pay off.
    """
    pool = fit.pool
    if pool.device.xp is not np or x.size < _MIN_BLOCKED_SIZE:
        return None
    code = np.dtype(np.uint8 if len(pool.taps) < 256 else np.int32)
    best, argmax = np.ascontiguousarray(x), None
    step, shape = 1, list(x.shape)
    crop = [slice(None)] * x.ndim
    for axis in reversed(pool.active):
        flat = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
        marks = None if argmax is None else argmax.reshape(flat)
        phases = fit.phases(axis)
        best, argmax = window_maxima(phases, best.reshape(flat), marks, step, code)
        shape[axis] = phases.width
        crop[axis] = slice(fit.counts[axis])
        step *= pool.ksize[axis]
    if argmax is None:
        return None
    result = best.reshape(shape)[tuple(crop)]
    if not np.array_equal(result, y) or (y == lowest_value(y.dtype)).any():
        return None
    return argmax.reshape(shape)[tuple(crop)]


def _first_match(
    fit: PoolGeometry, x: Array, y: Array, differ: Callable[..., Any]
) -> tuple[Array, Array]:
    """Return the number of the first tap that equals the output, and a mask where none does."""
    pool, device = fit.pool, fit.pool.device
    missing = new_array(device, y.shape, np.dtype(np.bool_))
    misses = new_array(device, y.shape, np.dtype(np.bool_))
    small = len(pool.taps) < 256
    index = new_array(device, y.shape, np.dtype(np.uint8 if small else np.int32))
    missing.fill(True)
    index.fill(0)
    step = missing.view(np.uint8)
    for outs, ins in fit.places:
        part, unmatched = misses[outs], missing[outs]
        differ(x[ins], y[outs], out=part)
        np.logical_and(unmatched, part, out=unmatched)
        np.add(index, step, out=index)
    return index, missing


def _image_blocks(fit: PoolGeometry, x: Array) -> list[tuple[slice, slice]]:
    """Yield parts of input and output along the first axis that fit the cache."""
    batch = x.shape[0]
    if not fit.pool.per_image or x.nbytes <= _BLOCK_BYTES:
        return [(slice(0, batch), slice(0, fit.counts[0]))]
    step = max(1, batch * _BLOCK_BYTES // x.nbytes)
    return [(slice(n, n + step), slice(n, n + step)) for n in range(0, batch, step)]


def _make_max_grad(pool: Pool, node: Node, device: Device) -> KernelFunction:
    dtype, exact = accumulation_dtype(node.outputs[0].dtype), node.outputs[0].dtype.numpy

    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, fit.counts)
        result = new_array(device, x.shape, dtype)
        result.fill(0)
        if not grad.size:
            return contiguous(result, exact, device)
        grad = contiguous(grad, dtype, device)
        for ins, outs in _image_blocks(fit, x):
            _Winners(fit, x[ins], y[outs]).scatter(grad[outs], result[ins])
        return contiguous(result, exact, device)

    return run


kernel("MaxPoolGrad", "MaxPool3DGrad", heavy=True)(_with_attributes(_make_max_grad))
kernel("MaxPoolGradV2", heavy=True)(_with_window(_make_max_grad))


def _make_max_grad_grad(pool: Pool, node: Node, device: Device) -> KernelFunction:
    def run(x: Any, y: Any, grad: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("orig_output", y.shape, fit.counts)
        fit.require("grad", grad.shape, x.shape)
        result = new_array(device, y.shape, y.dtype)
        if not result.size:
            return result
        grad = contiguous(grad, y.dtype, device)
        for ins, outs in _image_blocks(fit, x):
            _Winners(fit, x[ins], y[outs]).gather(grad[ins], result[outs])
        return result

    return run


kernel("MaxPoolGradGrad", "MaxPool3DGradGrad", heavy=True)(_with_attributes(_make_max_grad_grad))
kernel("MaxPoolGradGradV2", heavy=True)(_with_window(_make_max_grad_grad))


@kernel("MaxPoolWithArgmax", heavy=True)
def _make_argmax(node: Node, device: Device) -> KernelFunction:
    pool = Pool(node, device)
    exact = node.outputs[1].dtype.numpy
    with_batch = node.attrs["include_batch_in_index"]

    def run(x: Any) -> Any:
        fit = pool.fit(x.shape)
        if 0 in fit.counts:
            return np.empty(fit.counts, x.dtype), np.empty(fit.counts, exact)
        y = fold_windows(fit, x, np.maximum)
        y = x.copy() if y is x else y
        positions = _Winners(fit, x, y).places.reshape(y.shape)
        image = prod(x.shape[1:])
        if not pool.per_image:
            positions %= image
        if with_batch:
            positions += (np.arange(x.shape[0]) * image).reshape(-1, 1, 1, 1)
        return y, contiguous(positions, exact, device)

    return run


@kernel("MaxPoolGradWithArgmax", heavy=True)
def _make_argmax_grad(node: Node, device: Device) -> KernelFunction:
    pool = Pool(node, device)
    dtype, exact = accumulation_dtype(node.outputs[0].dtype), node.outputs[0].dtype.numpy
    with_batch = node.attrs["include_batch_in_index"]

    def run(x: Any, grad: Any, argmax: Any) -> Any:
        fit = pool.fit(x.shape)
        fit.require("grad", grad.shape, fit.counts)
        fit.require("argmax", argmax.shape, fit.counts)
        result = new_array(device, x.shape, dtype)
        result.fill(0)
        positions = argmax.astype(np.intp)
        image = prod(x.shape[1:])
        if not with_batch:
            positions += (np.arange(x.shape[0]) * image).reshape(-1, 1, 1, 1)
        if positions.size and not 0 <= positions.min() <= positions.max() < result.size:
            raise errors.InvalidArgumentError(
                f"MaxPoolGradWithArgmax requires argmax in [0, {result.size}), "
                f"got values from {positions.min()} to {positions.max()}"
            )
        values = contiguous(grad, dtype, device).reshape(-1)
        np.add.at(result.reshape(-1), positions.reshape(-1), values)
        return contiguous(result, exact, device)

    return run


# -------------------------------------------------------------------------------- means


def _window_sizes(fit: PoolGeometry, dtype: np.dtype[Any]) -> Any:
    """Return the number of positions of each window that are inside the input."""
    total: Any = dtype.type(1)
    pool, rank = fit.pool, len(fit.shape)
    for axis in pool.active:
        positions = np.arange(fit.counts[axis]) * pool.strides[axis] - fit.before[axis]
        low = np.maximum(positions, 0)
        high = np.minimum(positions + pool.ksize[axis], fit.shape[axis])
        window_sizes = (high - low).astype(dtype)
        total = total * window_sizes.reshape((-1,) + (1,) * (rank - 1 - axis))
    if isinstance(total, np.ndarray) and total.size and (total == total.flat[0]).all():
        return dtype.type(total.flat[0])
    return total


@kernel("AvgPool", "AvgPool3D", heavy=True)
def _make_avg(node: Node, device: Device) -> KernelFunction:
    pool = Pool(node, device)
    exact = node.outputs[0].dtype.numpy

    def run(x: Any) -> Any:
        fit = pool.fit(x.shape)
        if 0 in fit.counts:
            return np.empty(fit.counts, x.dtype)
        x = widen_value(x)
        total = fold_windows(fit, x, np.add)
        target = new_array(device, total.shape, total.dtype) if total is x else total
        np.divide(total, _window_sizes(fit, x.dtype), out=target)
        return contiguous(target, exact, device)

    return run


@kernel("AvgPoolGrad", "AvgPool3DGrad", heavy=True)
def _make_avg_grad(node: Node, device: Device) -> KernelFunction:
    pool = Pool(node, device)
    exact = node.outputs[0].dtype.numpy

    def run(sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in sizes)
        fit = pool.fit(shape)
        fit.require("grad", grad.shape, fit.counts)
        grad = widen_value(grad)
        part = np.divide(grad, _window_sizes(fit, grad.dtype))
        for axis in reversed(pool.active):
            part = _broadcast_windows(fit, part, axis)
        return contiguous(part, exact, device)

    return run


def _broadcast_windows(fit: PoolGeometry, grad: Array, axis: int) -> Array:
    """Add each window's value to all of its positions along one axis."""
    pool, size = fit.pool, fit.shape[axis]
    shape = (*grad.shape[:axis], size, *grad.shape[axis + 1 :])
    result = new_array(pool.device, shape, grad.dtype)
    result.fill(0)
    lead = (slice(None),) * axis
    for tap in range(pool.ksize[axis]):
        outs, ins = tap_slices(tap, size, pool.strides[axis], fit.before[axis], fit.counts[axis])
        view = result[(*lead, ins)]
        np.add(view, grad[(*lead, outs)], out=view)
    return result
