"""Gather, scatter, partition and stitch, one-hot, and indices of True."""

from __future__ import annotations

__all__ = [
    "batch_gather",
    "dynamic_partition",
    "dynamic_stitch",
    "gather",
    "gather_nd",
    "one_hot",
    "scatter_nd",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_max",
    "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub",
    "tensor_scatter_nd_update",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Role, Traits
from weft_graph.ir.value_rules import arrays, value_rule
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import (
    constant_array,
    constant_int,
    normal_axis,
    scalar_int,
    vector_as_dims,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, compatible_dims, format_dims, merge_dims

_INDEX = "{int32, int64}"

# ------------------------------------------------------------------------------ shape rules


def check_bounds(indices: np.ndarray[Any, Any], size: int, label: str = "indices") -> None:
    """Raise InvalidArgumentError with the element unless all indices are in [0, size)."""
    if indices.size == 0:
        return
    if indices.min() < 0 or indices.max() >= size:
        bad = (indices < 0) | (indices >= size)
        bad_index = [int(i) for i in np.argwhere(np.atleast_1d(bad))[0]] if indices.ndim else []
        value = int(indices[tuple(bad_index)])
        raise errors.InvalidArgumentError(
            f"{label}{bad_index or ''} = {value} is not in [0, {size})",
            details={"index": value, "size": size},
        )


def _gather_shape(node: NodeSpec) -> Sequence[Dims]:
    params, indices = node.inputs
    return (_gather_dims(params, indices, 0, 0),)


def _gather_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    params, indices, axis_input = node.inputs
    axis = constant_int(axis_input)
    batch: int = node.attrs["batch_dims"]
    if indices.dims is not None and batch:
        batch = _batch_dims(batch, len(indices.dims))
    if axis is None:
        if params.dims is None or indices.dims is None:
            return (None,)
        return ((None,) * (len(params.dims) + len(indices.dims) - 1 - batch),)
    return (_gather_dims(params, indices, axis, batch),)


def _batch_dims(batch: int, rank: int) -> int:
    if not -rank <= batch <= rank:
        raise errors.InvalidArgumentError(
            f"batch_dims must be in [{-rank}, {rank}] for indices of rank {rank}, got {batch}"
        )
    return batch + rank if batch < 0 else batch


def _gather_dims(params: Output, indices: Output, axis: int, batch: int) -> Dims:
    dims, index_dims = params.dims, indices.dims
    if dims is None:
        return None
    dim = normal_axis(axis, len(dims))
    if index_dims is None:
        return None
    if batch > dim:
        raise errors.InvalidArgumentError(f"axis must be at least batch_dims {batch}, got {dim}")
    size = dims[dim]
    if size is not None and indices.node.role is Role.CONSTANT:
        check_bounds(indices.node.attrs["value"], size)
    if not compatible_dims(dims[:batch], index_dims[:batch]):
        raise errors.InvalidArgumentError(
            f"the first {batch} sizes of params and indices must agree, got "
            f"{format_dims(dims)} and {format_dims(index_dims)}"
        )
    lead = merge_dims(dims[:batch], index_dims[:batch]) or ()
    return (*lead, *dims[batch:dim], *index_dims[batch:], *dims[dim + 1 :])


def _depth(indices: Output) -> int | None:
    """Return the number of axes that an index vector addresses."""
    dims = indices.dims
    if dims is not None and not dims:
        raise errors.InvalidArgumentError("indices must have rank at least 1, got rank 0")
    return None if dims is None else dims[-1]


def _gather_nd_shape(node: NodeSpec) -> Sequence[Dims]:
    params, indices = node.inputs
    depth = _depth(indices)
    if params.dims is None or indices.dims is None or depth is None:
        return (None,)
    if depth > len(params.dims):
        raise errors.InvalidArgumentError(
            f"indices of {depth} numbers refer to more axes than shape {format_dims(params.dims)} "
            "has"
        )
    return ((*indices.dims[:-1], *params.dims[depth:]),)


def _check_updates(target: Dims, indices: Output, updates: Output) -> None:
    depth = _depth(indices)
    if target is None or indices.dims is None or depth is None:
        return
    if depth > len(target):
        raise errors.InvalidArgumentError(
            f"indices of {depth} numbers refer to more axes than shape {format_dims(target)} has"
        )
    required_dims = (*indices.dims[:-1], *target[depth:])
    if not compatible_dims(updates.dims, required_dims):
        raise errors.InvalidArgumentError(
            f"updates must have shape {format_dims(required_dims)} (the shape of indices without "
            "its "
            "last axis, followed by the sizes of the axes that are not indexed), got "
            f"{format_dims(updates.dims)}"
        )


def _scatter_nd_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, updates, shape = node.inputs
    target = vector_as_dims(shape, "shape")
    _check_updates(target, indices, updates)
    return (target,)


def _tensor_scatter_shape(node: NodeSpec) -> Sequence[Dims]:
    tensor, indices, updates = node.inputs
    _check_updates(tensor.dims, indices, updates)
    return (tensor.dims,)


def _partition_shape(node: NodeSpec) -> Sequence[Dims]:
    data, partitions = node.inputs[0].dims, node.inputs[1].dims
    count: int = node.attrs["num_partitions"]
    if data is None or partitions is None:
        return (None,) * count
    rank = len(partitions)
    if not compatible_dims(data[:rank], partitions):
        raise errors.InvalidArgumentError(
            f"data's shape must start with that of partitions, {format_dims(partitions)}, "
            f"got {format_dims(data)}"
        )
    return ((None, *data[rank:]),) * count


def _stitch_shape(node: NodeSpec) -> Sequence[Dims]:
    count: int = node.attrs["N"]
    indices, data = node.inputs[:count], node.inputs[count:]
    inner: Dims = None
    size: int | None = 0
    for index_part, part in zip(indices, data, strict=True):
        static = constant_array(index_part)
        if static is None or size is None:
            size = None
        elif static.size:
            size = max(size, int(static.max()) + 1)
        if index_part.dims is None or part.dims is None:
            continue
        rank = len(index_part.dims)
        if not compatible_dims(part.dims[:rank], index_part.dims):
            raise errors.InvalidArgumentError(
                "data's shape must start with that of its indices, "
                f"{format_dims(index_part.dims)}, "
                f"got {format_dims(part.dims)}"
            )
        inner = merge_dims(inner, part.dims[rank:])
    return (None if inner is None else (size, *inner),)


def _one_hot_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, depth, on, off_value = node.inputs
    for value, label in ((depth, "depth"), (on, "on_value"), (off_value, "off_value")):
        if value.dims not in ((), None):
            raise errors.InvalidArgumentError(
                f"{label} must have rank 0, got shape {format_dims(value.dims)}"
            )
    size = scalar_int(depth, "depth")
    if size is not None and size < 0:
        raise errors.InvalidArgumentError(f"depth must be at least 0, got {size}")
    if indices.dims is None:
        return (None,)
    axis = node.attrs["axis"]
    dim = normal_axis(axis, len(indices.dims) + 1)
    return ((*indices.dims[:dim], size, *indices.dims[dim:]),)


def _where_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    return ((None, None if dims is None else len(dims)),)


# ------------------------------------------------------------------------------ values


@value_rule(partial=True)
def _gather_value(node: Node, index: int, values: Values) -> Array | None:
    value, indices, *axis = arrays(values)
    if node.attrs.get("batch_dims", 0):
        return None
    dim = int(axis[0]) if axis else 0
    positions = indices.astype(np.int64)
    if positions.size and positions.min() < 0:
        return None
    return np.take(value, positions, axis=dim)


# ------------------------------------------------------------------------------ declarations

register_op(
    "Gather",
    ("params: Tparams", "indices: Tindices"),
    ("output: Tparams",),
    {"validate_indices": "bool = true", "Tparams": "type", "Tindices": _INDEX},
    _gather_shape,
    value=_gather_value,
    traits=Traits(cost=cost_rules.gather_bytes),
)
register_op(
    "GatherV2",
    ("params: Tparams", "indices: Tindices", "axis: Taxis"),
    ("output: Tparams",),
    {
        "batch_dims": "int = 0",
        "Tparams": "type",
        "Tindices": _INDEX,
        "Taxis": "{int32, int64} = int32",
    },
    _gather_v2_shape,
    value=_gather_value,
    traits=Traits(cost=cost_rules.gather_bytes),
)
register_op(
    "GatherNd",
    ("params: Tparams", "indices: Tindices"),
    ("output: Tparams",),
    {"Tparams": "type", "Tindices": _INDEX},
    _gather_nd_shape,
    traits=Traits(cost=cost_rules.gather_bytes),
)
register_op(
    "ScatterNd",
    ("indices: Tindices", "updates: T", "shape: Tindices"),
    ("output: T",),
    {"T": "type", "Tindices": _INDEX},
    _scatter_nd_shape,
    traits=Traits(cost=cost_rules.scatters_into_zeros),
    doc="Zeros of `shape` with the updates added at the indices.",
)
for _name, _cost, _doc in (
    (
        "TensorScatterUpdate",
        cost_rules.value_scatters,
        "`tensor` with the elements at the indices replaced.",
    ),
    (
        "TensorScatterAdd",
        cost_rules.value_scatter_sums,
        "`tensor` with the updates added at the indices.",
    ),
    (
        "TensorScatterSub",
        cost_rules.value_scatter_sums,
        "`tensor` with the updates subtracted at the indices.",
    ),
    (
        "TensorScatterMax",
        cost_rules.value_scatter_sums,
        "The larger of `tensor` and the updates at the indices.",
    ),
    (
        "TensorScatterMin",
        cost_rules.value_scatter_sums,
        "The smaller of `tensor` and the updates at the indices.",
    ),
):
    register_op(
        _name,
        ("tensor: T", "indices: Tindices", "updates: T"),
        ("output: T",),
        {"T": "type", "Tindices": _INDEX},
        _tensor_scatter_shape,
        traits=Traits(cost=_cost, overwrites=((0, 0),)),
        doc=_doc,
    )
register_op(
    "ScatterNdNonAliasingAdd",
    ("input: T", "indices: Tindices", "updates: T"),
    ("output: T",),
    {"T": "{numbertype, bool}", "Tindices": _INDEX},
    _tensor_scatter_shape,
    traits=Traits(cost=cost_rules.value_scatter_sums),
    doc="`input` with the updates added at the indices.",
)
register_op(
    "DynamicPartition",
    ("data: T", "partitions: int32"),
    ("outputs: num_partitions * T",),
    {"num_partitions": "int >= 1", "T": "type"},
    _partition_shape,
)
for _name in ("DynamicStitch", "ParallelDynamicStitch"):
    register_op(
        _name,
        ("indices: N * int32", "data: N * T"),
        ("merged: T",),
        {"N": "int >= 1", "T": "type"},
        _stitch_shape,
    )
register_op(
    "OneHot",
    ("indices: TI", "depth: int32", "on_value: T", "off_value: T"),
    ("output: T",),
    {"axis": "int = -1", "T": "type", "TI": "{uint8, int8, int32, int64} = int64"},
    _one_hot_shape,
)
register_op(
    "Where",
    ("input: T",),
    ("index: int64",),
    {"T": "{numbertype, bool} = bool"},
    _where_shape,
    traits=NOT_DIFFERENTIABLE,
)
# ---------------------------------------------------------------------------------- functions


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int | None = 0,
) -> Output:
    """Return slices of `params` along an axis, by index.

    Args:
      params: any type, shape (P[:axis], n, P[axis+1:]).
      indices: integers in [0, n), shape (P[:batch_dims], I).
      axis: integer of rank 0; `batch_dims` by default.
      batch_dims: number of leading batch axes of both; None is 0.
    Returns: shape (P[:axis], I, P[axis+1:]).
    Raises: InvalidArgumentError: an index is out of range; raised at construction if it is
      constant.

    Examples:
      >>> wf.Session().run(wf.gather([10, 20, 30], [2, 0]))
      array([30, 10], dtype=int32)
    """
    batch_dims = batch_dims or 0
    axis = batch_dims if axis is None else axis
    if not batch_dims and isinstance(axis, int) and axis == 0:
        sparse_read = getattr(params, "sparse_read", None)
        if sparse_read is not None:
            result: Output = sparse_read(indices, name=name)
            return result
    return out("GatherV2", [params, indices, axis], {"batch_dims": batch_dims}, name)


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Output:
    """Apply `gather` with all axes of `indices` except the last as batch axes.

    Args:
      params: any type, shape (B, N, ...).
      indices: int32 or int64, shape (B, M): indices along the axis N.
    Returns: shape (B, M, ...).

    Examples:
      >>> wf.Session().run(wf.batch_gather([[1, 2], [3, 4]], [[1], [0]]))
      array([[2],
             [3]], dtype=int32)
    """
    index_tensor = convert_to_tensor(indices)
    if index_tensor.dims is None:
        raise errors.InvalidArgumentError("batch_gather requires indices of a known rank")
    count = len(index_tensor.dims) - 1
    return gather(params, index_tensor, axis=count, batch_dims=count, name=name)


def gather_nd(params: Any, indices: Any, name: str | None = None, batch_dims: int = 0) -> Output:
    """Return elements or slices of `params` by vectors of indices.

    Args:
      params: any type, shape (p_0, …, p_k).
      indices: integers, shape (I, m): vectors that address the first m axes.
      batch_dims: number of leading batch axes of both.
    Returns: shape (I, p_m, …).
    Raises: InvalidArgumentError: an index is out of range.

    Examples:
      >>> wf.Session().run(wf.gather_nd([[1, 2], [3, 4]], [[0, 1], [1, 0]]))
      array([2, 3], dtype=int32)
    """
    if batch_dims:
        values = convert_to_tensor(params)
        indices = with_batch_positions(convert_to_tensor(indices), batch_dims)
        params = values
    elif hasattr(params, "gather_nd"):  # a resource variable
        result: Output = params.gather_nd(indices, name=name)
        return result
    return out("GatherNd", [params, indices], name=name)


def with_batch_positions(indices: Output, batch_dims: int) -> Output:
    """Prefix each index vector with its batch index."""
    if indices.dims is not None and len(indices.dims) <= batch_dims:
        raise errors.InvalidArgumentError(
            f"indices must have a rank above batch_dims {batch_dims}, got {indices!r}"
        )
    dtype = indices.dtype.base_dtype
    shape = out("Shape", [indices], {"out_type": dtype})
    column_shape = out("ConcatV2", [[_part(shape, 0, -1), [1]], 0])
    columns = []
    for axis in range(batch_dims):
        size = out("Reshape", [_part(shape, axis, axis + 1), constant_of(np.array([], np.int32))])
        zero, unit = constant_of(np.array(0, dtype.numpy)), constant_of(np.array(1, dtype.numpy))
        batch_range = out("Range", [zero, size, unit])
        column = out("Reshape", [batch_range, _shape_along(indices, axis)])
        columns.append(out("BroadcastTo", [column, column_shape]))
    return out("ConcatV2", [[*columns, indices], -1])


def _shape_along(value: Output, axis: int) -> Output:
    """Return the shape of a vector along an axis of `value`."""
    leading_ones = [1] * axis + [-1]
    if value.dims is not None:
        trailing_ones = [1] * (len(value.dims) - axis - 1)
        return constant_of(np.array(leading_ones + trailing_ones, np.int32))
    count = out("Pack", [[out("Sub", [out("Rank", [value]), axis + 1])]])
    return out("ConcatV2", [[leading_ones, out("Fill", [count, 1])], 0])


def _part(vector: Output, begin: int, end: int) -> Output:
    unit = constant_of(np.array([1], np.int32))
    bounds = [constant_of(np.array([n], np.int32)) for n in (begin, end)]
    return out("StridedSlice", [vector, *bounds, unit])


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Output:
    """Add updates at indices to zeros.

    Args:
      indices: integers, shape (I, m).
      updates: any type with addition, shape (I, s_m, …).
      shape: vector of integers of the type of `indices`.

    Examples:
      >>> wf.Session().run(wf.scatter_nd([[1], [3]], [10, 20], [5]))
      array([ 0, 10,  0, 20,  0], dtype=int32)
    """
    return out("ScatterNd", [indices, updates, shape], name=name)


def tensor_scatter_nd_update(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Output:
    """Return `tensor` with the elements at `indices` replaced; see `scatter_nd`.

    Args:
      tensor: any type, at least one axis.
      indices, updates: as for `scatter_nd`.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.tensor_scatter_update([1, 1, 1], [[0], [2]], [5, 6]))
      array([5, 1, 6], dtype=int32)
    """
    return out("TensorScatterUpdate", [tensor, indices, updates], name=name)


def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Output:
    """Return `tensor` with updates added at `indices`; see `scatter_nd`.

    Args:
      tensor: any numeric type, at least one axis.
      indices, updates: as for `scatter_nd`.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.tensor_scatter_add([1, 1, 1], [[0], [2]], [5, 6]))
      array([6, 1, 7], dtype=int32)
    """
    return out("TensorScatterAdd", [tensor, indices, updates], name=name)


def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Output:
    """Return `tensor` with updates subtracted at `indices`; see `scatter_nd`.

    Args:
      tensor: any numeric type, at least one axis.
      indices, updates: as for `scatter_nd`.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.tensor_scatter_sub([1, 1, 1], [[0], [2]], [5, 6]))
      array([-4,  1, -5], dtype=int32)
    """
    return out("TensorScatterSub", [tensor, indices, updates], name=name)


def tensor_scatter_nd_max(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Output:
    """Return the maximum of `tensor` and the updates at `indices`; see `scatter_nd`.

    Args:
      tensor: any real type, at least one axis.
      indices, updates: as for `scatter_nd`.
    Returns: shape and dtype of `tensor`. The gradient is split evenly among the maxima.

    Examples:
      >>> wf.Session().run(wf.tensor_scatter_nd_max([1, 9, 1], [[0], [1]], [5, 6]))
      array([5, 9, 1], dtype=int32)
    """
    return out("TensorScatterMax", [tensor, indices, updates], name=name)


def tensor_scatter_nd_min(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Output:
    """Return the minimum of `tensor` and the updates at `indices`; see `scatter_nd`.

    Args:
      tensor: any real type, at least one axis.
      indices, updates: as for `scatter_nd`.
    Returns: shape and dtype of `tensor`. The gradient is split evenly among the minima.

    Examples:
      >>> wf.Session().run(wf.tensor_scatter_nd_min([1, 9, 1], [[0], [1]], [5, 6]))
      array([1, 6, 1], dtype=int32)
    """
    return out("TensorScatterMin", [tensor, indices, updates], name=name)


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Output]:
    """Split the slices of `data` into `num_partitions` tensors.

    Args:
      data: any type, shape (P, R).
      partitions: int32 in [0, num_partitions), shape P.
    Returns: `num_partitions` tensors of shape (n_i, R), in the order of `data`.

    Examples:
      >>> wf.Session().run(wf.dynamic_partition([1, 2, 3], [0, 1, 0], 2))
      [array([1, 3], dtype=int32), array([2], dtype=int32)]
    """
    attrs = {"num_partitions": num_partitions}
    return list(create("DynamicPartition", [data, partitions], attrs, name).outputs)


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Output:
    """Merge slices into one tensor by their indices; for repeated indices the last one wins.

    Args:
      indices: list of int32 tensors of shapes I_i.
      data: list of tensors of shapes (I_i, R).
    Returns: shape (max index + 1, R).

    Examples:
      >>> wf.Session().run(wf.dynamic_stitch([[0, 2], [1]], [[10, 30], [20]]))
      array([10, 20, 30], dtype=int32)
    """
    return out("DynamicStitch", [list(indices), list(data)], name=name)


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Output:
    """Return one-hot vectors: `on_value` at the index and `off_value` elsewhere.

    Args:
      indices: integers of any shape; for those outside [0, depth) all elements are `off_value`.
      depth: integer of rank 0.
      on_value, off_value: rank 0, 1 and 0 by default.
      axis: index of the new axis; the last one by default.
      dtype: element type; defaults to that of the values, or float32.
    Raises: InvalidTypeError: `dtype` and the types of the values differ.

    Examples:
      >>> wf.Session().run(wf.one_hot([0, 2], 3))
      array([[1., 0., 0.],
             [0., 0., 1.]], dtype=float32)
    """
    element_type = None if dtype is None else dtypes.as_dtype(dtype)
    typed = {v.dtype for v in (on_value, off_value) if hasattr(v, "dtype")}
    if (
        len({dtypes.as_dtype(tensor).base_dtype for tensor in typed} | ({element_type} - {None}))
        > 1
    ):
        names = ", ".join(sorted(dtypes.as_dtype(tensor).name for tensor in typed))
        raise errors.InvalidTypeError(
            f"one_hot requires on_value, off_value and dtype to agree, got values of {names}"
            + (f" for {element_type.name}" if element_type is not None else "")
        )
    if element_type is None:
        value_types = [convert_to_tensor(v).dtype for v in (on_value, off_value) if v is not None]
        element_type = value_types[0].base_dtype if value_types else dtypes.float32
        if len(value_types) == 2 and value_types[1].base_dtype is not element_type:
            raise errors.InvalidTypeError(
                "one_hot requires on_value and off_value of the same type, got "
                f"{element_type.name} and {value_types[1].base_dtype.name}; pass dtype= to "
                "convert numbers"
            )
    on = convert_to_tensor(1 if on_value is None else on_value, element_type, "on_value")
    off_tensor = convert_to_tensor(0 if off_value is None else off_value, element_type, "off_value")
    index_tensor = convert_to_tensor(indices)
    attrs = {"axis": -1 if axis is None else axis}
    return out("OneHot", [index_tensor, depth, on, off_tensor], attrs, name or "one_hot")
