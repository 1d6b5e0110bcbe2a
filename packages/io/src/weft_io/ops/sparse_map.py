"""Ops that store sparse tensors in a map, so that queues can carry their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WRITES
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_tensor.shape import Dims

_RESOURCE_ATTRS = {"container": "string = ''", "shared_name": "string = ''"}
_SPARSE = ("sparse_indices: int64", "sparse_values: T", "sparse_shape: int64")


def _check_sparse(node: NodeSpec) -> None:
    rows, rank = with_rank(node.inputs[0].dims, 2, "sparse_indices")
    (count,) = with_rank(node.inputs[1].dims, 1, "sparse_values")
    (length,) = with_rank(node.inputs[2].dims, 1, "sparse_shape")
    merge_size(rows, count, "the number of indices and of values")
    merge_size(rank, length, "the length of an index and of the shape")


def _add_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_sparse(node)
    return ((),)


def _add_many_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_sparse(node)
    return ((None,),)


def _take_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 1, "sparse_handles")
    return ((None, None), (None,), (None,))


register_op(
    "AddSparseToTensorsMap",
    _SPARSE,
    ("sparse_handle: int64",),
    {"T": "type", **_RESOURCE_ATTRS},
    _add_shape,
    traits=WRITES,
    doc="Keep a sparse tensor aside, under the number that is returned.",
)
register_op(
    "AddManySparseToTensorsMap",
    _SPARSE,
    ("sparse_handles: int64",),
    {"T": "type", **_RESOURCE_ATTRS},
    _add_many_shape,
    traits=WRITES,
    doc="Keep the rows of a sparse tensor aside, each under a number.",
)
register_op(
    "TakeManySparseFromTensorsMap",
    ("sparse_handles: int64",),
    ("sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64"),
    {"dtype": "type", **_RESOURCE_ATTRS},
    _take_shape,
    traits=WRITES,
    doc="The sparse tensors under several numbers as one, with a first axis added.",
)


def add_sparse_to_tensors_map(
    sp_input: SparseTensor,
    container: str = "",
    shared_name: str = "",
    name: str | None = None,
    *,
    rows: bool = False,
) -> Output:
    """Store a sparse tensor in a map.

    Args:
      sp_input: any type, shape S.
      container, shared_name: container and shared name of the map; the node's name by default.
      rows: store each row separately.
    Returns: its key, int64, shape (); with `rows`, the keys of all rows, shape (S[0],).
    """
    parts = [sp_input.indices, sp_input.values, sp_input.dense_shape]
    op = "AddManySparseToTensorsMap" if rows else "AddSparseToTensorsMap"
    return out(op, parts, {"container": container, "shared_name": shared_name}, name)


def take_many_sparse_from_tensors_map(
    sparse_map_op: Any,
    sparse_handles: Any,
    dtype: Any,
    rank: int | None = None,
    name: str | None = None,
) -> SparseTensor:
    """Remove sparse tensors from the map that stores them, and stack them.

    Args:
      sparse_map_op: a node that stores tensors in that map.
      sparse_handles: int64, shape (n,): keys of the tensors.
      dtype: element type of the values.
      rank: rank of each tensor, if it is known.
    Returns: a sparse tensor of shape (n, M), where each size of M is the largest one.
    Raises (when it runs): InvalidArgumentError: a key is unknown, or ranks or types differ.
    """
    attrs = {
        "dtype": dtype,
        "container": sparse_map_op.get_attr("container").decode(),
        "shared_name": sparse_map_op.get_attr("shared_name").decode() or sparse_map_op.name,
    }
    indices, values, shape = create(
        "TakeManySparseFromTensorsMap", [sparse_handles], attrs, name
    ).outputs
    if rank is not None:
        indices.set_shape([None, rank + 1])
        shape.set_shape([rank + 1])
    return SparseTensor(indices, values, shape)
