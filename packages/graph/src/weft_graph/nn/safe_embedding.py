"""Embedding lookup of sparse ids, some of which may be invalid."""

from __future__ import annotations

__all__ = ["safe_embedding_lookup_sparse"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.nn.embedding import embedding_lookup_sparse, parts_of
from weft_graph.nn.scope import scope
from weft_graph.ops import shapes, sparse, sparse_shapes
from weft_tensor import dtypes, errors
from weft_tensor.shape import merge_dims


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: SparseTensor,
    sparse_weights: SparseTensor | None = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: float | None = None,
) -> Output:
    """Look up embeddings, ignoring invalid ids and filling empty rows.

    Negative ids are ignored. Ids with weights that are not positive are also ignored, unless the
    combiner is "sum".

    Args:
      embedding_weights, max_norm: as for `embedding_lookup`'s `params`.
      sparse_ids: int32 or int64, dense shape (N..., M); its last axis has the ids of one result.
      sparse_weights: weights with the same indices, of the type of the tables; None for ones.
      combiner: "sum", "mean" or "sqrtn", as for `embedding_lookup_sparse`.
      default_id: the id for empty rows; None for rows of zeros.
      partition_strategy: as for `embedding_lookup`.
    Returns: shape (N..., D...).
    Raises: InvalidArgumentError: the table is missing, the combiner is unknown, or the ids have an
      unknown rank or rank 1; InvalidTypeError: the weights do not have the type of the tables.

    Examples:
      >>> table = wf.constant([[1.0, 1.0], [2.0, 2.0]])
      >>> ids = wf.SparseTensor([[0, 0], [0, 1]], wf.constant([1, -1], wf.int64), [2, 2])
      >>> wf.Session().run(wf.nn.safe_embedding_lookup_sparse(table, ids))
      array([[2., 2.],
             [0., 0.]], dtype=float32)
    """
    if not isinstance(sparse_ids, SparseTensor):
        raise errors.InvalidTypeError(f"sparse_ids must be a SparseTensor, got {sparse_ids!r}")
    if embedding_weights is None:
        raise errors.InvalidArgumentError("an embedding needs at least one table, got None")
    tables = parts_of(embedding_weights)
    if sparse_weights is not None:
        _check_type(tables, sparse_weights)
    with scope(name, "embedding_lookup") as full:
        shape = sparse_ids.dense_shape
        ids, weights = _drop_negative_ids(_flatten_ids(sparse_ids), sparse_weights, combiner)
        ids, empty = sparse_shapes.sparse_fill_empty_rows(ids, default_id or 0)
        if weights is not None:
            weights, _ = sparse_shapes.sparse_fill_empty_rows(weights, 1.0)
        rows = embedding_lookup_sparse(
            embedding_weights, ids, weights, partition_strategy, None, combiner, max_norm
        )
        if default_id is None:
            rank = len(rows.dims) if rows.dims is not None else 2
            flags = shapes.reshape(empty, [-1] + [1] * (rank - 1))
            rows = out("SelectV2", [flags, out("ZerosLike", [rows]), rows])
        return _restore_batches(rows, shape, sparse_ids, full)


def _check_type(tables: Sequence[Any], weights: SparseTensor) -> None:
    for table in tables:
        dtype = convert_to_tensor(table).dtype.base_dtype
        if dtype is not weights.dtype.base_dtype:
            raise errors.InvalidTypeError(
                f"sparse_weights must have the type of the tables, {dtype.name}, got "
                f"{weights.dtype.name}"
            )


def _flatten_ids(ids: SparseTensor) -> SparseTensor:
    """Return ids with all axes except the last flattened.

    Raises: InvalidArgumentError: the rank is unknown or below 2.
    """
    (rank,) = ids.dense_shape.dims or (None,)
    if rank is None or rank < 2:
        raise errors.InvalidArgumentError(f"sparse_ids must have rank 2 or more, got {rank}")
    if rank == 2:
        return ids
    lead = out("Prod", [ids.dense_shape[:-1], [0]], {"keep_dims": True})
    return sparse_shapes.sparse_reshape(ids, out("ConcatV2", [[lead, ids.dense_shape[-1:]], 0]))


def _drop_negative_ids(
    ids: SparseTensor, weights: SparseTensor | None, combiner: str | None
) -> tuple[SparseTensor, SparseTensor | None]:
    keep_mask = out("GreaterEqual", [ids.values, 0])
    if weights is None:
        return sparse.sparse_retain(ids, keep_mask), None
    if combiner != "sum":
        keep_mask = out("LogicalAnd", [keep_mask, out("Greater", [weights.values, 0])])
    weight_tensor = ids.with_values(weights.values)
    return sparse.sparse_retain(ids, keep_mask), sparse.sparse_retain(weight_tensor, keep_mask)


def _restore_batches(rows: Output, shape: Output, ids: SparseTensor, name: str) -> Output:
    """Reshape rows to the leading axes of the ids."""
    lead = out("Cast", [shape[:-1]], {"DstT": dtypes.int32})
    full = out("ConcatV2", [[lead, shapes.shape(rows)[1:]], 0])
    result = shapes.reshape(rows, full, name=name)
    dims = ids.dims
    if dims is not None and rows.dims is not None:
        result.dims = merge_dims(result.dims, (*dims[:-1], *rows.dims[1:]))
    return result
