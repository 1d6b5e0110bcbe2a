"""Resize and Upsample, computed one axis at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import abs as absolute, clip_by_value, maximum, minimum
from weft_graph.ops.comparison import greater, logical_or
from weft_graph.ops.gather import gather
from weft_graph.ops.join import stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.reduction import reduce_max, reduce_min, reduce_sum
from weft_graph.ops.rounding import ceil, floor
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast, like
from weft_io.onnx.registry import exporter, importer
from weft_io.onnx.rules.array import shape64
from weft_io.onnx.rules.quantization import saturate_integers
from weft_io.onnx.transpositions import channels_first, inverse
from weft_tensor import dtypes, errors

_wide: Final = dtypes.float64

_NEAREST: Final[dict[str, Callable[[Output], Output]]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
    "floor": floor,
    "ceil": ceil,
}
_REACH: Final = {"linear": 1, "cubic": 2}
"""Radius of the interpolation in pixels."""


@importer("Upsample")
def _upsample(operation: Operation) -> Output:
    scales = operation.tensor(1, "scales", dtypes.float32)
    if scales is None:
        height, width = operation.required("height_scale"), operation.required("width_scale")
        scales = constant([1.0, 1.0, height, width], dtypes.float32)
    mode = operation.attribute("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    return _Resizing(operation, mode, "asymmetric", "floor", scales, None, None).run()


@importer("Resize")
def _resize(operation: Operation) -> Output:
    mode = operation.attribute("mode", "nearest")
    if operation.version < 11:
        return _Resizing(operation, mode, "asymmetric", "floor", operation[1], None, None).run()
    scales, sizes, roi = operation.get(2), operation.get(3), operation.get(1)
    if scales is not None and scales.dims == (0,):
        scales = None
    return _Resizing(
        operation,
        mode,
        operation.attribute("coordinate_transformation_mode", "half_pixel"),
        operation.attribute("nearest_mode", "round_prefer_floor"),
        scales,
        sizes,
        roi,
    ).run()


class _Resizing:
    """One resizing, computed one axis at a time."""

    def __init__(
        self,
        operation: Operation,
        mode: str,
        transformation: str,
        nearest: str,
        scales: Output | None,
        sizes: Output | None,
        roi: Output | None,
    ) -> None:
        if mode not in ("nearest", "linear", "cubic"):
            raise errors.InvalidArgumentError(
                f"mode of {operation.op} must be nearest, linear or cubic, got {mode!r}"
            )
        if nearest not in _NEAREST:
            raise errors.InvalidArgumentError(
                f"nearest_mode of {operation.op} must be one of {list(_NEAREST)}, got {nearest!r}"
            )
        if (scales is None) == (sizes is None):
            raise errors.InvalidArgumentError(f"{operation.op} requires scales or sizes")
        self.operation = operation
        self.x, self.order = operation.plain()
        self.mode = mode
        self.transformation = transformation
        self.nearest = nearest
        count = operation.rank()
        axes_attribute = operation.attribute("axes")
        axes = [axis % count for axis in axes_attribute] if axes_attribute else list(range(count))
        self.axes = [self.order[axis] for axis in axes]
        self.lengths = {axis: cast(shape64(self.x)[axis], _wide) for axis in self.axes}
        self.roi = roi if transformation == "tf_crop_and_resize" else None
        self.scales, self.outer = self._targets(scales, sizes)
        self.outside: list[tuple[int, Output]] = []

    def _targets(
        self, scales: Output | None, sizes: Output | None
    ) -> tuple[list[Output], list[Output]]:
        """Return the scale and the new size of each axis."""
        lengths = [self.lengths[axis] for axis in self.axes]
        if scales is not None:
            item = [cast(scales, _wide)[i] for i in range(len(self.axes))]
            parts = [self._part(i) for i in range(len(self.axes))]
            outer = [
                cast(floor(n * s if p is None else n * s * p), dtypes.int64)
                for n, s, p in zip(lengths, item, parts, strict=True)
            ]
            return item, outer
        assert sizes is not None
        target_sizes = [cast(sizes, _wide)[i] for i in range(len(self.axes))]
        policy = self.operation.attribute("keep_aspect_ratio_policy", "stretch")
        ratios = [w / n for w, n in zip(target_sizes, lengths, strict=True)]
        if policy != "stretch":
            rule = reduce_min if policy == "not_larger" else reduce_max
            ratios = [rule(stack(ratios))] * len(ratios)
            target_sizes = [floor(s * n + 0.5) for s, n in zip(ratios, lengths, strict=True)]
        return ratios, [cast(item, dtypes.int64) for item in target_sizes]

    def _part(self, index: int) -> Output | None:
        """Return the fraction of an axis covered by the region of interest."""
        if self.roi is None:
            return None
        roi = cast(self.roi, _wide)
        return roi[len(self.axes) + index] - roi[index]

    # ----------------------------------------------------------------------- places

    def input_positions(self, index: int) -> Output:
        """Return the input positions of the output pixels along an axis, float64."""
        n, scale = self.lengths[self.axes[index]], self.scales[index]
        out = self.outer[index]
        i, last = cast(sequence(out), _wide), cast(out, _wide) - 1.0
        mode = self.transformation
        if mode == "asymmetric":
            return i / scale
        if mode in ("half_pixel", "pytorch_half_pixel"):
            result = (i + 0.5) / scale - 0.5
            return (
                result if mode == "half_pixel" else where_v2(last > like(0, last), result, i * 0.0)
            )
        if mode == "half_pixel_symmetric":
            scale_ratio = cast(out, _wide) / (scale * n)
            return n / 2.0 * (1.0 - scale_ratio) + (i + 0.5) / scale - 0.5
        if mode == "align_corners":
            end = n * scale - 1.0
            multi_pixel = i * (n - 1.0) / where_v2(end > like(0, end), end, like(1, end))
            return where_v2(end > like(0, end), multi_pixel, i * 0.0)
        if mode == "tf_crop_and_resize" and self.roi is not None:
            roi = cast(self.roi, _wide)
            start, end = roi[index], roi[len(self.axes) + index]
            multi_pixel = start * (n - 1.0) + i * (end - start) * (n - 1.0) / maximum(
                last, like(1, last)
            )
            return where_v2(
                last > like(0, last), multi_pixel, 0.5 * (start + end) * (n - 1.0) + i * 0.0
            )
        raise errors.InvalidArgumentError(
            f"unknown coordinate_transformation_mode {mode!r} of {self.operation.op}"
        )

    # ------------------------------------------------------------------------ values

    def run(self) -> Output:
        """Return the resized image."""
        dtype = self.x.dtype.base_dtype
        exact = self.mode == "nearest" or dtype in (dtypes.float32, dtypes.float64)
        result = self.x if exact else cast(self.x, dtypes.float32)
        for index, axis in enumerate(self.axes):
            if not self._is_unchanged(index):
                result = self._along(result, index, axis)
        if self.roi is not None:
            result = self._extrapolate(result)
        if not exact:
            result = saturate_integers(result, dtype) if dtype.is_integer else cast(result, dtype)
        return self.operation.transposed(result, self.order)

    def _is_unchanged(self, index: int) -> bool:
        """Return True if the size of an axis is unchanged."""
        scale = constant_value(self.scales[index])
        return self.roi is None and scale is not None and bool(np.all(scale == 1.0))

    def _along(self, x: Output, index: int, axis: int) -> Output:
        positions, n = self.input_positions(index), self.lengths[axis]
        if self.roi is not None:
            self.outside.append(
                (axis, logical_or(positions < like(0, positions), greater(positions, n - 1.0)))
            )
        if self.mode == "nearest":
            nearest_pixel = clip_by_value(_NEAREST[self.nearest](positions), like(0, n), n - 1.0)
            return gather(x, cast(nearest_pixel, dtypes.int64), axis=axis)
        taps, weights = self._taps(positions, self.scales[index], n)
        values = gather(x, cast(clip_by_value(taps, like(0, n), n - 1.0), dtypes.int64), axis=axis)
        # The axis has become two: output pixels, and the input pixels of each.
        num_trailing = self.operation.rank() - axis - 1
        for _ in range(num_trailing):
            weights = expand_dims(weights, -1)
        return reduce_sum(values * cast(weights, values.dtype), axis + 1)

    def _taps(self, positions: Output, scale: Output, n: Output) -> tuple[Output, Output]:
        """Return positions and weights of the taps of each pixel: (pixels, taps)."""
        reach: Any = _REACH[self.mode]
        shrink = like(1, scale)
        if self.operation.attribute("antialias", 0):
            shrink = minimum(scale, shrink)
        # From `num_leading` places in front of a point on; the farthest ones may have no weight.
        num_leading = ceil(like(reach, scale) / shrink) - 1.0
        count = cast(2.0 * num_leading + 2.0, dtypes.int64)
        base = floor(positions)
        taps = expand_dims(base - num_leading, 1) + cast(sequence(count), _wide)
        distance = absolute(taps - expand_dims(positions, 1)) * shrink
        weights = self._weights(distance)
        if self.operation.attribute("exclude_outside", 0):
            out = logical_or(taps < like(0, taps), greater(taps, n - 1.0))
            weights = where_v2(out, like(0, weights), weights)
        return taps, weights / reduce_sum(weights, 1, True)

    def _weights(self, d: Output) -> Output:
        """Return the interpolation weights at a distance."""
        if self.mode == "linear":
            return maximum(1.0 - d, like(0, d))
        a = self.operation.attribute("cubic_coeff_a", -0.75)
        inner_weight = ((a + 2) * d - (a + 3)) * d * d + 1.0
        outer_weight = ((d - 5.0) * d + 8.0) * d * a - 4.0 * a
        return where_v2(
            d <= like(1, d), inner_weight, where_v2(d < like(2, d), outer_weight, like(0, d))
        )

    def _extrapolate(self, x: Output) -> Output:
        """Replace pixels outside the image by a fixed value."""
        value = like(self.operation.attribute("extrapolation_value", 0.0), x)
        for axis, outside in self.outside:
            form = [-1 if i == axis else 1 for i in range(self.operation.rank())]
            x = where_v2(reshape(outside, form), value, x)
        return x


# -------------------------------------------------------------------------------- export


@exporter("ResizeBilinear", "ResizeNearestNeighbor")
def _write_resize(export: NodeExport) -> Value:
    corners = export.attribute("align_corners")
    centers = export.attribute("half_pixel_centers")
    alignment = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    order = channels_first(4)
    x, rounding = export.transposed(export[0], order), None
    if export.node.type == "ResizeBilinear":
        mode, x = "linear", export.cast(x, export.node.outputs[0].dtype)
    else:
        mode, rounding = "nearest", "round_prefer_ceil" if corners or centers else "floor"
    result = export.add(
        "Resize", x, None, None, _full_output_shape(export), mode=mode,
        coordinate_transformation_mode=alignment, nearest_mode=rounding,
    )  # fmt: skip
    return export.transposed(result, inverse(order))


def _full_output_shape(export: NodeExport) -> Value:
    """Return the shape of the result, (N, C, height, width)."""
    dims, target_sizes = export.dims(), export.int64(export[1])
    if dims[0] is not None and dims[3] is not None:
        outer = export.ints([dims[0], dims[3]])
    else:
        sizes = export.add("Shape", export[0], dtype=dtypes.int64)
        outer = export.add("Gather", sizes, export.ints([0, 3]))
    if outer.array is not None and target_sizes.array is not None:
        return export.ints([*outer.array, *target_sizes.array])
    return export.add("Concat", outer, target_sizes, axis=0)
