"""Grayscale morphology: dilation with its gradients, and erosion."""

from __future__ import annotations

__all__ = ["dilation2d", "erosion2d"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops.conv import expand
from weft_graph.ops.permutation import reverse
from weft_graph.ops.shape_rules import merge_size
from weft_graph.ops.windows import check_attrs, require_rank, slide_dims
from weft_tensor import errors
from weft_tensor.shape import Dims, merge_dims

# ------------------------------------------------------------------------- shape rules


def _dilation_shapes(op: str, node: NodeSpec) -> tuple[Dims, Dims, Dims]:
    """Return the shapes of the image, of the filter and of the dilated image."""
    check_attrs(op, node.attrs, "NHWC", ("strides", "rates"))
    x = require_rank(op, "input", node.inputs[0].dims, 4)
    taps = require_rank(op, "filter", node.inputs[1].dims, 3)
    depth = merge_size(x[3], taps[2], f"{op}: depth of input and filter")
    windows = slide_dims(
        x[1:3],
        taps[:2],
        node.attrs["strides"][1:3],
        node.attrs["rates"][1:3],
        node.attrs["padding"],
        ((0, 0),) * 2,
    )
    return (*x[:3], depth), (*taps[:2], depth), (x[0], *windows, depth)


def _rule(op: str, output: int) -> ShapeRule:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        shapes = _dilation_shapes(op, node)
        if len(node.inputs) == 3:
            try:
                merge_dims(node.inputs[2].dims, shapes[2])
            except errors.InvalidArgumentError as error:
                raise errors.InvalidArgumentError(f"{op}: out_backprop: {error.message}") from None
        return (shapes[output],)

    return rule


# ------------------------------------------------------------------------ declarations

_ATTRS = {
    "strides": "list(int) >= 4",
    "rates": "list(int) >= 4",
    "padding": "{'SAME', 'VALID'}",
    "T": "{realnumbertype}",
}


register_op(
    "Dilation2D",
    ("input: T", "filter: T"),
    ("output: T",),
    _ATTRS,
    _rule("Dilation2D", 2),
    traits=Traits(cost_attrs=("strides", "rates", "padding")),
    doc="The maximum of the sum of each window and the filter.",
)
for _op, _name, _which in (
    ("Dilation2DBackpropInput", "in_backprop", 0),
    ("Dilation2DBackpropFilter", "filter_backprop", 1),
):
    register_op(
        _op,
        ("input: T", "filter: T", "out_backprop: T"),
        (f"{_name}: T",),
        _ATTRS,
        _rule(_op, _which),
        traits=Traits(cost_attrs=("strides", "rates", "padding")),
        doc="The gradient of Dilation2D, for the first maximum of each window.",
    )

# --------------------------------------------------------------------------- functions


def dilation2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: Any = None,
    name: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Output:
    """Return the grayscale dilation: the maximum of the sum of each window and the filter.

    Args:
      input: real, shape (N, H, W, C).
      filter: same dtype, shape (KH, KW, C); also `filters`.
      strides: one, two or four numbers.
      rates: distance between taps, in the same form as `strides`; also `dilations`.
      padding: "SAME" or "VALID"; padding is ignored by the maximum.
    Returns: shape (N, H', W', C).
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.reshape([1.0, 5.0, 2.0, 0.0], [1, 1, 4, 1])
      >>> found = wf.nn.dilation2d(image, wf.zeros([1, 3, 1]), 1, 1, "SAME")
      >>> wf.Session().run(found).ravel()
      array([5., 5., 5., 2.], dtype=float32)
    """
    attrs = {
        "strides": expand(strides, "strides", 2, "NHWC"),
        "rates": expand(rates if dilations is None else dilations, "rates", 2, "NHWC"),
        "padding": padding.upper(),
    }
    return out("Dilation2D", [input, filter if filters is None else filters], attrs, name)


def erosion2d(
    value: Any, kernel: Any, strides: Any, rates: Any, padding: Any, name: str | None = None
) -> Output:
    """Return the grayscale erosion: the minimum of each window minus the reversed kernel.

    It is the negative of the dilation of the negative image by the reversed kernel.

    Args:
      value: real and signed, shape (N, H, W, C).
      kernel: same dtype, shape (KH, KW, C).
      strides, rates, padding: as for `dilation2d`.
    Returns: shape (N, H', W', C).
    Raises: InvalidArgumentError: depths differ, or the window is too large.

    Examples:
      >>> image = wf.reshape([1.0, 5.0, 2.0, 0.0], [1, 1, 4, 1])
      >>> found = wf.nn.erosion2d(image, wf.zeros([1, 3, 1]), 1, 1, "SAME")
      >>> wf.Session().run(found + 0.0).ravel()
      array([1., 1., 0., 0.], dtype=float32)
    """
    value = convert_to_tensor(value)
    kernel = convert_to_tensor(kernel, value.dtype.base_dtype)
    negative = out("Neg", [value])
    dilated = dilation2d(negative, reverse(kernel, [0, 1]), strides, rates, padding)
    return out("Neg", [dilated], None, name or "erosion2d")
