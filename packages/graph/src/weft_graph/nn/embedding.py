"""Lookup of rows of embedding tables by id."""

from __future__ import annotations

__all__ = ["embedding_lookup", "embedding_lookup_sparse"]

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import casting, gather, reduction, segments, shapes
from weft_tensor import dtypes, errors
from weft_tensor.shape import merge_dims


def parts_of(params: Any) -> list[Any]:
    """Return the parts of a table.

    Raises: InvalidArgumentError: the table has no parts.
    """
    split = getattr(params, "_get_variable_list", None)
    parts = split() if split is not None else params
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    if not parts:
        raise errors.InvalidArgumentError("an embedding needs at least one table, got none")
    return parts


def _colocate_with(table: Any) -> AbstractContextManager[Any]:
    """Return the scope that colocates nodes with a variable, so that only rows are transferred."""
    if isinstance(table, Output) or not hasattr(table, "op"):
        return nullcontext()
    return get_default_graph().colocate_with(table.op)


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: float | None = None,
) -> Output:
    """Look up rows of a table, or of a partitioned table, by id.

    Args:
      params: one table of shape (V, D...), or a list of P of them that share D.
      ids: int32 or int64, any shape I.
      partition_strategy: "mod": row i is row i // P of part i mod P; "div": each part has
        consecutive rows; if P does not divide V, the first parts have one row more.
      validate_indices: accepted; ids are always checked.
      max_norm: rows with a larger norm are scaled down to it.
    Returns: shape (I, D...).
    Raises: InvalidArgumentError: the table is missing, or the strategy is unknown; at run time, an
      id is out of range.

    Examples:
      >>> wf.Session().run(wf.nn.embedding_lookup([[0.0, 0.1], [1.0, 1.1]], [1, 0]))
      array([1., 0.], dtype=float32)
    """
    if isinstance(ids, AppliesOps):
        embedded: Output = ids.map_elements(
            lambda flat: embedding_lookup(
                params, flat, partition_strategy, name, validate_indices, max_norm
            )
        )
        return embedded
    parts = parts_of(params)
    with scope(name, "embedding_lookup") as full:
        ids = convert_to_tensor(ids)
        if len(parts) == 1:
            with _colocate_with(parts[0]):
                if max_norm is None:
                    return gather.gather(parts[0], ids, name=full)
                rows = _clip_rows(gather.gather(parts[0], ids), ids, max_norm)
                return out("Identity", [rows], name=full)
        return _lookup_parts(parts, ids, partition_strategy, max_norm, full)


def _lookup_parts(
    parts: Sequence[Any], ids: Output, strategy: str, max_norm: float | None, name: str
) -> Output:
    flat = shapes.reshape(ids, [-1])
    positions = out("Range", [0, shapes.size(flat), 1])
    owner, local = _assign_partitions(parts, flat, strategy)
    count = len(parts)
    per_part = gather.dynamic_partition(local, casting.cast(owner, dtypes.int32), count)
    indices_by_shard = gather.dynamic_partition(positions, casting.cast(owner, dtypes.int32), count)
    rows = []
    for part, part_ids in zip(parts, per_part, strict=True):
        with _colocate_with(part):
            rows.append(_clip_rows(gather.gather(part, part_ids), part_ids, max_norm))
    stitched = gather.dynamic_stitch(indices_by_shard, rows)
    inner = None
    for part in parts:
        dims = convert_to_tensor(part).dims
        inner = merge_dims(inner, None if dims is None else dims[1:])
    if inner is not None and None not in inner and ids.dims is not None and None not in ids.dims:
        return shapes.reshape(stitched, [*ids.dims, *inner], name=name)
    shape = out("ConcatV2", [[shapes.shape(ids), shapes.shape(stitched)[1:]], 0])
    result = shapes.reshape(stitched, shape, name=name)
    if inner is not None and ids.dims is not None:
        result.dims = merge_dims(result.dims, (*ids.dims, *inner))
    return result


def _assign_partitions(parts: Sequence[Any], ids: Output, strategy: str) -> tuple[Output, Output]:
    """Return the partition and the row of each id."""
    count = len(parts)
    if strategy == "mod":
        return ids % count, ids // count
    if strategy != "div":
        raise errors.InvalidArgumentError(
            f"partition_strategy must be 'mod' or 'div', got {strategy!r}"
        )
    total = _total_rows(parts, ids)
    if isinstance(total, int):
        per_part: Any = total // count
        extra: Any = total % count
    else:
        per_part, extra = total // count, total % count
    longer = ids // (per_part + 1)
    if isinstance(per_part, int) and per_part == 0:
        return longer, ids % 1
    owner = out("Maximum", [longer, (ids - extra) // per_part])
    first = out("Less", [owner, extra])
    local = out("SelectV2", [first, ids % (per_part + 1), (ids - extra) % per_part])
    return owner, local


def _total_rows(parts: Sequence[Any], ids: Output) -> Any:
    tables = [convert_to_tensor(part) for part in parts]
    sizes = [None if table.dims is None else table.dims[0] for table in tables]
    static_sizes = [size for size in sizes if size is not None]
    if len(static_sizes) == len(sizes):
        return sum(static_sizes)
    rows = [shapes.shape(table)[0] for table in tables]
    return casting.cast(out("AddN", [rows]), ids.dtype)


def _clip_rows(rows: Output, ids: Output, max_norm: float | None) -> Output:
    if max_norm is None:
        return rows
    lead = None if ids.dims is None else len(ids.dims)
    rank = None if rows.dims is None else len(rows.dims)
    if lead is None or rank is None:
        raise errors.InvalidArgumentError("max_norm requires ids and tables of known rank")
    axes = list(range(lead, rank))
    norms = out("Sqrt", [reduction.reduce_sum(out("Square", [rows]), axes, keepdims=True)])
    longest = out("Maximum", [norms, max_norm])
    return out("RealDiv", [out("Mul", [rows, max_norm]), longest])


def embedding_lookup_sparse(
    params: Any,
    sp_ids: SparseTensor,
    sp_weights: SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
) -> Output:
    """Return sums or means of table rows, one per row of a sparse matrix of ids.

    Args:
      params, partition_strategy, max_norm: as for `embedding_lookup`.
      sp_ids: int32 or int64, dense shape (N, M); row i has the ids of result i.
      sp_weights: floating weights with the same indices, or None for ones.
      combiner: "sum", "mean" (the default; divides by the sum of weights) or "sqrtn" (divides by
        the root of the sum of squared weights).
    Returns: shape (N, D...); rows without ids are zeros.
    Raises: InvalidArgumentError: the combiner is unknown, or the weights are invalid.

    Examples:
      >>> table = wf.constant([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
      >>> ids = wf.SparseTensor([[0, 0], [0, 1], [1, 0]], wf.constant([0, 1, 2], wf.int64), [2, 2])
      >>> wf.Session().run(wf.nn.embedding_lookup_sparse(table, ids, None, combiner="sum"))
      array([[3., 3.],
             [4., 4.]], dtype=float32)
    """
    if combiner is None:
        warnings.warn(
            'the default combiner will change from "mean" to "sqrtn"; pass combiner', stacklevel=2
        )
        combiner = "mean"
    if combiner not in ("sum", "mean", "sqrtn"):
        raise errors.InvalidArgumentError(
            f"combiner must be 'mean', 'sqrtn' or 'sum', got {combiner!r}"
        )
    if not isinstance(sp_ids, SparseTensor):
        raise errors.InvalidTypeError(f"sp_ids must be a SparseTensor, got {sp_ids!r}")
    if sp_weights is not None and not isinstance(sp_weights, SparseTensor):
        raise errors.InvalidTypeError(f"sp_weights must be a SparseTensor, got {sp_weights!r}")
    with scope(name, "embedding_lookup_sparse") as full:
        rows = casting.cast(sp_ids.indices[:, 0], dtypes.int32)
        ids, positions = create("Unique", [sp_ids.values], {"out_idx": dtypes.int32}).outputs
        table = embedding_lookup(params, ids, partition_strategy, max_norm=max_norm)
        if sp_weights is not None:
            return _combine_weighted(table, positions, rows, sp_weights.values, combiner, full)
        combine = {
            "sum": segments.sparse_segment_sum,
            "mean": segments.sparse_segment_mean,
            "sqrtn": segments.sparse_segment_sqrt_n,
        }[combiner]
        return combine(table, positions, rows, name=full)


def _combine_weighted(
    table: Output, output: Output, rows: Output, weights: Output, combiner: str, name: str
) -> Output:
    embeddings = gather.gather(table, output)
    weights = casting.cast(weights, embeddings.dtype)
    rank = 2 if embeddings.dims is None else len(embeddings.dims)
    column = shapes.reshape(weights, [-1] + [1] * (rank - 1))
    products = out("Mul", [embeddings, column])
    sums = out("SegmentSum", [products, rows], name=name if combiner == "sum" else None)
    if combiner == "sum":
        return sums
    if combiner == "mean":
        scale = out("SegmentSum", [column, rows])
    else:
        scale = out("Sqrt", [out("SegmentSum", [out("Square", [column]), rows])])
    return out("RealDiv", [sums, scale], name=name)
