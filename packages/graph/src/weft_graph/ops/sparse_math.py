"""Elementwise arithmetic and reductions of sparse tensors."""

from __future__ import annotations

__all__ = [
    "sparse_add",
    "sparse_maximum",
    "sparse_minimum",
    "sparse_reduce_max",
    "sparse_reduce_max_sparse",
    "sparse_reduce_sum",
    "sparse_reduce_sum_sparse",
    "sparse_softmax",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.indexed_slices import SparseTensor, is_sparse
from weft_graph.ir.node import Output, implementations
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.division import TRUE_QUOTIENT
from weft_graph.ops.shape_rules import merge_size, with_rank
from weft_graph.ops.shapes import deprecated_argument
from weft_graph.ops.sparse_rules import Form, axes_of, form_at, same_shape_forms, value_from
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

_NUMBERS = "{inexact, integral}"
_REALS = "{realnumbertype}"
_A = ("a_indices: int64", "a_values: T", "a_shape: int64")
_B = ("b_indices: int64", "b_values: T", "b_shape: int64")
_ONE_PER_ELEMENT = Traits(cost=cost_rules.per_input(1))

# ------------------------------------------------------------------------------ shape rules


def _sum_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[6].dims, 0, "thresh")
    a, _ = same_shape_forms(node)
    return (None, a.rank), (None,), (a.rank,)


def _sum_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    grad, a, b, total = [value.dims for value in node.inputs]
    (count,) = with_rank(grad, 1, "backprop_val_grad")
    tables = [with_rank(table, 2, "indices") for table in (a, b, total)]
    merge_size(count, tables[2][0], "the numbers of backprop_val_grad and sum_indices")
    for table in tables[1:]:
        merge_size(tables[0][1], table[1], "the axes of indices")
    return tables[0][:1], tables[1][:1]


def _dense_sum_shape(node: NodeSpec) -> Sequence[Dims]:
    a = form_at(node, 0, "a_")
    return (merge_dims(node.inputs[3].dims, a.dims),)


def _with_dense_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node, 0, "sp_")
    _check_spreads(node.inputs[3].dims, form)
    return ((form.count,),)


def _check_spreads(dense: Dims, form: Form) -> None:
    """Raise InvalidArgumentError unless a dense shape broadcasts to that of the sparse operand."""
    if dense is None or form.rank is None:
        return
    dims = form.dims or (None,) * form.rank
    pairs = zip(reversed(dense), reversed(dims), strict=False)
    if len(dense) > form.rank or any(
        n is not None and m is not None and n not in (1, m) for n, m in pairs
    ):
        raise errors.InvalidArgumentError(
            "the dense operand must broadcast to the shape of the sparse one, got shapes "
            f"{format_dims(dense)} and {format_dims(dims)}"
        )


def _reduced_dims(node: NodeSpec) -> Dims:
    form = form_at(node, 0, "input_")
    axes = axes_of(node.inputs[3], form.rank)
    if form.rank is None:
        return None
    dims = form.dims or (None,) * form.rank
    keep = node.attrs["keep_dims"]
    if axes is None:
        return (None,) * form.rank if keep else None
    if keep:
        return tuple([1 if i in axes else n for i, n in enumerate(dims)])
    return tuple([n for i, n in enumerate(dims) if i not in axes])


def _reduce_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_reduced_dims(node),)


def _reduce_sparse_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = _reduced_dims(node)
    rank = None if dims is None else len(dims)
    return (None, rank), (None,), (rank,)


def _softmax_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node, 0, "sp_")
    if form.rank is not None and form.rank < 2:
        raise errors.InvalidArgumentError(f"sp_shape must have rank at least 2, got {form.rank}")
    return ((form.count,),)


def _extreme_shape(node: NodeSpec) -> Sequence[Dims]:
    a, _ = same_shape_forms(node)
    return (None, a.rank), (None,)


# ------------------------------------------------------------------------------ declarations

register_op(
    "SparseAdd",
    (*_A, *_B, "thresh: Treal"),
    ("sum_indices: int64", "sum_values: T", "sum_shape: int64"),
    {"T": _NUMBERS, "Treal": _REALS},
    _sum_shape,
    value=value_from(2, 2),
    traits=_ONE_PER_ELEMENT,
)
register_op(
    "SparseAddGrad",
    ("backprop_val_grad: T", "a_indices: int64", "b_indices: int64", "sum_indices: int64"),
    ("a_val_grad: T", "b_val_grad: T"),
    {"T": _NUMBERS},
    _sum_grad_shape,
    doc="The gradients of the values of both operands of SparseAdd.",
)
register_op(
    "SparseTensorDenseAdd",
    ("a_indices: Tindices", "a_values: T", "a_shape: Tindices", "b: T"),
    ("output: T",),
    {"T": _NUMBERS, "Tindices": "{int32, int64}"},
    _dense_sum_shape,
)
for _op, _word in (("Add", "sum"), ("Mul", "product"), ("Div", "quotient")):
    register_op(
        f"SparseDenseCwise{_op}",
        ("sp_indices: int64", "sp_values: T", "sp_shape: int64", "dense: T"),
        ("output: T",),
        {"T": _NUMBERS},
        _with_dense_shape,
        traits=_ONE_PER_ELEMENT,
        doc=f"The {_word} of each stored element and the dense element at its index.",
    )
for _op, _types in (("Sum", _NUMBERS), ("Max", _REALS)):
    _inputs = ("input_indices: int64", "input_values: T", "input_shape: int64")
    register_op(
        f"SparseReduce{_op}",
        (*_inputs, "reduction_axes: int32"),
        ("output: T",),
        {"keep_dims": "bool = false", "T": _types},
        _reduce_shape,
        traits=_ONE_PER_ELEMENT,
        doc=f"The {_op.lower()} of stored elements over axes; 0 where there are none.",
    )
    register_op(
        f"SparseReduce{_op}Sparse",
        (*_inputs, "reduction_axes: int32"),
        ("output_indices: int64", "output_values: T", "output_shape: int64"),
        {"keep_dims": "bool = false", "T": _types},
        _reduce_sparse_shape,
        traits=Traits(cost=cost_rules.per_input(1), differentiable=False),
        doc=f"The {_op.lower()} of stored elements over axes, as a sparse tensor.",
    )
register_op(
    "SparseSoftmax",
    ("sp_indices: int64", "sp_values: T", "sp_shape: int64"),
    ("output: T",),
    {"T": "{float16, float32, float64}"},
    _softmax_shape,
    traits=Traits(cost=cost_rules.per_input(5)),
)
for _op in ("Maximum", "Minimum"):
    register_op(
        f"SparseSparse{_op}",
        (*_A, *_B),
        ("output_indices: int64", "output_values: T"),
        {"T": _REALS},
        _extreme_shape,
        traits=NOT_DIFFERENTIABLE,
        doc=f"The elementwise {_op.lower()} of sparse tensors; elements that are not stored are 0.",
    )

# ---------------------------------------------------------------------------------- functions


def parts(value: SparseTensor) -> list[Output]:
    """Return the indices, values and shape of a sparse tensor, as the inputs of an op."""
    return [value.indices, value.values, value.dense_shape]


def convert_sparse_pair(a: Any, b: Any) -> tuple[SparseTensor, SparseTensor]:
    """Convert two operands to SparseTensors of the same type.

    Raises: InvalidTypeError: one is not sparse, or their types differ.
    """
    x, y = SparseTensor.from_value(a), SparseTensor.from_value(b)
    if x.dtype.base_dtype is not y.dtype.base_dtype:
        raise errors.InvalidTypeError(
            f"sparse operands must have the same type, got {x.dtype.name} and {y.dtype.name}"
        )
    return x, y


def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """Return the sum of two sparse tensors, or of a sparse and a dense one.

    Args:
      a, b: numeric, the same shape; at least one is a SparseTensor with sorted indices.
      threshold: real, rank 0: for two sparse operands, sums with a smaller magnitude are not
        stored; 0 by default. Also `thresh`.
    Returns: a SparseTensor if both are sparse, else a dense tensor.
    Raises: InvalidTypeError: neither is sparse; InvalidArgumentError: the shapes differ, or, at run
      time, an index is out of range.

    Examples:
      >>> a = wf.SparseTensor([[0], [2]], [1.0, 2.0], [4])
      >>> b = wf.SparseTensor([[2], [3]], [-2.0, 3.0], [4])
      >>> wf.Session().run(wf.sparse.add(a, b, threshold=0.1)).values
      array([1., 3.], dtype=float32)
      >>> wf.Session().run(wf.sparse.add(a, wf.ones([4])))
      array([2., 1., 3., 1.], dtype=float32)
    """
    minimum = deprecated_argument("threshold", threshold, "thresh", thresh)
    if not is_sparse(a) and not is_sparse(b):
        raise errors.InvalidTypeError(f"at least one operand must be sparse, got {a!r} and {b!r}")
    if is_sparse(a) and is_sparse(b):
        x, y = convert_sparse_pair(a, b)
        kind = dtypes.as_dtype(x.dtype.base_dtype.real_dtype)
        limit = convert_to_tensor(0 if minimum is None else minimum, kind)
        return SparseTensor(*create("SparseAdd", [*parts(x), *parts(y), limit]).outputs)
    if is_sparse(b):
        a, b = b, a
    sparse = SparseTensor.from_value(a)
    return out("SparseTensorDenseAdd", [*parts(sparse), b])


def _resolve_deprecated_axes(
    axis: Any, keepdims: Any, old_axes: Any, old_keep: Any
) -> tuple[Any, dict[str, Any]]:
    keep = deprecated_argument("keepdims", keepdims, "keep_dims", old_keep)
    return deprecated_argument("axis", axis, "reduction_axes", old_axes), {"keep_dims": bool(keep)}


def _axes(sparse: SparseTensor, axis: Any) -> Any:
    if axis is not None:
        axes_tensor = convert_to_tensor(axis, dtypes.int32)
        return (
            axes_tensor
            if axes_tensor.dims is None or axes_tensor.dims
            else out("Reshape", [axes_tensor, [1]])
        )
    (rank,) = sparse.dense_shape.dims or (None,)
    if rank is not None:
        return np.arange(rank, dtype=np.int32)
    return out("Range", [0, out("Size", [sparse.dense_shape]), 1])


def _reduce(op: str, sp_input: Any, *arguments: Any) -> Output:
    sparse = SparseTensor.from_value(sp_input)
    axis, attrs = _resolve_deprecated_axes(*arguments)
    return out(op, [*parts(sparse), _axes(sparse, axis)], attrs)


def _reduce_sparse(op: str, sp_input: Any, *arguments: Any) -> SparseTensor:
    sparse = SparseTensor.from_value(sp_input)
    axis, attrs = _resolve_deprecated_axes(*arguments)
    return SparseTensor(*create(op, [*parts(sparse), _axes(sparse, axis)], attrs).outputs)


def sparse_reduce_sum(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Sum a sparse tensor over axes to a dense tensor.

    Args:
      sp_input: numeric SparseTensor.
      axis: the axes; negative ones count from the end; all by default. Also `reduction_axes`.
      keepdims: keep the reduced axes with size 1. Also `keep_dims`.
    Returns: dense; 0 where no element is stored.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = wf.SparseTensor([[0, 0], [0, 2], [1, 1]], [1, 1, 1], [2, 3])
      >>> wf.Session().run(wf.sparse.reduce_sum(x, 1))
      array([2, 1], dtype=int32)
    """
    return _reduce("SparseReduceSum", sp_input, axis, keepdims, reduction_axes, keep_dims)


def sparse_reduce_max(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the maxima of a sparse tensor's stored elements over axes, as a dense tensor.

    Args:
      sp_input: real SparseTensor.
      axis, keepdims, reduction_axes, keep_dims: as for `sparse_reduce_sum`.
    Returns: dense; 0 where no element is stored.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = wf.SparseTensor([[0, 0], [0, 2]], [-3, -2], [2, 3])
      >>> wf.Session().run(wf.sparse.reduce_max(x, 1))
      array([-2,  0], dtype=int32)
    """
    return _reduce("SparseReduceMax", sp_input, axis, keepdims, reduction_axes, keep_dims)


def sparse_reduce_sum_sparse(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Sum a sparse tensor over axes to a sparse tensor.

    Args:
      sp_input: numeric SparseTensor.
      axis, keepdims, reduction_axes, keep_dims: as for `sparse_reduce_sum`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = wf.SparseTensor([[1, 0], [1, 2]], [1, 1], [3, 3])
      >>> wf.Session().run(wf.sparse.reduce_sum_sparse(x, 1)).indices
      array([[1]])
    """
    name = "SparseReduceSumSparse"
    return _reduce_sparse(name, sp_input, axis, keepdims, reduction_axes, keep_dims)


def sparse_reduce_max_sparse(
    sp_input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:
    """Return the maxima of a sparse tensor's stored elements over axes, as a sparse tensor.

    Args:
      sp_input: real SparseTensor.
      axis, keepdims, reduction_axes, keep_dims: as for `sparse_reduce_sum`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = wf.SparseTensor([[1, 0], [1, 2]], [-1, -2], [3, 3])
      >>> wf.Session().run(wf.sparse.reduce_max_sparse(x, 1)).values
      array([-1], dtype=int32)
    """
    name = "SparseReduceMaxSparse"
    return _reduce_sparse(name, sp_input, axis, keepdims, reduction_axes, keep_dims)


def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Return the softmax of the stored elements over the last axis.

    Args:
      sp_input: float16, float32 or float64 SparseTensor of rank 2 or more.
    Returns: a SparseTensor with the same indices; the values of each row sum to 1.
    Raises: InvalidArgumentError: the rank is below 2.

    Examples:
      >>> x = wf.SparseTensor([[0, 0], [0, 2], [1, 1]], [1.0, 1.0, 5.0], [2, 3])
      >>> wf.Session().run(wf.sparse.softmax(x)).values
      array([0.5, 0.5, 1. ], dtype=float32)
    """
    sparse = SparseTensor.from_value(sp_input)
    return sparse.with_values(out("SparseSoftmax", parts(sparse), name=name))


def sparse_maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """Return the elementwise maximum of two sparse tensors.

    Args:
      sp_a, sp_b: real SparseTensors of the same shape and type; elements that are not stored are 0.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> a, b = wf.SparseTensor([[0]], [1], [3]), wf.SparseTensor([[2]], [-1], [3])
      >>> wf.Session().run(wf.sparse.maximum(a, b)).values
      array([1, 0], dtype=int32)
    """
    return _extreme("SparseSparseMaximum", sp_a, sp_b, name)


def sparse_minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """Return the elementwise minimum of two sparse tensors.

    Args:
      sp_a, sp_b: real SparseTensors of the same shape and type; elements that are not stored are 0.
    Raises: InvalidArgumentError: the shapes differ.

    Examples:
      >>> a, b = wf.SparseTensor([[0]], [1], [3]), wf.SparseTensor([[2]], [-1], [3])
      >>> wf.Session().run(wf.sparse.minimum(a, b)).values
      array([ 0, -1], dtype=int32)
    """
    return _extreme("SparseSparseMinimum", sp_a, sp_b, name)


def _extreme(op: str, a: Any, b: Any, name: str | None) -> SparseTensor:
    x, y = convert_sparse_pair(a, b)
    indices, values = create(op, [*parts(x), *parts(y)], None, name).outputs
    return SparseTensor(indices, values, x.dense_shape)


# ---------------------------------------------------------------------------------- operators


def _combine_with_dense(op: str, sparse: SparseTensor, dense: Any, name: str) -> SparseTensor:
    dense_value = convert_to_tensor(dense, sparse.dtype.base_dtype)
    return sparse.with_values(out(op, [*parts(sparse), dense_value], name=name))


def multiply(sparse: SparseTensor, dense: Any) -> SparseTensor:
    """Multiply stored elements by a dense tensor that broadcasts to their shape."""
    return _combine_with_dense("SparseDenseCwiseMul", sparse, dense, "mul")


def divide(sparse: SparseTensor, dense: Any) -> SparseTensor:
    """Divide stored elements by a dense tensor; integers are converted to floats first."""
    dense_value = convert_to_tensor(dense, sparse.dtype.base_dtype)
    target = TRUE_QUOTIENT.get(sparse.dtype.base_dtype)
    if target is not None:
        sparse = sparse.with_values(out("Cast", [sparse.values], {"DstT": target}))
        dense_value = out("Cast", [dense_value], {"DstT": target})
    return _combine_with_dense("SparseDenseCwiseDiv", sparse, dense_value, "truediv")


implementations.register("sparse_mul", multiply)
implementations.register("sparse_truediv", divide)
