"""Arithmetic of sliding windows, for shape rules and kernels of convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

Pads = Sequence[tuple[int, int]]


def channel_axis(data_format: str) -> int:
    """Return the channel axis: 1 in layouts such as "NCHW", else the last one."""
    return data_format.index("C")


def spatial_axes(data_format: str) -> tuple[int, ...]:
    """Return the spatial axes, over which windows slide."""
    return tuple(axis for axis, letter in enumerate(data_format) if letter not in "NC")


def window_extent(kernel: int, dilation: int) -> int:
    """Return the number of positions that a window of `kernel` taps spans."""
    return (kernel - 1) * dilation + 1


def slide(
    size: int, kernel: int, stride: int, dilation: int, padding: str, pads: tuple[int, int] = (0, 0)
) -> tuple[int, int, int]:
    """Return the number of windows along one axis and its padding.

    Args:
      size: size of the input along the axis.
      kernel: number of taps of the window.
      stride: distance between windows.
      dilation: distance between taps.
      padding: "SAME", "VALID" or "EXPLICIT".
      pads: zeros before and after, for "EXPLICIT".
    Returns: number of windows, zeros before, zeros after.
    Raises: InvalidArgumentError: the window is empty, or larger than the padded input.
    """
    if kernel < 1:
        raise errors.InvalidArgumentError(f"a window must have at least 1 position, got {kernel}")
    extent = window_extent(kernel, dilation)
    if padding == "SAME":
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        return count, total // 2, total - total // 2
    before, after = pads if padding == "EXPLICIT" else (0, 0)
    if extent > 1 and size + before + after < extent:  # no images are no windows
        raise errors.InvalidArgumentError(
            f"a window of {extent} positions must fit into the padded input of "
            f"{size + before + after}, got sizes {size} (input), {kernel} (kernel), "
            f"{dilation} (dilation)"
        )
    return (size + before + after - extent) // stride + 1, before, after


def slide_dims(
    sizes: Sequence[int | None],
    kernel: Sequence[int | None],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str,
    pads: Pads,
) -> list[int | None]:
    """Return the number of windows along each axis; None where a size is unknown."""
    counts: list[int | None] = []
    for i, size in enumerate(sizes):
        k = kernel[i]
        if size is None or (k is None and padding != "SAME"):
            counts.append(None)
        else:
            counts.append(
                slide(size, 1 if k is None else k, strides[i], dilations[i], padding, pads[i])[0]
            )
    return counts


def pairs(explicit: Sequence[int], rank: int) -> Pads:
    """Return the attribute `explicit_paddings` as (before, after) per axis; zeros if it is empty.

    Raises: InvalidArgumentError: it does not have two nonnegative numbers per axis.
    """
    if not explicit:
        return ((0, 0),) * rank
    if len(explicit) != 2 * rank or min(explicit) < 0:
        raise errors.InvalidArgumentError(
            f"explicit_paddings requires {2 * rank} numbers of at least 0, got {list(explicit)}"
        )
    return tuple((explicit[2 * i], explicit[2 * i + 1]) for i in range(rank))


def check_attrs(
    op: str, attrs: dict[str, Any], data_format: str, names: Sequence[str] = ("strides",)
) -> None:
    """Check that strides or dilations have one positive entry per axis, 1 for batch and channel.

    Raises: InvalidArgumentError: they do not.
    """
    rank = len(data_format)
    fixed = (0, channel_axis(data_format))
    for name in names:
        values = attrs[name]
        if len(values) != rank or min(values) < 1:
            raise errors.InvalidArgumentError(
                f"{op} requires {name} of {rank} positive numbers for {data_format}, "
                f"got {list(values)}"
            )
        if any(values[axis] != 1 for axis in fixed):
            raise errors.InvalidArgumentError(
                f"{op} requires {name} of 1 for the batch and the channels of {data_format}, "
                f"got {list(values)}"
            )


def check_padding(op: str, attrs: dict[str, Any], data_format: str) -> Pads:
    """Return the explicit paddings of a node as pairs.

    Raises: InvalidArgumentError: they contradict `padding`, or pad the batch or channel axis.
    """
    explicit = attrs.get("explicit_paddings", ())
    if (attrs["padding"] == "EXPLICIT") != bool(explicit):
        raise errors.InvalidArgumentError(
            f"{op} requires explicit_paddings exactly when padding is 'EXPLICIT', "
            f"got {list(explicit)} with {attrs['padding']!r}"
        )
    pad_pairs = pairs(explicit, len(data_format))
    if any(pad_pairs[axis] != (0, 0) for axis in (0, channel_axis(data_format))):
        raise errors.InvalidArgumentError(
            f"{op} cannot pad the batch or the channels, got explicit_paddings {list(explicit)}"
        )
    return pad_pairs


def require_rank(op: str, label: str, dims: Dims, rank: int) -> tuple[int | None, ...]:
    """Return `dims`, checked to have a rank; unknown sizes if the rank was unknown.

    Raises: InvalidArgumentError: the rank differs.
    """
    if dims is None:
        return (None,) * rank
    if len(dims) != rank:
        raise errors.InvalidArgumentError(
            f"{op} requires {label} of rank {rank}, got shape {format_dims(dims)}"
        )
    return dims
