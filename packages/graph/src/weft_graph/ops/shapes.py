"""Shapes of tensors: reading and changing them, and passing them to ops as vectors."""

from __future__ import annotations

__all__ = [
    "expand_dims",
    "rank",
    "reshape",
    "shape",
    "shape_n",
    "size",
    "squeeze",
]
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft_graph.ir.builder import (
    constant_of,
    convert_to_tensor,
    create,
    out,
    register_tensor_conversion_function,
)
from weft_graph.ir.constant_value import constant_value_as_dims, partial_value
from weft_graph.ir.costs import free
from weft_graph.ir.indexed_slices import is_sparse
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import array_values
from weft_graph.ops.shape_rules import constant_array, normal_axis, scalar
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import (
    Dimension,
    Dims,
    TensorShape,
    as_dims,
    format_dims,
    is_fully_defined,
    num_elements,
)

# ------------------------------------------------------------------------------ shape rules


def _shapes_shape(node: NodeSpec) -> Sequence[Dims]:
    return [(None,) if v.dims is None else (len(v.dims),) for v in node.inputs]


def _reshape_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, vector = node.inputs[0].dims, node.inputs[1]
    if vector.dims is not None and len(vector.dims) != 1:
        raise errors.InvalidArgumentError(
            f"shape must be a vector, got shape {format_dims(vector.dims)}"
        )
    target = partial_value(vector)
    if target is None:
        return (constant_value_as_dims(vector),)
    return (reshape_dims(dims, target.tolist()),)


def reshape_dims(dims: Dims, target: list[int | None]) -> Dims:
    """Return the shape after a Reshape of `dims` to `target`, with None for unknown entries.

    Raises: InvalidArgumentError: the sizes do not match, or -1 is repeated.
    """
    sizes: list[int | None] = []
    free: int | None = None
    for i, size in enumerate(target):
        if size is not None and size < -1:
            raise errors.InvalidArgumentError(f"size {i} of shape must be at least -1, got {size}")
        if size == -1:
            if free is not None:
                raise errors.InvalidArgumentError(f"only one size of shape may be -1, got {target}")
            free = i
        sizes.append(None if size == -1 else size)
    actual = num_elements(dims)
    missing = [i for i, size in enumerate(sizes) if size is None]
    remaining = 1
    for size in sizes:
        remaining *= 1 if size is None else size
    if len(missing) == 1:
        if free is not None and remaining == 0:
            sizes[free] = _infer_free_size(dims, target)
        elif actual is not None and remaining and not (actual == 0 and free is None):
            if actual % remaining:
                raise _reshape_misfit(dims, target, actual, remaining)
            sizes[missing[0]] = actual // remaining
        elif actual is None and dims is not None and remaining:
            sizes[missing[0]] = _cancel_unknown_size(dims, remaining)
    elif not missing and actual is not None and actual != remaining:
        raise _reshape_misfit(dims, target, actual, remaining)
    return tuple(sizes)


def _infer_free_size(dims: Dims, target: list[int | None]) -> int | None:
    """Return the size for -1 if another size is 0."""
    if dims is None or None in dims:
        return None
    actual = prod(size for size in dims if size is not None)
    nonzero_count = prod(size for size in dims if size)
    target_count = prod(size for size in target if size and size > 0)
    if actual or nonzero_count % target_count:
        raise errors.InvalidArgumentError(
            f"no size in place of -1 gives shape {target} the same number of elements as "
            f"{format_dims(dims)}"
        )
    return nonzero_count // target_count


def _cancel_unknown_size(dims: tuple[int | None, ...], remaining: int) -> int | None:
    """Return the free size if it equals one unknown size of `dims`; it is known only if it is 0."""
    static_count = num_elements(tuple([size for size in dims if size is not None]))
    return 0 if static_count == 0 and remaining else None


def _reshape_misfit(
    dims: Dims, target: list[int | None], actual: int, required: int
) -> errors.InvalidArgumentError:
    kind = "a multiple of " if -1 in target else ""
    return errors.InvalidArgumentError(
        f"shape {format_dims(dims)} has {actual} elements, but shape {target} requires "
        f"{kind}{required}"
    )


def _expand_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axis = constant_array(node.inputs[1])
    if axis is not None and axis.size != 1:
        raise errors.InvalidArgumentError(f"axis must be one integer, got {axis.tolist()}")
    if dims is None:
        return (None,)
    if axis is None:
        return ((None,) * (len(dims) + 1),)
    dim = normal_axis(int(axis.reshape(-1)[0]), len(dims) + 1)
    return ((*dims[:dim], 1, *dims[dim:]),)


def _squeeze_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axes = node.attrs["squeeze_dims"]
    if dims is None:
        return (None,)
    if not axes:
        return (None if None in dims else tuple([size for size in dims if size != 1]),)
    squeezed = {normal_axis(axis, len(dims)) for axis in axes}
    for axis in sorted(squeezed):
        if dims[axis] not in (1, None):
            raise errors.InvalidArgumentError(
                f"axis {axis} must have size 1 to be squeezed, got shape {format_dims(dims)}"
            )
    return (tuple([size for i, size in enumerate(dims) if i not in squeezed]),)


# ------------------------------------------------------------------------------ declarations


_OUT_TYPE = {"T": "type", "out_type": "{int32, int64} = int32"}
register_op(
    "Shape",
    ("input: T",),
    ("output: out_type",),
    _OUT_TYPE,
    _shapes_shape,
    value=array_values.shape_value,
    traits=Traits(differentiable=False, cost=free, shape_only=frozenset({0})),
)
register_op(
    "ShapeN",
    ("input: N * T",),
    ("output: N * out_type",),
    {"N": "int >= 1", **_OUT_TYPE},
    _shapes_shape,
    value=array_values.shape_value,
    traits=Traits(differentiable=False, cost=free, shape_only=frozenset({0})),
)
register_op(
    "Size",
    ("input: T",),
    ("output: out_type",),
    _OUT_TYPE,
    scalar,
    value=array_values.size_value,
    traits=Traits(differentiable=False, cost=free, shape_only=frozenset({0})),
)
register_op(
    "Rank",
    ("input: T",),
    ("output: int32",),
    {"T": "type"},
    scalar,
    value=array_values.rank_value,
    traits=Traits(differentiable=False, cost=free, shape_only=frozenset({0})),
)
register_op(
    "Reshape",
    ("tensor: T", "shape: Tshape"),
    ("output: T",),
    {"T": "type", "Tshape": "{int32, int64} = int32"},
    _reshape_shape,
    value=array_values.reshape_value,
    traits=Traits(reshapes=True, view=0, cheap=True),
)
register_op(
    "ExpandDims",
    ("input: T", "dim: Tdim"),
    ("output: T",),
    {"T": "type", "Tdim": "{int32, int64} = int32"},
    _expand_shape,
    value=array_values.expand_value,
    traits=Traits(view=0, cheap=True),
)
register_op(
    "Squeeze",
    ("input: T",),
    ("output: T",),
    {"T": "type", "squeeze_dims": "list(int) = []"},
    _squeeze_shape,
    value=array_values.squeeze_value,
    traits=Traits(reshapes=True, view=0, cheap=True),
)

# ---------------------------------------------------------------- conversion of shapes


def shape_vector(value: Any, dtype: DType | None = None, name: str | None = None) -> Output:
    """Convert a shape (sizes, a TensorShape or an output) to a vector of integers.

    Args:
      value: an output, an array, a fully defined shape, or sizes, some of which may be outputs.
      dtype: element type if `value` is not an output; int32 by default, int64 if a size requires
        it.
    Raises: InvalidArgumentError: a size is unknown.
    """
    if isinstance(value, Output):
        return value
    if isinstance(value, TensorShape | Dimension):
        return _sizes(as_dims(value), dtype, value, name)
    if isinstance(value, tuple | list):
        items = [item.value if isinstance(item, Dimension) else item for item in value]
        if all(item is None or isinstance(item, int | np.integer) for item in items):
            return _sizes(tuple(items), dtype, value, name)
        return convert_to_tensor(items, dtype, name)
    return convert_to_tensor(value, dtype, name, preferred_dtype=dtypes.int32)


def _sizes(dims: Dims, dtype: DType | None, value: Any, name: str | None) -> Output:
    if dims is None or None in dims:
        raise errors.InvalidArgumentError(
            f"a shape used as a tensor must be fully defined, got {value}"
        )
    if dtype is None:
        fits = all(-(2**31) <= size < 2**31 for size in dims if size is not None)
        dtype = dtypes.int32 if fits else dtypes.int64
    try:
        array = np.array(dims, dtype.numpy)
    except OverflowError:
        raise errors.InvalidArgumentError(
            f"sizes must fit in {dtype.name}, got {format_dims(dims)}"
        ) from None
    return constant_of(array, name=name or "Const")


def _convert_shape(
    value: Any, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Output:
    return _sizes(as_dims(value), dtype, value, name)


def _convert_dimension(
    value: Dimension, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Output:
    if value.value is None:
        raise errors.InvalidArgumentError("an unknown size cannot be used as a tensor")
    return constant_of(np.array(value.value, (dtype or dtypes.int32).numpy), name=name or "Const")


register_tensor_conversion_function(TensorShape, _convert_shape)
register_tensor_conversion_function(Dimension, _convert_dimension)

# -------------------------------------------------------------------------------- functions


def shape(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Output:
    """Return the shape of a tensor or SparseTensor: shape (rank,), a constant if it is static.

    Args:
      out_type: int32 or int64.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None, 3])
      >>> wf.Session().run(wf.shape(x), {x: np.zeros([2, 3])})
      array([2, 3], dtype=int32)
    """
    return shape_internal(input, name, optimize=True, out_type=out_type)


def shape_internal(
    input: Any, name: str | None = None, optimize: bool = True, out_type: Any = dtypes.int32
) -> Output:
    """Return the shape of a tensor; a constant if it is static and `optimize` is True."""
    element_type = dtypes.as_dtype(out_type)
    if is_sparse(input):
        return _cast(convert_to_tensor(input.dense_shape), element_type, name)
    value = convert_to_tensor(input)
    if optimize and is_fully_defined(value.dims):
        return constant_of(np.array(value.dims, element_type.numpy), name=name or "Shape")
    return out("Shape", [value], {"out_type": element_type}, name)


def shape_n(
    input: Sequence[Any], out_type: Any = dtypes.int32, name: str | None = None
) -> list[Output]:
    """Return the shapes of tensors of the same type.

    Args:
      input: list of tensors of the same type, any shapes.
      out_type: int32 or int64.
    Returns: a list of vectors, one for each tensor.

    Examples:
      >>> wf.Session().run(wf.shape_n([wf.zeros([2]), wf.zeros([3, 4])]))
      [array([2], dtype=int32), array([3, 4], dtype=int32)]
    """
    return list(create("ShapeN", [list(input)], {"out_type": out_type}, name).outputs)


def size(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Output:
    """Return the number of elements: an integer of rank 0, a constant if the shape is static.

    Args:
      input: any type and shape.
      out_type: int32 or int64.

    Examples:
      >>> wf.Session().run(wf.size([[1, 2], [3, 4]]))
      np.int32(4)
    """
    element_type = dtypes.as_dtype(out_type)
    if is_sparse(input):
        axes = constant_of(np.array([0], np.int32))
        sizes = convert_to_tensor(input.dense_shape)
        return out("Prod", [_cast(sizes, element_type), axes], name=name)
    value = convert_to_tensor(input)
    count = num_elements(value.dims)
    if count is not None:
        return constant_of(np.array(count, element_type.numpy), name=name or "Size")
    return out("Size", [value], {"out_type": element_type}, name)


def rank(input: Any, name: str | None = None) -> Output:
    """Return the rank: int32, rank 0, a constant if it is static.

    Args:
      input: any type and shape.

    Examples:
      >>> wf.Session().run(wf.rank([[1, 2], [3, 4]]))
      np.int32(2)
    """
    if is_sparse(input):
        return out("Size", [input.dense_shape], {"out_type": dtypes.int32}, name)
    value = convert_to_tensor(input)
    if value.dims is not None:
        return constant_of(np.array(len(value.dims), np.int32), name=name or "Rank")
    return out("Rank", [value], name=name)


def _cast(value: Output, dtype: DType, name: str | None = None) -> Output:
    if value.dtype.base_dtype is dtype:
        return value if name is None else out("Identity", [value], name=name)
    return out("Cast", [value], {"DstT": dtype}, name)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Output:
    """Return the same elements in another shape.

    Args:
      tensor: any type and shape.
      shape: sizes; one may be -1 and is then inferred.
    Raises: InvalidArgumentError: the numbers of elements differ, or -1 is repeated.

    Examples:
      >>> wf.Session().run(wf.reshape([1, 2, 3, 4], [2, -1]))
      array([[1, 2],
             [3, 4]], dtype=int32)
    """
    return out("Reshape", [tensor, shape_vector(shape)], name=name)


def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Output:
    """Insert an axis of size 1 at index `axis` of the result; negative ones count from its end.

    Args:
      dim: deprecated name of `axis`.
    Raises: InvalidArgumentError: `axis` is missing or not in [-1 - rank, rank].

    Examples:
      >>> wf.expand_dims(wf.zeros([2, 3]), 0).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(3)])
    """
    axis = deprecated_argument("axis", axis, "dim", dim)
    if axis is None:
        raise errors.InvalidArgumentError("expand_dims requires axis")
    return out("ExpandDims", [input, axis], name=name)


def squeeze(
    input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None
) -> Output:
    """Remove axes of size 1: those in `axis`, or all by default.

    Args:
      input: any type and shape.
      axis: int or list of ints: axes of size 1; also `squeeze_dims`. All axes of size 1 by default.
    Returns: the remaining axes, dtype of `input`.
    Raises: InvalidArgumentError: the size of an axis in `axis` is not 1, or it is out of range.

    Examples:
      >>> wf.Session().run(wf.squeeze([[[1], [2]]], axis=0))
      array([[1],
             [2]], dtype=int32)
    """
    axis = deprecated_argument("axis", axis, "squeeze_dims", squeeze_dims)
    axes = () if axis is None else (axis,) if np.ndim(axis) == 0 else tuple(axis)
    return out("Squeeze", [input], {"squeeze_dims": axes}, name)


def deprecated_argument(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Return the value of an argument that also has a deprecated name.

    Raises: InvalidArgumentError: both are passed.
    """
    if old is None:
        return new
    if new is not None:
        raise errors.InvalidArgumentError(
            f"{old_name} is the deprecated name of {new_name}: give only one of them"
        )
    return old
