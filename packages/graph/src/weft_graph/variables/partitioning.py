"""Partitioners of variables."""

from __future__ import annotations

__all__ = [
    "fixed_size_partitioner",
    "min_max_variable_partitioner",
    "variable_axis_size_partitioner",
]

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.ir import builder
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape, as_dims, is_fully_defined

Partitioner = Callable[..., Sequence[int]]
"""Function from the arguments `shape` and `dtype` to the number of parts along each axis."""


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Return a partitioner that makes `num_shards` parts along `axis`.

    Args:
      num_shards: number of parts.
      axis: the partitioned axis.

    Examples:
      >>> table = wf.get_variable("table", [6, 2], partitioner=wf.fixed_size_partitioner(3))
      >>> len(list(table))
      3
    """

    def partitioner(shape: TensorShape, **_: Any) -> list[int]:
        sizes = _known_sizes(shape)
        partitions = [1] * len(sizes)
        partitions[axis] = min(num_shards, sizes[axis])
        return partitions

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int,
    axis: int = 0,
    bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Partitioner:
    """Return a partitioner with the fewest parts of at most `max_shard_bytes` bytes each.

    Args:
      max_shard_bytes: largest size of a part in bytes.
      axis: the partitioned axis.
      bytes_per_string_element: assumed size of a string in bytes.
      max_shards: largest number of parts; no limit by default.
    Raises: InvalidArgumentError: an argument is less than 1.

    Examples:
      >>> partitioner = wf.variable_axis_size_partitioner(16)
      >>> len(list(wf.get_variable("table", [6, 2], partitioner=partitioner)))  # 8 bytes a row
      3
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1 or (max_shards or 1) < 1:
        raise errors.InvalidArgumentError(
            "max_shard_bytes, bytes_per_string_element and max_shards must be at least 1, got "
            f"{max_shard_bytes}, {bytes_per_string_element} and {max_shards}"
        )

    def partitioner(shape: TensorShape, dtype: Any, **_: Any) -> list[int]:
        sizes = _known_sizes(shape)
        partitions = [1] * len(sizes)
        per_slice = _bytes(sizes, dtype, bytes_per_string_element) / max(sizes[axis], 1)
        slices_per_part = max(1, math.floor(max_shard_bytes / max(per_slice, 1e-9)))
        count = max(1, math.ceil(sizes[axis] / slices_per_part))
        partitions[axis] = count if max_shards is None else min(max_shards, count)
        return partitions

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1,
    axis: int = 0,
    min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:
    """Return a partitioner with at most `max_partitions` parts of at least `min_slice_size` bytes.

    Args:
      max_partitions: largest number of parts.
      axis: the partitioned axis.
      min_slice_size: smallest size of a part in bytes.
      bytes_per_string_element: assumed size of a string in bytes.
    Raises: InvalidArgumentError: an argument is less than 1.

    Examples:
      >>> partitioner = wf.min_max_variable_partitioner(4, min_slice_size=24)
      >>> len(list(wf.get_variable("table", [6, 2], partitioner=partitioner)))  # 48 bytes
      2
    """
    if max_partitions < 1 or min_slice_size < 1 or bytes_per_string_element < 1:
        raise errors.InvalidArgumentError(
            "max_partitions, min_slice_size and bytes_per_string_element must be at least 1, got "
            f"{max_partitions}, {min_slice_size} and {bytes_per_string_element}"
        )

    def partitioner(shape: TensorShape, dtype: Any, **_: Any) -> list[int]:
        sizes = _known_sizes(shape)
        partitions = [1] * len(sizes)
        total = _bytes(sizes, dtype, bytes_per_string_element)
        num_parts = max(1, total // min_slice_size)
        partitions[axis] = max(1, min(sizes[axis], max_partitions, num_parts))
        return partitions

    return partitioner


def _known_sizes(shape: Any) -> list[int]:
    dims = as_dims(shape)
    if dims is None or not is_fully_defined(dims):
        raise errors.InvalidArgumentError(f"the shape must be fully known, got {shape}")
    return [size for size in dims if size is not None]


def _bytes(sizes: Sequence[int], dtype: Any, per_string: int) -> int:
    base = dtypes.as_dtype(dtype).base_dtype
    return math.prod(sizes) * (per_string if base is dtypes.string else base.size)


# --------------------------------------------------------------------------- parts


def full_shape_of(name: str, shape: Any, initializer: Any) -> list[int]:
    if initializer is not None and not callable(initializer) and shape is None:
        shape = builder.convert_to_tensor(initializer).dims
    dims = as_dims(shape)
    if dims is None or not is_fully_defined(dims):
        raise errors.InvalidArgumentError(
            f"the shape of the partitioned variable {name} must be fully known, got {shape}"
        )
    return [size for size in dims if size is not None]


def element_type_of(dtype: Any, initializer: Any) -> DType:
    if dtype is None:
        return builder.convert_to_tensor(initializer).dtype.base_dtype
    return dtypes.as_dtype(dtype).base_dtype


def part_arguments(
    sizes: list[int], offset: list[int], dtype: DType, initializer: Any
) -> tuple[Any, Any, Any]:
    if initializer is None or callable(initializer):
        return sizes, dtype, initializer
    value = builder.convert_to_tensor(initializer, dtype)
    return None, dtype, builder.out("Slice", [value, offset, sizes])


def check_partitions(name: str, partitions: list[int], full_shape: list[int]) -> None:
    if len(partitions) != len(full_shape) or min(partitions) < 1:
        raise errors.InvalidArgumentError(
            f"the partitioner of {name} must give one positive count for each of {len(full_shape)} "
            f"axes, got {partitions}"
        )
    if sum(count > 1 for count in partitions) > 1:
        raise errors.InvalidArgumentError(
            f"{name} can be partitioned along one axis only, got partitions {partitions}"
        )


def part_slices(
    full_shape: Sequence[int], partitions: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Return (offset, sizes) of each part; the first parts get the remainder of the division."""
    axis = next((i for i, count in enumerate(partitions) if count > 1), 0)
    count = partitions[axis]
    size, extra = divmod(full_shape[axis], count)
    result: list[tuple[list[int], list[int]]] = []
    start = 0
    for i in range(count):
        length = size + (i < extra)
        offset, sizes = [0] * len(full_shape), list(full_shape)
        offset[axis], sizes[axis] = start, length
        result.append((offset, sizes))
        start += length
    return result
