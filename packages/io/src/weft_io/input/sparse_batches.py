"""Tensors in queues: sparse tensors are stored in a map under numbers, and dropped rows removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir.indexed_slices import SparseTensor, convert_to_tensor_or_sparse_tensor
from weft_graph.ir.node import Node, Output
from weft_graph.ops import array, casting, gather, join, masks, reduction, shapes
from weft_io.ops.sparse_map import add_sparse_to_tensors_map, take_many_sparse_from_tensors_map
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

Tensor = Output | SparseTensor


class SparseInfo(NamedTuple):
    """The information to restore a sparse tensor from its number in the map."""

    map_op: Node
    dtype: DType
    rank: int | None


def convert_example(tensors: Sequence[Any]) -> list[Tensor]:
    """Convert the components of one example to tensors, leaving sparse tensors unchanged."""
    return [convert_to_tensor_or_sparse_tensor(tensor) for tensor in tensors]


def as_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Convert one example to a batch of one."""
    return [
        _sparse_row(t) if isinstance(t, SparseTensor) else shapes.expand_dims(t, 0) for t in tensors
    ]


def _sparse_row(tensor: SparseTensor) -> SparseTensor:
    count = shapes.shape(tensor.indices, out_type=dtypes.int64)[:1]
    zeros = array.fill(join.concat([count, [1]], 0), array.zeros([], dtypes.int64))
    row_count = array.ones([1], dtypes.int64)
    return SparseTensor(
        join.concat([zeros, tensor.indices], 1),
        tensor.values,
        join.concat([row_count, tensor.dense_shape], 0),
    )


def select_rows(tensors: Sequence[Tensor], keep: Output) -> list[Tensor]:
    """Select rows of a batch by a mask.

    Args:
      keep: bool: shape () for all rows, or one element per row.
    """
    if keep.shape.ndims == 0:
        keep = array.fill(_row_count(tensors[0]), keep)
    return [
        _select_sparse(t, keep) if isinstance(t, SparseTensor) else masks.boolean_mask(t, keep)
        for t in tensors
    ]


def _row_count(tensor: Tensor) -> Output:
    """Return the number of rows: int64, shape (1,)."""
    if isinstance(tensor, SparseTensor):
        return tensor.dense_shape[:1]
    return shapes.shape(tensor, out_type=dtypes.int64)[:1]


def _select_sparse(tensor: SparseTensor, keep: Output) -> SparseTensor:
    rows = tensor.indices[:, 0]
    rows.set_shape([None])  # independent of the static shape of the indices
    selected = gather.gather(keep, rows)
    numbers = reduction.cumsum(casting.cast(keep, dtypes.int64))
    row = gather.gather(numbers, masks.boolean_mask(rows, selected)) - 1
    remaining = masks.boolean_mask(tensor.indices, selected)[:, 1:]
    count = shapes.reshape(numbers[-1:], [-1])
    total = join.concat([count, array.zeros([1], dtypes.int64)], 0)[:1]
    return SparseTensor(
        join.concat([shapes.expand_dims(row, 1), remaining], 1),
        masks.boolean_mask(tensor.values, selected),
        join.concat([total, tensor.dense_shape[1:]], 0),
    )


def store_sparse(
    tensors: Sequence[Tensor], rows: bool, shared: Sequence[SparseInfo | None] | None = None
) -> tuple[list[Output], list[SparseInfo | None]]:
    """Replace each sparse tensor by its number in the map, or with `rows` by a number per row.

    Args:
      shared: infos of the sources whose numbers go to the same queue.
    Returns: the components, and the info to restore each of them.
    """
    components: list[Output] = []
    infos: list[SparseInfo | None] = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, SparseTensor):
            components.append(tensor)
            infos.append(None)
            continue
        first = None if shared is None else shared[i]
        name = "" if first is None else first.map_op.name
        number = add_sparse_to_tensors_map(tensor, shared_name=name, rows=rows)
        rank = tensor.shape.ndims
        inner = None if rank is None else rank - rows
        components.append(number)
        infos.append(SparseInfo(first.map_op if first else number.op, tensor.dtype, inner))
    return components, infos


def restore_sparse(components: Any, infos: Sequence[SparseInfo | None]) -> Any:
    """Restore the sparse tensors of a dequeued batch from their numbers."""
    single = not isinstance(components, list)
    batch = [
        component
        if info is None
        else take_many_sparse_from_tensors_map(info.map_op, component, info.dtype, info.rank)
        for component, info in zip([components] if single else components, infos, strict=True)
    ]
    return batch[0] if single else batch
