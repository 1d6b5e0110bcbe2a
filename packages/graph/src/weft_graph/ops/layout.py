"""Moving elements: padding, transposition, reversal, rolling, blocks to channels and back."""

from __future__ import annotations

__all__ = [
    "batch_to_space",
    "batch_to_space_nd",
    "depth_to_space",
    "extract_image_patches",
    "invert_permutation",
    "matrix_transpose",
    "pad",
    "reverse",
    "reverse_sequence",
    "roll",
    "space_to_batch",
    "space_to_batch_nd",
    "space_to_depth",
    "transpose",
]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.constant_value import partial_value
from weft_graph.ir.costs import once
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ir.value_rules import arrays, value_rule
from weft_graph.ops.shape_rules import (
    constant_array,
    merge_size,
    normal_axes,
    normal_axis,
    with_rank,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims

_INT = "{int32, int64} = int32"

# ------------------------------------------------------------------------------ shape rules


def _pairs(dims: Dims, vector: Output, what: str) -> list[list[int | None]] | None:
    """A table of (before, after) per axis, entries None where not known, or None altogether."""
    if vector.dims is not None:
        with_rank(vector.dims, 2, what)
        rows, columns = vector.dims
        wrong_rows = rows is not None and dims is not None and rows != len(dims)
        if wrong_rows or columns not in (2, None):
            wanted = "n" if dims is None else len(dims)
            raise errors.InvalidArgumentError(
                f"{what} must have shape [{wanted},2], got {format_dims(vector.dims)}"
            )
    known = partial_value(vector)
    if known is None:
        return None
    table: list[list[int | None]] = known.reshape(-1, 2).tolist()
    for row in table:
        if any(entry is not None and entry < 0 for entry in row):
            raise errors.InvalidArgumentError(f"{what} must be at least 0, got {table}")
    return table


def _pad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = _pairs(dims, node.inputs[1], "paddings")
    if dims is None:
        rows = node.inputs[1].dims
        return (None if rows is None or rows[0] is None else (None,) * rows[0],)
    if table is None:
        return ((None,) * len(dims),)
    return (tuple(map(_padded, dims, table)),)


def _padded(size: int | None, pair: list[int | None]) -> int | None:
    before, after = pair
    if size is None or before is None or after is None:
        return None
    return size + before + after


def _mirror_pad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = _pairs(dims, node.inputs[1], "paddings")
    if dims is not None and table is not None:
        less = 1 if node.attrs["mode"] == "REFLECT" else 0
        for axis, (size, pair) in enumerate(zip(dims, table, strict=True)):
            for entry in pair:
                if size is not None and entry is not None and entry > size - less:
                    raise errors.InvalidArgumentError(
                        f"paddings at axis {axis} must be at most {size - less} for "
                        f"{node.attrs['mode']}, got {pair}"
                    )
    return _pad_shape(node)


def _mirror_pad_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = _pairs(dims, node.inputs[1], "paddings")
    if dims is None:
        return (None,)
    if table is None:
        return ((None,) * len(dims),)
    negated = [[None if n is None else -n for n in pair] for pair in table]
    return (tuple(map(_padded, dims, negated)),)


def _transpose_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, perm = node.inputs[0].dims, node.inputs[1]
    known = constant_array(perm)
    if dims is None:
        length = perm.dims[0] if perm.dims else None
        return (None if length is None else (None,) * length,)
    if perm.dims is not None and perm.dims not in ((len(dims),), (None,)):
        raise errors.InvalidArgumentError(
            f"perm must have one entry per axis of {format_dims(dims)}, "
            f"got shape {format_dims(perm.dims)}"
        )
    if known is None:
        return ((None,) * len(dims),)
    order = known.tolist()
    check_permutation(order, len(dims))
    return (tuple([dims[i] for i in order]),)


def check_permutation(order: Sequence[int], rank: int) -> None:
    """Raise InvalidArgumentError unless `order` is a permutation of range(rank)."""
    if sorted(order) != list(range(rank)):
        raise errors.InvalidArgumentError(
            f"perm must be a permutation of 0 to {rank - 1}, got {list(order)}"
        )


def _vector_shape(node: NodeSpec) -> Sequence[Dims]:
    return (with_rank(node.inputs[0].dims, 1, "the permutation"),)


def _reverse_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, flags = node.inputs[0].dims, node.inputs[1].dims
    if dims is not None and flags is not None and flags not in ((len(dims),), (None,)):
        raise errors.InvalidArgumentError(
            f"dims must have one flag per axis of {format_dims(dims)}, got {format_dims(flags)}"
        )
    return (dims,)


def _reverse_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, axes = node.inputs[0].dims, constant_array(node.inputs[1])
    if dims is not None and axes is not None:
        normal_axes(axes.reshape(-1).tolist(), len(dims))
    return (dims,)


def _reverse_sequence_shape(node: NodeSpec) -> Sequence[Dims]:
    dims, lengths = node.inputs[0].dims, node.inputs[1].dims
    (count,) = with_rank(lengths, 1, "seq_lengths")
    if dims is None:
        return (None,)
    batch = normal_axis(node.attrs["batch_dim"], len(dims), "batch_dim")
    along = normal_axis(node.attrs["seq_dim"], len(dims), "seq_dim")
    if batch == along:
        raise errors.InvalidArgumentError(f"batch_dim and seq_dim must differ, both are {batch}")
    size = merge_size(dims[batch], count, "the batch size and the number of lengths")
    return ((*dims[:batch], size, *dims[batch + 1 :]),)


def _roll_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axes = constant_array(node.inputs[2])
    if dims is not None and axes is not None:
        for axis in axes.reshape(-1).tolist():
            normal_axis(axis, len(dims))
    shift = node.inputs[1].dims
    if shift is not None and node.inputs[2].dims is not None and shift != node.inputs[2].dims:
        raise errors.InvalidArgumentError(
            f"shift and axis must have one shape, got {format_dims(shift)} and "
            f"{format_dims(node.inputs[2].dims)}"
        )
    return (dims,)


def _space_to_batch_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_blocks(node, to_batch=True),)


def _batch_to_space_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_blocks(node, to_batch=False),)


def _blocks(node: NodeSpec, to_batch: bool) -> Dims:
    value, block_input, margin_input = node.inputs
    dims = value.dims
    (count,) = with_rank(block_input.dims, 1, "block_shape")
    known = partial_value(block_input)
    if dims is None or count is None:
        return None
    if len(dims) < count + 1:
        raise errors.InvalidArgumentError(
            f"the input must have rank at least {count + 1} for a block_shape of {count} sizes, "
            f"got shape {format_dims(dims)}"
        )
    blocks = [None] * count if known is None else known.tolist()
    if any(block is not None and block < 1 for block in blocks):
        raise errors.InvalidArgumentError(f"block_shape must be at least 1, got {blocks}")
    what = "paddings" if to_batch else "crops"
    margins = _pairs(dims[1 : count + 1], margin_input, what) or [[None, None]] * count
    inner = dims[1 : count + 1]
    move = _to_batch if to_batch else _to_space
    sizes = [move(i, *row) for i, row in enumerate(zip(inner, blocks, margins, strict=True))]
    batch = dims[0]
    volume = None if None in blocks else math.prod(b for b in blocks if b is not None)
    if batch is None or volume is None:
        batch = None
    elif to_batch:
        batch *= volume
    elif batch % volume:
        raise errors.InvalidArgumentError(
            f"the batch size must be a multiple of {volume} for block_shape {blocks}, got {batch}"
        )
    else:
        batch //= volume
    return (batch, *sizes, *dims[count + 1 :])


def _to_batch(i: int, size: int | None, block: int | None, pair: list[int | None]) -> int | None:
    padded = _padded(size, pair)
    if padded is None or block is None:
        return None
    if padded % block:
        raise errors.InvalidArgumentError(
            f"the padded size at axis {i + 1} must be a multiple of {block}, got {padded}"
        )
    return padded // block


def _to_space(i: int, size: int | None, block: int | None, pair: list[int | None]) -> int | None:
    before, after = pair
    if size is None or block is None or before is None or after is None:
        return None
    if before + after > size * block:
        raise errors.InvalidArgumentError(
            f"crops at axis {i + 1} must be at most {size * block} together, got {pair}"
        )
    return size * block - before - after


def _space_to_depth_shape(node: NodeSpec) -> Sequence[Dims]:
    block: int = node.attrs["block_size"]
    return (_exchange(node, lambda h, w, c: (_divide(h, block), _divide(w, block), c * block**2)),)


def _depth_to_space_shape(node: NodeSpec) -> Sequence[Dims]:
    block: int = node.attrs["block_size"]
    return (_exchange(node, lambda h, w, c: (h * block, w * block, _divide(c, block**2))),)


def _divide(size: int, by: int) -> int:
    if size % by:
        raise errors.InvalidArgumentError(f"sizes must be multiples of {by}, got {size}")
    return size // by


class _Unknown(int):
    """A size that is not known, through products and quotients."""

    def __mul__(self, other: Any) -> _Unknown:
        return self

    def __floordiv__(self, other: Any) -> _Unknown:
        return self

    def __mod__(self, other: Any) -> int:
        return 0


def _exchange(node: NodeSpec, move: Any) -> Dims:
    dims = with_rank(node.inputs[0].dims, 4, "the input")
    first = node.attrs["data_format"] == "NCHW"
    batch, *rest = dims
    c, h, w = (rest[0], *rest[1:]) if first else (rest[2], *rest[:2])
    sizes = [_Unknown() if size is None else size for size in (h, w, c)]
    h, w, c = [None if isinstance(size, _Unknown) else size for size in move(*sizes)]
    return (batch, c, h, w) if first else (batch, h, w, c)


def _patches_shape(node: NodeSpec) -> Sequence[Dims]:
    batch, height, width, depth = with_rank(node.inputs[0].dims, 4, "images")
    _, kh, kw, _ = node.attrs["ksizes"]
    _, sh, sw, _ = node.attrs["strides"]
    _, rh, rw, _ = node.attrs["rates"]
    same = node.attrs["padding"] == "SAME"
    rows = _window_count(height, (kh - 1) * rh + 1, sh, same)
    columns = _window_count(width, (kw - 1) * rw + 1, sw, same)
    return ((batch, rows, columns, None if depth is None else depth * kh * kw),)


def _window_count(size: int | None, extent: int, stride: int, same: bool) -> int | None:
    if size is None:
        return None
    if not same and extent > size:
        raise errors.InvalidArgumentError(f"a window of {extent} does not fit a size of {size}")
    return -(-size // stride) if same else (size - extent) // stride + 1


# ------------------------------------------------------------------------------ values


@value_rule(partial=True)
def _reverse_value(node: Node, index: int, values: Values) -> Array | None:
    value, axes = arrays(values)
    return np.flip(value, tuple([int(n) for n in axes.tolist()]))


@value_rule(partial=True)
def _transpose_value(node: Node, index: int, values: Values) -> Array | None:
    value, perm = arrays(values)
    return np.transpose(value, [int(n) for n in perm.tolist()])


# ------------------------------------------------------------------------------ declarations

_PADDINGS = {"T": "type", "Tpaddings": _INT}
_MIRROR = {**_PADDINGS, "mode": "{'REFLECT', 'SYMMETRIC'}"}

register_op("Pad", ("input: T", "paddings: Tpaddings"), ("output: T",), _PADDINGS, _pad_shape)
register_op(
    "PadV2",
    ("input: T", "paddings: Tpaddings", "constant_values: T"),
    ("output: T",),
    _PADDINGS,
    _pad_shape,
)
register_op(
    "MirrorPad", ("input: T", "paddings: Tpaddings"), ("output: T",), _MIRROR, _mirror_pad_shape
)
register_op(
    "MirrorPadGrad",
    ("input: T", "paddings: Tpaddings"),
    ("output: T",),
    _MIRROR,
    _mirror_pad_grad_shape,
    doc="The transpose of MirrorPad: margins are added back to where they were copied from.",
)
for _name, _cheap, _value in (
    ("Transpose", True, _transpose_value),
    ("ConjugateTranspose", False, None),
):
    register_op(
        _name,
        ("x: T", "perm: Tperm"),
        ("y: T",),
        {"T": "type", "Tperm": _INT},
        _transpose_shape,
        value=_value,
        traits=Traits(view=0, cheap=_cheap, cost=once),  # whoever reads it pays
    )
register_op(
    "InvertPermutation", ("x: T",), ("y: T",), {"T": _INT}, _vector_shape, traits=NOT_DIFFERENTIABLE
)
register_op("Reverse", ("tensor: T", "dims: bool"), ("output: T",), {"T": "type"}, _reverse_shape)
register_op(
    "ReverseV2",
    ("tensor: T", "axis: Tidx"),
    ("output: T",),
    {"Tidx": _INT, "T": "type"},
    _reverse_v2_shape,
    value=_reverse_value,
)
register_op(
    "ReverseSequence",
    ("input: T", "seq_lengths: Tlen"),
    ("output: T",),
    {"seq_dim": "int", "batch_dim": "int = 0", "T": "type", "Tlen": "{int32, int64} = int64"},
    _reverse_sequence_shape,
)
register_op(
    "Roll",
    ("input: T", "shift: Tshift", "axis: Taxis"),
    ("output: T",),
    {"T": "type", "Tshift": "{int32, int64}", "Taxis": "{int32, int64}"},
    _roll_shape,
)
register_op(
    "SpaceToBatchND",
    ("input: T", "block_shape: Tblock_shape", "paddings: Tpaddings"),
    ("output: T",),
    {"T": "type", "Tblock_shape": _INT, "Tpaddings": _INT},
    _space_to_batch_shape,
)
register_op(
    "BatchToSpaceND",
    ("input: T", "block_shape: Tblock_shape", "crops: Tcrops"),
    ("output: T",),
    {"T": "type", "Tblock_shape": _INT, "Tcrops": _INT},
    _batch_to_space_shape,
)
for _name, _rule in (
    ("SpaceToDepth", _space_to_depth_shape),
    ("DepthToSpace", _depth_to_space_shape),
):
    register_op(
        _name,
        ("input: T",),
        ("output: T",),
        {"T": "type", "block_size": "int >= 2", "data_format": "{'NHWC', 'NCHW'} = 'NHWC'"},
        _rule,
    )
register_op(
    "ExtractImagePatches",
    ("images: T",),
    ("patches: T",),
    {
        "ksizes": "list(int) >= 4",
        "strides": "list(int) >= 4",
        "rates": "list(int) >= 4",
        "T": "{realnumbertype}",
        "padding": "{'SAME', 'VALID'}",
    },
    _patches_shape,
)

# ---------------------------------------------------------------------------------- functions


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Output:
    """A tensor with margins.

    Args:
      tensor: any type, rank n.
      paddings: integers at least 0, shape (n, 2): elements before and after, per axis.
      mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in any case.
      constant_values: what the margins hold in mode CONSTANT.
    Raises: InvalidArgumentError: the mode is unknown, or a margin larger than its mirror.

    Examples:
      >>> wf.Session().run(wf.pad([1, 2], [[1, 2]]))
      array([0, 1, 2, 0, 0], dtype=int32)
    """
    upper = mode.upper()
    if upper == "CONSTANT":
        if isinstance(constant_values, int | float) and constant_values == 0:
            return out("Pad", [tensor, paddings], name=name)
        return out("PadV2", [tensor, paddings, constant_values], name=name)
    if upper not in ("REFLECT", "SYMMETRIC"):
        raise errors.InvalidArgumentError(
            f"mode must be CONSTANT, REFLECT or SYMMETRIC, got {mode!r}"
        )
    return out("MirrorPad", [tensor, paddings], {"mode": upper}, name)


def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Output:
    """Axes in another order: axis i of the result is axis `perm[i]` of `a`.

    Args:
      a: any type, rank n.
      perm: a permutation of 0 to n - 1, shape (n,); the reverse order by default.
      conjugate: take the complex conjugate as well.
    Raises: InvalidArgumentError: `perm` is no permutation.

    Examples:
      >>> wf.Session().run(wf.transpose([[1, 2, 3], [4, 5, 6]]))
      array([[1, 4],
             [2, 5],
             [3, 6]], dtype=int32)
    """
    value = convert_to_tensor(a)
    op = "ConjugateTranspose" if conjugate and value.dtype.is_complex else "Transpose"
    if perm is None:
        if value.dims is not None:
            perm = constant_of(np.arange(len(value.dims), dtype=np.int32)[::-1].copy())
        else:
            rank = out("Rank", [value])
            last = out("Sub", [rank, 1])
            perm = out("Sub", [last, out("Range", [0, rank, 1])])
    return out(op, [value, perm], name=name)


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Output:
    """The last two axes exchanged.

    Args:
      a: any type, rank at least 2.
      conjugate: take the complex conjugate as well.
    Raises: InvalidArgumentError: the rank is below 2.

    Examples:
      >>> wf.Session().run(wf.matrix_transpose([[1, 2], [3, 4]]))
      array([[1, 3],
             [2, 4]], dtype=int32)
    """
    value = convert_to_tensor(a)
    if value.dims is not None:
        rank = len(value.dims)
        if rank < 2:
            raise errors.InvalidArgumentError(
                f"a matrix must have rank at least 2, got shape {format_dims(value.dims)}"
            )
        order = [*range(rank - 2), rank - 1, rank - 2]
        return transpose(value, constant_of(np.array(order, np.int32)), name, conjugate)
    count = out("Rank", [value])
    lead = out("Range", [0, out("Sub", [count, 2]), 1])
    tail = out("Pack", [[out("Sub", [count, 1]), out("Sub", [count, 2])]])
    return transpose(value, out("ConcatV2", [[lead, tail], 0]), name, conjugate)


def invert_permutation(x: Any, name: str | None = None) -> Output:
    """The permutation y with y[x[i]] = i: integers, shape (n,).

    Args:
      x: int32 or int64, shape (n,): each of 0 to n - 1 once.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: at run time, if `x` is no permutation.

    Examples:
      >>> wf.Session().run(wf.invert_permutation([2, 0, 1]))
      array([1, 2, 0], dtype=int32)
    """
    return out("InvertPermutation", [x], name=name)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Output:
    """The order of elements reversed along the axes in `axis`, a vector of integers.

    Args:
      tensor: any type, any shape.
      axis: vector of integers; negative ones count from the end.
    Returns: shape and dtype of `tensor`.

    Examples:
      >>> wf.Session().run(wf.reverse([1, 2, 3], [0]))
      array([3, 2, 1], dtype=int32)
    """
    if isinstance(axis, int):
        axis = [axis]
    return out("ReverseV2", [tensor, axis], name=name)


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> Output:
    """The first `seq_lengths[i]` elements along `seq_axis` reversed, for each i of `batch_axis`.

    Args:
      input: any type, shape (..., B, ..., L, ...).
      seq_lengths: integers in [0, L], shape (B,).
      seq_dim, batch_dim: former names of the axes.

    Examples:
      >>> wf.Session().run(wf.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1))
      array([[2, 1, 3],
             [6, 5, 4]], dtype=int32)
    """
    along = seq_axis if seq_axis is not None else seq_dim
    batch = batch_axis if batch_axis is not None else batch_dim
    if along is None:
        raise errors.InvalidArgumentError("reverse_sequence requires seq_axis")
    attrs = {"seq_dim": along, "batch_dim": batch or 0}
    return out("ReverseSequence", [input, seq_lengths], attrs, name)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Output:
    """Elements moved by `shift` along `axis`; what leaves at one end enters at the other.

    Args:
      shift, axis: integers of rank 0, or vectors of one length; axes may repeat.

    Examples:
      >>> wf.Session().run(wf.roll([1, 2, 3], 1, 0))
      array([3, 1, 2], dtype=int32)
    """
    as_int = dtypes.int32
    shift = shift if isinstance(shift, Output) else convert_to_tensor(shift, as_int)
    axis = axis if isinstance(axis, Output) else convert_to_tensor(axis, as_int)
    return out("Roll", [input, shift, axis], name=name)


def space_to_batch_nd(
    input: Any, block_shape: Any, paddings: Any, name: str | None = None
) -> Output:
    """Blocks of the padded inner axes moved to the batch: (B, S..., R) to (B·∏block, S'..., R).

    Args:
      input: any type, shape (B, S..., R...).
      block_shape: integers, one for each axis of S.
      paddings: integers, shape (len(block_shape), 2).

    Examples:
      >>> wf.space_to_batch_nd(wf.zeros([1, 4, 4, 3]), [2, 2], [[0, 0], [0, 0]]).shape
      TensorShape([Dimension(4), Dimension(2), Dimension(2), Dimension(3)])
    """
    return out("SpaceToBatchND", [input, block_shape, paddings], name=name)


def batch_to_space_nd(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Output:
    """The inverse of `space_to_batch_nd`, with `crops` cut off the inner axes.

    Args:
      input: any type, shape (B·∏block, S..., R...).
      block_shape: integers, one for each axis of S.
      crops: integers, shape (len(block_shape), 2).

    Examples:
      >>> wf.batch_to_space_nd(wf.zeros([4, 2, 2, 3]), [2, 2], [[0, 0], [0, 0]]).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(4), Dimension(3)])
    """
    return out("BatchToSpaceND", [input, block_shape, crops], name=name)


def space_to_batch(
    input: Any,
    paddings: Any,
    block_size: int | None = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Output:
    """`space_to_batch_nd` of images with square blocks.

    Args:
      input: any type, shape (B, H, W, C).
      paddings: integers, shape (2, 2).
      block_size: extent of a block; or `block_shape`: both extents.

    Examples:
      >>> wf.space_to_batch(wf.zeros([1, 4, 4, 3]), [[0, 0], [0, 0]], 2).shape
      TensorShape([Dimension(4), Dimension(2), Dimension(2), Dimension(3)])
    """
    blocks = [block_size, block_size] if block_shape is None else block_shape
    return space_to_batch_nd(input, blocks, paddings, name)


def batch_to_space(
    input: Any,
    crops: Any,
    block_size: int | None = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Output:
    """`batch_to_space_nd` of images with square blocks.

    Args:
      input: any type, shape (B·∏block, H, W, C).
      crops: integers, shape (2, 2).
      block_size: extent of a block; or `block_shape`: both extents.

    Examples:
      >>> wf.batch_to_space(wf.zeros([4, 2, 2, 3]), [[0, 0], [0, 0]], 2).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(4), Dimension(3)])
    """
    blocks = [block_size, block_size] if block_shape is None else block_shape
    return batch_to_space_nd(input, blocks, crops, name)


def space_to_depth(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Output:
    """Square blocks moved to channels: (B, H, W, C) to (B, H/b, W/b, C·b²).

    Args:
      input: any type, shape (B, H, W, C), or (B, C, H, W) with "NCHW".
      block_size: b, which divides H and W.
      data_format: "NHWC" or "NCHW".

    Examples:
      >>> wf.space_to_depth(wf.zeros([1, 4, 4, 3]), 2).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(12)])
    """
    attrs = {"block_size": block_size, "data_format": data_format}
    return out("SpaceToDepth", [input], attrs, name)


def depth_to_space(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Output:
    """The inverse of `space_to_depth`: (B, H, W, C) to (B, H·b, W·b, C/b²).

    Args:
      input: any type, shape (B, H, W, C), or (B, C, H, W) with "NCHW".
      block_size: b, whose square divides C.
      data_format: "NHWC" or "NCHW".

    Examples:
      >>> wf.depth_to_space(wf.zeros([1, 2, 2, 12]), 2).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(4), Dimension(3)])
    """
    attrs = {"block_size": block_size, "data_format": data_format}
    return out("DepthToSpace", [input], attrs, name)


def extract_image_patches(
    images: Any,
    ksizes: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: str = "VALID",
    name: str | None = None,
    sizes: Any = None,
) -> Output:
    """Windows of images, laid flat into channels: (B, H, W, C) to (B, H', W', kh·kw·C).

    Args:
      images: real numbers, shape (B, H, W, C).
      ksizes, strides, rates: [1, h, w, 1] each: window, step between windows, step within.
      padding: "VALID", or "SAME" with zeros.
      sizes: newer name of `ksizes`.

    Examples:
      >>> image = wf.reshape(wf.range(4.0), [1, 2, 2, 1])
      >>> one = [1, 1, 1, 1]
      >>> wf.Session().run(wf.extract_image_patches(image, [1, 2, 2, 1], one, one))
      array([[[[0., 1., 2., 3.]]]], dtype=float32)
    """
    attrs = {
        "ksizes": ksizes if sizes is None else sizes,
        "strides": strides,
        "rates": rates,
        "padding": padding,
    }
    return out("ExtractImagePatches", [images], attrs, name)
