"""Batch normalization and local response normalization, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weft_compiler.ir.expressions import Expr, Load, add, apply, cast, number
from weft_compiler.ir.indices import plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import StatementDefinition, Value, compute_value
from weft_graph.ir.node import Node
from weft_graph.ops.windows import channel_axis
from weft_tensor import dtypes

Element = Callable[..., Expr]

_FEW: Final = 33
"""Maximum number of neighbors that become terms of one expression."""


class _Images:
    """Images and per-channel vectors; in float32 if the images are narrower.

    Attributes:
      axis: axis of the channels.
      count: the number of elements of each channel.
    """

    def __init__(self, op: Operation, x: Value, vectors: Sequence[Value]) -> None:
        self.name, self.shape = op.name, x.shape
        self.axis = channel_axis(op.attr("data_format"))
        self.wide = wide_type(x.dtype)
        require(x.rank == 4 and x.size > 0, "the images do not have rank 4, or are empty")
        channels = (x.shape[self.axis],)
        require(
            all(v.shape == channels for v in vectors),
            "the vectors do not have one element per channel",
        )
        require(
            all(v.dtype is self.wide for v in vectors),
            "the element types of vectors and images differ",
        )
        self.count = number(x.size // channels[0], self.wide)
        self.epsilon = number(op.attr("epsilon"), self.wide)

    def image(self, name: str, element: Element) -> Value:
        return compute_value(f"{self.name}_{name}", self.wide, self.shape, element)

    def vector(self, name: str, element: Element) -> Value:
        return compute_value(f"{self.name}_{name}", self.wide, (self.shape[self.axis],), element)

    def total(self, name: str, element: Element) -> Value:
        """Return sums over each channel."""
        other_axes = [axis for axis in range(len(self.shape)) if axis != self.axis]
        return reduce(f"{self.name}_{name}", self.image(f"{name}_of", element), other_axes, "add")

    def mean(self, name: str, element: Element) -> Value:
        total = self.total(f"{name}_sum", element)
        return self.vector(name, lambda c: apply("div", total.at(c), self.count))

    def root(self, variance: Value, c: Expr) -> Expr:
        return apply("sqrt", apply("add", variance.at(c), self.epsilon))


def _kernel_reason(node: Node) -> str:
    """Return why the kernel is preferred: float32 images are mixed with float64 vectors."""
    x, scale = (node.inputs[index].dtype for index in ((1, 2) if "Grad" in node.type else (0, 1)))
    return "" if scale is wide_type(x) else "the element types of its vectors and images differ"


@lowers("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", by_kernel=_kernel_reason)
def _batch_norm(op: Operation) -> list[Value]:
    x, scale, offset, mean, variance = op.inputs
    training = bool(op.attr("is_training"))
    images = _Images(op, x, [scale, offset, *([] if training else [mean, variance])])
    axis = images.axis

    def centered(*index: Expr) -> Expr:
        return apply("sub", cast(x.at(*index), images.wide), mean.at(index[axis]))

    if training:
        mean = images.mean("mean", x.at)
        variance = images.mean("variance", lambda *index: apply("square", centered(*index)))
    unbiased = variance
    if training:
        pixels = x.size // x.shape[axis]
        share = number(pixels / max(pixels - 1, 1), images.wide)
        unbiased = images.vector("unbiased", lambda c: apply("mul", variance.at(c), share))
    factor = images.vector("factor", lambda c: apply("div", scale.at(c), images.root(variance, c)))

    def element(*index: Expr) -> Expr:
        scaled = apply("mul", centered(*index), factor.at(index[axis]))
        return apply("add", scaled, offset.at(index[axis]))

    y = compute_value(op.name, op.dtype(), x.shape, element)
    return [y, mean, unbiased, mean, variance, *_empty_results(op, 5)]


@lowers(
    "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", by_kernel=_kernel_reason
)
def _batch_norm_grad(op: Operation) -> list[Value]:
    gradient, x, scale, mean, variance = op.inputs[:5]
    images = _Images(op, x, [scale, mean, variance])
    require(gradient.shape == x.shape, "the shapes of y_backprop and x differ")
    axis, wide = images.axis, images.wide

    def upstream(*index: Expr) -> Expr:
        return cast(gradient.at(*index), wide)

    def centered(*index: Expr) -> Expr:
        return apply("sub", cast(x.at(*index), wide), mean.at(index[axis]))

    one = number(1, wide)
    inverse = images.vector("inverse", lambda c: apply("div", one, images.root(variance, c)))
    by_offset = images.total("by_offset", upstream)
    products = images.total(
        "products", lambda *index: apply("mul", upstream(*index), centered(*index))
    )
    by_scale = images.vector("by_scale", lambda c: apply("mul", products.at(c), inverse.at(c)))
    factor = images.vector("factor", lambda c: apply("mul", scale.at(c), inverse.at(c)))
    shift = images.vector("shift", lambda c: apply("div", by_offset.at(c), images.count))
    slope = images.vector(
        "slope",
        lambda c: apply("div", apply("mul", inverse.at(c), by_scale.at(c)), images.count),
    )

    def element(*index: Expr) -> Expr:
        result = upstream(*index)
        if op.attr("is_training"):
            result = apply("sub", result, shift.at(index[axis]))
            result = apply("sub", result, apply("mul", centered(*index), slope.at(index[axis])))
        return apply("mul", result, factor.at(index[axis]))

    by_x = compute_value(op.name, op.dtype(), x.shape, element)
    return [by_x, by_scale, by_offset, *_empty_results(op, 3)]


def _empty_results(op: Operation, first: int) -> list[Value]:
    """Return empty results for the outputs that only other devices use."""
    return [
        compute_value(
            f"{op.name}_{index}",
            op.dtype(index),
            op.shape(index),
            lambda *_: number(0, dtypes.float32),
        )
        for index in range(first, len(op.node.outputs))
    ]


# ------------------------------------------------------------------- neighboring channels


class _Neighbours:
    """The denominator of a local response normalization.

    Attributes:
      wide: the type to compute in.
      norms: bias + alpha * the sum of the squares of neighboring channels.
    """

    def __init__(self, op: Operation, x: Value) -> None:
        require(x.rank == 4, "the images do not have rank 4, or are empty")
        self.name, self.shape, self.wide = op.name, x.shape, wide_type(x.dtype)
        self._radius = int(op.attr("depth_radius"))
        self._beta = float(op.attr("beta"))
        squares = self.sums(
            "squares", lambda *index: apply("square", cast(x.at(*index), self.wide))
        )
        alpha, bias = (number(op.attr(name), self.wide) for name in ("alpha", "bias"))
        self.norms = self.image(
            "norms", lambda *index: apply("add", apply("mul", squares.at(*index), alpha), bias)
        )

    def image(self, name: str, element: Element) -> Value:
        return compute_value(f"{self.name}_{name}", self.wide, self.shape, element)

    def sums(self, name: str, element: Element) -> Value:
        """Return the sum over the neighbors of each channel, one pixel at a time."""
        *pixels, channels = self.shape
        radius = min(self._radius, max(channels - 1, 0))
        squares, zero = self.image(f"{name}_of", element), number(0, self.wide)

        def write(unique: Unique, y: Buffer, terms: Buffer) -> Sequence[Statement]:
            def pixel(*index: Expr) -> Body:
                # With zero padding all loops access contiguous memory.
                row = Buffer(unique("row"), self.wide, (channels + 2 * radius,))

                def margin(j: Expr, first: int) -> Body:
                    return (Store(row.name, (plus(j, first),), zero),)

                def inner(j: Expr) -> Body:
                    value = load(terms, self.shape, [*index, j])
                    return (Store(row.name, (plus(j, radius),), value),)

                return (
                    Allocate(row),
                    *nest(unique, [radius], lambda j: margin(j, 0)),
                    *nest(unique, [radius], lambda j: margin(j, radius + channels)),
                    *nest(unique, [channels], inner),
                    *_windows(unique, row, y, index, 2 * radius + 1),
                )

            return nest(unique, pixels, pixel) if channels else ()

        return Value(
            f"{self.name}_{name}", self.wide, self.shape, StatementDefinition((squares,), write)
        )

    def power(self, *index: Expr) -> Expr:
        """Return the norm to the power of -beta."""
        norm, one = self.norms.at(*index), number(1, self.wide)
        if self._beta == 0.5:
            return apply("div", one, apply("sqrt", norm))
        if self._beta == 0.75:
            root = apply("sqrt", norm)
            return apply("div", one, apply("mul", root, apply("sqrt", root)))
        if self._beta == 1.0:
            return apply("div", one, norm)
        return apply("pow", norm, number(-self._beta, self.wide))


def _windows(unique: Unique, row: Buffer, y: Buffer, index: Sequence[Expr], width: int) -> Body:
    """Write sums over windows of a row to a pixel of an image."""
    channels = [y.shape[-1]]

    def place(j: Expr, k: Expr | int) -> Load:
        return Load(row.dtype, row.name, (plus(j, k),))

    if width <= _FEW:

        def total(j: Expr) -> Body:
            return (Store(y.name, (*index, j), add(*[place(j, k) for k in range(width)])),)

        return nest(unique, channels, total)

    def first(j: Expr) -> Body:
        return (Store(y.name, (*index, j), place(j, 0)),)

    def slide(k: Expr, j: Expr) -> Body:
        return (Store(y.name, (*index, j), place(j, plus(k, 1)), "add"),)

    remaining = nest(unique, [width - 1, *channels], slide)
    return (*nest(unique, channels, first), *remaining)


@lowers("LRN")
def _local_response(op: Operation) -> Value:
    x = op.inputs[0]
    neighbors = _Neighbours(op, x)

    def element(*index: Expr) -> Expr:
        return apply("mul", cast(x.at(*index), neighbors.wide), neighbors.power(*index))

    return compute_value(op.name, op.dtype(), x.shape, element)


@lowers("LRNGrad")
def _local_response_grad(op: Operation) -> Value:
    gradient, x, y = op.inputs
    neighbors = _Neighbours(op, x)
    require(gradient.shape == x.shape == y.shape, "the shapes of the images differ")

    def share(*index: Expr) -> Expr:
        upstream, result = (cast(item.at(*index), neighbors.wide) for item in (gradient, y))
        return apply("div", apply("mul", upstream, result), neighbors.norms.at(*index))

    shares = neighbors.sums("shares", neighbors.image("share", share).at)
    factor = number(2 * op.attr("alpha") * op.attr("beta"), neighbors.wide)

    def element(*index: Expr) -> Expr:
        upstream = apply("mul", cast(gradient.at(*index), neighbors.wide), neighbors.power(*index))
        remaining = apply(
            "mul", apply("mul", shares.at(*index), cast(x.at(*index), neighbors.wide)), factor
        )
        return apply("sub", upstream, remaining)

    return compute_value(op.name, op.dtype(), x.shape, element)
