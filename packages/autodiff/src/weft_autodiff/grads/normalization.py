"""Gradients of fused batch normalization and local response normalization."""

from __future__ import annotations

from typing import Any

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.grads.common import ints, scalar_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.windows import channel_axis

Grads = list[Output | None]


def _register_batch_norm(version: str) -> None:
    def gradient_of_forward(node: Node, *grads: Output | None) -> Grads:
        return _forward(f"FusedBatchNormGrad{version}", node, grads)

    RegisterGradient(f"FusedBatchNorm{version}")(gradient_of_forward)
    RegisterGradient(f"FusedBatchNormGrad{version}")(_backward)


def _forward(backward: str, node: Node, grads: tuple[Output | None, ...]) -> Grads:
    """Return the gradients of x, scale and offset, and in inference of mean and variance."""
    x, scale, _, mean, variance = node.inputs
    training = node.attrs["is_training"]
    results: Grads = [None] * 5
    if grads[0] is not None:
        reserved = list(node.outputs[3:]) if training else [mean, variance, *node.outputs[5:]]
        attrs = {k: v for k, v in node.attrs.items() if k[0] != "_"}
        backprops = create(backward, [grads[0], x, scale, *reserved], attrs).outputs
        results[:3] = backprops[:3]
        if not training:
            results[3:] = _population_gradients(node, backprops[1], backprops[2])
    if training:
        results[0] = _with_statistics(node, results[0], grads[1:5])
    else:  # the statistics pass through
        for position, passed in ((3, grads[1:5:2]), (4, grads[2:5:2])):
            results[position] = _total([results[position], *passed])
    return results


def _total(grads: list[Output | None]) -> Output | None:
    present = [grad for grad in grads if grad is not None]
    return out("AddN", [present]) if len(present) > 1 else present[0] if present else None


def _population_gradients(node: Node, by_scale: Output, by_offset: Output) -> Grads:
    """Return the gradients of mean and variance in inference.

    In inference y = (x - mean) * r * scale + offset with r = (variance + epsilon) ** -1/2.
    """
    scale, variance = node.inputs[1], node.inputs[4]
    shifted = out("AddV2", [variance, scalar_like(node.attrs["epsilon"], variance)])
    inverse = out("Rsqrt", [shifted])
    by_mean = out("Neg", [out("Mul", [out("Mul", [by_offset, scale]), inverse])])
    half = out("Mul", [scalar_like(-0.5, scale), out("Mul", [by_scale, scale])])
    return [by_mean, out("RealDiv", [half, shifted])]


def _with_statistics(
    node: Node, by_x: Output | None, grads: tuple[Output | None, ...]
) -> Output | None:
    """Add the gradients of the batch's mean and variance to the gradient of x."""
    view = _Pixels(node, *node.inputs[:2])
    count = None
    for position, grad in enumerate(grads):
        if grad is None:
            continue
        if count is None:
            count = view.count()
        if position in (0, 2):
            share = view.spread(out("RealDiv", [grad, count]))
            part = out("Mul", [out("OnesLike", [view.x]), share])
        else:
            unit = scalar_like(1, count)
            denominator = (
                count if position == 3 else out("Maximum", [out("Sub", [count, unit]), unit])
            )
            factor = out("RealDiv", [out("Mul", [grad, scalar_like(2, grad)]), denominator])
            part = out("Mul", [view.subtract_mean(node.outputs[3]), view.spread(factor)])
        part = _cast(part, node.inputs[0])
        by_x = part if by_x is None else out("AddV2", [by_x, part])
    return by_x


def _cast(value: Output, like: Output) -> Output:
    if value.dtype is like.dtype.base_dtype:
        return value
    return out("Cast", [value], {"DstT": like.dtype.base_dtype})


class _Pixels:
    """The input of a batch normalization as pixels with channels, in the statistics' dtype.

    Args:
      node: the forward node or its gradient, for the layout.
      x: the images.
      scale: tensor of the statistics' dtype.
    """

    def __init__(self, node: Node, x: Output, scale: Output) -> None:
        data_format = node.attrs["data_format"]
        self.like = scale
        self.x = _cast(x, scale)
        channel = channel_axis(data_format)
        self.axes = ints(axis for axis in range(4) if axis != channel)
        self.shape = [1] * 4
        self.shape[channel] = -1

    def count(self) -> Output:
        """Return the number of pixels, rank 0."""
        pixels = out("Prod", [out("GatherV2", [out("Shape", [self.x]), self.axes, 0]), [0]])
        return _cast(pixels, self.like)

    def spread(self, vector: Output) -> Output:
        """Reshape one number per channel so that it broadcasts over pixels."""
        return out("Reshape", [vector, ints(self.shape)])

    def subtract_mean(self, mean: Output) -> Output:
        """Return x minus the mean of its channel."""
        return out("Sub", [self.x, self.spread(mean)])

    def sum(self, value: Output) -> Output:
        """Return sums over the pixels, one per channel."""
        return out("Sum", [value, self.axes])


def _backward(node: Node, *grads: Output | None) -> Grads:
    """Return the second gradient by differentiating a composition of the first gradient's formulas.

    In training the statistics in the reserved inputs are differentiated as functions of x.
    """
    # Through identities, so that inputs that depend on each other are distinct.
    inputs = [out("Identity", [source]) for source in node.inputs[:5]]
    outputs = _compose_gradients(node, inputs)
    pairs = [(y, g) for y, g in zip(outputs, grads[:3], strict=True) if g is not None]
    results: Grads = [None] * len(node.inputs)
    if not pairs:
        return results
    sources = inputs[:3] if node.attrs["is_training"] else inputs
    derivatives: Any = gradients([y for y, _ in pairs], sources, [g for _, g in pairs])
    results[: len(derivatives)] = derivatives
    return results


def _compose_gradients(node: Node, inputs: list[Output]) -> list[Output]:
    """Compute x_backprop, scale_backprop and offset_backprop with elementary nodes."""
    scale = inputs[2]
    view = _Pixels(node, inputs[1], scale)
    upstream = _cast(inputs[0], scale)
    count = view.count()
    if node.attrs["is_training"]:
        mean = out("RealDiv", [view.sum(view.x), count])
        deviation = view.subtract_mean(mean)
        variance = out("RealDiv", [view.sum(out("Square", [deviation])), count])
    else:
        mean, variance = inputs[3:5]
        deviation = view.subtract_mean(mean)
    shifted = out("AddV2", [variance, scalar_like(node.attrs["epsilon"], variance)])
    inverse = out("Rsqrt", [shifted])
    by_offset = view.sum(upstream)
    by_scale = out("Mul", [view.sum(out("Mul", [upstream, deviation])), inverse])
    inner = upstream
    if node.attrs["is_training"]:
        share = out("RealDiv", [out("Mul", [inverse, by_scale]), count])
        inner = out("Sub", [inner, view.spread(out("RealDiv", [by_offset, count]))])
        inner = out("Sub", [inner, out("Mul", [deviation, view.spread(share)])])
    by_x = out("Mul", [inner, view.spread(out("Mul", [scale, inverse]))])
    return [_cast(by_x, inputs[1]), by_scale, by_offset]


for _version in ("", "V2", "V3"):
    _register_batch_norm(_version)


# ------------------------------------------------------------- local response normalization


def _lrn_attrs(node: Node) -> dict[str, Any]:
    return {k: node.attrs[k] for k in ("depth_radius", "bias", "alpha", "beta")}


@RegisterGradient("LRN")
def _lrn(node: Node, grad: Output) -> Output:
    return out("LRNGrad", [grad, node.inputs[0], node.outputs[0]], _lrn_attrs(node))


@RegisterGradient("LRNGrad")
def _lrn_grad(node: Node, grad: Output) -> Grads:
    """Return the second gradient by differentiating a composition of the first one's formula."""
    # Through identities, since y depends on x.
    upstream, x, y = sources = [out("Identity", [source]) for source in node.inputs]
    attrs = node.attrs
    norms = out("Mul", [_sum_window(out("Square", [x]), x, node), scalar_like(attrs["alpha"], x)])
    norms = out("AddV2", [norms, scalar_like(attrs["bias"], x)])
    direct = out("Mul", [upstream, out("Pow", [norms, scalar_like(-attrs["beta"], x)])])
    shares = _sum_window(out("RealDiv", [out("Mul", [upstream, y]), norms]), x, node)
    factor = scalar_like(2 * attrs["alpha"] * attrs["beta"], x)
    result = out("Sub", [direct, out("Mul", [out("Mul", [factor, x]), shares])])
    derivatives: Any = gradients([result], sources, [grad])
    return list(derivatives)


def _sum_window(value: Output, like: Output, node: Node) -> Output:
    """Return sums over the window of each channel, by a product with a band matrix."""
    channels = out("GatherV2", [out("Shape", [like]), ints([3, 3]), 0])
    all_ones = out("Fill", [channels, scalar_like(1, like)])
    radius = out("Minimum", [channels[0], node.attrs["depth_radius"]])
    band = out("MatrixBandPart", [all_ones, radius, radius])
    rows = out("Reshape", [value, out("ConcatV2", [[ints([-1]), channels[1:]], 0])])
    return out("Reshape", [out("MatMul", [rows, band]), out("Shape", [like])])
