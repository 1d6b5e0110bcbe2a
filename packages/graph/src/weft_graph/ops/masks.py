"""Functions composed of array ops: masks, grids, repetition, paddings for blocks."""

from __future__ import annotations

__all__ = [
    "boolean_mask",
    "meshgrid",
    "parallel_stack",
    "repeat",
    "required_space_to_batch_paddings",
    "sequence_mask",
    "where",
    "where_v2",
]

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import array, broadcasting, gather, join, shapes
from weft_graph.ops.shape_rules import constant_array, normal_axis
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_whole_number
from weft_tensor.shape import Dims, compatible_dims, format_dims, num_elements


def boolean_mask(
    tensor: Any, mask: Any, name: str = "boolean_mask", axis: int | None = None
) -> Output:
    """Return the elements, or slices, where a mask is True.

    Args:
      tensor: any type, shape (A, M, R).
      mask: bool, shape M of known rank at least 1.
      axis: the number of axes in A, 0 by default.
    Returns: shape (A, n, R) for n True elements.
    Raises: InvalidArgumentError: the shapes do not match, or the mask's rank is unknown or 0.

    Examples:
      >>> wf.Session().run(wf.boolean_mask([1, 2, 3], [True, False, True]))
      array([1, 3], dtype=int32)
    """
    with _name_scope(name):
        values = convert_to_tensor(tensor)
        mask_tensor = convert_to_tensor(mask, dtypes.bool_)
        if mask_tensor.dims is None or not mask_tensor.dims:
            raise errors.InvalidArgumentError(
                "the rank of a mask must be known and at least 1, got shape "
                f"{format_dims(mask_tensor.dims)}"
            )
        count = len(mask_tensor.dims)
        dim = _mask_axis(axis, values)
        if values.dims is not None and not compatible_dims(
            values.dims[dim : dim + count], mask_tensor.dims
        ):
            raise errors.InvalidArgumentError(
                f"the mask must fit the axes from {dim} on of shape {format_dims(values.dims)}, "
                f"got shape {format_dims(mask_tensor.dims)}"
            )
        if count > 1:
            values = shapes.reshape(values, _merge_axes_shape(values, dim, count))
        flat = mask_tensor if count == 1 else shapes.reshape(mask_tensor, [-1])
        positions = shapes.squeeze(out("Where", [flat]), axis=[1])
        return gather.gather(values, positions, axis=dim)


def _mask_axis(axis: Any, values: Output) -> int:
    if axis is None:
        return 0
    if isinstance(axis, Output):
        static = constant_array(axis)
        if static is None:
            raise errors.InvalidArgumentError("axis must be known while the graph is built")
        axis = int(static)
    if axis < 0 and values.dims is None:
        raise errors.InvalidArgumentError("a negative axis requires a tensor of known rank")
    return int(axis) if values.dims is None else normal_axis(int(axis), len(values.dims))


def _merge_axes_shape(values: Output, dim: int, count: int) -> Any:
    """Return the shape with `count` axes, starting at `dim`, merged into one."""
    dims = values.dims
    if dims is not None:
        middle = num_elements(dims[dim : dim + count])
        merged: Dims = (*dims[:dim], middle, *dims[dim + count :])
        if merged is not None and merged.count(None) <= 1:
            return [-1 if size is None else size for size in merged]
    shape = shapes.shape(values)
    return join.concat(
        [shape[:dim], constant_of(np.array([-1], np.int32)), shape[dim + count :]], 0
    )


def _name_scope(name: str | None) -> Any:
    return get_default_graph().name_scope(name)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Output:
    """Return the indices of True; with `x` and `y`, select between their elements.

    Args:
      condition: bool, any shape; for selection the shape of `x`, or one bool per row.
      x, y: of the same type and shape; both or neither.
    Returns: int64, shape (n, rank), in row-major order; or the shape of `x`.
    Raises: InvalidArgumentError: only one of `x` and `y` is passed, or shapes do not match.

    Examples:
      >>> wf.Session().run(wf.where([True, False], [1, 2], [10, 20]))
      array([ 1, 20], dtype=int32)
    """
    if x is None and y is None:
        return out("Where", [condition], name=name)
    if x is None or y is None:
        raise errors.InvalidArgumentError("where takes both x and y, or neither")
    return out("Select", [condition, x, y], name=name)


def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Output:
    """Return `where` with broadcasting of `condition`, `x` and `y`.

    Args:
      condition: bool, any shape.
      x, y: of the same type; their shapes and that of `condition` broadcast. Both or neither.
    Returns: the elements of `x` where True, else of `y`; without them, the int64 indices of True,
      shape (n, rank).

    Examples:
      >>> wf.Session().run(wf.where_v2([[True], [False]], [1, 2], 0))
      array([[1, 2],
             [0, 0]], dtype=int32)
    """
    if x is None or y is None:
        return where(condition, x, y, name)
    return out("SelectV2", [condition, x, y], name=name)


def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool_, name: str | None = None
) -> Output:
    """Return masks whose first `lengths` elements are True.

    Args:
      lengths: integers, shape (I).
      maxlen: integer of rank 0; the largest length by default.
      dtype: element type of the result.
    Returns: shape (I, maxlen).
    Raises: InvalidArgumentError: the rank of `maxlen` is not 0.

    Examples:
      >>> wf.Session().run(wf.sequence_mask([1, 3], 3))
      array([[ True, False, False],
             [ True,  True,  True]])
    """
    with _name_scope(name or "SequenceMask"):
        counts = convert_to_tensor(lengths)
        kind = counts.dtype.base_dtype
        if maxlen is None:
            flat = shapes.reshape(counts, [-1])
            longest = out(
                "Max", [join.concat([flat, constant_of(np.zeros(1, kind.numpy))], 0), [0]]
            )
        else:
            longest = convert_to_tensor(
                check_whole_number(maxlen, "maxlen") if isinstance(maxlen, float) else maxlen
            )
            if longest.dims not in ((), None):
                raise errors.InvalidArgumentError(
                    f"maxlen must have rank 0, got shape {format_dims(longest.dims)}"
                )
            if longest.dtype.base_dtype is not kind:  # neither may wrap around in the other's type
                wide = kind if kind.is_floating or kind is dtypes.uint64 else dtypes.int64
                counts, longest = (
                    x if x.dtype.base_dtype is wide else out("Cast", [x], {"DstT": wide})
                    for x in (counts, longest)
                )
                kind = wide
        zero, unit = [constant_of(np.array(n, kind.numpy)) for n in (0, 1)]
        row = out("Range", [zero, longest, unit])
        result = out("Less", [row, shapes.expand_dims(counts, -1)])
        element_type = dtypes.as_dtype(dtype)
        return (
            result
            if element_type is dtypes.bool_
            else out("Cast", [result], {"DstT": element_type})
        )


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[Output]:
    """Return the coordinates of the points of a grid.

    Args:
      *args: n vectors of the same type.
      indexing: "xy" (the first two axes swapped) or "ij".
    Returns: n tensors of rank n.
    Raises: InvalidArgumentError: `indexing` is unknown.

    Examples:
      >>> wf.Session().run(wf.meshgrid([1, 2], [3, 4]))
      [array([[1, 2],
             [1, 2]], dtype=int32), array([[3, 3],
             [4, 4]], dtype=int32)]
    """
    if indexing not in ("xy", "ij"):
        raise errors.InvalidArgumentError(f"indexing must be 'xy' or 'ij', got {indexing!r}")
    with _name_scope(name):
        count = len(args)
        vectors = [convert_to_tensor(value) for value in args]
        positions = list(range(count))
        if indexing == "xy" and count > 1:
            positions[0], positions[1] = 1, 0
        spread = []
        for position, vector in zip(positions, vectors, strict=True):
            shape = [1] * count
            shape[position] = -1
            spread.append(shapes.reshape(vector, shape))
        sizes: list[Any] = [None] * count
        for position, vector in zip(positions, vectors, strict=True):
            sizes[position] = shapes.size(vector)
        static_sizes = [constant_array(size) for size in sizes]
        static = [int(n) for n in static_sizes if n is not None]
        dims: Any = static if len(static) == count else join.stack(sizes)
        return [broadcasting.broadcast_to(value, dims) for value in spread]


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Output:
    """Repeat each element or slice.

    Args:
      input: any type and shape; flattened if `axis` is None or the rank is 0.
      repeats: integer of rank 0, or one per element along `axis`.
      axis: axis of the slices to repeat.
    Raises: InvalidTypeError: `repeats` are not integers.

    Examples:
      >>> wf.Session().run(wf.repeat([1, 2], [2, 3]))
      array([1, 1, 2, 2, 2], dtype=int32)
    """
    with _name_scope(name or "Repeat"):
        values = convert_to_tensor(input)
        if axis is None:
            values, axis = shapes.reshape(values, [-1]), 0
        elif not values.dims:
            values = _reshape_scalar_to_vector(values)
        if values.dims is not None:
            axis = normal_axis(axis, len(values.dims))
        counts = _counts(repeats)
        size = shapes.shape(values)[axis]
        counts_by_element = broadcasting.broadcast_to(
            shapes.reshape(counts, [-1]), shapes.reshape(size, [1])
        )
        mask = sequence_mask(counts_by_element)
        longest = shapes.shape(mask)[1]
        grid = broadcasting.broadcast_to(
            shapes.expand_dims(out("Range", [0, size, 1]), 1), join.stack([size, longest])
        )
        return gather.gather(values, boolean_mask(grid, mask), axis=axis)


def _reshape_scalar_to_vector(values: Output) -> Output:
    """Reshape a scalar to one element, even if its rank is known only at run time."""
    if values.dims is not None:
        return shapes.reshape(values, [1])
    sizes = join.concat([[1], shapes.shape(values)], 0)
    return shapes.reshape(values, sizes[-out("Maximum", [shapes.rank(values), 1]) :])


def _counts(repeats: Any) -> Output:
    if not isinstance(repeats, Output):
        return convert_to_tensor(repeats, dtypes.int32)
    if not repeats.dtype.is_integer:
        raise errors.InvalidTypeError(f"repeats must be integers, got {repeats!r}")
    if repeats.dtype.base_dtype in (dtypes.int32, dtypes.int64):
        return repeats
    return out("Cast", [repeats], {"DstT": dtypes.int64})


def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Output, Output]:
    """Return paddings that make sizes multiples of the block, and crops that undo them.

    Args:
      input_shape, block_shape: int32, shape (n,).
      base_paddings: int32 at least 0, shape (n, 2), the smallest paddings; zeros by default.
    Returns: paddings and crops, int32, shape (n, 2).

    Examples:
      >>> paddings, crops = wf.required_space_to_batch_paddings([5], [2])
      >>> wf.Session().run([paddings, crops])
      [array([[0, 1]], dtype=int32), array([[0, 1]], dtype=int32)]
    """
    with _name_scope(name or "required_space_to_batch_paddings"):
        sizes = convert_to_tensor(input_shape, dtypes.int32)
        blocks = convert_to_tensor(block_shape, dtypes.int32)
        if blocks.dims is None or blocks.dims[0] is None:
            raise errors.InvalidArgumentError("block_shape must have a known length")
        count = blocks.dims[0]
        if count == 0:
            empty = array.zeros([0, 2], dtypes.int32)
            return empty, empty
        base = (
            array.zeros([count, 2], dtypes.int32)
            if base_paddings is None
            else convert_to_tensor(base_paddings, dtypes.int32)
        )
        before, after = base[:, 0], base[:, 1]
        extra = (blocks - (sizes + before + after) % blocks) % blocks
        return (
            join.stack([before, after + extra], axis=1),
            join.stack([array.zeros_like(extra), extra], axis=1),
        )


def parallel_stack(values: Any, name: str = "parallel_stack") -> Output:
    """Stack tensors along a new first axis.

    Args:
      values: tensors of the same type and static shape S.
    Returns: shape (N, S).

    Examples:
      >>> wf.Session().run(wf.parallel_stack([wf.constant([1, 2]), wf.constant([3, 4])]))
      array([[1, 2],
             [3, 4]], dtype=int32)
    """
    return join.stack(values, 0, name)
