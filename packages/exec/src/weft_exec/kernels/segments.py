"""CPU kernels of reductions by segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import NARROW, Array, accumulation_dtype, as_exact, new_array
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.scatter import make_scatter
from weft_tensor import errors
from weft_tensor.dtypes import DType

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_add = make_scatter(np.add)
_UFUNCS: dict[str, Any] = {
    "Sum": np.add,
    "Mean": np.add,
    "Prod": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
}


def _check_sorted(ids: Array) -> int:
    """Check that ids are sorted; return the number of segments."""
    if not ids.size:
        return 0
    if ids[0] < 0:
        raise errors.InvalidArgumentError(f"segment ids must be at least 0, got {ids[0]}")
    steps = np.flatnonzero(ids[1:] < ids[:-1])
    if steps.size:
        index = int(steps[0])
        raise errors.InvalidArgumentError(
            f"segment ids must not decrease, got {ids[index]} at {index} and {ids[index + 1]} at "
            f"{index + 1}"
        )
    return int(ids[-1]) + 1


def _starts(ids: Array) -> Array:
    """Return the start of each run of equal ids."""
    return np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))


def reduce_sorted(
    ufunc: Any, data: Array, ids: Array, count: int, none: Any, dtype: np.dtype[Any]
) -> Array:
    """Reduce rows of `data` by sorted ids, in `dtype`; segments without rows are set to `none`."""
    result = np.full((count, *data.shape[1:]), none, dtype)
    if ids.size:
        starts = _starts(ids)
        result[ids[starts]] = ufunc.reduceat(data, starts, axis=0, dtype=dtype)
    return result


def sizes_of_segments(xp: Any, ids: Any, count: int) -> Any:
    """Return the number of rows of each segment, at least 1."""
    return xp.maximum(xp.bincount(ids, minlength=count), 1)


def reshape_per_row(values: Any, rank: int) -> Any:
    """Reshape a vector with one number per row so that it broadcasts with rows of a rank."""
    return values.reshape(-1, *(1,) * (rank - 1))


def _divide(total: Array, counts: Array, dtype: DType) -> Any:
    divisor = reshape_per_row(counts, total.ndim).astype(total.dtype)
    if dtype.is_integer:
        return (total - np.fmod(total, divisor)) // divisor
    return total / divisor


def check_rows(data: Any, ids: Any) -> None:
    """Raise InvalidArgumentError unless there is one id for each row."""
    if data.ndim == 0 or ids.ndim != 1 or len(data) != len(ids):
        raise errors.InvalidArgumentError(
            "data and segment_ids must have the same number of rows, got shapes "
            f"{list(data.shape)} and "
            f"{list(ids.shape)}"
        )


@kernel("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin")
def _segment(node: Node, device: Device) -> KernelFunction:
    kind, dtype = node.type[len("Segment") :], node.attrs["T"]
    element, ufunc = accumulation_dtype(dtype), _UFUNCS[kind]
    none = 1 if kind == "Prod" else 0

    def run(data: Any, ids: Any) -> Any:
        check_rows(data, ids)
        count = _check_sorted(ids)
        result = reduce_sorted(ufunc, data, ids, count, none, element)
        if kind == "Mean" and count:
            result = _divide(result, sizes_of_segments(np, ids, count), dtype)
        return as_exact(result, dtype.numpy, device)

    return run


def _unsorted_none(kind: str, dtype: DType) -> Any:
    if kind in ("Sum", "Prod"):
        return 0 if kind == "Sum" else 1
    return dtype.min if kind == "Max" else dtype.max


def flat_rows(data: Any, ids: Any, num: Any) -> tuple[int, Any, Any]:
    """Return the number of segments, and the rows and ids as flat arrays.

    Raises: InvalidArgumentError: the number of segments is negative, or the shapes do not match.
    """
    count = int(num)
    if count < 0:
        raise errors.InvalidArgumentError(f"num_segments must be at least 0, got {count}")
    if data.shape[: ids.ndim] != ids.shape:
        raise errors.InvalidArgumentError(
            "the shape of data must start with that of segment_ids, got "
            f"{list(data.shape)} and {list(ids.shape)}"
        )
    flat = ids.reshape(-1)
    return count, data.reshape(flat.size, *data.shape[ids.ndim :]), flat


@kernel("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin")
def _unsorted_segment(node: Node, device: Device) -> KernelFunction:
    kind, dtype = node.type[len("UnsortedSegment") :], node.attrs["T"]
    element, ufunc, none = accumulation_dtype(dtype), _UFUNCS[kind], _unsorted_none(kind, dtype)

    def run(data: Any, ids: Any, num: Any) -> Any:
        count, rows, flat = flat_rows(data, ids, num)
        if flat.size and flat.max() >= count:
            index = int(np.argmax(flat >= count))
            raise errors.InvalidArgumentError(
                f"segment_ids[{index}] = {flat[index]} is out of range [0, {count})"
            )
        if flat.size and flat.min() < 0:
            rows, flat = rows[flat >= 0], flat[flat >= 0]
        if kind == "Sum" and dtype not in NARROW:
            return sum_rows(rows, flat, count, device)
        order = np.argsort(flat, kind="stable")
        result = reduce_sorted(ufunc, rows[order], flat[order], count, none, element)
        return as_exact(result, dtype.numpy, device)

    return run


def sum_rows(rows: Array, ids: Array, count: int, device: Device) -> Array:
    """Sum rows by segment ids, which are in range, to a pooled array."""
    result = new_array(device, (count, *rows.shape[1:]), rows.dtype)
    result[...] = 0
    _add(result, ids, rows)
    return result


# --------------------------------------------------------------------------------- sparse


def _check_rows(data: Array, indices: Array, ids: Array) -> Array:
    if indices.shape != ids.shape or indices.ndim != 1:
        raise errors.InvalidArgumentError(
            f"indices and segment_ids must be vectors of the same size, got shapes "
            f"{list(indices.shape)} and {list(ids.shape)}"
        )
    bad = (indices < 0) | (indices >= len(data))
    if bad.any():
        index = int(np.argmax(bad))
        raise errors.InvalidArgumentError(
            f"indices[{index}] = {indices[index]} is out of range [0, {len(data)})"
        )
    return data[indices]


@kernel(
    *(f"SparseSegment{kind}{tail}" for kind in ("Sum", "Mean", "SqrtN")
      for tail in ("", "WithNumSegments"))
)  # fmt: skip
def _sparse_segment(node: Node, device: Device) -> KernelFunction:
    kind = node.type[len("SparseSegment") :].removesuffix("WithNumSegments")
    dtype = node.attrs["T"]
    element = accumulation_dtype(dtype)

    def run(data: Any, indices: Any, ids: Any, num: Any = None) -> Any:
        rows = _check_rows(data, indices, ids)
        minimum = _check_sorted(ids)
        count = minimum if num is None else int(num)
        if count < minimum:
            raise errors.InvalidArgumentError(
                f"segment id {minimum - 1} is out of range [0, {count})"
            )
        result = reduce_sorted(np.add, rows, ids, count, 0, element)
        if kind != "Sum" and count:
            counts = sizes_of_segments(np, ids, count).astype(element)
            result /= reshape_per_row(counts if kind == "Mean" else np.sqrt(counts), result.ndim)
        return as_exact(result, dtype.numpy, device)

    return run


@kernel("SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad")
def _sparse_segment_grad(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]
    element, is_mean = accumulation_dtype(dtype), "Mean" in node.type

    def run(grad: Any, indices: Any, ids: Any, rows: Any) -> Any:
        if _check_sorted(ids) > len(grad):
            raise errors.InvalidArgumentError(
                f"segment ids must be less than {len(grad)}, the rows of grad, got {ids[-1]}"
            )
        counts = sizes_of_segments(np, ids, len(grad)).astype(element)
        scaled = grad.astype(element) / reshape_per_row(
            counts if is_mean else np.sqrt(counts), grad.ndim
        )
        if indices.size and (indices.min() < 0 or indices.max() >= rows):
            raise errors.InvalidArgumentError(
                f"indices must be in [0, {rows}), got {indices.min()} to {indices.max()}"
            )
        return as_exact(sum_rows(scaled[ids], indices, int(rows), device), dtype.numpy, device)

    return run
