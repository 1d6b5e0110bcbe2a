"""Moving spatial blocks to the batch or channel axis and back, and extracting patches."""

from __future__ import annotations

__all__ = [
    "batch_to_space",
    "batch_to_space_nd",
    "depth_to_space",
    "extract_image_patches",
    "extract_volume_patches",
    "space_to_batch",
    "space_to_batch_nd",
    "space_to_depth",
]
import math
from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.constant_value import partial_value
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ops.padding import padded_size, paddings_table
from weft_graph.ops.shape_rules import (
    with_rank,
)
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

_INT = "{int32, int64} = int32"

# ------------------------------------------------------------------------------ shape rules


def _space_to_batch_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_blocks(node, to_batch=True),)


def _batch_to_space_shape(node: NodeSpec) -> Sequence[Dims]:
    return (_blocks(node, to_batch=False),)


def _blocks(node: NodeSpec, to_batch: bool) -> Dims:
    value, block_input, margin_input = node.inputs
    dims = value.dims
    (count,) = with_rank(block_input.dims, 1, "block_shape")
    static = partial_value(block_input)
    if dims is None or count is None:
        return None
    if len(dims) < count + 1:
        raise errors.InvalidArgumentError(
            f"the input must have rank at least {count + 1} for a block_shape of {count} sizes, "
            f"got shape {format_dims(dims)}"
        )
    blocks = [None] * count if static is None else static.tolist()
    if any(block is not None and block < 1 for block in blocks):
        raise errors.InvalidArgumentError(f"block_shape must be at least 1, got {blocks}")
    argument = "paddings" if to_batch else "crops"
    margins = paddings_table(dims[1 : count + 1], margin_input, argument) or [[None, None]] * count
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
    padded = padded_size(size, pair)
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


def _divide(size: int, block: int) -> int:
    if size % block:
        raise errors.InvalidArgumentError(f"sizes must be multiples of {block}, got {size}")
    return size // block


class _Unknown(int):
    """An unknown size, whose products and quotients are unknown."""

    def __mul__(self, other: Any) -> _Unknown:
        return self

    def __floordiv__(self, other: Any) -> _Unknown:
        return self

    def __mod__(self, other: Any) -> int:
        return 0


def _exchange(node: NodeSpec, move: Any) -> Dims:
    dims = with_rank(node.inputs[0].dims, 4, "the input")
    first = node.attrs["data_format"] == "NCHW"
    batch, *image_dims = dims
    c, h, w = (image_dims[0], *image_dims[1:]) if first else (image_dims[2], *image_dims[:2])
    sizes = [_Unknown() if size is None else size for size in (h, w, c)]
    h, w, c = [None if isinstance(size, _Unknown) else size for size in move(*sizes)]
    return (batch, c, h, w) if first else (batch, h, w, c)


def _patches_shape(node: NodeSpec) -> Sequence[Dims]:
    sizes = node.attrs["ksizes"]
    lists = [node.attrs[name] for name in ("ksizes", "strides", "rates") if name in node.attrs]
    for values in lists:
        if len(values) != len(sizes) or values[0] != 1 or values[-1] != 1 or min(values) < 1:
            raise errors.InvalidArgumentError(
                f"windows, strides and rates must be [1, ..., 1] of as many numbers of at least 1, "
                f"got {list(map(list, lists))}"
            )
    batch, *inner, depth = with_rank(node.inputs[0].dims, len(sizes), "images")
    is_same, spatial = node.attrs["padding"] == "SAME", slice(1, -1)
    steps, rates = (
        node.attrs["strides"][spatial],
        node.attrs.get("rates", [1] * len(sizes))[spatial],
    )
    axis_args = zip(inner, sizes[spatial], steps, rates, strict=True)
    counts = [_window_count(n, (k - 1) * rate + 1, step, is_same) for n, k, step, rate in axis_args]
    return ((batch, *counts, None if depth is None else depth * math.prod(sizes)),)


def _window_count(size: int | None, extent: int, stride: int, is_same: bool) -> int | None:
    if size is None:
        return None
    if not is_same and extent > size:
        raise errors.InvalidArgumentError(f"a window of {extent} does not fit a size of {size}")
    return -(-size // stride) if is_same else (size - extent) // stride + 1


# ------------------------------------------------------------------------------ declarations
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
        "T": "{realnumbertype, complex, bool}",
        "padding": "{'SAME', 'VALID'}",
    },
    _patches_shape,
)
register_op(
    "ExtractVolumePatches",
    ("input: T",),
    ("patches: T",),
    {
        "ksizes": "list(int) >= 5",
        "strides": "list(int) >= 5",
        "T": "{realnumbertype}",
        "padding": "{'SAME', 'VALID'}",
    },
    _patches_shape,
)

# ---------------------------------------------------------------------------------- functions


def space_to_batch_nd(
    input: Any, block_shape: Any, paddings: Any, name: str | None = None
) -> Output:
    """Move blocks of the padded inner axes to the batch: (B, S..., R) to (B·∏block, S'..., R).

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
    """Return the inverse of `space_to_batch_nd`, cropping the inner axes by `crops`.

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
    """Apply `space_to_batch_nd` to images with square blocks.

    Args:
      input: any type, shape (B, H, W, C).
      paddings: integers, shape (2, 2).
      block_size: extent of a block; or `block_shape`: both extents.

    Examples:
      >>> wf.space_to_batch(wf.zeros([1, 4, 4, 3]), [[0, 0], [0, 0]], 2).shape
      TensorShape([Dimension(4), Dimension(2), Dimension(2), Dimension(3)])
    """
    blocks = [block_size, block_size] if block_shape is None else block_shape
    return _images(space_to_batch_nd(input, blocks, paddings, name))


def batch_to_space(
    input: Any,
    crops: Any,
    block_size: int | None = None,
    name: str | None = None,
    block_shape: Any = None,
) -> Output:
    """Apply `batch_to_space_nd` to images with square blocks.

    Args:
      input: any type, shape (B·∏block, H, W, C).
      crops: integers, shape (2, 2).
      block_size: extent of a block; or `block_shape`: both extents.

    Examples:
      >>> wf.batch_to_space(wf.zeros([4, 2, 2, 3]), [[0, 0], [0, 0]], 2).shape
      TensorShape([Dimension(1), Dimension(4), Dimension(4), Dimension(3)])
    """
    blocks = [block_size, block_size] if block_shape is None else block_shape
    return _images(batch_to_space_nd(input, blocks, crops, name))


def _images(value: Output) -> Output:
    value.set_shape((None,) * 4)
    return value


def space_to_depth(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Output:
    """Move square blocks to channels: (B, H, W, C) to (B, H/b, W/b, C·b²).

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
    """Return the inverse of `space_to_depth`: (B, H, W, C) to (B, H·b, W·b, C/b²).

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
    """Return windows of images, flattened into channels: (B, H, W, C) to (B, H', W', kh·kw·C).

    Args:
      images: real numbers, shape (B, H, W, C).
      ksizes, strides, rates: [1, h, w, 1] each: window size, stride, and dilation.
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


def extract_volume_patches(
    input: Any, ksizes: Any, strides: Any, padding: str, name: str | None = None
) -> Output:
    """Return windows of volumes as channels: (B, P, R, C, D) to (B, P', R', C', kp·kr·kc·D).

    Args:
      input: real numbers, shape (B, P, R, C, D).
      ksizes, strides: [1, p, r, c, 1] each: window size and stride.
      padding: "VALID", or "SAME" with zeros.

    Examples:
      >>> volume, window = wf.zeros([2, 4, 6, 8, 3]), [1, 2, 2, 2, 1]
      >>> wf.extract_volume_patches(volume, window, window, "VALID").shape.as_list()
      [2, 2, 3, 4, 24]
    """
    attrs = {"ksizes": ksizes, "strides": strides, "padding": padding}
    return out("ExtractVolumePatches", [input], attrs, name)
