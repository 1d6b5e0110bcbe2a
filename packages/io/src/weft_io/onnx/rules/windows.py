"""Sliding windows over the spatial axes of (N, ..., C), and their padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.join import stack
from weft_graph.ops.slicing import strided_slice
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.rules.array import pad_axes, shape64
from weft_io.onnx.transpositions import channels_first
from weft_tensor import dtypes, errors

Size = Any
"""A known number, or an int64 tensor."""


_MAX_TAPS: Final = 4096

_MIN_WHOLE_ELEMENTS: Final = 1_000_000
"""Number of pixels that padding may always produce, regardless of the input size."""


class Windows(NamedTuple):
    """The parameters of sliding windows.

    Attributes:
      kernel: number of taps along each axis.
      strides, dilations: steps along each axis.
      pads: padding before and after, along each axis.
      extra: additional trailing padding for `ceil_mode`.
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[Size, Size]]
    extra: list[Size]

    @property
    def is_dilated(self) -> bool:
        """True if a dilation is over 1."""
        return any(item != 1 for item in self.dilations)

    @property
    def has_margins(self) -> bool:
        """True if the input must be padded."""
        return any(not _is(item, 0) for pair in self.pads for item in pair) or self.has_extra

    @property
    def has_extra(self) -> bool:
        """True if `ceil_mode` requires additional padding."""
        return any(not _is(item, 0) for item in self.extra)

    def sides(self, with_extra: bool = True) -> Output:
        """Return the padding of all axes, int64, shape (rank, 2)."""
        rows: list[list[Any]] = [[0, 0]]
        for (leading, trailing), extra in zip(self.pads, self.extra, strict=True):
            rows.append([leading, trailing + extra if with_extra else trailing])
        return stack_margins([*rows, [0, 0]])

    def extra_sides(self) -> Output:
        """Return the padding of `ceil_mode` for all axes."""
        return stack_margins([[0, 0], *([0, item] for item in self.extra), [0, 0]])

    def along(self, axis: int) -> Windows:
        """Return the windows along one axis, with a kernel size of 1 along the others."""
        parts = self.kernel, self.strides, self.dilations
        along_axis = ([n if i == axis else 1 for i, n in enumerate(part)] for part in parts)
        kernel, strides, dilations = along_axis
        return self._replace(kernel=kernel, strides=strides, dilations=dilations)

    def taps(self, x: Output) -> list[Output]:
        """Return the input of each tap of the window, from a padded input.

        Raises: UnimplementedError: there are too many taps.
        """
        if prod(self.kernel) > _MAX_TAPS:
            raise errors.UnimplementedError(
                f"windows must have at most {_MAX_TAPS} elements here, got {self.kernel}"
            )
        sizes, count = shape64(x), len(self.kernel)
        result = []
        extents = [(k - 1) * d for k, d in zip(self.kernel, self.dilations, strict=True)]
        for tap in product(*(range(k) for k in self.kernel)):
            begin = [t * d for t, d in zip(tap, self.dilations, strict=True)]
            end = [sizes[1 + i] - (extents[i] - begin[i]) for i in range(count)]
            result.append(
                strided_slice(
                    x,
                    constant([0, *begin, 0], dtypes.int64),
                    stack([sizes[0], *end, sizes[1 + count]]),
                    constant([1, *self.strides, 1], dtypes.int64),
                )
            )
        return result


def _is(size: Size, number: int) -> bool:
    return not isinstance(size, Output) and size == number


def stack_margins(rows: Sequence[Sequence[Size]]) -> Output:
    """Return the padding of all axes as a tensor, int64, (rank, 2); a constant if all is known."""
    if all(not isinstance(item, Output) for row in rows for item in row):
        return constant([list(row) for row in rows], dtypes.int64)
    return stack([stack([_int64(item) for item in row]) for row in rows])


def _int64(size: Size) -> Output:
    return size if isinstance(size, Output) else constant(size, dtypes.int64)


def _require_nonnegative(size: Size) -> Size:
    return maximum(size, constant(0, dtypes.int64)) if isinstance(size, Output) else max(size, 0)


def windows(operation: Operation, kernel: Sequence[int]) -> Windows:
    """Return the windows that the attributes of a convolution or pooling op describe.

    Raises: InvalidArgumentError: the attributes do not match the rank of the first input.
    """
    count = len(kernel)
    operation.require_rank(count + 2)
    x = operation.channels_last()
    strides = operation.attribute("strides") or [1] * count
    dilations = operation.attribute("dilations") or [1] * count
    flat = operation.attribute("pads") or [0] * 2 * count
    for name, values, length in (
        ("strides", strides, count),
        ("dilations", dilations, count),
        ("pads", flat, 2 * count),
    ):
        if len(values) != length or min(values, default=1) < (0 if name == "pads" else 1):
            raise errors.InvalidArgumentError(
                f"{operation.op} requires {length} {name} for a window of {count} axes, "
                f"got {values}"
            )
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto = operation.attribute("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [
            _same_padding(_size(x, 1 + axis), extent, stride, auto == "SAME_LOWER")
            for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True))
        ]
    elif auto == "VALID":
        pads = [(0, 0)] * count
    else:
        pads = list(zip(flat[:count], flat[count:], strict=True))
    extra: list[Size] = [0] * count
    if operation.attribute("ceil_mode", 0) and auto == "NOTSET":
        extra = [
            _extra(_size(x, 1 + axis), extent, stride, pair)
            for axis, (extent, stride, pair) in enumerate(zip(extents, strides, pads, strict=True))
        ]
    _check_margins(operation, x, pads)
    return Windows(list(kernel), list(strides), list(dilations), pads, extra)


def _check_margins(operation: Operation, x: Output, pads: Sequence[tuple[Size, Size]]) -> None:
    """Check that padding does not enlarge the input excessively.

    Raises: ResourceExhaustedError: the result has more than 1000 times the known input size.
    """
    sizes = [size or 1 for size in (x.dims or ())[1:-1]]
    margins = [sum(item for item in pair if isinstance(item, int)) for pair in pads]
    num_elements = prod(size + margin for size, margin in zip(sizes, margins, strict=True))
    if num_elements > _MIN_WHOLE_ELEMENTS + 1000 * prod(sizes):
        raise errors.ResourceExhaustedError(
            f"the padding {margins} of {operation.op} enlarges {prod(sizes)} pixels to "
            f"{num_elements}, which is more than the limit"
        )


def _size(x: Output, axis: int) -> Size:
    known_size = x.dims[axis] if x.dims is not None else None
    return shape64(x)[axis] if known_size is None else known_size


def _same_padding(size: Size, extent: int, stride: int, more_before: bool) -> tuple[Size, Size]:
    """Return the SAME padding, which results in one window per stride."""
    total = _require_nonnegative(((size + stride - 1) // stride - 1) * stride + extent - size)
    smaller = total // 2
    return (total - smaller, smaller) if more_before else (smaller, total - smaller)


def _extra(size: Size, extent: int, stride: int, pads: tuple[Size, Size]) -> Size:
    """Return the padding that completes a last window which begins inside the padded input."""
    num_elements = size + pads[0] + pads[1]
    count = (num_elements - extent + stride - 1) // stride + 1
    begin = (count - 1) * stride
    is_late: Size
    if isinstance(begin, Output):
        is_late = cast(begin >= size + pads[0], dtypes.int64)
    else:
        is_late = int(begin >= size + pads[0])
    return _require_nonnegative(begin - stride * is_late + extent - num_elements)


def add_margins(x: Output, windows: Windows, value: Any = 0) -> Output:
    """Return the input with all padding."""
    return pad_axes(x, windows.sides(), value) if windows.has_margins else x


# -------------------------------------------------------------------------------- export


class Layout(NamedTuple):
    """The axes of a node's images.

    Attributes:
      order: the permutation to (N, C, ...).
      spatial: the axes that windows slide along.
      channels: the axis of the channels.
    """

    order: list[int]
    spatial: list[int]
    channels: int


def layout(export: NodeExport) -> Layout:
    """Return the layout of the images or volumes of a node."""
    form = export.attribute("data_format") or "NHWC"
    rank = len(form)
    if form[-1] == "C":
        return Layout(channels_first(rank), [*range(1, rank - 1)], rank - 1)
    if form[1] == "C" and rank in (4, 5) and "_" not in form:
        return Layout([*range(rank)], [*range(2, rank)], 1)
    raise errors.UnimplementedError(f"ONNX does not support data_format={form!r}")


def slide(
    export: NodeExport, axes_layout: Layout, kernel: Sequence[int], sizes: Sequence[int | None]
) -> dict[str, Any]:
    """Return the ONNX attributes of a node's windows.

    Args:
      kernel: kernel size along each spatial axis.
      sizes: sizes of the input along these axes.
    """
    strides = [int(export.attribute("strides")[axis]) for axis in axes_layout.spatial]
    attribute = export.attribute("dilations") or [1] * (len(axes_layout.spatial) + 2)
    dilations = [int(attribute[axis]) for axis in axes_layout.spatial]
    result: dict[str, Any] = {"kernel_shape": [*kernel], "strides": strides}
    if any(item != 1 for item in dilations):
        result["dilations"] = dilations
    padding = export.attribute("padding")
    if padding == "EXPLICIT":
        pairs = [
            export.attribute("explicit_paddings")[2 * axis :][:2] for axis in axes_layout.spatial
        ]
        result["pads"] = [int(pair[side]) for side in (0, 1) for pair in pairs]
    elif padding == "SAME":
        totals = [
            _margin(size, (k - 1) * d + 1, s)
            for size, k, d, s in zip(sizes, kernel, dilations, strides, strict=True)
        ]
        known_totals = [item for item in totals if item is not None]
        if len(known_totals) == len(totals):
            result["pads"] = [item // 2 for item in known_totals] + [
                item - item // 2 for item in known_totals
            ]
        else:
            result["auto_pad"] = "SAME_UPPER"
    return result


def _margin(size: int | None, extent: int, stride: int) -> int | None:
    """Return the total SAME padding if it is known; for stride 1 it always is."""
    if size is None:
        return extent - 1 if stride == 1 else None
    return max((-(-size // stride) - 1) * stride + extent - size, 0)
