"""Ragged constants from nested Python lists, and ragged placeholders."""

from __future__ import annotations

__all__ = ["constant", "constant_value", "placeholder"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant as plain_constant
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ops import array
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor
from weft_graph.ragged.value import RaggedTensorValue, value_of
from weft_tensor import dtypes, errors
from weft_tensor.nesting import too_deep_error
from weft_tensor.shape import as_dims, format_dims
from weft_tensor.values import to_array


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> Any:
    """Return a constant RaggedTensor from nested lists.

    Args:
      pylist: nested lists, tuples or arrays; all leaves must have the same depth.
      dtype: element type; inferred from the leaves by default.
      ragged_rank: number of ragged axes; by default all axes except the first and those of
        `inner_shape`.
      inner_shape: shape of each flat value; by default the axes that are not ragged.
      name: name scope of the constants.
      row_splits_dtype: int32 or int64.
    Returns: a RaggedTensor, or a Tensor if no axis is ragged.
    Raises: InvalidArgumentError: depths differ, or do not match `ragged_rank` or `inner_shape`.

    Examples:
      >>> wf.Session().run(wf.ragged.constant([[1, 2], [3]])).to_list()
      [[1, 2], [3]]
      >>> wf.ragged.constant([[[1, 2], [3, 4]], [[5, 6]]], ragged_rank=1).shape
      TensorShape([Dimension(2), Dimension(None), Dimension(2)])
    """
    with get_default_graph().name_scope(name or "RaggedConstant"):
        value = constant_value(pylist, dtype, ragged_rank, inner_shape, row_splits_dtype)
        element_type = None if dtype is None else dtypes.as_dtype(dtype)
        if not isinstance(value, RaggedTensorValue):
            return plain_constant(value, element_type)
        ragged_value: Any = plain_constant(value.flat_values, element_type, name="values")
        for splits in reversed(value.nested_row_splits):
            ragged_value = RaggedTensor(
                ragged_value, Rows(plain_constant(splits, name="row_splits"))
            )
        return ragged_value


def constant_value(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """Return a RaggedTensorValue from nested lists, like `constant` without a graph.

    Args:
      pylist, dtype, ragged_rank, inner_shape, row_splits_dtype: as in `constant`.
    Returns: a RaggedTensorValue, or an array if no axis is ragged.
    Raises: InvalidArgumentError: depths differ, or do not match `ragged_rank` or `inner_shape`.

    Examples:
      >>> wf.ragged.constant_value([[1, 2], []]).row_splits
      array([0, 2, 2])
    """
    splits_type = dtypes.as_dtype(row_splits_dtype)
    if splits_type not in (dtypes.int32, dtypes.int64):
        raise errors.InvalidTypeError(
            f"row_splits_dtype must be int32 or int64, got {splits_type.name}"
        )
    element_type = None if dtype is None else dtypes.as_dtype(dtype)
    inner = None if inner_shape is None else as_dims(inner_shape)
    if inner_shape is not None and (inner is None or None in inner):
        raise errors.InvalidArgumentError(f"inner_shape must be known, got {inner_shape!r}")
    if not isinstance(pylist, list | tuple | np.ndarray):
        return _rank_0(pylist, element_type, ragged_rank, inner)
    depth, limit = _depths(pylist)
    if depth is not None and limit > depth:
        raise errors.InvalidArgumentError(
            f"the leaves of a ragged constant must be of one depth, got depths {depth} and {limit}"
        )
    rank = _infer_ragged_rank(
        depth if depth is not None else limit, ragged_rank, inner, depth is None
    )
    rows, splits = _rows(pylist, rank)
    if inner is None:
        inner = _inner_shape(rows)
    flat = _flat(rows, element_type, tuple([size or 0 for size in inner]), pylist)
    if not rank:
        return flat
    return value_of(flat, [np.array(level_splits, splits_type.numpy) for level_splits in splits])


def _rank_0(value: Any, dtype: Any, ragged_rank: int | None, inner: Any) -> Any:
    if ragged_rank:
        raise errors.InvalidArgumentError(
            f"a value of rank 0 cannot have ragged_rank {ragged_rank}: {value!r}"
        )
    if inner:
        raise errors.InvalidArgumentError(
            f"a value of rank 0 cannot have inner_shape {format_dims(inner)}: {value!r}"
        )
    return to_array(value, dtype)


def _depths(value: Any) -> tuple[int | None, int]:
    """Return the depth of leaves (None if there are none), and the largest depth of lists.

    Raises: InvalidArgumentError: leaves have different depths.
    """
    if isinstance(value, np.ndarray):
        return (value.ndim if value.size else None), value.ndim
    if not isinstance(value, list | tuple):
        return 0, 0
    leaf: int | None = None
    limit = 0
    try:
        for item in value:
            depth, levels = _depths(item)
            limit = max(limit, levels)
            if depth is not None:
                if leaf is not None and depth != leaf:
                    raise errors.InvalidArgumentError(
                        "the leaves of a ragged constant must be of one depth, got depths "
                        f"{leaf + 1} and {depth + 1}"
                    )
                leaf = depth
    except RecursionError:
        raise too_deep_error(value) from None
    return (None if leaf is None else leaf + 1), limit + 1


def _infer_ragged_rank(depth: int, ragged_rank: int | None, inner: Any, empty: bool) -> int:
    """Return the number of ragged axes from the depth of the leaves."""
    room = depth - 1
    if ragged_rank is not None and ragged_rank < 0:
        raise errors.InvalidArgumentError(f"ragged_rank must not be negative, got {ragged_rank}")
    if inner is not None:
        fits = room - len(inner)
        if ragged_rank is None:
            if fits < 0:
                if empty:
                    return max(fits, 0)
                raise errors.InvalidArgumentError(
                    f"inner_shape {format_dims(inner)} does not fit lists of depth {depth}"
                )
            return fits
        if ragged_rank != fits and not (empty and ragged_rank >= fits):
            raise errors.InvalidArgumentError(
                f"ragged_rank {ragged_rank} and inner_shape {format_dims(inner)} do not fit "
                "lists of "
                f"depth {depth}"
            )
        return ragged_rank
    if ragged_rank is None:
        return max(room, 0)
    if ragged_rank > room and not empty:
        raise errors.InvalidArgumentError(
            f"ragged_rank must be less than the depth of the lists, {depth}, got {ragged_rank}"
        )
    return ragged_rank


def _rows(pylist: Any, rank: int) -> tuple[list[Any], list[list[int]]]:
    """Return the items inside `rank` levels of lists, and the row splits of the levels."""
    rows: list[Any] = list(pylist)
    splits = []
    for _ in range(rank):
        ends = [0]
        inner: list[Any] = []
        for row in rows:
            inner.extend(row)
            ends.append(len(inner))
        splits.append(ends)
        rows = inner
    return rows, splits


def _inner_shape(rows: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of flat values, from the first one."""
    shape = []
    value: Any = rows[0] if rows else None
    while isinstance(value, list | tuple | np.ndarray) and np.ndim(value) != 0:
        shape.append(len(value))
        value = value[0] if len(value) else None
    return tuple(shape)


def _flat(rows: list[Any], dtype: Any, inner: tuple[int, ...], pylist: Any) -> np.ndarray[Any, Any]:
    if not rows:
        element = np.dtype(np.float32) if dtype is None else dtype.numpy
        kinds = getattr(pylist, "dtype", None)
        return np.zeros((0, *inner), element if kinds is None or dtype is not None else kinds)
    try:
        flat = to_array(rows, dtype)
    except errors.OpError as error:
        raise errors.InvalidArgumentError(
            f"the inner values of a ragged constant must have the same shape: {error.message}"
        ) from error
    if flat.shape[1:] != inner:
        raise errors.InvalidArgumentError(
            f"inner values must have the shape {format_dims(inner)}, got "
            f"{format_dims(flat.shape[1:])}"
        )
    return flat


def placeholder(
    dtype: Any, ragged_rank: int, value_shape: Any = None, name: str | None = None
) -> Any:
    """Return a RaggedTensor to be fed with a RaggedTensorValue or nested lists.

    Args:
      dtype: element type.
      ragged_rank: number of ragged axes; 0 returns an ordinary placeholder.
      value_shape: shape of flat values, `()` for scalars; unknown by default.
      name: name scope of the placeholders.
    Raises: InvalidArgumentError: `ragged_rank` is negative.

    Examples:
      >>> x = wf.ragged.placeholder(wf.int32, 1, [])
      >>> wf.Session().run(wf.reduce_sum(x, axis=1), {x: [[1, 2], [], [3]]})
      array([3, 0, 3], dtype=int32)
    """
    if not isinstance(ragged_rank, int) or ragged_rank < 0:
        raise errors.InvalidArgumentError(f"ragged_rank must be at least 0, got {ragged_rank!r}")
    inner = None if value_shape is None else as_dims(value_shape)
    dims = None if inner is None else (None, *inner)
    if not ragged_rank:
        return array.placeholder(dtype, inner if value_shape is not None else None, name)
    with get_default_graph().name_scope(name or "RaggedPlaceholder"):
        ragged_value: Any = array.placeholder(dtype, dims, "flat_values")
        for level in range(ragged_rank, 0, -1):
            splits = array.placeholder(dtypes.int64, [None], f"row_splits_{level - 1}")
            ragged_value = RaggedTensor(ragged_value, Rows(splits))
        return ragged_value


makers.register("constant_value", constant_value)
