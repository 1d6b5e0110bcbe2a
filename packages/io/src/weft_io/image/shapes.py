"""Shape checks of image functions."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ops.shapes import shape
from weft_tensor import errors
from weft_tensor.shape import format_dims

Size = Any
"""A static size, or an int32 scalar tensor."""


def convert_images(value: Any, label: str = "images") -> Output:
    """Convert a value to a tensor of one image, a batch of images, or unknown rank.

    Raises: InvalidArgumentError: its rank is not 3 or 4.
    """
    tensor = convert_to_tensor(value, name="images")
    if tensor.dims is not None and len(tensor.dims) not in (3, 4):
        raise errors.InvalidArgumentError(
            f"{label} must have shape [height, width, channels] or [batch, height, width, "
            f"channels], got {format_dims(tensor.dims)}"
        )
    return tensor


def convert_at_least_3d(value: Any, label: str = "image") -> Output:
    """Convert a value to a tensor whose last three axes are height, width and channels.

    Raises: InvalidArgumentError: it has a lower rank.
    """
    tensor = convert_to_tensor(value, name="image")
    if tensor.dims is not None and len(tensor.dims) < 3:
        raise errors.InvalidArgumentError(
            f"{label} must have shape [..., height, width, channels], got "
            f"{format_dims(tensor.dims)}"
        )
    return tensor


def static_rank(tensor: Output) -> int:
    """Return the static rank of images.

    Raises: InvalidArgumentError: it is unknown.
    """
    if tensor.dims is None:
        raise errors.InvalidArgumentError(
            f"the rank of the images must be known, got {tensor!r}; call set_shape first"
        )
    return len(tensor.dims)


def cut_rank(tensor: Output) -> int:
    """Return the rank of images to crop or pad; 3 if it is unknown."""
    return 3 if tensor.dims is None else len(tensor.dims)


def size_of(tensor: Output, axis: int) -> Size:
    """Return the size along an axis; the axis is counted from the end."""
    dims = tensor.dims
    static_size = None if dims is None else dims[axis]
    return shape(tensor)[axis] if static_size is None else static_size
