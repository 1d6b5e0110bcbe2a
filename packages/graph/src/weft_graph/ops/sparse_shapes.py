"""Concatenating, slicing, reshaping, transposing and filling sparse tensors."""

from __future__ import annotations

__all__ = [
    "sparse_concat",
    "sparse_fill_empty_rows",
    "sparse_mask",
    "sparse_merge",
    "sparse_reset_shape",
    "sparse_reshape",
    "sparse_slice",
    "sparse_split",
    "sparse_to_indicator",
    "sparse_transpose",
]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ir.value_rules import value_rule
from weft_graph.ops.casting import cast
from weft_graph.ops.checks import assert_less_equal
from weft_graph.ops.control import with_dependencies
from weft_graph.ops.shape_rules import (
    constant_int,
    merge_size,
    normal_axis,
    vector_as_dims,
    with_rank,
)
from weft_graph.ops.shapes import deprecated_argument
from weft_graph.ops.sparse import sparse_reorder, sparse_tensor_to_dense
from weft_graph.ops.sparse_rules import form_at, form_of
from weft_tensor import arguments, dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

_SPARSE = ("indices: int64", "values: T", "shape: int64")
_NUMBERS = "{inexact, integral}"

# ------------------------------------------------------------------------------ shape rules


def _concat_shape(node: NodeSpec) -> Sequence[Dims]:
    count: int = node.attrs["N"]
    inputs = node.inputs
    forms = [form_of(inputs[i::count]) for i in range(count)]
    rank: int | None = None
    for form in forms:
        rank = merge_size(rank, form.rank, "the ranks of sparse tensors to be joined")
    counts = [form.count for form in forms]
    total = None if None in counts else sum([n for n in counts if n is not None])
    if rank is not None:
        axis = normal_axis(node.attrs["concat_dim"], rank, "concat_dim")
        other_sizes: Dims = None
        for form in forms:
            if form.dims is not None:
                other_sizes = merge_dims(
                    other_sizes, (*form.dims[:axis], None, *form.dims[axis + 1 :])
                )
    return (total, rank), (total,), (rank,)


@value_rule(partial=True)
def _concat_value(node: Node, index: int, values: Values) -> Array | None:
    count: int = node.attrs["N"]
    if index != 2:
        return None
    static_values = [value for value in values[2 * count :] if value is not None]
    if len(static_values) < count:
        return None
    axis = node.attrs["concat_dim"]
    result = static_values[0].astype(object)
    sizes = [shape[axis] for shape in static_values]
    result[axis] = None if None in sizes else sum(sizes)
    return result if None in result else result.astype(np.int64)


def _reshape_shape(node: NodeSpec) -> Sequence[Dims]:
    count, rank = with_rank(node.inputs[0].dims, 2, "input_indices")
    (length,) = with_rank(node.inputs[1].dims, 1, "input_shape")
    merge_size(rank, length, "the axes of input_indices and input_shape")
    (target_rank,) = with_rank(node.inputs[2].dims, 1, "new_shape")
    return (count, target_rank), (target_rank,)


@value_rule(needs=(1, 2), partial=True)
def _reshape_value(node: Node, index: int, values: Values) -> Array | None:
    _, old, new = (None, *values[1:])
    if index != 1 or new is None or None in new:
        return None
    if (new >= 0).all():
        return new
    static_product = math.prod(int(n) for n in new if n >= 0)
    if old is None or None in old or static_product == 0 or (new < 0).sum() > 1:
        return np.array([n if n >= 0 else None for n in new.tolist()], object)
    return np.where(new < 0, math.prod(old.tolist()) // static_product, new)


def _slice_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node)
    rank = form.rank
    for i, label in ((3, "start"), (4, "size")):
        (length,) = with_rank(node.inputs[i].dims, 1, label)
        vector_as_dims(node.inputs[i], label)
        rank = merge_size(rank, length, f"the rank and the length of {label}")
    return (None, rank), (None,), (rank,)


@value_rule(needs=(2, 3, 4))
def _slice_value(node: Node, index: int, values: Values) -> Array | None:
    shape, start, size = values[2:5]
    if index != 2 or shape is None or start is None or size is None:
        return None
    slice_shape: Array = np.clip(shape - start, 0, size)
    return slice_shape


def _slice_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    grad, table, start, kept_dims = [value.dims for value in node.inputs]
    (count,) = with_rank(grad, 1, "backprop_val_grad")
    rows, rank = with_rank(table, 2, "input_indices")
    (length,) = with_rank(start, 1, "input_start")
    kept_rows, kept_rank = with_rank(kept_dims, 2, "output_indices")
    merge_size(count, kept_rows, "the numbers of backprop_val_grad and output_indices")
    merge_size(merge_size(rank, length, "the axes of indices"), kept_rank, "the axes of indices")
    return ((rows,),)


def _split_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_of(node.inputs[1:4])
    axis = constant_int(node.inputs[0])
    if axis is not None and form.rank is not None:
        normal_axis(axis, form.rank, "split_dim")
    count: int = node.attrs["num_split"]
    return [(None, form.rank)] * count + [(None,)] * count + [(form.rank,)] * count


@value_rule(needs=(0, 3))
def _split_value(node: Node, index: int, values: Values) -> Array | None:
    count, axis, shape = node.attrs["num_split"], values[0], values[3]
    part = index - 2 * count
    if part < 0 or axis is None or shape is None:
        return None
    dim = int(axis.reshape(-1)[0])
    result = shape.copy()
    result[dim] = shape[dim] // count + (part < shape[dim] % count)
    return result


def _fill_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node)
    with_rank(node.inputs[3].dims, 0, "default_value")
    if form.rank == 0:
        raise errors.InvalidArgumentError("a sparse tensor of rank 0 has no rows")
    rows = form.dims[0] if form.dims else None
    return (None, form.rank), (None,), (rows,), (form.count,)


def _fill_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    (count,) = with_rank(node.inputs[0].dims, 1, "reverse_index_map")
    with_rank(node.inputs[1].dims, 1, "grad_values")
    return (count,), ()


# ------------------------------------------------------------------------------ declarations

register_op(
    "SparseConcat",
    ("indices: N * int64", "values: N * T", "shapes: N * int64"),
    ("output_indices: int64", "output_values: T", "output_shape: int64"),
    {"concat_dim": "int", "N": "int >= 2", "T": "type"},
    _concat_shape,
    value=_concat_value,
)
register_op(
    "SparseReshape",
    ("input_indices: int64", "input_shape: int64", "new_shape: int64"),
    ("output_indices: int64", "output_shape: int64"),
    {},
    _reshape_shape,
    value=_reshape_value,
    traits=Traits(differentiable=False),
)
register_op(
    "SparseSlice",
    (*_SPARSE, "start: int64", "size: int64"),
    ("output_indices: int64", "output_values: T", "output_shape: int64"),
    {"T": "type"},
    _slice_shape,
    value=_slice_value,
)
register_op(
    "SparseSliceGrad",
    (
        "backprop_val_grad: T",
        "input_indices: int64",
        "input_start: int64",
        "output_indices: int64",
    ),
    ("val_grad: T",),
    {"T": _NUMBERS},
    _slice_grad_shape,
    doc="The gradient of the values of SparseSlice.",
)
register_op(
    "SparseSplit",
    ("split_dim: int64", *_SPARSE),
    (
        "output_indices: num_split * int64",
        "output_values: num_split * T",
        "output_shape: num_split * int64",
    ),
    {"num_split": "int >= 1", "T": "type"},
    _split_shape,
    value=_split_value,
)
register_op(
    "SparseFillEmptyRows",
    ("indices: int64", "values: T", "dense_shape: int64", "default_value: T"),
    (
        "output_indices: int64",
        "output_values: T",
        "empty_row_indicator: bool",
        "reverse_index_map: int64",
    ),
    {"T": "type"},
    _fill_shape,
)
register_op(
    "SparseFillEmptyRowsGrad",
    ("reverse_index_map: int64", "grad_values: T"),
    ("d_values: T", "d_default_value: T"),
    {"T": "type"},
    _fill_grad_shape,
    doc="The gradients of the values and of the default value of SparseFillEmptyRows.",
)

# ---------------------------------------------------------------------------------- functions


def _require_sparse(values: Any, label: str) -> list[SparseTensor]:
    if not isinstance(values, list | tuple) or not values:
        raise errors.InvalidTypeError(f"{label} must be a list of SparseTensors, got {values!r}")
    return [SparseTensor.from_value(value) for value in values]


def sparse_concat(
    axis: Any,
    sp_inputs: Any,
    name: str | None = None,
    expand_nonconcat_dim: bool = False,
    concat_dim: Any = None,
    expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:
    """Concatenate sparse tensors along an axis.

    Args:
      axis: the axis, an integer; negative values count from the end. Also `concat_dim`.
      sp_inputs: a list of SparseTensors of the same type and rank.
      expand_nonconcat_dim: allow other axes to differ; the result has the largest size of each.
        Also `expand_nonconcat_dims`.
    Returns: a SparseTensor with sorted indices.
    Raises: InvalidArgumentError: ranks differ, or other sizes differ and are not expanded.

    Examples:
      >>> a, b = wf.SparseTensor([[0]], [1], [2]), wf.SparseTensor([[1]], [2], [3])
      >>> wf.Session().run(wf.sparse.to_dense(wf.sparse.concat(0, [a, b])))
      array([1, 0, 0, 2, 0], dtype=int32)
    """
    dim = arguments.check_integer(
        deprecated_argument("axis", axis, "concat_dim", concat_dim), "axis"
    )
    if expand_nonconcat_dims is not None:
        expand_nonconcat_dim = expand_nonconcat_dims
    tensors = _require_sparse(sp_inputs, "sp_inputs")
    if len(tensors) == 1:
        return tensors[0]
    shapes = [tensor.dense_shape for tensor in tensors]
    if expand_nonconcat_dim:
        shapes = _widest_except(tensors, dim)
    places, values = [t.indices for t in tensors], [t.values for t in tensors]
    attrs = {"concat_dim": dim}
    return SparseTensor(*create("SparseConcat", [places, values, shapes], attrs, name).outputs)


def _widest_except(tensors: Sequence[SparseTensor], axis: int) -> list[Output]:
    """Return the shapes with each size, except along one axis, replaced by the largest one."""
    shapes = [tensor.dense_shape for tensor in tensors]
    (rank,) = shapes[0].dims or (None,)
    if rank is not None:
        axis = normal_axis(axis, rank)
    static_dims = [tensor.dims for tensor in tensors]
    sizes = [
        dims for dims in static_dims if dims is not None and len(dims) == rank and None not in dims
    ]
    if len(sizes) == len(static_dims):
        table = np.array(sizes, np.int64)
        widest = np.tile(table.max(0), (len(table), 1))
        widest[:, axis] = table[:, axis]
        return [constant_of(row.copy()) for row in widest]
    limit = out("Max", [out("Pack", [shapes]), 0])
    length = out("Size", [shapes[0]])
    is_axis = out("OneHot", [out("FloorMod", [np.int32(axis), length]), length, True, False])
    return [out("SelectV2", [is_axis, shape, limit]) for shape in shapes]


def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """Reshape a sparse tensor, keeping the row-major order of elements.

    Args:
      sp_input: SparseTensor of any type.
      shape: integers, shape (rank,); one may be -1 and is then inferred.
    Raises: InvalidArgumentError: the numbers of elements differ.

    Examples:
      >>> x = wf.SparseTensor([[0, 1], [1, 2]], [5, 7], [2, 3])
      >>> wf.Session().run(wf.sparse.reshape(x, [3, -1])).indices
      array([[0, 1],
             [2, 1]])
    """
    sparse = SparseTensor.from_value(sp_input)
    target = convert_to_tensor(shape, dtypes.int64 if not isinstance(shape, Output) else None)
    target = out("Cast", [target], {"DstT": dtypes.int64}) if _is_other(target) else target
    _check_reshape(sparse.dims, constant_value(target))
    indices, dense = create(
        "SparseReshape", [sparse.indices, sparse.dense_shape, target], None, name
    ).outputs
    return SparseTensor(indices, sparse.values, dense)


def _is_other(shape: Output) -> bool:
    return shape.dtype.base_dtype is not dtypes.int64


def _check_reshape(old: Dims, new: Array | None) -> None:
    """Raise InvalidArgumentError if static shapes have different numbers of elements."""
    if new is None:
        return
    if new.ndim == 1 and ((new < -1).any() or (new == -1).sum() > 1):
        raise errors.InvalidArgumentError(
            f"shape must have sizes of at least 0, and at most one -1, got {new.tolist()}"
        )
    if old is None or None in old or new.ndim != 1:
        return
    total, static_product = math.prod([n for n in old if n]), math.prod(new[new >= 0].tolist())
    total = 0 if 0 in old else total
    fits = (
        static_product and total % static_product == 0
        if (new < 0).any()
        else static_product == total
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"{format_dims(old)} has {total} elements, which cannot be reshaped to {new.tolist()}"
        )


def sparse_slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """Slice a sparse tensor.

    Args:
      sp_input: SparseTensor of any type.
      start: int64, shape (rank,): the first index of each axis.
      size: int64, shape (rank,): size of the slice along each axis, limited by the tensor.
    Raises: InvalidArgumentError: a start or size is negative, or their number is not the rank.

    Examples:
      >>> x = wf.SparseTensor([[0, 1], [1, 2]], [5, 7], [2, 3])
      >>> wf.Session().run(wf.sparse.to_dense(wf.sparse.slice(x, [0, 1], [2, 2])))
      array([[5, 0],
             [0, 7]], dtype=int32)
    """
    sparse = SparseTensor.from_value(sp_input)
    bounds = [convert_to_tensor(bound, dtypes.int64) for bound in (start, size)]
    inputs = [sparse.indices, sparse.values, sparse.dense_shape, *bounds]
    return SparseTensor(*create("SparseSlice", inputs, None, name).outputs)


class KeywordRequired:
    """Marks the first parameter of `sparse_split`, which is keyword-only."""

    def __repr__(self) -> str:
        return "KeywordRequired()"


_BY_KEYWORD = KeywordRequired()


def sparse_split(
    keyword_required: Any = _BY_KEYWORD,
    sp_input: Any = None,
    num_split: int | None = None,
    axis: Any = None,
    name: str | None = None,
    split_dim: Any = None,
) -> list[SparseTensor]:
    """Split a sparse tensor along an axis; arguments are keyword-only.

    Args:
      sp_input: SparseTensor of any type.
      num_split: number of parts, from 1 to the size of the axis; if it does not divide the size,
        the first parts are larger by one.
      axis: integer, rank 0. Also `split_dim`.
    Raises: InvalidArgumentError: an argument is missing, positional, or out of range.

    Examples:
      >>> x = wf.SparseTensor([[0], [2]], [5, 7], [3])
      >>> first, second = wf.sparse.split(sp_input=x, num_split=2, axis=0)
      >>> wf.Session().run(wf.sparse.to_dense(first))
      array([5, 0], dtype=int32)
    """
    if keyword_required is not _BY_KEYWORD:
        raise errors.InvalidArgumentError("Keyword arguments are required for this function.")
    axis_value = deprecated_argument("axis", axis, "split_dim", split_dim)
    for value, argument in ((sp_input, "sp_input"), (num_split, "num_split"), (axis_value, "axis")):
        if value is None:
            raise errors.InvalidArgumentError(f"{argument} must be given")
    sparse = SparseTensor.from_value(sp_input)
    count = arguments.check_integer(num_split, "num_split", 1)
    place = convert_to_tensor(axis_value)
    place = out("Cast", [place], {"DstT": dtypes.int64}) if _is_other(place) else place
    static_axis, rank = constant_int(place), sparse.dense_shape.dims
    if static_axis is not None and rank and rank[0] is not None:
        place = constant_of(np.array(normal_axis(static_axis, rank[0]), np.int64))
    inputs = [place, sparse.indices, sparse.values, sparse.dense_shape]
    parts = create("SparseSplit", inputs, {"num_split": count}, name).outputs
    return [SparseTensor(*parts[i::count]) for i in range(count)]


def sparse_fill_empty_rows(
    sp_input: Any, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Output]:
    """Add an element to each empty row of a sparse tensor, in the first column.

    Args:
      sp_input: SparseTensor of any type, rank 1 or more.
      default_value: same type, rank 0: value of the new elements.
    Returns: the SparseTensor; and bool, shape (rows,): True for rows that were empty.
    Raises: InvalidArgumentError: the rank is 0; at run time, an index is out of range.

    Examples:
      >>> x = wf.SparseTensor([[1, 2]], [5], [2, 3])
      >>> filled, was_empty = wf.sparse.fill_empty_rows(x, -1)
      >>> wf.Session().run(wf.sparse.to_dense(filled))
      array([[-1,  0,  0],
             [ 0,  0,  5]], dtype=int32)
    """
    sparse = SparseTensor.from_value(sp_input)
    default = convert_to_tensor(default_value, sparse.dtype.base_dtype)
    inputs = [sparse.indices, sparse.values, sparse.dense_shape, default]
    indices, values, empty, _ = create("SparseFillEmptyRows", inputs, None, name).outputs
    return SparseTensor(indices, values, sparse.dense_shape), empty


def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Permute the axes of a sparse tensor.

    Args:
      sp_input: SparseTensor of any type.
      perm: integers, shape (rank,): a permutation of the axes; the reverse order by default.
    Raises: InvalidArgumentError: the length of `perm` is not the rank.

    Examples:
      >>> x = wf.SparseTensor([[0, 2], [1, 0]], [5, 7], [2, 3])
      >>> wf.Session().run(wf.sparse.transpose(x)).indices
      array([[0, 1],
             [2, 0]])
    """
    sparse = SparseTensor.from_value(sp_input)
    (rank,) = sparse.dense_shape.dims or (None,)
    if perm is None:
        last = out("Sub", [out("Size", [sparse.dense_shape]), 1]) if rank is None else rank - 1
        perm = out("Range", [last, -1, -1])
    order = convert_to_tensor(perm)
    static_order = constant_value(order)
    if (
        rank is not None
        and static_order is not None
        and sorted(static_order.tolist()) != list(range(rank))
    ):
        raise errors.InvalidArgumentError(
            f"perm must have each axis of rank {rank} once, got {static_order.tolist()}"
        )
    indices = out("GatherV2", [sparse.indices, order, 1])
    shape = out("GatherV2", [sparse.dense_shape, order, 0])
    if static_order is not None and (dims := sparse.dims) is not None:
        sizes = [dims[i] for i in static_order.tolist()]
        if None not in sizes:
            shape = constant_of(np.array(sizes, np.int64))
    return sparse_reorder(SparseTensor(indices, sparse.values, shape), name)


def sparse_reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """Change the dense shape of a sparse tensor, keeping indices and values.

    Args:
      sp_input: SparseTensor of any type.
      new_shape: integers, shape (rank,), with no size smaller than before; by default the smallest
        shape that contains the elements.
    Raises: InvalidArgumentError: the rank differs or a size is smaller; raised at run time if
      they are not static.

    Examples:
      >>> x = wf.SparseTensor([[0, 1]], [5], [2, 3])
      >>> wf.Session().run(wf.sparse.reset_shape(x)).dense_shape
      array([1, 2])
    """
    sparse = SparseTensor.from_value(sp_input)
    if new_shape is None:
        highest = out("Max", [sparse.indices, 0])
        return SparseTensor(
            sparse.indices, sparse.values, out("Maximum", [out("AddV2", [highest, 1]), 0])
        )
    target = cast(convert_to_tensor(new_shape, preferred_dtype=dtypes.int64), dtypes.int64)
    (length,) = with_rank(target.dims, 1, "new_shape")
    (rank,) = sparse.dense_shape.dims or (None,)
    merge_size(rank, length, "the ranks of sp_input and new_shape")
    old, new = sparse.dims, constant_value(target)
    if old is not None and new is not None:
        if any(n is not None and n > m for n, m in zip(old, new.tolist(), strict=True)):
            raise errors.InvalidArgumentError(
                f"new_shape must not be smaller than {format_dims(old)}, got {new.tolist()}"
            )
        if None not in old:
            return SparseTensor(sparse.indices, sparse.values, target)
    message = "new_shape must not be smaller than the shape of sp_input"
    check = assert_less_equal(sparse.dense_shape, target, message=message)
    return SparseTensor(sparse.indices, sparse.values, with_dependencies([check], target))


def sparse_mask(a: Any, mask_indices: Any, name: str | None = None) -> IndexedSlices:
    """Remove slices at some indices from IndexedSlices.

    Args:
      a: IndexedSlices.
      mask_indices: integers of the type of its indices, rank 1: indices of the slices to remove.

    Examples:
      >>> x = wf.IndexedSlices(wf.constant([[1.0], [2.0]]), wf.constant([3, 5]))
      >>> wf.Session().run(wf.sparse.mask(x, [3])).indices
      array([5], dtype=int32)
    """
    if not isinstance(a, IndexedSlices):
        raise errors.InvalidTypeError(f"a must be IndexedSlices, got {a!r}")
    masked = convert_to_tensor(mask_indices, a.indices.dtype)
    indices, kept_positions = create("ListDiff", [a.indices, masked]).outputs
    values = out("GatherV2", [a.values, kept_positions, 0], name=name)
    return IndexedSlices(values, indices, a.dense_shape)


def sparse_merge(
    sp_ids: Any,
    sp_values: Any,
    vocab_size: Any,
    name: str | None = None,
    already_sorted: bool = False,
) -> SparseTensor:
    """Combine sparse ids and values: the ids become the last index of the values.

    Args:
      sp_ids: integers, shape (D..., n), or a list of K of them with the same indices.
      sp_values: a SparseTensor with the same indices.
      vocab_size: integer, upper bound of ids; a list of K for a list of ids.
      already_sorted: True if the ids of each row ascend, so that sorting is not needed.
    Returns: the values, shape (D..., vocab_size...).
    Raises: InvalidTypeError: `sp_ids` and `vocab_size` are not both single or both lists;
      InvalidArgumentError: the lists differ in length; at run time, an id is out of range.

    Examples:
      >>> ids = wf.SparseTensor([[0, 0], [0, 1], [1, 0]], [3, 0, 2], [2, 2])
      >>> values = wf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1.0, 2.0, 3.0], [2, 2])
      >>> wf.Session().run(wf.sparse.to_dense(wf.sparse.merge(ids, values, 4)))
      array([[2., 0., 0., 1.],
             [0., 0., 3., 0.]], dtype=float32)
    """
    single = not isinstance(sp_ids, list)
    ids = _require_sparse([sp_ids] if single else sp_ids, "sp_ids")
    if single is isinstance(vocab_size, list | tuple) or (
        not single and len(ids) != len(vocab_size)
    ):
        raise errors.InvalidArgumentError(
            f"vocab_size must be a number, or a list as long as sp_ids, got {vocab_size!r}"
        )
    sizes = [vocab_size] if single else list(vocab_size)
    values = SparseTensor.from_value(sp_values)
    columns = [out("Slice", [ids[0].indices, [0, 0], _drop_last_index(ids[0].indices)])]
    columns += [out("ExpandDims", [_int64(id_column.values), 1]) for id_column in ids]
    lengths = [out("Slice", [ids[0].dense_shape, [0], _shorter(ids[0].dense_shape)])]
    lengths += [out("Reshape", [_int64(size), [1]]) for size in sizes]
    merged = SparseTensor(
        out("ConcatV2", [columns, 1]), values.values, out("ConcatV2", [lengths, 0])
    )
    return merged if already_sorted else sparse_reorder(merged, name)


def _int64(value: Any) -> Output:
    tensor = convert_to_tensor(value)
    return out("Cast", [tensor], {"DstT": dtypes.int64}) if _is_other(tensor) else tensor


def _shorter(shape: Output) -> Output:
    """Return the length of a vector minus one, shape (1,)."""
    return out("Sub", [out("Shape", [shape]), 1])


def _drop_last_index(indices: Output) -> Output:
    return out("Sub", [out("Shape", [indices]), np.array([0, 1], np.int32)])


def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Output:
    """Return a dense bool tensor that marks the ids of each row of a sparse tensor.

    Args:
      sp_input: int32 or int64 SparseTensor, shape (D..., n), of ids below `vocab_size`.
      vocab_size: integer, upper bound of ids.
    Returns: bool, shape (D..., vocab_size).
    Raises: InvalidTypeError: the ids are not integers; InvalidArgumentError: at run time, an id is
      out of range.

    Examples:
      >>> ids = wf.SparseTensor([[0, 0], [0, 1]], [3, 0], [1, 2])
      >>> wf.Session().run(wf.sparse.to_indicator(ids, 4))
      array([[ True, False, False,  True]])
    """
    sparse = SparseTensor.from_value(sp_input)
    if sparse.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
        raise errors.InvalidTypeError(f"ids must be int32 or int64, got {sparse.dtype.name}")
    true = out("Fill", [out("Shape", [sparse.values]), True])
    merged = sparse_merge(sparse, sparse.with_values(true), vocab_size)
    result = sparse_tensor_to_dense(merged, False, False, name)
    if sparse.dims is not None:
        size = constant_value(convert_to_tensor(vocab_size))
        last = None if size is None else int(size)
        result.dims = merge_dims(result.dims, (*sparse.dims[:-1], last))
    return result


def expand_dims(sp_input: Any, axis: Any = None, name: str | None = None) -> SparseTensor:
    """Insert an axis of size 1 into a sparse tensor.

    Args:
      sp_input: SparseTensor of any type.
      axis: index of the new axis in [-rank - 1, rank], or a tensor; the last by default.
    Raises: InvalidArgumentError: the axis and the rank are static, and the axis is out of range.

    Examples:
      >>> x = wf.SparseTensor([[2]], [5], [3])
      >>> wf.Session().run(wf.sparse.expand_dims(x, 0)).dense_shape
      array([1, 3])
    """
    sparse = SparseTensor.from_value(sp_input)
    (rank,) = sparse.dense_shape.dims or (None,)
    place = -1 if axis is None else axis
    static = constant_value(axis) if isinstance(axis, Output) else None
    if static is not None:
        place = static.item()
    with sparse.graph.name_scope(name or "expand_dims"):
        if rank is not None and not isinstance(place, Output):
            dim: Any = normal_axis(arguments.check_integer(place, "axis"), rank + 1)
        else:
            count = out("AddV2", [out("Size", [sparse.dense_shape]), 1])
            dim = out("FloorMod", [convert_to_tensor(place, dtypes.int32), count])
        rows = out("Shape", [sparse.indices])[0]
        column = out("Fill", [out("Pack", [[rows, 1]]), np.int64(0)])
        leading, trailing = sparse.indices[:, :dim], sparse.indices[:, dim:]
        sizes = [sparse.dense_shape[:dim], np.ones(1, np.int64), sparse.dense_shape[dim:]]
        shape = out("ConcatV2", [sizes, 0])
        return SparseTensor(out("ConcatV2", [[leading, column, trailing], 1]), sparse.values, shape)


def eye(
    num_rows: Any, num_columns: Any = None, dtype: Any = dtypes.float32, name: str | None = None
) -> SparseTensor:
    """Return a sparse matrix with ones on its diagonal.

    Args:
      num_rows: integer.
      num_columns: integer; `num_rows` by default.
      dtype: numeric element type.

    Examples:
      >>> wf.Session().run(wf.sparse.to_dense(wf.sparse.eye(2, 3)))
      array([[1., 0., 0.],
             [0., 1., 0.]], dtype=float32)
    """
    element = dtypes.as_dtype(dtype)
    rows = _int64(num_rows)
    columns = rows if num_columns is None else _int64(num_columns)
    for size, argument in ((rows, "num_rows"), (columns, "num_columns")):
        static_size = constant_int(size)
        if static_size is not None and static_size < 0:
            raise errors.InvalidArgumentError(f"{argument} must be at least 0, got {static_size}")
    with rows.graph.name_scope(name or "eye"):
        count = out("Minimum", [rows, columns])
        diagonal = out("Range", [np.int64(0), count, np.int64(1)])
        unit = constant_of(np.ones((), element.numpy), element)
        values = out("Fill", [out("Reshape", [count, [1]]), unit])
        shape = out("Pack", [[rows, columns]])
        return SparseTensor(out("Pack", [[diagonal, diagonal]], {"axis": 1}), values, shape)
