"""Ops that serialize sparse tensors, each to three serialized tensors."""

from __future__ import annotations

__all__ = ["deserialize_many_sparse", "serialize_many_sparse", "serialize_sparse"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import merge_size, with_rank, with_rank_at_least
from weft_graph.ops.sparse_rules import form_at
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import Dims

_SPARSE = ("sparse_indices: int64", "sparse_values: T", "sparse_shape: int64")
_RESULT = ("sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64")
_WRITTEN = {"T": "type", "out_type": "{string, variant} = string"}


def _serialize_shape(node: NodeSpec) -> Sequence[Dims]:
    form_at(node, 0, "sparse_")
    return ((3,),)


def _serialize_many_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node, 0, "sparse_")
    if form.rank == 0:
        raise errors.InvalidArgumentError("a sparse tensor of rank 0 has no rows")
    return ((form.dims[0] if form.dims else None, 3),)


def _read_many_shape(node: NodeSpec) -> Sequence[Dims]:
    _, parts = with_rank(node.inputs[0].dims, 2, "serialized_sparse")
    merge_size(parts, 3, "the parts of serialized_sparse, and 3,")
    return (None, None), (None,), (None,)


def _read_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = with_rank_at_least(node.inputs[0].dims, 1, "serialized_sparse")
    if dims:
        merge_size(dims[-1], 3, "the parts of serialized_sparse, and 3,")
    return (None, None), (None,), (None,)


register_op(
    "SerializeSparse",
    _SPARSE,
    ("serialized_sparse: out_type",),
    _WRITTEN,
    _serialize_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Indices, values and shape, each serialized.",
)
register_op(
    "SerializeManySparse",
    _SPARSE,
    ("serialized_sparse: out_type",),
    _WRITTEN,
    _serialize_many_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Each row of a sparse tensor, serialized as a sparse tensor of its own.",
)
register_op(
    "DeserializeManySparse",
    ("serialized_sparse: string",),
    _RESULT,
    {"dtype": "type"},
    _read_many_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Serialized sparse tensors as the rows of one.",
)
register_op(
    "DeserializeSparse",
    ("serialized_sparse: Tserialized",),
    _RESULT,
    {"dtype": "type", "Tserialized": "{string, variant} = string"},
    _read_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Serialized sparse tensors of any batch shape as one.",
)


def _write(op: str, sp_input: Any, name: str | None, out_type: Any) -> Output:
    sparse = SparseTensor.from_value(sp_input)
    inputs = [sparse.indices, sparse.values, sparse.dense_shape]
    return out(op, inputs, {"out_type": dtypes.as_dtype(out_type)}, name)


def serialize_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Output:
    """Serialize a sparse tensor to three strings: indices, values and shape.

    Args:
      sp_input: SparseTensor of any type except resources and variants.
      out_type: string; or variant, which is valid only in this process.
    Returns: shape (3,).

    Examples:
      >>> text = wf.serialize_sparse(wf.SparseTensor([[1]], [5], [3]))
      >>> wf.Session().run(wf.deserialize_many_sparse([text], wf.int32, rank=1)).values
      array([5], dtype=int32)
    """
    return _write("SerializeSparse", sp_input, name, out_type)


def serialize_many_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Output:
    """Serialize each row of a sparse tensor to three strings; see `serialize_sparse`.

    Args:
      sp_input: SparseTensor of rank 1 or more, of N rows.
      out_type: as for `serialize_sparse`.
    Returns: shape (N, 3).
    Raises: InvalidArgumentError: the rank is 0.

    Examples:
      >>> x = wf.SparseTensor([[0, 1], [1, 0]], [5, 7], [2, 3])
      >>> text = wf.serialize_many_sparse(x)
      >>> wf.Session().run(wf.deserialize_many_sparse(text, wf.int32)).indices
      array([[0, 1],
             [1, 0]])
    """
    return _write("SerializeManySparse", sp_input, name, out_type)


def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Deserialize results of `serialize_sparse` or `serialize_many_sparse` to one sparse tensor.

    Args:
      serialized_sparse: string, shape (N, 3).
      dtype: element type of the values.
      rank: rank of each row, if it is known.
    Returns: shape (N, M...), where each size of M is the largest one.
    Raises (when it runs): InvalidArgumentError: a string is not a serialized tensor, or ranks
      differ.

    Examples:
      >>> rows = [wf.serialize_sparse(wf.SparseTensor([[i]], [i], [i + 1])) for i in range(2)]
      >>> wf.Session().run(wf.deserialize_many_sparse(wf.stack(rows), wf.int32)).dense_shape
      array([2, 2])
    """
    indices, values, shape = create(
        "DeserializeManySparse", [serialized_sparse], {"dtype": dtypes.as_dtype(dtype)}, name
    ).outputs
    if rank is not None:
        static_rank = check_integer(rank, "rank", 0)
        indices.set_shape([None, static_rank + 1])
        shape.set_shape([static_rank + 1])
    return SparseTensor(indices, values, shape)
