"""Fused batch normalization and local response normalization."""

from __future__ import annotations

import numpy as np

__all__ = ["fused_batch_norm", "local_response_normalization", "lrn"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import merge_size, merged_shape, with_rank
from weft_graph.ops.windows import channel_axis
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

# ------------------------------------------------------------------------- shape rules


def _channels(op: str, node: NodeSpec, vectors: range) -> tuple[Dims, int | None]:
    """Return the input's shape and the number of channels, which the vectors must have."""
    data_format = node.attrs["data_format"]
    x = with_rank(node.inputs[0].dims, 4, f"{op}: the first input")
    axis = channel_axis(data_format)
    channels = x[axis]
    for i in vectors:
        (size,) = with_rank(node.inputs[i].dims, 1, f"{op}: input {i}")
        if size == 0 and node.attrs["is_training"]:
            continue
        label = f"{op} of {format_dims(x)} in {data_format}: channels and size of input {i}"
        channels = merge_size(channels, size, label)
    return (*x[:axis], channels, *x[axis + 1 :]), channels


def _forward_rule(op: str, reserved: int) -> Any:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, channels = _channels(op, node, range(1, 5))
        extra: list[Dims] = [(0,)] * (reserved - 2)
        return [x, *[(channels,)] * 4, *extra]

    return rule


def _backward_rule(op: str) -> Any:
    def rule(node: NodeSpec) -> Sequence[Dims]:
        x, channels = _channels(op, node, range(2, 5))
        if node.inputs[1].dims is not None:
            with_rank(node.inputs[1].dims, 4, f"{op}: x")
        return (x, (channels,), (channels,), (0,), (0,))

    return rule


# ------------------------------------------------------------------------ declarations

_FLOATING = "{float16, bfloat16, float32, float64}"


def _declare_batch_norm(version: str) -> None:
    typed = version != ""
    u = "U" if typed else "T"
    attrs = {
        "T": _FLOATING if typed else "{float32, float64}",
        **({"U": "{float32, float64}"} if typed else {}),
        "epsilon": "float = 0.0001",
        "data_format": "{'NHWC', 'NCHW'} = 'NHWC'",
        "is_training": "bool = true",
    }
    reserved = 3 if version == "V3" else 2
    forward, backward = f"FusedBatchNorm{version}", f"FusedBatchNormGrad{version}"
    spaces = [f"reserve_space_{i + 1}: {u}" for i in range(reserved)]
    register_op(
        forward,
        ("x: T", f"scale: {u}", f"offset: {u}", f"mean: {u}", f"variance: {u}"),
        ("y: T", f"batch_mean: {u}", f"batch_variance: {u}", *spaces),
        attrs,
        _forward_rule(forward, reserved),
        traits=Traits(cheap=True, cost=cost_rules.per_input(8), cost_attrs=("is_training",)),
        doc="(x - mean) / sqrt(variance + epsilon) * scale + offset for each channel.",
    )
    register_op(
        backward,
        ("y_backprop: T", "x: T", f"scale: {u}", *spaces),
        (
            "x_backprop: T",
            f"scale_backprop: {u}",
            f"offset_backprop: {u}",
            f"reserve_space_{reserved + 1}: {u}",
            f"reserve_space_{reserved + 2}: {u}",
        ),
        attrs,
        _backward_rule(backward),
        traits=Traits(cost=cost_rules.per_input(14)),
        doc="Gradient of fused batch normalization.",
    )


for _version in ("", "V2", "V3"):
    _declare_batch_norm(_version)

_LRN = {
    "depth_radius": "int = 5",
    "bias": "float = 1.0",
    "alpha": "float = 1.0",
    "beta": "float = 0.5",
    "T": "{float16, bfloat16, float32, float64} = float32",
}


def _lrn_shape(node: NodeSpec) -> Sequence[Dims]:
    return (with_rank(node.inputs[0].dims, 4, "LRN: input"),)


def _lrn_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    (dims,) = merged_shape(node)
    return (with_rank(dims, 4, "LRNGrad: input_image"),)


register_op(
    "LRN",
    ("input: T",),
    ("output: T",),
    _LRN,
    _lrn_shape,
    traits=Traits(cost=cost_rules.local_response(1), cost_attrs=("depth_radius",)),
    doc="input / (bias + alpha * sum of squares of nearby channels) ** beta.",
)
register_op(
    "LRNGrad",
    ("input_grads: T", "input_image: T", "output_image: T"),
    ("output: T",),
    _LRN,
    _lrn_grad_shape,
    traits=Traits(cost=cost_rules.local_response(2), cost_attrs=("depth_radius",)),
    doc="Gradient of local response normalization.",
)

# --------------------------------------------------------------------------- functions


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[Output, Output, Output]:
    """Apply batch normalization to images; also return its statistics.

    Args:
      x: floating, shape (N, H, W, C) or (N, C, H, W).
      scale, offset: float32 (float64 for a float64 `x`), shape (C,).
      mean, variance: population statistics, dtype and shape of `scale`; required unless
        `is_training`.
      epsilon: added to the variance.
      data_format: "NHWC" or "NCHW".
      is_training: use the batch's statistics.
    Returns: y, shape of `x`; mean and unbiased variance of the batch, shape (C,).
    Raises: InvalidArgumentError: sizes differ, or statistics are missing.
    Source: Ioffe and Szegedy 2015.

    Examples:
      >>> image = wf.constant([[[[3.0], [5.0]]]])
      >>> y, mean, variance = wf.nn.fused_batch_norm(image, [1.0], [0.0], epsilon=0.0)
      >>> wf.Session().run([mean, variance])
      [array([4.], dtype=float32), array([2.], dtype=float32)]
    """
    x = convert_to_tensor(x)
    if not is_training and (mean is None or variance is None):
        raise errors.InvalidArgumentError(
            "fused_batch_norm with is_training=False requires mean and variance, got "
            f"{mean!r} and {variance!r}"
        )
    scale = convert_to_tensor(scale)
    empty = None
    if mean is None or variance is None:
        empty = constant_of(np.empty(0, scale.dtype.base_dtype.numpy))
    node = create(
        "FusedBatchNormV3",
        [
            x,
            scale,
            offset,
            empty if mean is None else mean,
            empty if variance is None else variance,
        ],
        {
            "epsilon": max(epsilon, 1.001e-5),
            "data_format": data_format,
            "is_training": is_training,
        },
        name or "FusedBatchNorm",
    )
    return node.outputs[0], node.outputs[1], node.outputs[2]


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    name: str | None = None,
) -> Output:
    """Compute input / (bias + alpha * sum(input[..., c - r : c + r + 1] ** 2)) ** beta.

    Args:
      input: floating, shape (N, H, W, C).
      depth_radius: r, the number of channels on each side.
      bias, alpha, beta: parameters of the formula.
    Returns: shape and dtype of `input`.
    Source: Krizhevsky et al. 2012, section 3.3.

    Examples:
      >>> wf.nn.lrn(wf.ones([1, 2, 2, 3])).shape
      TensorShape([Dimension(1), Dimension(2), Dimension(2), Dimension(3)])
    """
    attrs = {"depth_radius": depth_radius, "bias": bias, "alpha": alpha, "beta": beta}
    return out("LRN", [input], attrs, name)


lrn = local_response_normalization


lrn = local_response_normalization
