"""Slices: Slice, StridedSlice with its masks, assignment to slices, and `tensor[...]`.

A StridedSlice has vectors begin, end and strides, with one entry per item of the brackets, and five
bit masks that change the meaning of entries: begin or end omitted, an ellipsis, a new axis, or a
single index that removes its axis.
"""

from __future__ import annotations

__all__ = ["slice", "strided_slice"]

import builtins
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.constant_value import partial_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import WRITES, Traits
from weft_graph.ir.value_rules import arrays, value_rule
from weft_graph.ops import cost_rules
from weft_graph.ops.masks import boolean_mask
from weft_graph.ops.shape_rules import vector_as_dims
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dimension, Dims, compatible_dims, format_dims

Entries = Sequence["int | None"]
Index = tuple[Any, ...]


class Masks(NamedTuple):
    """The bit masks of a StridedSlice; bit i refers to entry i."""

    begin: int = 0
    end: int = 0
    ellipsis: int = 0
    new_axis: int = 0
    shrink_axis: int = 0


_MASK_NAMES = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def masks_of(attrs: Mapping[str, Any]) -> Masks:
    """Return the masks among the attributes of a node."""
    return Masks(*[attrs[name] for name in _MASK_NAMES])


def index_of(begin: Sequence[int], end: Sequence[int], strides: Sequence[int], m: Masks) -> Index:
    """Return the equivalent index of NumPy's basic indexing.

    Raises: InvalidArgumentError: a stride is 0, a single index has a negative stride, or there
      are two ellipses.
    """
    check_masks(m, len(begin))
    key: list[Any] = []
    for i, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << i
        if m.ellipsis & bit:
            key.append(Ellipsis)
        elif m.new_axis & bit:
            key.append(None)
        else:
            check_stride(i, step, bool(m.shrink_axis & bit))
            if m.shrink_axis & bit:
                key.append(first)
            else:
                start = None if m.begin & bit else first
                stop = None if m.end & bit else last
                key.append(builtins.slice(start, stop, step))
    return tuple(key)


def check_masks(m: Masks, count: int) -> None:
    """Raise InvalidArgumentError if the masks mark two ellipses among `count` entries."""
    ellipses = m.ellipsis & ((1 << count) - 1)
    if ellipses & (ellipses - 1):
        raise errors.InvalidArgumentError("a slice may have one ellipsis, got several")


def check_stride(i: int, stride: int | None, single: bool) -> None:
    """Raise InvalidArgumentError if the stride of entry i is 0, or negative for a single index."""
    if stride == 0:
        raise errors.InvalidArgumentError(f"strides[{i}] must not be 0")
    if single and stride is not None and stride < 0:
        raise errors.InvalidArgumentError(f"strides[{i}] must be 1 at a single index, got {stride}")


# ------------------------------------------------------------------------------ shape rules


def strided_slice_dims(
    dims: Dims, begin: Entries, end: Entries, strides: Entries, m: Masks
) -> Dims:
    """Return the static shape of a StridedSlice with possibly unknown entries.

    Raises: InvalidArgumentError: there are more entries than axes, a single index is out of range,
      or as `index_of`.
    """
    count = len(begin)
    check_masks(m, count)
    consuming = 0
    for i in range(count):
        bit = 1 << i
        consuming += not (m.ellipsis & bit or m.new_axis & bit)
    has_ellipsis = bool(m.ellipsis & ((1 << count) - 1))
    if dims is None:
        for i in range(count):
            if not m.ellipsis & (1 << i):
                check_stride(i, strides[i], bool(m.shrink_axis & ~m.new_axis & (1 << i)))
        return None
    if consuming > len(dims):
        raise errors.InvalidArgumentError(
            f"the slice indexes {consuming} axes, got shape {format_dims(dims)} of rank {len(dims)}"
        )
    spare = len(dims) - consuming
    result: list[int | None] = []
    axis = 0
    for i in range(count):
        bit = 1 << i
        if m.ellipsis & bit:
            result.extend(dims[axis : axis + spare])
            axis += spare
            continue
        if m.new_axis & bit:
            result.append(1)
            continue
        single = bool(m.shrink_axis & bit)
        check_stride(i, strides[i], single)
        if single:
            _check_index(i, begin[i], dims[axis], axis)
        else:
            first = _Bound(begin[i], bool(m.begin & bit))
            last = _Bound(end[i], bool(m.end & bit))
            result.append(_range_size(dims[axis], first, last, strides[i]))
        axis += 1
    if not has_ellipsis:
        result.extend(dims[axis:])
    return tuple(result)


class _Bound(NamedTuple):
    value: int | None
    left_out: bool


def _check_index(i: int, index: int | None, size: int | None, axis: int) -> None:
    if index is not None and size is not None and not -size <= index < size:
        raise errors.InvalidArgumentError(
            f"slice index {index} of axis {axis} is out of range for size {size}"
        )


def _range_size(size: int | None, first: _Bound, last: _Bound, step: int | None) -> int | None:
    if step is None:
        return 0 if size == 0 else None
    if size is not None:
        if (first.value is None and not first.left_out) or (
            last.value is None and not last.left_out
        ):
            return 0 if size == 0 else None
        bounds = builtins.slice(
            None if first.left_out else first.value, None if last.left_out else last.value, step
        )
        return len(range(*bounds.indices(size)))
    if first.left_out and last.left_out and step in (1, -1):
        return None
    # With no size known only an interval that is empty in any case is known.
    if first.value is None or last.value is None or first.left_out or last.left_out:
        return None
    same_side = (first.value < 0) == (last.value < 0)
    empty = same_side and (last.value - first.value) * step <= 0
    return 0 if empty else None


def _strided_slice_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_slice_dims(node, node.inputs[0].dims, *node.inputs[1:4]),)


def _slice_dims(node: NodeSpec, dims: Dims, begin: Output, end: Output, strides: Output) -> Dims:
    count = _entry_count(begin, end, strides)
    if count is None:
        return None
    blank = [None] * count
    static_values = [partial_value(vector) for vector in (begin, end, strides)]
    first, last, step = [blank if vector is None else vector.tolist() for vector in static_values]
    return strided_slice_dims(dims, first, last, step, masks_of(node.attrs))


def _entry_count(*vectors: Output) -> int | None:
    count: int | None = None
    for vector in vectors:
        if vector.dims is None:
            continue
        if len(vector.dims) != 1:
            raise errors.InvalidArgumentError(
                f"begin, end and strides must be vectors, got shape {format_dims(vector.dims)}"
            )
        length = vector.dims[0]
        if count is not None and length is not None and length != count:
            raise errors.InvalidArgumentError(
                f"begin, end and strides must have equal lengths, got {count} and {length}"
            )
        count = length if count is None else count
    return count


def _strided_slice_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    shape, begin, end, strides, grad = node.inputs
    dims = vector_as_dims(shape, "shape")
    _check_assigned(_slice_dims(node, dims, begin, end, strides), grad)
    return (dims,)


def _slice_assign_shape(node: NodeSpec) -> Sequence[Dims]:
    target, begin, end, strides, value = node.inputs
    _check_assigned(_slice_dims(node, target.dims, begin, end, strides), value)
    return (target.dims,)


def _slice_update_shape(node: NodeSpec) -> Sequence[Dims]:
    return _slice_assign_shape(node)


def _resource_assign_shape(node: NodeSpec) -> Sequence[Dims]:
    return ()


def _check_assigned(part: Dims, value: Output) -> None:
    if part is None or value.dims is None or compatible_dims(part, value.dims):
        return
    lead = len(part) - len(value.dims)
    fits = lead >= 0 and all(
        dim in (1, None, expected) or expected is None
        for dim, expected in zip(value.dims, part[max(lead, 0) :], strict=False)
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"the value assigned must have the slice's shape {format_dims(part)}, "
            f"got shape {format_dims(value.dims)}"
        )


def _slice_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    vectors = node.inputs[1], node.inputs[2]
    count = _entry_count(*vectors)
    if dims is None:
        if count is None:
            return (None,)
        dims = (None,) * count
    if count is not None and count != len(dims):
        raise errors.InvalidArgumentError(
            f"begin and size must have one entry per axis of {format_dims(dims)}, got {count}"
        )
    static_values = [partial_value(vector) for vector in vectors]
    begin, size = [[None] * len(dims) if v is None else v.tolist() for v in static_values]
    return (tuple(map(_slice_size, range(len(dims)), dims, begin, size)),)


def _slice_size(axis: int, dim: int | None, begin: int | None, size: int | None) -> int | None:
    if size is not None and size < -1:
        raise errors.InvalidArgumentError(f"size[{axis}] must be at least -1, got {size}")
    if begin is not None and (begin < 0 or (dim is not None and begin > dim)):
        raise errors.InvalidArgumentError(
            f"begin[{axis}] must be in [0, {'size' if dim is None else dim}], got {begin}"
        )
    if size == -1:
        return None if dim is None or begin is None else dim - begin
    if size is not None and dim is not None and (begin or 0) + size > dim:
        raise errors.InvalidArgumentError(
            f"begin[{axis}] + size[{axis}] must be at most {dim}, got {begin} + {size}"
        )
    return size


# ------------------------------------------------------------------------------ values


@value_rule(partial=True)
def _slice_value(node: Node, index: int, values: Values) -> Array | None:
    value, begin, size = arrays(values)
    if object in (begin.dtype, size.dtype):
        return None
    pairs = zip(begin.tolist(), size.tolist(), strict=True)
    return value[tuple([builtins.slice(b, None if n == -1 else b + n) for b, n in pairs])]


@value_rule(partial=True)
def _strided_slice_value(node: Node, index: int, values: Values) -> Array | None:
    value, begin, end, strides = arrays(values)
    if object in (begin.dtype, end.dtype, strides.dtype):
        return None
    key = index_of(begin.tolist(), end.tolist(), strides.tolist(), masks_of(node.attrs))
    return np.asarray(value[(*key, ...)] if Ellipsis not in key else value[key])


# ------------------------------------------------------------------------------ declarations

_INDEX = "{int16, int32, int64}"
_SPEC = ("begin: Index", "end: Index", "strides: Index")
_ATTRS = {"T": "type", "Index": _INDEX, **dict.fromkeys(_MASK_NAMES, "int = 0")}

register_op(
    "Slice",
    ("input: T", "begin: Index", "size: Index"),
    ("output: T",),
    {"T": "type", "Index": "{int32, int64}"},
    _slice_shape,
    value=_slice_value,
    traits=Traits(view=0, cost=cost_rules.gather_bytes),
    doc="The slice of shape `size` at `begin`; a size of -1 extends to the end of the axis.",
)
register_op(
    "StridedSlice",
    ("input: T", *_SPEC),
    ("output: T",),
    _ATTRS,
    _strided_slice_shape,
    value=_strided_slice_value,
    traits=Traits(view=0, cost=cost_rules.gather_bytes),
    doc="NumPy's basic indexing: ranges with steps, single indices, an ellipsis, new axes.",
)
register_op(
    "StridedSliceGrad",
    ("shape: Index", *_SPEC, "dy: T"),
    ("output: T",),
    _ATTRS,
    _strided_slice_grad_shape,
    doc="Zeros of shape `shape` with `dy` at the slice.",
)
register_op(
    "StridedSliceAssign",
    ("ref: Ref(T)", *_SPEC, "value: T"),
    ("output_ref: Ref(T)",),
    _ATTRS,
    _slice_assign_shape,
    traits=WRITES,
    doc="Assigns `value` to a slice of a variable.",
)
register_op(
    "ResourceStridedSliceAssign",
    ("ref: resource", *_SPEC, "value: T"),
    (),
    _ATTRS,
    _resource_assign_shape,
    traits=WRITES,
    doc="Assigns `value` to a slice of a variable.",
)
register_op(
    "TensorStridedSliceUpdate",
    ("input: T", *_SPEC, "value: T"),
    ("output: T",),
    _ATTRS,
    _slice_update_shape,
    doc="`input` with the slice replaced by `value`.",
)

# ---------------------------------------------------------------------------------- functions


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Output:
    """Return the slice of shape `size` that starts at `begin`.

    Args:
      input_: any type, rank n.
      begin: integers, shape (n,), each at least 0.
      size: integers, shape (n,); -1 extends to the end of the axis.
    Raises: InvalidArgumentError: the slice is not inside the tensor.

    Examples:
      >>> wf.Session().run(wf.slice([[1, 2, 3], [4, 5, 6]], [0, 1], [2, 2]))
      array([[2, 3],
             [5, 6]], dtype=int32)
    """
    return out("Slice", [input_, *_to_common_type(begin, size)], name=name)


def _to_common_type(*vectors: Any) -> list[Output]:
    """Convert vectors of integers to a common type: int64 if one has it, else int32."""
    index_type = dtypes.int32
    for vector in vectors:
        items = vector if isinstance(vector, list | tuple) else [vector]
        if any(getattr(item, "dtype", None) == dtypes.int64 for item in items):
            index_type = dtypes.int64
    result = []
    for vector in vectors:
        if isinstance(vector, list | tuple):
            vector = [item.value if isinstance(item, Dimension) else item for item in vector]
            vector = [_cast(i, index_type) if isinstance(i, Output) else i for i in vector]
        elif isinstance(vector, np.ndarray):
            vector = vector.astype(index_type.numpy)
        if not isinstance(vector, Output):
            vector = convert_to_tensor(vector, index_type)
        result.append(_cast(vector, index_type))
    return result


def _cast(value: Output, dtype: dtypes.DType) -> Output:
    return value if value.dtype.base_dtype is dtype else out("Cast", [value], {"DstT": dtype})


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Output:
    """Return a slice with steps, described by one entry per axis.

    Args:
      input_: any type and shape.
      begin, end, strides: integers, shape (n,); strides are 1 by default.
      begin_mask, end_mask: bits of entries whose bound is omitted.
      ellipsis_mask: bit of the entry that represents all remaining axes.
      new_axis_mask: bits of entries that insert an axis of size 1.
      shrink_axis_mask: bits of entries that select one index and remove the axis.
      var: accepted for compatibility; `strided_slice_assign` assigns to slices of variables.
    Raises: InvalidArgumentError: a stride is 0, an index is out of range, or there are too many
      entries.

    Examples:
      >>> wf.Session().run(wf.strided_slice([1, 2, 3, 4, 5], [0], [5], [2]))
      array([1, 3, 5], dtype=int32)
    """
    begin, end = _to_common_type(begin, end)
    if strides is None:
        strides = out("OnesLike", [begin])
    begin, end, strides = _to_common_type(begin, end, strides)
    masks = (begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    attrs = dict(zip(_MASK_NAMES, masks, strict=True))
    return out("StridedSlice", [input_, begin, end, strides], attrs, name)


def strided_slice_assign(ref: Any, key: Any, value: Any, name: str | None = None) -> Output | Node:
    """Assign `value` to the slice `ref[key]` of a variable.

    Args:
      ref: an output of a reference type, or a resource handle.
      key: the index, as in brackets.
      value: same element type, a shape that broadcasts to that of the slice.
    Returns: the reference, or the node for a handle.
    """
    (begin, end, strides), masks = _parse(key)
    attrs = dict(zip(_MASK_NAMES, masks, strict=True))
    if ref.dtype is dtypes.resource:
        return create("ResourceStridedSliceAssign", [ref, begin, end, strides, value], attrs, name)
    return out("StridedSliceAssign", [ref, begin, end, strides, value], attrs, name)


def getitem(tensor: Any, key: Any, name: str | None = None) -> Output:
    """Return `tensor[key]` for integers, slices, `...`, None, integer outputs, or a bool mask.

    Raises:
      InvalidTypeError: the key has an item of another type.
      InvalidArgumentError: an index is out of range, or there are too many.
    """
    if _is_mask(key):
        return boolean_mask(tensor, key)
    (begin, end, strides), masks = _parse(key)
    attrs = dict(zip(_MASK_NAMES, masks, strict=True))
    return out("StridedSlice", [tensor, begin, end, strides], attrs, name or "strided_slice")


def _is_mask(key: Any) -> bool:
    if isinstance(key, Output):
        return key.dtype.base_dtype is dtypes.bool_
    if isinstance(key, np.ndarray):
        return bool(key.dtype.kind == "b")
    return isinstance(key, bool | np.bool_)


def _parse(key: Any) -> tuple[tuple[Output, Output, Output], Masks]:
    """Return begin, end and strides as outputs, and the masks."""
    entries = tuple(key) if isinstance(key, tuple | list) else (key,)
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    begin_mask = end_mask = ellipsis = new_axis = shrink = 0
    dynamic = False
    for i, entry in enumerate(entries):
        bit = 1 << i
        first: Any = 0
        last: Any = 0
        step: Any = 1
        if entry is Ellipsis:
            ellipsis |= bit
        elif entry is None:
            new_axis |= bit
        elif isinstance(entry, builtins.slice):
            first, last, step = map(_bound, (entry.start, entry.stop, entry.step))
            if first is None:
                begin_mask, first = begin_mask | bit, 0
            if last is None:
                end_mask, last = end_mask | bit, 0
            step = 1 if step is None else step
        else:
            first = _bound(entry)
            last = first + 1 if isinstance(first, int) else first  # not read at a single index
            shrink |= bit
        dynamic = dynamic or any(isinstance(bound, Output) for bound in (first, last, step))
        for column, bound in zip(columns, (first, last, step), strict=True):
            column.append(bound)
    masks = Masks(begin_mask, end_mask, ellipsis, new_axis, shrink)
    if dynamic:
        begin, end, strides = _to_common_type(*columns)
        return (begin, end, strides), masks
    fits = all(-(2**31) <= bound < 2**31 for column in columns for bound in column)
    dtype = np.int32 if fits else np.int64
    begin, end, strides = [constant_of(np.array(column, dtype)) for column in columns]
    return (begin, end, strides), masks


_FAR = 1 << 62
"""An index beyond the end of any tensor, to which larger bounds are clipped."""


def _bound(value: Any) -> Any:
    """Return one bound: None, an int, or an integer output of rank 0.

    Raises: InvalidTypeError: it is not one of these.
    """
    if value is None or (type(value) is int and -_FAR < value < _FAR):
        return value
    if isinstance(value, Dimension):
        return value.value
    convert = getattr(value, "_as_output", None)
    if convert is not None:
        value = convert(False)
    if isinstance(value, Output):
        if not value.dtype.base_dtype.is_integer or value.dims not in (None, ()):
            raise errors.InvalidTypeError(
                f"a tensor used as an index must be an integer of rank 0, got {value!r}"
            )
        wide = dtypes.int64 if value.dtype.size > 4 else dtypes.int32
        return value if value.dtype.base_dtype is wide else _cast(value, wide)
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return max(-_FAR, min(operator.index(value), _FAR))
    except TypeError:
        raise errors.InvalidTypeError(
            "a tensor is indexed by integers, slices, `...`, None, integer tensors or one mask, "
            f"got {value!r} of type {type(value).__name__}"
        ) from None
