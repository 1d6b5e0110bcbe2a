"""Fake quantization and quantize-dequantize ops, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import Expr, apply, number, where
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Requirement, Value, computed
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


def _number(value: float) -> Expr:
    return number(value, dtypes.float32)


@dataclass
class _Range:
    """A range that contains 0 exactly; or one range for each channel.

    Attributes:
      low, high: its ends.
      scale: the step size, 0 for the range [0, 0]; `inverse` is its reciprocal.
      zero: the zero point.
    """

    low: Value
    high: Value
    scale: Value
    inverse: Value
    zero: Value


def _channel(value: Value, at: tuple[Expr, ...]) -> Expr:
    """Return an element of a per-channel vector, or a scalar."""
    return value.at(*at[-1:]) if value.rank else value.at()


def _nudged(op: Operation, low: Value, high: Value) -> _Range:
    """Return the range moved so that 0 is exactly representable."""
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
        # Adding 0.5 would round the number below 0.5 up; adding the number below 0.5 rounds 0.5 up.
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
    """Return the ends of the range, from attributes or operands.

    Args:
      first: the position of the operand with the lower end, if ends are operands.
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
    """Return the gradients: inside the range for the input, outside for the ends."""
    gradient, x = op.inputs[:2]
    require(gradient.shape == x.shape, "gradients of another shape")
    low, high = _ends(op, x, 2)
    of = _nudged(op, low, high)

    def beyond(below: bool) -> Value:
        end, limit = (of.low, -math.inf) if below else (of.high, math.inf)

        def element(*at: Expr) -> Expr:
            zeros = [apply("equal", _channel(each, at), _number(0)) for each in (low, high)]
            # The range [0, 0] passes all gradients.
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


# -------------------------------------------------------------- rounding to what integers hold

_BITS: Final = 64
"""Integers of at least this many bits have values that no float type can distinguish."""


@dataclass
class _Steps:
    """A range whose ends are quantization levels.

    Attributes:
      low, high: its ends.
      scale: quantization steps per unit; `inverse` is the step size.
    """

    low: Value
    high: Value
    scale: Value
    inverse: Value


def _steps(op: Operation, low: Value, high: Value, bits: int) -> _Steps:
    """Return the range widened at one end, so that integers of some bits cover it."""
    dtype = low.dtype
    least, most = 0.0, 2.0**bits - 1
    if op.attr("signed_input"):
        narrow = bool(op.node.attrs.get("narrow_range"))
        least, most = -(2.0 ** (bits - 1)) + narrow, 2.0 ** (bits - 1) - 1
    huge = number(float(np.finfo(dtype.numpy).max), dtype)

    def part(name: str, element: Callable[..., Expr]) -> Value:
        return computed(f"{op.name}_{name}", dtype, low.shape, element)

    def from_end(name: str, end: Value, integer: float) -> Value:
        """Return the steps per unit by one end; huge if that end does not limit the scale."""
        whole = number(integer, dtype)

        def element(*at: Expr) -> Expr:
            fits = apply("greater", apply("mul", whole, end.at(*at)), number(0, dtype))
            steps = apply("div", whole, where(fits, end.at(*at), number(1, dtype)))
            return where(fits, steps, huge)

        return part(name, element)

    by_low, by_high = from_end("by_low", low, least), from_end("by_high", high, most)

    def chosen(name: str, of_low: Callable[..., Expr], of_high: Callable[..., Expr]) -> Value:
        """Select one of two values, by the end with the smaller scale."""

        def element(*at: Expr) -> Expr:
            fewer = apply("less", by_low.at(*at), by_high.at(*at))
            return where(fewer, of_low(*at), of_high(*at))

        return part(name, element)

    def over(end: Value, integer: float) -> Callable[..., Expr]:
        return lambda *at: apply("div", end.at(*at), number(integer, dtype))

    inverse = chosen("inverse", over(low, least or 1.0), over(high, most))

    def times(integer: float) -> Callable[..., Expr]:
        return lambda *at: apply("mul", number(integer, dtype), inverse.at(*at))

    return _Steps(
        chosen("low", low.at, times(least)),
        chosen("high", times(most), high.at),
        chosen("scale", by_low.at, by_high.at),
        inverse,
    )


def _along(op: Operation, low: Value, high: Value) -> Callable[..., tuple[Expr, ...]]:
    """Map the indices of an element to those of its range, which may be per channel."""
    axis, shape = int(op.node.attrs.get("axis", -1)), op.shape()
    wanted = () if axis < 0 else (shape[axis],)
    require(low.shape == high.shape == wanted, "ranges of another shape than their axis")
    return lambda *at: () if axis < 0 else (at[axis],)


def _given_range(op: Operation, wide: DType) -> tuple[Value, Value]:
    if op.node.type == "QuantizeAndDequantize":
        require(op.attr("input_min") <= op.attr("input_max"), "a range that ends before it begins")
        low, high = (
            computed(f"{op.name}_{end}", wide, (), lambda end=end: number(op.attr(end), wide))
            for end in ("input_min", "input_max")
        )
    else:
        low, high = (computed(f"{x.name}_wide", wide, x.shape, x.at) for x in op.inputs[1:3])
    return low, high


@lowers("QuantizeAndDequantize", "QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
@lowers("QuantizeAndDequantizeV3", known=(3,))
def _round_to_integers(op: Operation) -> Value:
    """Quantize and dequantize, by a given range or by the minimum and maximum of the input."""
    given, axis = bool(op.attr("range_given")), int(op.node.attrs.get("axis", -1))
    wide = wide_type(op.dtype())
    bits = int(op.known(3)) if op.node.type.endswith("V3") else int(op.attr("num_bits"))
    require(1 + bool(op.attr("signed_input")) <= bits < _BITS, f"integers of {bits} bits")
    x = computed(f"{op.name}_x", wide, op.shape(), op.inputs[0].at)
    if given:
        low, high = _given_range(op, wide)
    else:
        axes = [at for at in range(x.rank) if axis < 0 or at != axis]
        low, high = (
            reduce(f"{op.name}_{combine}", x, axes, combine) for combine in ("minimum", "maximum")
        )
    place, of = _along(op, low, high), _steps(op, low, high, bits)

    def element(*at: Expr) -> Expr:
        there, found = place(*at), x.at(*at)
        if given:
            found = apply("clamp", found, of.low.at(*there), of.high.at(*there))
        steps = apply("mul", found, of.scale.at(*there))
        if op.node.attrs.get("round_mode") == "HALF_UP":
            whole = apply("floor", apply("add", steps, number(0.5, wide)))
        else:
            whole = apply("rint", steps)
        return apply("mul", whole, of.inverse.at(*there))

    found = computed(op.name, op.dtype(), op.shape(), element)
    if given and len(op.inputs) > 1:
        found.requires = (_in_order(low, high),)
    return found


def _in_order(low: Value, high: Value) -> Requirement:
    def condition(*at: Expr) -> Expr:
        return apply("less_equal", low.at(*at), high.at(*at))

    return Requirement(low.shape, condition, "input_min <= input_max was required")


@lowers("QuantizeAndDequantizeV4Grad")
def _round_gradient(op: Operation) -> list[Value]:
    """Pass the gradient inside the range; the range itself has no gradient."""
    gradient, x, low, high = op.inputs
    require(gradient.shape == x.shape, "gradients of another shape")
    place, zero = _along(op, low, high), number(0, op.dtype())

    def element(*at: Expr) -> Expr:
        there = place(*at)
        inside = apply(
            "bit_and",
            apply("greater_equal", x.at(*at), low.at(*there)),
            apply("less_equal", x.at(*at), high.at(*there)),
        )
        return where(inside, gradient.at(*at), zero)

    none = [
        computed(f"{op.name}_{at}", op.dtype(at), op.shape(at), lambda *_: zero) for at in (1, 2)
    ]
    return [computed(op.name, op.dtype(), x.shape, element), *none]
