"""Padding of tensors with a constant or with mirrored elements."""

from __future__ import annotations

__all__ = [
    "pad",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.constant_value import partial_value
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ops.shape_rules import check_filler, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

_INT = "{int32, int64} = int32"

# ------------------------------------------------------------------------------ shape rules


def paddings_table(dims: Dims, vector: Output, label: str) -> list[list[int | None]] | None:
    """Return the static (before, after) pairs per axis, with None for unknown entries, or None."""
    if vector.dims is not None:
        with_rank(vector.dims, 2, label)
        rows, columns = vector.dims
        wrong_rows = rows is not None and dims is not None and rows != len(dims)
        if wrong_rows or columns not in (2, None):
            num_rows = "n" if dims is None else len(dims)
            raise errors.InvalidArgumentError(
                f"{label} must have shape [{num_rows},2], got {format_dims(vector.dims)}"
            )
    static = partial_value(vector)
    if static is None:
        return None
    table: list[list[int | None]] = static.reshape(-1, 2).tolist()
    for row in table:
        if any(entry is not None and entry < 0 for entry in row):
            raise errors.InvalidArgumentError(f"{label} must be at least 0, got {table}")
    return table


def _pad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = paddings_table(dims, node.inputs[1], "paddings")
    if dims is None:
        rows = node.inputs[1].dims
        return (None if rows is None or rows[0] is None else (None,) * rows[0],)
    if table is None:
        return ((None,) * len(dims),)
    return (tuple(map(padded_size, dims, table)),)


def _pad_v2_shape(node: NodeSpec) -> Sequence[Dims]:
    (dims,) = _pad_shape(node)
    check_filler(node.inputs[2].dims, dims, "constant_values")
    return (dims,)


def padded_size(size: int | None, pair: list[int | None]) -> int | None:
    """Return the size of a padded axis; None if a size is unknown."""
    before, after = pair
    if size is None or before is None or after is None:
        return None
    return size + before + after


def _mirror_pad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = paddings_table(dims, node.inputs[1], "paddings")
    if dims is not None and table is not None:
        border = 1 if node.attrs["mode"] == "REFLECT" else 0
        for axis, (size, pair) in enumerate(zip(dims, table, strict=True)):
            for entry in pair:
                if size is not None and entry is not None and entry > size - border:
                    raise errors.InvalidArgumentError(
                        f"paddings at axis {axis} must be at most {size - border} for "
                        f"{node.attrs['mode']}, got {pair}"
                    )
    return _pad_shape(node)


def _mirror_pad_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    table = paddings_table(dims, node.inputs[1], "paddings")
    if table is None:
        return (None if dims is None else (None,) * len(dims),)
    dims = (None,) * len(table) if dims is None else dims
    negated = [[None if n is None else -n for n in pair] for pair in table]
    return (tuple(map(padded_size, dims, negated)),)


# ------------------------------------------------------------------------------ declarations


_PADDINGS = {"T": "type", "Tpaddings": _INT}
_MIRROR = {**_PADDINGS, "mode": "{'REFLECT', 'SYMMETRIC'}"}

register_op("Pad", ("input: T", "paddings: Tpaddings"), ("output: T",), _PADDINGS, _pad_shape)
register_op(
    "PadV2",
    ("input: T", "paddings: Tpaddings", "constant_values: T"),
    ("output: T",),
    _PADDINGS,
    _pad_v2_shape,
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
    doc="The gradient of MirrorPad: the padding is added to the elements it was copied from.",
)

# ---------------------------------------------------------------------------------- functions


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Output:
    """Pad a tensor.

    Args:
      tensor: any type, rank n.
      paddings: integers at least 0, shape (n, 2): elements before and after, per axis.
      mode: "CONSTANT", "REFLECT" (excluding the edge) or "SYMMETRIC" (including it), in upper or
        lower case.
      constant_values: padding value in mode CONSTANT.
    Raises: InvalidArgumentError: the mode is unknown, or a padding exceeds the mirrored part.

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
