"""Concatenating and splitting tensors: concat, split, stack, unstack, tile."""

from __future__ import annotations

__all__ = ["concat", "split", "stack", "tile", "unstack"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.constant_value import partial_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ir.value_rules import MAX_ELEMENTS, arrays, value_rule
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import (
    constant_array,
    constant_int,
    merge_size,
    normal_axis,
    scalar_int,
    with_rank,
)
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.nesting import too_deep_error
from weft_tensor.shape import Dims, format_dims, merge_dims, num_elements

# ------------------------------------------------------------------------------ shape rules


def concat_dims(parts: Sequence[Output], axis_input: Output) -> Dims:
    """Return the static shape of a concatenation; None if no part's rank is known.

    Args:
      parts: tensors of the same rank with equal sizes along the other axes.
      axis_input: integer, shape (): the axis.
    Raises: InvalidArgumentError: ranks or other sizes differ, or the axis is out of range.
    """
    axis = constant_int(axis_input)
    ranked = [part.dims for part in parts if part.dims is not None]
    if not ranked:
        return None
    rank = len(ranked[0])
    for dims in ranked:
        if len(dims) != rank:
            raise errors.InvalidArgumentError(
                "concatenated tensors must have equal ranks, got shapes "
                f"{format_dims(ranked[0])} and {format_dims(dims)}"
            )
    if rank == 0:
        raise errors.InvalidArgumentError("tensors of rank 0 cannot be concatenated; use stack")
    if axis is None:
        return (None,) * rank
    dim = normal_axis(axis, rank)
    total: int | None = 0
    merged: list[int | None] = [None] * rank
    for part in parts:
        if part.dims is None:
            total = None
            continue
        for i, size in enumerate(part.dims):
            if i != dim:
                merged[i] = merge_size(
                    merged[i], size, f"sizes at axis {i} of concatenated tensors"
                )
        size = part.dims[dim]
        total = None if total is None or size is None else total + size
    merged[dim] = total
    return tuple(merged)


def _concat_shape(node: NodeSpec) -> Sequence[Dims]:
    return (concat_dims(node.inputs[1:], node.inputs[0]),)


def _concat_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    return (concat_dims(node.inputs[:-1], node.inputs[-1]),)


def _concat_offset_shape(node: NodeSpec) -> Sequence[Dims]:
    scalar_int(node.inputs[0], "concat_dim")
    return [with_rank(shape.dims, 1, "shape") for shape in node.inputs[1:]]


def _split_shape(node: NodeSpec) -> Sequence[Dims]:
    axis, value = node.inputs
    count: int = node.attrs["num_split"]
    dim = scalar_int(axis, "split_dim")
    if value.dims is None:
        return (None,) * count
    if dim is None:
        return ((None,) * len(value.dims),) * count
    dim = normal_axis(dim, len(value.dims))
    size = value.dims[dim]
    if size is not None and size % count:
        raise errors.InvalidArgumentError(
            f"the size at axis {dim} must be a multiple of {count} to be split evenly, "
            f"got shape {format_dims(value.dims)}"
        )
    part = None if size is None else size // count
    return ((*value.dims[:dim], part, *value.dims[dim + 1 :]),) * count


def _split_v_shape(node: NodeSpec) -> Sequence[Dims]:
    value, sizes, axis = node.inputs
    count: int = node.attrs["num_split"]
    if sizes.dims is not None and sizes.dims not in ((count,), (None,)):
        raise errors.InvalidArgumentError(
            f"size_splits must have shape [{count}], got {format_dims(sizes.dims)}"
        )
    dim = scalar_int(axis, "split_dim")
    if value.dims is None:
        return (None,) * count
    if dim is None:
        return ((None,) * len(value.dims),) * count
    dim = normal_axis(dim, len(value.dims))
    static = partial_value(sizes)
    part_sizes = [None] * count if static is None else static.tolist()
    parts = split_sizes(part_sizes, value.dims[dim], dim)
    return [(*value.dims[:dim], part, *value.dims[dim + 1 :]) for part in parts]


def split_sizes(size_list: Sequence[int | None], size: int | None, axis: int) -> list[int | None]:
    """Return the sizes of the parts of an axis; one requested size may be -1, for the rest.

    Raises: InvalidArgumentError: they do not add up to `size`, or -1 is repeated.
    """
    parts = list(size_list)
    if any(part is not None and part < -1 for part in parts) or parts.count(-1) > 1:
        raise errors.InvalidArgumentError(
            f"sizes of parts must be at least 0, and one may be -1, got {parts}"
        )
    if None in parts:
        return [None if part == -1 else part for part in parts]
    total = sum(part for part in parts if part is not None and part >= 0)
    if -1 in parts:
        if size is not None and total > size:
            raise errors.InvalidArgumentError(
                f"sizes {parts} exceed the size {size} at axis {axis}"
            )
        parts[parts.index(-1)] = None if size is None else size - total
    elif size is not None and total != size:
        raise errors.InvalidArgumentError(
            f"sizes of parts must add up to {size}, the size at axis {axis}, "
            f"got {parts} with the sum {total}"
        )
    return parts


def _pack_shape(node: NodeSpec) -> Sequence[Dims]:
    dims: Dims = None
    for value in node.inputs:
        dims = merge_dims(dims, value.dims)
    if dims is None:
        return (None,)
    dim = normal_axis(node.attrs["axis"], len(dims) + 1)
    return ((*dims[:dim], len(node.inputs), *dims[dim:]),)


def _unpack_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    count: int = node.attrs["num"]
    if dims is None:
        return (None,) * count
    if not dims:
        raise errors.InvalidArgumentError("a tensor of rank 0 cannot be unstacked")
    dim = normal_axis(node.attrs["axis"], len(dims))
    if dims[dim] not in (None, count):
        raise errors.InvalidArgumentError(
            f"num must be the size {dims[dim]} at axis {dim}, got {count}"
        )
    return ((*dims[:dim], *dims[dim + 1 :]),) * count


def _tile_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, vector = node.inputs[0].dims, node.inputs[1]
    with_rank(vector.dims, 1, "multiples")
    static = partial_value(vector)
    if static is not None and any(n is not None and n < 0 for n in static.tolist()):
        raise errors.InvalidArgumentError(f"multiples must be at least 0, got {static.tolist()}")
    if dims is None:
        if static is None:
            return (None,)
        dims = (None,) * len(static)
    if vector.dims is not None and vector.dims not in ((len(dims),), (None,)):
        raise errors.InvalidArgumentError(
            f"multiples must have one entry per axis of {format_dims(dims)}, "
            f"got shape {format_dims(vector.dims)}"
        )
    if static is None:
        return ((None,) * len(dims),)
    return (tuple(map(_product, dims, static.tolist())),)


def _product(a: int | None, b: int | None) -> int | None:
    if a == 0 or b == 0:
        return 0
    return None if a is None or b is None else a * b


# ------------------------------------------------------------------------------ values


@value_rule(partial=True)
def _pack_value(node: Node, index: int, values: Values) -> Array | None:
    return np.stack(arrays(values), axis=node.attrs["axis"])


@value_rule(partial=True)
def _unpack_value(node: Node, index: int, values: Values) -> Array | None:
    return np.moveaxis(arrays(values)[0], node.attrs["axis"], 0)[index, ...]


@value_rule(partial=True)
def _concat_v2_value(node: Node, index: int, values: Values) -> Array | None:
    *parts, axis = arrays(values)
    return np.concatenate(parts, axis=int(axis))


@value_rule(partial=True)
def _concat_value(node: Node, index: int, values: Values) -> Array | None:
    axis, *parts = arrays(values)
    return np.concatenate(parts, axis=int(axis))


@value_rule(partial=True)
def _split_value(node: Node, index: int, values: Values) -> Array | None:
    axis, value = arrays(values)
    return np.split(value, node.attrs["num_split"], axis=int(axis))[index]


@value_rule(partial=True)
def _split_v_value(node: Node, index: int, values: Values) -> Array | None:
    value, sizes, axis = arrays(values)
    counts = [int(n) for n in sizes.tolist()]
    if -1 in counts:
        counts[counts.index(-1)] = value.shape[int(axis)] - sum(counts) - 1
    return np.split(value, np.cumsum(counts)[:-1].tolist(), axis=int(axis))[index]


@value_rule(partial=True)
def _tile_value(node: Node, index: int, values: Values) -> Array | None:
    value, multiples = arrays(values)
    counts = [int(n) for n in multiples.tolist()]
    if value.size * (num_elements(tuple(counts)) or 0) > MAX_ELEMENTS:
        return None
    return np.tile(value, counts)


# ------------------------------------------------------------------------------ declarations

register_op(
    "Concat",
    ("concat_dim: int32", "values: N * T"),
    ("output: T",),
    {"N": "int >= 1", "T": "type"},
    _concat_shape,
    value=_concat_value,
)
register_op(
    "ConcatV2",
    ("values: N * T", "axis: Tidx"),
    ("output: T",),
    {"N": "int >= 1", "T": "type", "Tidx": "{int32, int64} = int32"},
    _concat_v2_shape,
    value=_concat_v2_value,
)
register_op(
    "ConcatOffset",
    ("concat_dim: int32", "shape: N * int32"),
    ("offset: N * int32",),
    {"N": "int >= 1"},
    _concat_offset_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The start of each part in the concatenation, from the parts' shapes.",
)
register_op(
    "Split",
    ("split_dim: int32", "value: T"),
    ("output: num_split * T",),
    {"num_split": "int >= 1", "T": "type"},
    _split_shape,
    value=_split_value,
    traits=Traits(view=1, cost=cost_rules.gather_bytes),
)
register_op(
    "SplitV",
    ("value: T", "size_splits: Tlen", "split_dim: int32"),
    ("output: num_split * T",),
    {"num_split": "int >= 1", "T": "type", "Tlen": "{int32, int64} = int64"},
    _split_v_shape,
    value=_split_v_value,
    traits=Traits(view=0, cost=cost_rules.gather_bytes),
)
register_op(
    "Pack",
    ("values: N * T",),
    ("output: T",),
    {"N": "int >= 1", "T": "type", "axis": "int = 0"},
    _pack_shape,
    value=_pack_value,
    traits=Traits(stacks=True),
)
register_op(
    "Unpack",
    ("value: T",),
    ("output: num * T",),
    {"num": "int >= 0", "T": "type", "axis": "int = 0"},
    _unpack_shape,
    value=_unpack_value,
    traits=Traits(unstacks=True, view=0, cost=cost_rules.gather_bytes),
)
register_op(
    "Tile",
    ("input: T", "multiples: Tmultiples"),
    ("output: T",),
    {"T": "type", "Tmultiples": "{int32, int64} = int32"},
    _tile_shape,
    value=_tile_value,
    traits=Traits(cheap=True),
)

# ---------------------------------------------------------------------------------- functions


def concat(values: Any, axis: Any, name: str | None = None) -> Output:
    """Concatenate tensors along an existing axis.

    Args:
      values: tensors of the same type and rank, with equal sizes along the other axes.
      axis: integer of rank 0, may be negative.
    Returns: the size at `axis` is the sum of the sizes of the values.
    Raises: InvalidArgumentError: ranks or sizes differ, or `axis` is out of range.

    Examples:
      >>> wf.Session().run(wf.concat([[[1, 2]], [[3, 4]]], axis=0))
      array([[1, 2],
             [3, 4]], dtype=int32)
    """
    if _is_int(values):
        raise errors.InvalidTypeError(
            "concat(values, axis) has the axis as its last argument since TensorFlow 1.0; got "
            f"{values!r} as "
            "the values"
        )
    parts = list(values) if isinstance(values, list | tuple) else [values]
    if len(parts) == 1:
        value = convert_to_tensor(parts[0])
        dim = (
            constant_int(convert_to_tensor(axis, dtypes.int32)) if not _is_int(axis) else int(axis)
        )
        if dim is not None and value.dims is not None:
            normal_axis(dim, len(value.dims))
        return out("Identity", [value], name=name or "concat")
    return out("ConcatV2", [parts, axis], name=name or "concat")


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def split(
    value: Any,
    num_or_size_splits: Any,
    axis: Any = 0,
    num: int | None = None,
    name: str | None = None,
) -> list[Output]:
    """Split a tensor along an axis.

    Args:
      value: any type, rank at least 1.
      num_or_size_splits: a number of equal parts, or the sizes of the parts as a vector.
      axis: integer of rank 0.
      num: number of parts, if the static shape of a vector of sizes does not determine it.
    Raises: InvalidArgumentError: the sizes do not add up, or the number of parts is unknown.

    Examples:
      >>> wf.Session().run(wf.split([1, 2, 3, 4], 2))
      [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]
    """
    if _is_int(value):
        raise errors.InvalidTypeError(
            "split(value, num_or_size_splits, axis) takes the axis last, as since TensorFlow 1.0; "
            f"got {value!r} as the value"
        )
    if _is_int(num_or_size_splits):
        attrs = {"num_split": int(num_or_size_splits)}
        return list(create("Split", [axis, value], attrs, name or "split").outputs)
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.dims == ():
        count = constant_array(sizes)
        if count is None:
            raise errors.InvalidArgumentError(
                f"the number of parts must be known while the graph is built, got {sizes!r}"
            )
        attrs = {"num_split": check_integer(count.item(), "the number of parts")}
        return list(create("Split", [axis, value], attrs, name or "split").outputs)
    if num is None:
        num = sizes.dims[0] if sizes.dims else None
        if num is None:
            raise errors.InvalidArgumentError(
                f"the number of parts cannot be inferred from {sizes!r}: pass num"
            )
    return list(create("SplitV", [value, sizes, axis], {"num_split": num}, name or "split").outputs)


def stack(values: Any, axis: int = 0, name: str = "stack") -> Output:
    """Stack tensors of rank R along a new axis, to rank R + 1.

    Args:
      values: tensors of the same type and shape.
      axis: index of the new axis, in [-(R + 1), R].
    Raises: InvalidArgumentError: shapes differ, there are no values, or `axis` is out of range.

    Examples:
      >>> wf.Session().run(wf.stack([[1, 2], [3, 4]], axis=1))
      array([[1, 3],
             [2, 4]], dtype=int32)
    """
    if axis == 0 and isinstance(values, np.ndarray) and values.ndim:
        return convert_to_tensor(values, name=name)
    parts = list(values) if isinstance(values, list | tuple | range) else unstack(values)
    if axis == 0 and parts and not _holds_outputs(parts):
        return convert_to_tensor(parts, name=name)
    return out("Pack", [parts], {"axis": axis}, name)


def _holds_outputs(values: Sequence[Any]) -> bool:
    try:
        return any(
            _holds_outputs(v)
            if isinstance(v, list | tuple)
            else isinstance(v, Output | AppliesOps | np.ndarray) or hasattr(v, "_as_output")
            for v in values
        )
    except RecursionError:
        raise too_deep_error(values) from None


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str = "unstack"
) -> list[Output]:
    """Split a tensor of rank R along an axis into tensors of rank R - 1.

    Args:
      num: the number of tensors, if it is not static.
      axis: index of the axis, in [-R, R).
    Raises: InvalidArgumentError: the number is unknown or wrong, or `axis` is out of range.

    Examples:
      >>> wf.Session().run(wf.unstack([[1, 2], [3, 4]]))
      [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]
    """
    tensor = convert_to_tensor(value)
    if num is None:
        dims = tensor.dims
        if dims is not None:
            num = dims[normal_axis(check_integer(axis, "axis"), len(dims))]
        if num is None:
            raise errors.InvalidArgumentError(
                f"the number of parts cannot be inferred from shape {format_dims(dims)}: pass num"
            )
    return list(create("Unpack", [tensor], {"num": num, "axis": axis}, name).outputs)


def tile(input: Any, multiples: Any, name: str | None = None) -> Output:
    """Repeat a tensor `multiples[i]` times along axis i.

    Args:
      input: any type, rank n.
      multiples: integers at least 0, shape (n,).

    Examples:
      >>> wf.Session().run(wf.tile([1, 2], [2]))
      array([1, 2, 1, 2], dtype=int32)
    """
    return out("Tile", [input, multiples], name=name)
