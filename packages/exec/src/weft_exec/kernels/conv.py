"""Kernels of convolutions.

A convolution is a matrix product of windows and filters (im2col). Windows are copied block by block
to a scratch matrix that fits the cache, so that nearly all time is spent in BLAS; on one core this
takes at most a tenth longer than the product alone. The gradient of the input is a product that is
scattered back over the windows (col2im). With stride 1, it is the convolution of the output's
gradient with the rotated filter if that is cheaper. The gradient of the filter is a sum
over blocks: the transposed windows times the output's gradient.

All kernels use the array module. On a GPU blocks are larger, and most convolutions are computed by
a library (`weft_exec.gpu.kernels.conv`).
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels import depthwise
from weft_exec.kernels.common import LARGE, SHORT_ROW, accumulation_dtype, new_array, widen_value
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.kernels.window_functions import (
    COLUMN_BYTES,
    Array,
    Margins,
    Sizes,
    as_strided,
    blocks,
    channels_last,
    column_sums,
    columns,
    contiguous,
    from_channels_last,
    pad_spatial,
    spatial,
    tap_slices,
)
from weft_graph.ops.windows import pairs, slide, spatial_axes, window_extent
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node
    from weft_tensor.dtypes import DType


FEW_CHANNELS: Final = 16
COPY_COST: Final = 22
SHARE_COST: Final = 100
"""Costs of copying an element of a window, and of adding one to the image, relative to a
multiplication in a product; measured on CPUs.
"""
SHARE_BYTES: Final = 1 << 18
"""Bytes of one tap's contributions and of the gradient that fit the cache together."""


class Convolution:
    """The attributes of a convolution, and its geometry.

    Args:
      dtype: the type to compute in; by default the type of the node's output.
    """

    def __init__(self, node: Node, device: Device, dtype: DType | None = None) -> None:
        attrs, dtype = node.attrs, dtype or node.outputs[0].dtype
        self.op = node.type
        self.device = device
        self.data_format: str = attrs["data_format"]
        self.padding: str = attrs["padding"]
        self.strides = spatial(attrs["strides"], self.data_format)
        self.dilations = spatial(attrs["dilations"], self.data_format)
        explicit = pairs(attrs.get("explicit_paddings", ()), len(self.data_format))
        self.pads = [explicit[axis] for axis in spatial_axes(self.data_format)]
        self.dtype = dtype.numpy
        self.wide = accumulation_dtype(dtype)

    def geometry(self, inner: Sizes, taps: Sizes) -> tuple[Sizes, Sizes, Sizes]:
        """Return the number of windows and the zeros before and after, for each spatial axis."""
        result = [
            slide(n, k, stride, dilation, self.padding, pads)
            for n, k, stride, dilation, pads in zip(
                inner, taps, self.strides, self.dilations, self.pads, strict=True
            )
        ]
        counts, before, after = zip(*result, strict=True)
        return counts, before, after

    def is_product(self, inner: Sizes, taps: Sizes, geometry: tuple[Sizes, Sizes, Sizes]) -> bool:
        """Return True if each window is a single position of the input, in the same order."""
        counts, before, after = geometry
        return prod(taps) == 1 and counts == inner and not any(before) and not any(after)

    def check(self, x_shape: Sizes, filter_shape: Sizes) -> None:
        """Raise InvalidArgumentError unless input (N, ..., C) and filter match."""
        if x_shape[-1] != filter_shape[-2]:
            raise errors.InvalidArgumentError(
                f"{self.op} requires input depth {x_shape[-1]} to equal filter depth "
                f"{filter_shape[-2]}"
            )

    def check_grad(self, sizes: Sizes, batch: int, counts: Sizes, depth: int) -> None:
        """Raise InvalidArgumentError unless out_backprop has the shape of the output."""
        if sizes != (batch, *counts, depth):
            raise errors.InvalidArgumentError(
                f"{self.op} requires out_backprop of {[batch, *counts, depth]} "
                f"(channels last), got {list(sizes)}"
            )

    def last_shape(self, sizes: Any) -> Sizes:
        """Return a shape in the node's layout as a tuple with the channels last."""
        full = [int(n) for n in sizes]
        axes = spatial_axes(self.data_format)
        channel = next(i for i in range(1, len(full)) if i not in axes)
        return (full[0], *[full[axis] for axis in axes], full[channel])


def _convolve(
    x: Array,
    filters: Array,
    strides: Sizes,
    dilations: Sizes,
    counts: Sizes,
    device: Device,
) -> Array:
    """Convolve a padded input (N, ..., C) with filters (K..., C, O) to (N, counts..., O)."""
    depth = filters.shape[-1]
    matrix = filters.reshape(prod(filters.shape[:-1]), depth)
    result = new_array(device, (x.shape[0], *counts, depth), x.dtype)
    if not x.size:
        result.fill(0)
        return result
    flat = result.reshape(x.shape[0] * prod(counts), depth)
    for rows, block in columns(x, filters.shape[:-2], strides, dilations, counts, device):
        device.xp.matmul(block, matrix, out=flat[rows])
    return result


class _Sizes:
    """Cached geometry of a convolution for input shapes, which rarely change between steps.

    Attributes:
      shapes: shapes of the input, channels last, and of the filter.
      counts: the number of windows along each axis.
      before: the number of zeros before the input along each axis.
      result: the shape of the result, channels last.
      rows, depth: shape of the matrix of all windows.
      margins: the zero padding of the input.
      at_once: True if the matrix is one copy of all windows, or the input itself.
      view: shape and strides of the windows; None if each is one position of the input.
    """

    def __init__(self, conv: Convolution, x: Sizes, filters: Sizes) -> None:
        conv.check(x, filters)
        self.shapes = x, filters
        geometry = conv.geometry(x[1:-1], filters[:-2])
        self.counts, self.before, after = geometry
        self.result = (x[0], *self.counts, filters[-1])
        self.rows, self.depth = prod(self.result[:-1]), prod(filters[:-1])
        self.margins = Margins(x, self.before, after)
        self.at_once = conv.is_product(x[1:-1], filters[:-2], geometry)
        self.view: tuple[Sizes, Sizes] | None = None
        size = self.rows * self.depth * conv.wide.itemsize
        if (
            not self.at_once and conv.device.xp is np and 0 < size <= LARGE
        ):  # larger results come from the pool
            self.at_once, self.view = True, self._windows(conv, filters)

    def _windows(self, conv: Convolution, filters: Sizes) -> tuple[Sizes, Sizes]:
        """Return the shape and strides of the view of all windows, (N, counts..., kernel..., C)."""
        steps = [conv.wide.itemsize]
        for size in reversed(self.margins.shape[1:]):
            steps.append(steps[-1] * size)
        item, *inner, image = steps
        inner.reverse()
        strides = [step * stride for step, stride in zip(inner, conv.strides, strict=True)]
        taps = [step * dilation for step, dilation in zip(inner, conv.dilations, strict=True)]
        return (*self.result[:-1], *filters[:-1]), (image, *strides, *taps, item)


@kernel("Conv2D", "Conv3D", device=ARRAY_DEVICE, heavy=True)
def make_forward(node: Node, device: Device) -> KernelFunction:
    """Make the kernel of a convolution."""
    return forward(Convolution(node, device))


def forward(conv: Convolution) -> KernelFunction:
    """Return the function from images and filters to their convolution."""
    device, xp = conv.device, conv.device.xp
    sizes: _Sizes | None = None

    def run(x: Any, filters: Any) -> Any:
        nonlocal sizes
        x = channels_last(x, conv.data_format)
        last_sizes = sizes
        if last_sizes is None or (x.shape, filters.shape) != last_sizes.shapes:
            sizes = last_sizes = _Sizes(conv, x.shape, filters.shape)
        filters = contiguous(filters, conv.wide, device)
        x = last_sizes.margins.pad(x, conv.wide, device)
        if last_sizes.at_once:
            if last_sizes.view is not None:
                x = as_strided(xp, x, *last_sizes.view)
            result = new_array(device, last_sizes.result, conv.wide)
            out = result.reshape(last_sizes.rows, last_sizes.result[-1])
            matrix = filters.reshape(last_sizes.depth, last_sizes.result[-1])
            xp.dot(x.reshape(last_sizes.rows, last_sizes.depth), matrix, out=out)
        else:
            result = _convolve(x, filters, conv.strides, conv.dilations, last_sizes.counts, device)
        return from_channels_last(result, conv.data_format, conv.dtype, device)

    return run


@kernel(
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    device=ARRAY_DEVICE,
    host=("filter_sizes",),
    heavy=True,
)
def make_by_filter(node: Node, device: Device) -> KernelFunction:
    """Make the kernel of the filter's gradient."""
    conv, xp = Convolution(node, device), device.xp

    def run(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in filter_sizes)
        x, grad = channels_last(x, conv.data_format), channels_last(grad, conv.data_format)
        conv.check(x.shape, shape)
        counts, before, after = conv.geometry(x.shape[1:-1], shape[:-2])
        conv.check_grad(grad.shape, x.shape[0], counts, shape[-1])
        x = pad_spatial(x, before, after, conv.wide, device)
        flat = contiguous(grad, conv.wide, device).reshape(prod(grad.shape[:-1]), shape[-1])
        total = new_array(device, (prod(shape[:-1]), shape[-1]), conv.wide)
        if not x.size or not grad.size:
            total.fill(0)
            return contiguous(total.reshape(shape), conv.dtype, device)
        part: Array | None = None
        for rows, block in columns(x, shape[:-2], conv.strides, conv.dilations, counts, device):
            # The first block writes the total directly, so a convolution of a single block needs no
            # second matrix.
            if part is None:
                part = total
                xp.matmul(block.T, flat[rows], out=total)
                continue
            if part is total:
                part = new_array(device, total.shape, conv.wide)
            xp.matmul(block.T, flat[rows], out=part)
            xp.add(total, part, out=total)
        return contiguous(total.reshape(shape), conv.dtype, device)

    return run


@kernel(
    "Conv2DBackpropInput",
    "Conv3DBackpropInputV2",
    device=ARRAY_DEVICE,
    host=("input_sizes",),
    heavy=True,
)
def make_by_input(node: Node, device: Device) -> KernelFunction:
    """Make the kernel of the input's gradient."""
    conv = Convolution(node, device)

    def run(input_sizes: Any, filters: Any, grad: Any) -> Any:
        shape = conv.last_shape(input_sizes)
        grad = channels_last(grad, conv.data_format)
        conv.check(shape, filters.shape)
        taps = filters.shape[:-2]
        counts, before, after = conv.geometry(shape[1:-1], taps)
        conv.check_grad(grad.shape, shape[0], counts, filters.shape[-1])
        filters = contiguous(filters, conv.wide, device)
        extents = [window_extent(k, d) for k, d in zip(taps, conv.dilations, strict=True)]
        low = tuple(e - 1 - b for e, b in zip(extents, before, strict=True))
        high = tuple(e - 1 - a for e, a in zip(extents, after, strict=True))
        possible = all(s == 1 for s in conv.strides) and min((*low, *high)) >= 0
        possible = possible and 0 not in shape and _can_skip_padding(filters, device)
        if possible and _rotating_is_cheaper(shape, counts, filters.shape):
            # The adjoint of a convolution with stride 1 is a convolution with the flipped kernel
            # and exchanged input and output channels.
            rotated = filters[(slice(None, None, -1),) * len(taps)].swapaxes(-1, -2)
            rotated = contiguous(rotated, conv.wide, device)
            grad = pad_spatial(grad, low, high, conv.wide, device)
            result = _convolve(grad, rotated, conv.strides, conv.dilations, shape[1:-1], device)
        else:
            grad = contiguous(grad, conv.wide, device)
            runs = _Runs(conv, taps, counts, shape[-1])
            scatter = _scatter_side_by_side if runs.side_by_side else _scatter
            result = scatter(conv, runs, grad, filters, shape, before, after)
        return from_channels_last(result, conv.data_format, conv.dtype, device)

    return run


def _can_skip_padding(filters: Array, device: Device) -> bool:
    """Return True if products of filters with zero padding are known to be 0.

    Infinite weights would turn padding into NaN. On a GPU this is not checked, because reading the
    result would wait for the device.
    """
    return device.xp is not np or bool(np.isfinite(np.add.reduce(filters, axis=None)))


def _rotating_is_cheaper(shape: Sizes, counts: Sizes, filters: Sizes) -> bool:
    """Return True if convolving the gradient with rotated filters costs less than scattering it.

    It costs more if there are few windows relative to the positions that they cover, as for texts
    with windows as wide as the embeddings, or if the image has few channels.
    """
    channels, depth = filters[-2:]
    rotated = prod(shape[1:-1]) * depth * (channels + COPY_COST)
    return rotated <= prod(counts) * channels * (depth + SHARE_COST)


class _Runs:
    """The axes along which a window's contributions are added together instead of tap by tap.

    Along an axis with one window, taps are contiguous like channels, so one addition covers them
    all. For example, windows of a text that are as wide as its embeddings are added row by row.

    Attributes:
      taps: the number of taps of each axis, or 1 if they are added together.
      first: True to move the channels to the first axis while contributions are added. Inner loops
        then run along the windows, if these are longer than the channels times the contiguous taps.
      side_by_side: True to add the taps separately on the host.
    """

    def __init__(self, conv: Convolution, taps: Sizes, counts: Sizes, channels: int) -> None:
        self._merged = [n == 1 and conv.device.xp is np for n in counts]
        self.taps = [1 if is_merged else k for is_merged, k in zip(self._merged, taps, strict=True)]
        run = channels
        for axis in reversed(range(len(taps))):
            if not self._merged[axis] or conv.dilations[axis] > 1:
                break
            run *= taps[axis]
        self.first = run < FEW_CHANNELS
        self.side_by_side = conv.device.xp is np and self.taps == list(taps)
        interval = zip(conv.strides, conv.dilations, self._merged, strict=True)
        self._steps = [d if is_merged else s for s, d, is_merged in interval]
        self._dilations = conv.dilations

    def merged(self, shares: Array, windows: int, taps: int) -> Array:
        """Return a view of contributions whose merged taps are windows.

        Args:
          windows: the first axis of windows.
          taps: the first axis of taps.
        """
        for axis, is_merged in enumerate(self._merged):
            if is_merged:
                shares = shares.swapaxes(windows + axis, taps + axis)
        return shares

    def target_slices(self, tap: Sizes, sizes: Sizes) -> tuple[slice, ...]:
        """Return the slices of the image that receive a tap's contributions."""
        interval = zip(tap, self._dilations, self._steps, sizes, strict=True)
        return tuple(slice(t * d, t * d + (n - 1) * step + 1, step) for t, d, step, n in interval)


def _scatter_side_by_side(
    conv: Convolution,
    runs: _Runs,
    grad: Array,
    filters: Array,
    shape: Sizes,
    before: Sizes,
    after: Sizes,
) -> Any:
    """Scatter like `_scatter`, with the images of a block side by side for longer inner loops."""
    device, counts, (channels, depth) = conv.device, grad.shape[1:-1], filters.shape[-2:]
    taps = filters.shape[:-2]
    result = new_array(device, shape, conv.wide)
    if not grad.size or not filters.size:
        result.fill(0)
        return result
    matrix = filters.reshape(-1, depth)
    by_tap = contiguous(filters.swapaxes(-1, -2), conv.wide, device)
    interior = tuple(slice(b, b + n) for b, n in zip(before, shape[1:-1], strict=True))
    sizes = [b + n + a for b, n, a in zip(before, shape[1:-1], after, strict=True)]
    width = channels * (prod(taps) if runs.first else 1) + depth
    row_bytes = prod(counts[1:]) * width * conv.wide.itemsize
    limit = COLUMN_BYTES if runs.first else SHARE_BYTES
    array: Array = np.empty(0, conv.wide)
    for images, rows in blocks(np, grad.shape[0], counts[0], row_bytes, limit):
        count = images.stop - images.start
        if not rows.start:
            full = (channels, *sizes, count) if runs.first else (*sizes, count, channels)
            array = new_array(device, full, conv.wide)
            array.fill(0)
        block = contiguous(np.moveaxis(grad[images, rows], 0, -2), conv.wide, device)
        flat, window_counts = block.reshape(-1, depth), block.shape[:-1]
        lead = (slice(None),) if runs.first else ()
        target = array[(*lead, slice(rows.start * conv.strides[0], None))]
        if runs.first:
            shares = np.matmul(matrix, flat.T).reshape(*taps, channels, *window_counts)
        else:
            share = new_array(device, (*window_counts, channels), conv.wide)
        for tap in product(*map(range, taps)):
            if runs.first:
                share = shares[tap]
            else:
                np.matmul(flat, by_tap[tap], out=share.reshape(-1, channels))
            view = target[(*lead, *runs.target_slices(tap, window_counts[:-1]))]
            np.add(view, share, out=view)
        if rows.stop == counts[0]:
            matches = np.moveaxis(
                array, (-1, 0) if runs.first else -2, (0, -1) if runs.first else 0
            )
            np.copyto(result[images], matches[(slice(None), *interior)])
    return result


def _scatter(
    conv: Convolution,
    runs: _Runs,
    grad: Array,
    filters: Array,
    shape: Sizes,
    before: Sizes,
    after: Sizes,
) -> Any:
    """Compute the input gradient of any convolution by adding contributions to their windows."""
    xp, batch, counts, depth = conv.device.xp, grad.shape[0], grad.shape[1:-1], grad.shape[-1]
    taps, channels, axes = filters.shape[:-2], filters.shape[-2], len(counts)
    sizes = [b + n + a for b, n, a in zip(before, shape[1:-1], after, strict=True)]
    full = (channels, batch, *sizes) if runs.first else (batch, *sizes, channels)
    output = new_array(conv.device, full, conv.wide)
    output.fill(0)
    last = xp.moveaxis(output, 0, -1) if runs.first else output
    matrix = filters.reshape(prod(filters.shape[:-1]), depth)
    row_bytes = prod(counts[1:]) * prod(taps) * channels * conv.wide.itemsize
    for images, rows in (
        blocks(xp, batch, counts[0], row_bytes) if grad.size and filters.size else ()
    ):
        block = grad[images, rows]
        flat = block.reshape(-1, depth)
        if runs.first:
            shares = xp.matmul(matrix, flat.T).reshape(*taps, channels, *block.shape[:-1])
            # The axes of the other layout; only the order in memory differs.
            shares = xp.moveaxis(shares, (*range(axes), axes), (*range(-axes - 1, -1), -1))
        else:
            shares = xp.matmul(flat, matrix.T).reshape(*block.shape[:-1], *taps, channels)
        shares = runs.merged(shares, 1, 1 + axes)
        target = last[images, rows.start * conv.strides[0] :]
        for tap in product(*map(range, runs.taps)):
            selected: tuple[Any, ...] = (*(slice(None),) * (1 + axes), *tap)
            share = shares[selected]
            view = target[(slice(None), *runs.target_slices(tap, share.shape[1:-1]))]
            xp.add(view, share, out=view)
    if not runs.first and not any(before) and not any(after):
        return output
    interior = tuple(slice(b, b + n) for b, n in zip(before, shape[1:-1], strict=True))
    return contiguous(last[(slice(None), *interior)], conv.wide, conv.device)


# ----------------------------------------------------------------------------- depthwise


_ALL: Final = slice(None)


class Depthwise(Convolution):
    """A depthwise convolution, computed tap by tap over a few images at a time."""

    def parts(self, batch: int, size: int) -> list[slice]:
        """Return slices of images to process together: as many as fit a CPU's cache, or all.

        Args:
          size: number of elements of an image and of its result.
        """
        step = max(1, SHARE_BYTES // max(1, size * self.wide.itemsize))
        if self.device.xp is not np:
            step = max(1, batch)
        return [slice(i, min(i + step, batch)) for i in range(0, batch, step)]

    def taps(
        self, inner: Sizes, taps: Sizes, counts: Sizes, before: Sizes
    ) -> list[tuple[Sizes, tuple[slice, ...], tuple[slice, ...]]]:
        """Yield each tap that reads the input, with the slices of outputs and of inputs."""
        result = []
        for tap in product(*map(range, taps)):
            slices = [
                tap_slices(t * d, n, s, b, c)
                for t, d, n, s, b, c in zip(
                    tap, self.dilations, inner, self.strides, before, counts, strict=True
                )
            ]
            if all(out.stop > out.start for out, _ in slices):
                outs, ins = zip(*slices, strict=True)
                result.append((tap, (_ALL, *outs), (_ALL, *ins)))
        return result


def _repeat_along_rows(weights: Array, width: int, xp: Any) -> Array:
    """Repeat the weights of a tap with few channels for all positions of a row.

    NumPy's inner loop then covers a row, not only the channels of one position.
    """
    if xp is not np or weights.size >= SHORT_ROW:
        return weights
    result = np.empty((width, *weights.shape), weights.dtype)
    result[...] = weights
    return result


@kernel("DepthwiseConv2dNative", device=ARRAY_DEVICE, heavy=True)
def _make_depthwise(node: Node, device: Device) -> KernelFunction:
    return depthwise_forward(Depthwise(node, device))


def depthwise_forward(conv: Depthwise) -> KernelFunction:
    """Return the function from images and filters to their depthwise convolution."""
    device, xp = conv.device, conv.device.xp
    in_one_pass = depthwise.SinglePassConvolution(conv.strides, conv.dilations)
    sizes: _Sizes | None = None

    def run(x: Any, filters: Any) -> Any:
        nonlocal sizes
        x, filters = widen_value(channels_last(x, conv.data_format)), widen_value(filters)
        last_sizes = sizes
        if last_sizes is None or (x.shape, filters.shape) != last_sizes.shapes:
            sizes = last_sizes = _Sizes(conv, x.shape, filters.shape)
        channels, multiplier = filters.shape[2:]
        counts = last_sizes.counts
        result = new_array(device, (x.shape[0], *counts, channels, multiplier), conv.wide)
        flat = result.reshape(*result.shape[:3], channels * multiplier)
        parts = conv.parts(x.shape[0], prod(x.shape[1:]) + prod(result.shape[1:]))
        if xp is np and result.size and in_one_pass.fits:
            for images in parts:
                source = last_sizes.margins.pad(x[images], conv.wide, device)
                in_one_pass.convolve_into(result[images], source, filters)
            return from_channels_last(flat, conv.data_format, conv.dtype, device)
        taps = conv.taps(x.shape[1:-1], filters.shape[:2], counts, last_sizes.before)
        scratch: Any = None
        for images in parts:
            source, target = x[images], result[images]
            target.fill(0)
            if scratch is None:
                scratch = xp.empty(target.shape, conv.wide)
            for tap, outs, ins in taps:
                view = target[outs]
                part = scratch[: len(view), : view.shape[1], : view.shape[2]]
                weights = _repeat_along_rows(filters[tap], view.shape[2], xp)
                xp.multiply(source[ins][..., None], weights, out=part)
                xp.add(view, part, out=view)
        return from_channels_last(flat, conv.data_format, conv.dtype, device)

    return run


@kernel(
    "DepthwiseConv2dNativeBackpropInput", device=ARRAY_DEVICE, host=("input_sizes",), heavy=True
)
def _make_depthwise_by_input(node: Node, device: Device) -> KernelFunction:
    conv, xp = Depthwise(node, device), device.xp

    def run(input_sizes: Any, filters: Any, grad: Any) -> Any:
        shape = conv.last_shape(input_sizes)
        filters = widen_value(filters)
        conv.check(shape, filters.shape)
        channels, multiplier = filters.shape[2:]
        counts, before, _ = conv.geometry(shape[1:-1], filters.shape[:2])
        grad = widen_value(channels_last(grad, conv.data_format))
        conv.check_grad(grad.shape, shape[0], counts, channels * multiplier)
        grad = grad.reshape(*grad.shape[:-1], channels, multiplier)
        taps = conv.taps(shape[1:-1], filters.shape[:2], counts, before)
        result = new_array(device, shape, conv.wide)
        result.fill(0)
        scratch: Any = None
        for images in conv.parts(shape[0], prod(shape[1:]) + prod(grad.shape[1:])):
            source, target = grad[images], result[images]
            if scratch is None:
                scratch = xp.empty((len(source), *counts, channels), conv.wide)
            for tap, outs, ins in taps:
                view = target[ins]
                part = scratch[: len(view), : view.shape[1], : view.shape[2]]
                for m in range(multiplier):
                    shares = source[(*outs, _ALL, m)]
                    weights = _repeat_along_rows(filters[tap][:, m], shares.shape[2], xp)
                    xp.multiply(shares, weights, out=part)
                    xp.add(view, part, out=view)
        return from_channels_last(result, conv.data_format, conv.dtype, device)

    return run


@kernel(
    "DepthwiseConv2dNativeBackpropFilter", device=ARRAY_DEVICE, host=("filter_sizes",), heavy=True
)
def _make_depthwise_by_filter(node: Node, device: Device) -> KernelFunction:
    conv, xp = Depthwise(node, device), device.xp

    def run(x: Any, filter_sizes: Any, grad: Any) -> Any:
        shape = tuple(int(n) for n in filter_sizes)
        x = widen_value(channels_last(x, conv.data_format))
        grad = widen_value(channels_last(grad, conv.data_format))
        conv.check(x.shape, shape)
        channels, multiplier = shape[2:]
        counts, before, _ = conv.geometry(x.shape[1:-1], shape[:2])
        conv.check_grad(grad.shape, x.shape[0], counts, channels * multiplier)
        grad = grad.reshape(*grad.shape[:-1], channels, multiplier)
        result = xp.zeros(shape, conv.wide)
        taps = conv.taps(x.shape[1:-1], shape[:2], counts, before)
        scratch: Any = None
        for images in conv.parts(x.shape[0], prod(x.shape[1:]) + prod(grad.shape[1:])):
            source, upstream = x[images], grad[images]
            if scratch is None:
                scratch = xp.empty(upstream.size, conv.wide)
            for tap, outs, ins in taps:
                ours = upstream[outs]
                part = scratch[: ours.size].reshape(ours.shape)
                xp.multiply(source[ins][..., None], ours, out=part)
                rows = part.reshape(prod(part.shape[:-2]), channels * multiplier)
                sums = column_sums(rows)
                view = result[tap]
                xp.add(view, sums.reshape(channels, multiplier), out=view)
        return contiguous(result, conv.dtype, device)

    return run
