"""Conversion between ragged tensors and other tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops import array, masks, reduction, sequence, shapes
from weft_graph.ops.control import Assert
from weft_graph.ops.identity import ensure_shape, identity
from weft_graph.ops.join import concat
from weft_graph.ops.shape_rules import normal_axis
from weft_graph.ragged import encodings
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, static_rank
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType
from weft_tensor.shape import as_dims, format_dims, merge_dims

# ------------------------------------------------------------------------------ of tensors


def uniform_levels(value: Any, count: int, dtype: DType) -> Any:
    """Convert leading axes to row partitions until a value has at least `count` ragged dimensions.

    Args:
      value: Tensor or RaggedTensor of static rank above `count`.
      dtype: element type of the splits.
    """
    if count <= 0:
        return value
    if isinstance(value, RaggedTensor):
        inner = uniform_levels(value.values, count - 1, value.row_splits.dtype)
        return value if inner is value.values else value.with_values(inner)
    rank = static_rank(value)
    assert rank is not None and rank > count
    sizes = shapes.shape(value, out_type=dtype)
    tail = sizes[count + 1 :]
    ragged_value: Any = shapes.reshape(
        value, concat([constant_of(np.array([-1], dtype.numpy)), tail], 0)
    )
    if value.dims is not None:
        ragged_value.set_shape([None, *value.dims[count + 1 :]])
    for level in range(count, 0, -1):
        nrows = reduction.reduce_prod(sizes[:level])
        ragged_value = RaggedTensor(
            ragged_value, _uniform(value, level, sizes[level], nrows, dtype)
        )
    return ragged_value


def _uniform(value: Output, axis: int, length: Output, nrows: Output, dtype: DType) -> Rows:
    """Return the rows of an axis of a tensor; constants if its shape is static."""
    dims = value.dims or ()
    static_sizes = dims[: axis + 1]
    if None not in static_sizes:
        count = int(np.prod([n for n in static_sizes[:-1] if n is not None]))
        size = static_sizes[-1]
        assert size is not None
        splits = constant_of(np.arange(count + 1, dtype=dtype.numpy) * dtype.numpy.type(size))
        number = constant_of(np.array(count, dtype.numpy))
        return Rows(splits, nrows=number, uniform=constant_of(np.array(size, dtype.numpy)))
    if dims[axis] is not None:
        length = constant_of(np.array(dims[axis], dtype.numpy))
    return encodings.uniform_rows(length, nrows)


def from_tensor(
    tensor: Any, lengths: Any, padding: Any, ragged_rank: int, row_splits_dtype: Any
) -> Any:
    """Implement `RaggedTensor.from_tensor`."""
    dtype = dtypes.as_dtype(row_splits_dtype)
    if dtype not in encodings.SPLITS:
        raise errors.InvalidTypeError(f"row_splits_dtype must be int32 or int64, got {dtype.name}")
    if lengths is not None and padding is not None:
        raise errors.InvalidArgumentError("pass only one of lengths and padding")
    value: Any = convert_to_tensor(tensor, name="tensor")
    if isinstance(value, RaggedTensor):
        raise errors.InvalidTypeError(f"from_tensor requires a tensor, got {value!r}")
    nested = _nested_lengths(lengths)
    if nested is not None:
        if ragged_rank not in (1, len(nested)):
            raise errors.InvalidArgumentError(
                f"ragged_rank must be 1 or the number of lengths, {len(nested)}, got {ragged_rank}"
            )
        ragged_rank = len(nested)
    ragged_rank = check_integer(ragged_rank, "ragged_rank", 1)
    rank = static_rank(value)
    if rank is None or rank <= ragged_rank:
        raise errors.InvalidArgumentError(
            f"from_tensor requires a tensor of a known rank above {ragged_rank}, got shape "
            f"{format_dims(value.dims)}"
        )
    if nested is not None:
        return _cut(value, nested, dtype)
    ragged = uniform_levels(value, ragged_rank, dtype)
    if lengths is not None:
        return _truncate_rows(ragged, encodings.Encoding(lengths, "lengths").output)
    if padding is not None:
        return _truncate_rows(ragged, None, padding)
    return ragged


def _nested_lengths(lengths: Any) -> list[Any] | None:
    if not isinstance(lengths, list | tuple) or not lengths:
        return None
    return list(lengths) if not np.isscalar(lengths[0]) else None


def _cut(value: Output, nested: list[Any], dtype: DType) -> RaggedTensor:
    """Truncate rows of a tensor to several levels of lengths."""
    total = reduction.reduce_sum(encodings.Encoding(nested[-1], "lengths").output)
    flags = array.fill(shapes.reshape(total, [1]), True)
    mask_rows: Any = RaggedTensor.from_nested_row_lengths(flags, nested)
    mask = to_tensor(mask_rows, False, shapes.shape(value)[: len(nested) + 1])
    mask.set_shape((value.dims or ())[: len(nested) + 1])
    result: RaggedTensor = mask_rows.with_flat_values(masks.boolean_mask(value, mask))
    return result.with_row_splits_dtype(dtype)


def _truncate_rows(
    ragged: RaggedTensor, lengths: Output | None, padding: Any = None
) -> RaggedTensor:
    """Truncate the innermost, uniform rows of a ragged tensor."""
    values = ragged.values
    if isinstance(values, RaggedTensor):
        return ragged.with_values(_truncate_rows(values, lengths, padding))
    dtype = ragged.row_splits.dtype.base_dtype
    assert ragged.uniform_row_length is not None
    length = ragged.uniform_row_length
    positions = sequence.range(length)
    if lengths is None:
        lengths = _row_lengths_without_padding(ragged, values, positions, padding)
    zero = constant_of(np.array(0, dtype.numpy))
    lengths = out("Minimum", [_cast_to(lengths, dtype), length])
    lengths = out("Maximum", [lengths, zero])
    is_inside = out("Less", [shapes.expand_dims(positions, 0), shapes.expand_dims(lengths, 1)])
    kept_values = masks.boolean_mask(values, shapes.reshape(is_inside, [-1]))
    return RaggedTensor(kept_values, encodings.from_lengths(lengths, kept_values, False))


def _cast_to(value: Output, dtype: DType) -> Output:
    return value if value.dtype.base_dtype is dtype else out("Cast", [value], {"DstT": dtype})


def _row_lengths_without_padding(
    ragged: RaggedTensor, values: Output, output: Output, padding: Any
) -> Output:
    """Return the lengths of uniform rows without trailing padding."""
    pad = convert_to_tensor(padding, values.dtype.base_dtype, "padding")
    inner = (static_rank(values) or 1) - 1
    if pad.dims is not None and values.dims is not None:
        merge_dims(values.dims[1:], pad.dims)
    is_value = out("NotEqual", [values, pad])
    if inner:
        is_value = reduction.reduce_any(is_value, axis=list(range(1, inner + 1)))
    dtype = ragged.row_splits.dtype.base_dtype
    shape = out("Pack", [[ragged.nrows(), ragged.uniform_row_length]])
    grid = shapes.reshape(is_value, shape)
    ends = out("SelectV2", [grid, output + 1, constant_of(np.array(0, dtype.numpy))])
    zero = constant_of(np.array(0, dtype.numpy))
    return out("Maximum", [reduction.reduce_max(ends, axis=1), zero])


# ------------------------------------------------------------------------------ sparse


def from_sparse(sparse: SparseTensor, dtype: DType) -> RaggedTensor:
    """Implement `RaggedTensor.from_sparse`."""
    dims = sparse.dims
    if dims is not None and len(dims) != 2:
        raise errors.InvalidArgumentError(f"a SparseTensor of rank 2 is required, got {len(dims)}")
    indices, sizes = sparse.indices, sparse.dense_shape
    if dims is None:
        indices, sizes = ensure_shape(indices, [None, 2]), ensure_shape(sizes, [2])
    rows, columns, nrows = indices[:, 0], indices[:, 1], sizes[0]
    splits = encodings.splits_by_ids(rows, nrows)
    starts = out("GatherV2", [splits, rows, 0])
    count = shapes.size(sparse.values, out_type=dtypes.int64)
    expected = sequence.range(count) - starts
    filled = reduction.reduce_all(out("Equal", [columns, expected]))
    message = "the values of a SparseTensor must fill each row from the left, in order"
    with get_default_graph().control_dependencies([Assert(filled, [message, indices])]):
        values = identity(sparse.values)
    return RaggedTensor(values, Rows(_cast_to(splits, dtype)))


def to_sparse(ragged: RaggedTensor) -> SparseTensor:
    """Implement `RaggedTensor.to_sparse`."""
    splits = list(ragged.nested_row_splits)
    sparse_parts = create("RaggedTensorToSparse", [splits, ragged.flat_values]).outputs
    sparse = SparseTensor(*sparse_parts)
    if ragged.dims is not None:
        sparse.set_shape(ragged.dims)
    return sparse


# ------------------------------------------------------------------------------ dense


def to_tensor(ragged: RaggedTensor, default_value: Any, shape: Any) -> Output:
    """Implement `RaggedTensor.to_tensor`."""
    dtype = ragged.dtype
    if default_value is None:
        default_value = "" if dtype is dtypes.string else 0
        if dtype.is_bool:
            default_value = False
    default = convert_to_tensor(default_value, dtype, "default_value")
    splits = list(ragged.nested_row_splits)
    dense_shape, dims = _requested_shape(ragged, shape)
    result = out(
        "RaggedTensorToTensor",
        [dense_shape, ragged.flat_values, default, splits],
        {"row_partition_types": ["ROW_SPLITS"] * len(splits)},
    )
    if dims is not None:
        result.set_shape(dims)
    return result


def _requested_shape(ragged: RaggedTensor, shape: Any) -> tuple[Output, Any]:
    """Return the shape to pass to the op, and its static part."""
    if shape is None:
        return constant_of(np.array(-1, np.int64)), ragged.dims
    if isinstance(shape, Output):
        return shape, None
    dims = as_dims(shape)
    if dims is None:
        return constant_of(np.array(-1, np.int64)), ragged.dims
    rank = None if ragged.dims is None else len(ragged.dims)
    if rank is not None and len(dims) != rank:
        raise errors.InvalidArgumentError(f"shape must have rank {rank}, got {format_dims(dims)}")
    sizes = [-1 if size is None else size for size in dims]
    return constant_of(np.array(sizes, np.int64)), dims


def bounding_shape(ragged: RaggedTensor, axis: Any, dtype: DType) -> Output:
    """Implement `RaggedTensor.bounding_shape`."""
    if isinstance(axis, int) and axis == 0:
        return _cast_to(ragged.nrows(), dtype)
    if isinstance(axis, int) and axis == 1 and ragged.uniform_row_length is None:
        return _longest(ragged.levels[0], dtype)
    levels = ragged.levels
    sizes = [_cast_to(ragged.nrows(), dtype), *[_longest(rows, dtype) for rows in levels]]
    inner = shapes.shape(ragged.flat_values, out_type=dtype)[1:]
    bounds = concat([out("Pack", [sizes]), inner], 0)
    return bounds if axis is None else out("GatherV2", [bounds, axis, 0])


def _longest(rows: Rows, dtype: DType) -> Output:
    if rows.uniform is not None:
        return _cast_to(rows.uniform, dtype)
    zero = constant_of(np.array(0, rows.dtype.numpy))
    longest = out("Maximum", [reduction.reduce_max(rows.row_lengths()), zero])
    return _cast_to(longest, dtype)


def merge_axes(value: Any, outer: int, inner: int) -> Any:
    """Implement `RaggedTensor.merge_dims`, also for a Tensor."""
    rank = static_rank(value)
    if rank is None:
        raise errors.InvalidArgumentError(f"merge_dims requires a known rank, got {value!r}")
    outer = normal_axis(outer, rank, "outer_axis")
    inner = normal_axis(inner, rank, "inner_axis")
    if outer > inner:
        raise errors.InvalidArgumentError(
            f"outer_axis must not be above inner_axis, got {outer} and {inner}"
        )
    return _merge_axes(value, outer, inner)


def _merge_axes(value: Any, outer: int, inner: int) -> Any:
    if outer == inner:
        return value
    if not isinstance(value, RaggedTensor):
        return _flatten_axes(value, outer, inner)
    if outer > 1:
        return value.with_values(_merge_axes(value.values, outer - 1, inner - 1))
    if outer == 0:
        return _merge_axes(value.values, 0, inner - 1)
    values, splits = value.values, value.row_splits
    if isinstance(values, RaggedTensor):
        merged = RaggedTensor(values.values, Rows(out("GatherV2", [values.row_splits, splits, 0])))
        return _merge_axes(merged, 1, inner - 1)
    sizes = shapes.shape(values, out_type=splits.dtype)
    flat = _flatten_axes(values, 0, inner - 1)
    return RaggedTensor(flat, Rows(splits * reduction.reduce_prod(sizes[1:inner])))


def _flatten_axes(tensor: Output, outer: int, inner: int) -> Output:
    sizes = shapes.shape(tensor)
    middle = constant_of(np.array([-1], np.int32))
    flattened = shapes.reshape(tensor, concat([sizes[:outer], middle, sizes[inner + 1 :]], 0))
    if tensor.dims is not None:
        merged = tensor.dims[outer : inner + 1]
        size = None if None in merged else int(np.prod([n for n in merged if n is not None]))
        flattened.set_shape([*tensor.dims[:outer], size, *tensor.dims[inner + 1 :]])
    return flattened


for _maker in (from_tensor, from_sparse, to_sparse, to_tensor, bounding_shape, merge_axes):
    makers.register(_maker.__name__, _maker)
