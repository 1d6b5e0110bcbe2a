"""Conversion of sparse tensors to dense ones, products with them, and placeholders."""

from __future__ import annotations

__all__ = [
    "sparse_placeholder",
    "sparse_reorder",
    "sparse_retain",
    "sparse_tensor_dense_matmul",
    "sparse_tensor_to_dense",
    "sparse_to_dense",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import check_inner, merge_size, vector_as_dims, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, as_dims, format_dims, merge_dims

# ------------------------------------------------------------------------------ shape rules


def _to_dense_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, shape, values, default = node.inputs
    with_rank(shape.dims, 1, "output_shape")
    if default.dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"default_value must have rank 0, got shape {format_dims(default.dims)}"
        )
    for value, limit, label in ((indices, 2, "sparse_indices"), (values, 1, "sparse_values")):
        if value.dims is not None and len(value.dims) > limit:
            raise errors.InvalidArgumentError(
                f"{label} must have rank at most {limit}, got shape {format_dims(value.dims)}"
            )
    return (constant_value_as_dims(shape),)


def _product_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, values, shape, b = node.inputs
    count, axes = with_rank(indices.dims, 2, "a_indices")
    merge_size(axes, 2, "the columns of a_indices and the axes of a matrix")
    (values_count,) = with_rank(values.dims, 1, "a_values")
    merge_size(count, values_count, "the numbers of a_indices and a_values")
    sizes = vector_as_dims(shape, "a_shape")
    a = with_rank(sizes, 2, "a_shape, as a shape,")
    dims = with_rank(b.dims, 2, "b")
    m, k = (a[1], a[0]) if node.attrs["adjoint_a"] else a
    k2, n = (dims[1], dims[0]) if node.attrs["adjoint_b"] else dims
    check_inner(k, k2, a, dims)
    return ((m, n),)


def _reorder_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, values, shape = [value.dims for value in node.inputs]
    rows, rank = with_rank(indices, 2, "input_indices")
    (count,) = with_rank(values, 1, "input_values")
    (length,) = with_rank(shape, 1, "input_shape")
    merged = merge_dims((rows, rank), (count, length))
    assert merged is not None
    return merged, merged[:1]


# ------------------------------------------------------------------------------ declarations

register_op(
    "SparseToDense",
    (
        "sparse_indices: Tindices",
        "output_shape: Tindices",
        "sparse_values: T",
        "default_value: T",
    ),
    ("dense: T",),
    {"validate_indices": "bool = true", "T": "type", "Tindices": "{int32, int64}"},
    _to_dense_shape,
)
register_op(
    "SparseReorder",
    ("input_indices: int64", "input_values: T", "input_shape: int64"),
    ("output_indices: int64", "output_values: T"),
    {"T": "type"},
    _reorder_shape,
)
register_op(
    "SparseTensorDenseMatMul",
    ("a_indices: Tindices", "a_values: T", "a_shape: int64", "b: T"),
    ("product: T",),
    {
        "T": "{inexact, integral}",
        "Tindices": "{int32, int64} = int64",
        "adjoint_a": "bool = false",
        "adjoint_b": "bool = false",
    },
    _product_shape,
    traits=Traits(
        cost=cost_rules.sparse_product,
        cost_attrs=(
            "adjoint_a",
            "adjoint_b",
        ),
    ),
)

# ---------------------------------------------------------------------------------- functions


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Output:
    """Return a tensor of `default_value` with values at indices.

    Args:
      sparse_indices: integers, shape (n, rank), or (n,) or () for vectors.
      output_shape: integers of that type, shape (rank,).
      sparse_values: any type, shape (n,), or () for the same value at all indices.
      default_value: same type, rank 0.
      validate_indices: require indices to be sorted and distinct.

    Examples:
      >>> wf.Session().run(wf.sparse_to_dense([[0, 1]], [2, 2], [5]))
      array([[0, 5],
             [0, 0]], dtype=int32)
    """
    inputs = [sparse_indices, output_shape, sparse_values, default_value]
    return out("SparseToDense", inputs, {"validate_indices": validate_indices}, name)


def sparse_tensor_to_dense(
    sp_input: Any,
    default_value: Any = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Output:
    """Convert a SparseTensor to a dense tensor; other elements are `default_value`, 0 by default.

    Args:
      sp_input: a SparseTensor.
      default_value: value of elements that are not stored.
      validate_indices: check that indices are sorted and distinct.

    Examples:
      >>> wf.Session().run(wf.sparse.to_dense(wf.SparseTensor([[1]], [5], [3])))
      array([0, 5, 0], dtype=int32)
    """
    sparse = SparseTensor.from_value(sp_input)
    if default_value is None:
        default_value = b"" if sparse.dtype.base_dtype is dtypes.string else 0
        if sparse.dtype.is_bool:
            default_value = False
    result = sparse_to_dense(
        sparse.indices, sparse.dense_shape, sparse.values, default_value, validate_indices, name
    )
    result.dims = merge_dims(result.dims, sparse.dims)
    return result


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """Return a SparseTensor of the elements of a dense tensor that are not 0, False or "".

    Args:
      tensor: any type except handles.

    Examples:
      >>> wf.Session().run(wf.sparse.from_dense([0, 5]).values)
      array([5], dtype=int32)
    """
    value = convert_to_tensor(tensor)
    with value.graph.name_scope(name or "dense_to_sparse"):
        zero = constant_of(np.zeros((), value.dtype.numpy), value.dtype)
        if value.dtype is dtypes.string:
            zero = constant_of(np.array(b"", object), value.dtype)
        indices = out("Where", [out("NotEqual", [value, zero])])
        return SparseTensor(
            indices,
            out("GatherNd", [value, indices]),
            out("Shape", [value], {"out_type": dtypes.int64}),
        )


def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Return a sparse tensor with the selected stored elements.

    Args:
      sp_input: SparseTensor with n stored elements.
      to_retain: bool, shape (n,): True for the elements to keep.
    Returns: a SparseTensor of the same dense shape.
    Raises: InvalidArgumentError: `to_retain` is known to have another number of elements.

    Examples:
      >>> diagonal = wf.SparseTensor([[0, 0], [1, 1]], [2.0, 3.0], [2, 2])
      >>> wf.Session().run(wf.sparse.retain(diagonal, [False, True])).values
      array([3.], dtype=float32)
    """
    sparse = SparseTensor.from_value(sp_input)
    flags = convert_to_tensor(to_retain, dtypes.bool_)
    merge_dims(with_rank(flags.dims, 1, "to_retain"), sparse.values.dims)
    retained = out("Reshape", [out("Where", [flags]), [-1]])
    indices = out("GatherV2", [sparse.indices, retained, 0])
    return SparseTensor(indices, out("GatherV2", [sparse.values, retained, 0]), sparse.dense_shape)


def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Sort the stored elements by index in row-major order; the sort is stable.

    Args:
      sp_input: SparseTensor of any type and rank.
    Raises (at run time): InvalidArgumentError: an index is outside of the shape.

    Examples:
      >>> x = wf.SparseTensor([[1], [0]], [5, 7], [2])
      >>> wf.Session().run(wf.sparse.reorder(x)).values
      array([7, 5], dtype=int32)
    """
    sparse = SparseTensor.from_value(sp_input)
    inputs = [sparse.indices, sparse.values, sparse.dense_shape]
    indices, values = create("SparseReorder", inputs, None, name).outputs
    return SparseTensor(indices, values, sparse.dense_shape)


def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Output:
    """Multiply a sparse matrix by a dense matrix.

    Args:
      sp_a: SparseTensor, shape (M, K).
      b: same type, shape (K, N).
      adjoint_a, adjoint_b: take the conjugate transpose of the operand.
    Returns: dense, shape (M, N).

    Examples:
      >>> diagonal = wf.SparseTensor([[0, 0], [1, 1]], [2.0, 3.0], [2, 2])
      >>> wf.Session().run(wf.sparse.matmul(diagonal, wf.ones([2, 2])))
      array([[2., 2.],
             [3., 3.]], dtype=float32)
    """
    sparse = SparseTensor.from_value(sp_a)
    inputs = [sparse.indices, sparse.values, sparse.dense_shape, b]
    return out(
        "SparseTensorDenseMatMul", inputs, {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b}, name
    )


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """Return a SparseTensor that must be fed with a SparseTensorValue.

    Args:
      dtype: element type of the values.
      shape: the dense shape: sizes, with None for unknown ones; None for any shape; or an int64
        tensor, shape (rank,). If the graph uses a fully known shape, only that shape can be fed.
    Returns: a SparseTensor of placeholders: indices, int64, shape (n, rank); values, shape (n,);
      and dense_shape, int64, shape (rank,), unless `shape` is fully known or a tensor.
    Raises: InvalidTypeError: `shape` is not a shape, or a tensor that is not int64.
    Raises (at run time): InvalidArgumentError: it is not fed, or the shape of the feed is
      incompatible.

    Examples:
      >>> x = wf.sparse.placeholder(wf.float32, [2, 3])
      >>> y = wf.sparse.matmul(x, wf.ones([3, 1]))
      >>> value = wf.SparseTensorValue(indices=[[0, 0], [1, 2]], values=[5, 7], dense_shape=[2, 3])
      >>> wf.Session().run(y, {x: value})
      array([[5.],
             [7.]], dtype=float32)
    """
    prefix = "" if name is None else f"{name}/"
    dims = None if shape is None or isinstance(shape, Output) else as_dims(shape)
    rank = None if dims is None else len(dims)
    if isinstance(shape, Output):
        dense = shape
        rank = None if shape.dims is None else shape.dims[0]
    elif dims is not None and None not in dims:
        dense = constant_of(np.array(dims, np.int64), name=f"{prefix}shape")
    else:
        dense = out("Placeholder", (), {"dtype": dtypes.int64, "shape": (rank,)}, f"{prefix}shape")
    return SparseTensor(
        values=out("Placeholder", (), {"dtype": dtype, "shape": (None,)}, f"{prefix}values"),
        indices=out(
            "Placeholder", (), {"dtype": dtypes.int64, "shape": (None, rank)}, f"{prefix}indices"
        ),
        dense_shape=dense,
    )
