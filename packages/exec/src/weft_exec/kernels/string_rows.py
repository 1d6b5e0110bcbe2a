"""Kernels that join strings by row or segment."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.strings import bytes_of, items_of, strings_of
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]


@kernel("UnsortedSegmentJoin")
def _segment_join(node: Node, device: Device) -> KernelFunction:
    separator = bytes_of(node.attrs["separator"])

    def run(data: Any, ids: Any, count: Any) -> Any:
        rank, size = np.ndim(ids), int(count)
        shape = np.shape(data)
        if not rank or shape[:rank] != ids.shape or size < 0:
            raise errors.InvalidArgumentError(
                "the shape of segment_ids must be a prefix of that of inputs, of rank at least 1, "
                f"and num_segments must not be negative; got {format_dims(np.shape(ids))} for "
                f"inputs of shape {format_dims(shape)}, and {size}"
            )
        flat = ids.reshape(-1)
        if flat.size and not (flat.min() >= 0 and flat.max() < size):
            raise errors.InvalidArgumentError(
                f"segment ids must be in [0, {size}), got {flat.min()} to {flat.max()}"
            )
        remaining = shape[rank:]
        rows = data.reshape(flat.size, math.prod(remaining))
        order = np.argsort(flat, kind="stable")
        ends = np.cumsum(np.bincount(flat, minlength=size))
        parts = np.split(rows[order], ends[:-1]) if size else []
        joined = [separator.join(column) for part in parts for column in part.T.tolist()]
        return strings_of(joined, (size, *remaining))

    return run


@kernel("StringNGrams")
def _ngrams(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    separator, left, right = (
        bytes_of(attrs[name]) for name in ("separator", "left_pad", "right_pad")
    )
    widths, padding = attrs["ngram_widths"], attrs["pad_width"]
    keeps_short: bool = attrs["preserve_short_sequences"]

    def of_row(row: list[bytes]) -> list[bytes]:
        result: list[bytes] = []
        for width in widths:
            limit = width - 1 if padding < 0 else min(padding, width - 1)
            padded = [left] * limit + row + [right] * limit
            starts = range(len(padded) - width + 1)
            result += [separator.join(padded[i : i + width]) for i in starts]
        if row and not result and keeps_short:
            limit = max(padding, 0)
            result.append(separator.join([left] * limit + row + [right] * limit))
        return result

    def run(data: Any, splits: Any) -> Any:
        check_splits(splits, data.size)
        bounds, items = splits.tolist(), items_of(data)
        rows = [of_row(items[i:j]) for i, j in itertools.pairwise(bounds)]
        ends = np.cumsum([0, *map(len, rows)]).astype(splits.dtype)
        flat = [item for row in rows for item in row]
        return strings_of(flat, (len(flat),)), ends[: max(1, len(bounds))]

    return run


def check_splits(splits: Any, size: int) -> None:
    """Check that splits divide values into rows.

    Raises: InvalidArgumentError: the splits do not begin with 0, decrease, or do not end with
      `size`.
    """
    bounds = np.asarray(splits)
    if bounds.ndim != 1:
        raise errors.InvalidArgumentError(
            f"splits must have rank 1, got shape {format_dims(bounds.shape)}"
        )
    if not len(bounds) or bounds[0] or bounds[-1] != size or (np.diff(bounds) < 0).any():
        raise errors.InvalidArgumentError(
            f"splits must ascend from 0 to the number of values, {size}, got {bounds.tolist()[:20]}"
        )
