"""Sizes of axes, as Python integers if they are static, else as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ops.shape_rules import constant_int
from weft_tensor import dtypes, errors

Size = Any
"""An integer, or an int32 tensor of rank 0."""


def size_of(value: Output, axis: int) -> Size:
    """Return the size of an axis; negative axes count from the end."""
    static = None if value.dims is None else value.dims[axis]
    return out("Shape", [value])[axis] if static is None else static


def check_size(value: Any, label: str, minimum: int = 1) -> Size:
    """Return a length argument, checked.

    Raises: InvalidArgumentError: its rank is not 0, or it is static and below `minimum`.
    """
    tensor = convert_to_tensor(value, dtypes.int32)
    if tensor.dims not in ((), None):
        raise errors.InvalidArgumentError(f"{label} must be one integer, got {tensor!r}")
    static = constant_int(tensor)
    if static is not None and static < minimum:
        raise errors.InvalidArgumentError(f"{label} must be at least {minimum}, got {static}")
    return tensor if static is None else static


def shape_from(*parts: Any) -> Any:
    """Return a shape from sizes and vectors of sizes."""
    if all(isinstance(part, int) for part in parts):
        return np.array(parts, np.int32)
    vectors = [part if _is_vector(part) else out("Pack", [[part]]) for part in parts]
    return out("ConcatV2", [vectors, 0]) if len(vectors) > 1 else vectors[0]


def _is_vector(part: Any) -> bool:
    return isinstance(part, Output) and part.dims != ()


def lead_of(value: Output, inner: int) -> list[Any]:
    """Return the sizes of all axes except the last `inner` ones, as parts of a shape."""
    if value.dims is None:
        return [out("Shape", [value])[: -inner or None]]
    lead = value.dims[: len(value.dims) - inner]
    if None not in lead:
        return list(lead)
    return [out("Shape", [value])[: len(lead)]]


def reshape_to_parts(value: Output, *parts: Any) -> Output:
    """Reshape a value to the shape that `shape_from` builds from parts."""
    return out("Reshape", [value, shape_from(*parts)])


def pad_at_end(value: Output, padding: Size, axis: int = -1, filler: Any = None) -> Output:
    """Pad a value at the end of an axis, with zeros by default.

    Args:
      axis: index of the axis, counted from the end.
    """
    if isinstance(padding, int) and padding == 0:
        return value
    rank = out("Rank", [value]) if value.dims is None else len(value.dims)
    leading = out("Fill", [shape_from(rank + axis, 2), 0])
    trailing = out("Fill", [shape_from(-axis - 1, 2), 0])
    pair = out("ExpandDims", [out("Pack", [[0, padding]]), 0])
    paddings = out("ConcatV2", [[leading, pair, trailing], 0])
    if filler is None:
        return out("Pad", [value, paddings])
    return out("PadV2", [value, paddings, convert_to_tensor(filler, value.dtype.base_dtype)])


def max_size(minimum: int, size: Size) -> Size:
    """Return the larger of an integer and a size."""
    return max(minimum, size) if isinstance(size, int) else out("Maximum", [minimum, size])


def cast(value: Any, dtype: dtypes.DType, name: str | None = None) -> Output:
    """Cast a value, which must be dense, to an element type."""
    return out("Cast", [value], {"DstT": dtype}, name)
