"""Fake quantization: numbers rounded to the steps of a range, and its gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from weft_compiler.ir.expressions import Expr, apply, number, where
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, computed
from weft_tensor import dtypes


def _number(value: float) -> Expr:
    return number(value, dtypes.float32)


@dataclass
class _Range:
    """A range of which 0 is one of the values, or one for each channel.

    Attributes:
      low, high: where it ends.
      scale: its step, 0 of a range that is [0, 0]; `inverse` is 1 over it.
      zero: which of its steps is 0.
    """

    low: Value
    high: Value
    scale: Value
    inverse: Value
    zero: Value


def _channel(value: Value, at: tuple[Expr, ...]) -> Expr:
    """An element of a vector for channels, or of a scalar."""
    return value.at(*at[-1:]) if value.rank else value.at()


def _nudged(op: Operation, low: Value, high: Value) -> _Range:
    """The range moved so that 0 is a value."""
    first = 1.0 if op.attr("narrow_range") else 0.0
    last = float(2 ** int(op.attr("num_bits")) - 1)

    def part(name: str, element: object) -> Value:
        assert callable(element)
        return computed(f"{op.name}_{name}", dtypes.float32, low.shape, element)

    def step(*at: Expr) -> Expr:
        return apply("div", apply("sub", high.at(*at), low.at(*at)), _number(last - first))

    scale = part("scale", step)

    def positive(*at: Expr) -> Expr:
        none = apply("equal", scale.at(*at), _number(0))
        return where(none, _number(1), scale.at(*at))

    def nearest(*at: Expr) -> Expr:
        place = apply("sub", _number(first), apply("div", low.at(*at), positive(*at)))
        near = apply("minimum", apply("maximum", place, _number(first)), _number(last))
        # Half would lead the number below it to 1; what is below half leads half to 1.
        return apply("trunc", apply("add", near, _number(_BELOW_HALF)))

    place = part("place", nearest)

    def end(name: str, at_step: float) -> Value:
        return part(
            name,
            lambda *at: apply("mul", apply("sub", _number(at_step), place.at(*at)), scale.at(*at)),
        )

    lowest, highest = end("low", first), end("high", last)
    inverse = part("inverse", lambda *at: apply("div", _number(1), positive(*at)))

    def zero(*at: Expr) -> Expr:
        steps = apply("mul", apply("neg", lowest.at(*at)), inverse.at(*at))
        return apply("floor", apply("add", steps, _number(0.5)))

    return _Range(lowest, highest, scale, inverse, part("zero", zero))


_BELOW_HALF: Final = 0.5 - 2.0**-25
"""The float32 below a half."""


def _fixed(op: Operation, name: str) -> Value:
    end = _number(op.attr(name))
    return computed(f"{op.name}_{name}", dtypes.float32, (), lambda: end)


def _ends(op: Operation, x: Value, first: int) -> tuple[Value, Value]:
    """The ends of the range, as attributes or operands give them.

    Args:
      first: the position of the operand that is the lower one, if there is one.
    """
    if "Args" in op.node.type:
        return _fixed(op, "min"), _fixed(op, "max")
    low, high = op.inputs[first : first + 2]
    wanted = x.shape[-1:] if "PerChannel" in op.node.type else ()
    require(low.shape == wanted and high.shape == wanted, "ranges of another shape than channels")
    return low, high


@lowers("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def _fake(op: Operation) -> Value:
    x = op.inputs[0]
    of = _nudged(op, *_ends(op, x, 1))

    def element(*at: Expr) -> Expr:
        low, high = _channel(of.low, at), _channel(of.high, at)
        near = apply("minimum", apply("maximum", x.at(*at), low), high)
        steps = apply("mul", apply("sub", near, low), _channel(of.inverse, at))
        moved = apply("add", apply("sub", steps, _channel(of.zero, at)), _number(0.5))
        return apply("mul", apply("floor", moved), _channel(of.scale, at))

    return computed(op.name, op.dtype(), x.shape, element)


@lowers("FakeQuantWithMinMaxArgsGradient")
def _fake_gradient(op: Operation) -> Value:
    gradient, x = op.inputs
    require(gradient.shape == x.shape, "gradients of another shape")
    of = _nudged(op, *_ends(op, x, 2))

    def element(*at: Expr) -> Expr:
        above = apply("greater_equal", x.at(*at), _channel(of.low, at))
        below = apply("less_equal", x.at(*at), _channel(of.high, at))
        inside = where(apply("bit_and", above, below), _number(1), _number(0))
        return apply("mul", gradient.at(*at), inside)

    return computed(op.name, op.dtype(), x.shape, element)


@lowers("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def _fake_gradients(op: Operation) -> list[Value]:
    """What is below or above the range is the gradient of its ends."""
    gradient, x = op.inputs[:2]
    require(gradient.shape == x.shape, "gradients of another shape")
    low, high = _ends(op, x, 2)
    of = _nudged(op, low, high)

    def beyond(below: bool) -> Value:
        end, limit = (of.low, -math.inf) if below else (of.high, math.inf)

        def element(*at: Expr) -> Expr:
            zeros = [apply("equal", _channel(each, at), _number(0)) for each in (low, high)]
            # A range that is [0, 0] passes all gradients on.
            wanted = where(apply("bit_and", *zeros), _number(limit), _channel(end, at))
            return apply("less" if below else "greater", x.at(*at), wanted)

        name = f"{op.name}_{'below' if below else 'above'}"
        return computed(name, dtypes.bool_, x.shape, element)

    sides = [beyond(True), beyond(False)]

    def times(condition: Expr, at: tuple[Expr, ...]) -> Expr:
        return apply("mul", gradient.at(*at), where(condition, _number(1), _number(0)))

    def inside(*at: Expr) -> Expr:
        outside = apply("bit_or", *[side.at(*at) for side in sides])
        return apply("mul", gradient.at(*at), where(outside, _number(0), _number(1)))

    axes = list(range(x.rank - low.rank))
    parts = [
        computed(
            f"{side.name}_part", dtypes.float32, x.shape, lambda *at, s=side: times(s.at(*at), at)
        )
        for side in sides
    ]
    totals = [reduce(f"{op.name}_{at}", part, axes, "add") for at, part in enumerate(parts, 1)]
    return [computed(f"{op.name}_0", dtypes.float32, x.shape, inside), *totals]
