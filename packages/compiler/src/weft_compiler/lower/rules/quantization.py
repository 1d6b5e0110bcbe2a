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
from weft_compiler.lower.values import Requirement, Value, compute_value
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


def _number(value: float) -> Expr:
    return number(value, dtypes.float32)


@dataclass
class _Range:
    """A quantization range in which 0 is exactly representable, per tensor or per channel.

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


def _channel(value: Value, index: tuple[Expr, ...]) -> Expr:
    """Return an element of a per-channel vector, or a scalar."""
    return value.at(*index[-1:]) if value.rank else value.at()


def _nudge_range(op: Operation, low: Value, high: Value) -> _Range:
    """Shift the range so that 0 is exactly representable."""
    first = 1.0 if op.attr("narrow_range") else 0.0
    last = float(2 ** int(op.attr("num_bits")) - 1)

    def part(name: str, element: object) -> Value:
        assert callable(element)
        return compute_value(f"{op.name}_{name}", dtypes.float32, low.shape, element)

    def step(*index: Expr) -> Expr:
        return apply("div", apply("sub", high.at(*index), low.at(*index)), _number(last - first))

    scale = part("scale", step)

    def positive(*index: Expr) -> Expr:
        none = apply("equal", scale.at(*index), _number(0))
        return where(none, _number(1), scale.at(*index))

    def nearest(*index: Expr) -> Expr:
        position = apply("sub", _number(first), apply("div", low.at(*index), positive(*index)))
        clamped = apply("minimum", apply("maximum", position, _number(first)), _number(last))
        # Adding 0.5 would round the number below 0.5 up; adding the number below 0.5 rounds 0.5 up.
        return apply("trunc", apply("add", clamped, _number(_BELOW_HALF)))

    position = part("place", nearest)

    def end(name: str, quantized_value: float) -> Value:
        return part(
            name,
            lambda *index: apply(
                "mul", apply("sub", _number(quantized_value), position.at(*index)), scale.at(*index)
            ),
        )

    lowest, highest = end("low", first), end("high", last)
    inverse = part("inverse", lambda *index: apply("div", _number(1), positive(*index)))

    def zero(*index: Expr) -> Expr:
        steps = apply("mul", apply("neg", lowest.at(*index)), inverse.at(*index))
        return apply("floor", apply("add", steps, _number(0.5)))

    return _Range(lowest, highest, scale, inverse, part("zero", zero))


_BELOW_HALF: Final = 0.5 - 2.0**-25
"""The largest float32 below 0.5."""


def _fixed(op: Operation, name: str) -> Value:
    end = _number(op.attr(name))
    return compute_value(f"{op.name}_{name}", dtypes.float32, (), lambda: end)


def _ends(op: Operation, x: Value, first: int) -> tuple[Value, Value]:
    """Return the ends of the range from attributes or operands.

    Args:
      first: the position of the operand with the lower end, if ends are operands.
    """
    if "Args" in op.node.type:
        return _fixed(op, "min"), _fixed(op, "max")
    low, high = op.inputs[first : first + 2]
    expected = x.shape[-1:] if "PerChannel" in op.node.type else ()
    require(
        low.shape == expected and high.shape == expected,
        "the ranges do not have one element per channel",
    )
    return low, high


@lowers("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def _fake(op: Operation) -> Value:
    x = op.inputs[0]
    nudged = _nudge_range(op, *_ends(op, x, 1))

    def element(*index: Expr) -> Expr:
        low, high = _channel(nudged.low, index), _channel(nudged.high, index)
        clamped = apply("minimum", apply("maximum", x.at(*index), low), high)
        steps = apply("mul", apply("sub", clamped, low), _channel(nudged.inverse, index))
        moved = apply("add", apply("sub", steps, _channel(nudged.zero, index)), _number(0.5))
        return apply("mul", apply("floor", moved), _channel(nudged.scale, index))

    return compute_value(op.name, op.dtype(), x.shape, element)


@lowers("FakeQuantWithMinMaxArgsGradient")
def _fake_quant_gradient(op: Operation) -> Value:
    gradient, x = op.inputs
    require(gradient.shape == x.shape, "the shapes of gradients and inputs differ")
    nudged = _nudge_range(op, *_ends(op, x, 2))

    def element(*index: Expr) -> Expr:
        above_low = apply("greater_equal", x.at(*index), _channel(nudged.low, index))
        below_high = apply("less_equal", x.at(*index), _channel(nudged.high, index))
        in_range = where(apply("bit_and", above_low, below_high), _number(1), _number(0))
        return apply("mul", gradient.at(*index), in_range)

    return compute_value(op.name, op.dtype(), x.shape, element)


@lowers("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def _fake_quant_gradients(op: Operation) -> list[Value]:
    """Return the gradients: inside the range for the input, outside for the ends."""
    gradient, x = op.inputs[:2]
    require(gradient.shape == x.shape, "the shapes of gradients and inputs differ")
    low, high = _ends(op, x, 2)
    nudged = _nudge_range(op, low, high)

    def outside_gradient(is_below: bool) -> Value:
        end, limit = (nudged.low, -math.inf) if is_below else (nudged.high, math.inf)

        def element(*index: Expr) -> Expr:
            zeros = [apply("equal", _channel(item, index), _number(0)) for item in (low, high)]
            # The range [0, 0] passes all gradients.
            expected = where(apply("bit_and", *zeros), _number(limit), _channel(end, index))
            return apply("less" if is_below else "greater", x.at(*index), expected)

        name = f"{op.name}_{'below' if is_below else 'above'}"
        return compute_value(name, dtypes.bool_, x.shape, element)

    sides = [outside_gradient(True), outside_gradient(False)]

    def times(condition: Expr, index: tuple[Expr, ...]) -> Expr:
        return apply("mul", gradient.at(*index), where(condition, _number(1), _number(0)))

    def inside_gradient(*index: Expr) -> Expr:
        outside = apply("bit_or", *[side.at(*index) for side in sides])
        return apply("mul", gradient.at(*index), where(outside, _number(0), _number(1)))

    axes = list(range(x.rank - low.rank))
    parts = [
        compute_value(
            f"{side.name}_part",
            dtypes.float32,
            x.shape,
            lambda *index, s=side: times(s.at(*index), index),
        )
        for side in sides
    ]
    totals = [
        reduce(f"{op.name}_{index}", part, axes, "add") for index, part in enumerate(parts, 1)
    ]
    return [compute_value(f"{op.name}_0", dtypes.float32, x.shape, inside_gradient), *totals]


# -------------------------------------------------------------- rounding to what integers hold

_BITS: Final = 64
"""Minimum integer width for which float types cannot represent all quantization levels."""


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
    """Widen a range at one end, so that integers of a width cover it."""
    dtype = low.dtype
    minimum, limit = 0.0, 2.0**bits - 1
    if op.attr("signed_input"):
        narrow = bool(op.node.attrs.get("narrow_range"))
        minimum, limit = -(2.0 ** (bits - 1)) + narrow, 2.0 ** (bits - 1) - 1
    huge = number(float(np.finfo(dtype.numpy).max), dtype)

    def part(name: str, element: Callable[..., Expr]) -> Value:
        return compute_value(f"{op.name}_{name}", dtype, low.shape, element)

    def from_end(name: str, end: Value, integer: float) -> Value:
        """Return the steps per unit for one end; huge if that end does not limit the scale."""
        last_integer = number(integer, dtype)

        def element(*index: Expr) -> Expr:
            fits = apply("greater", apply("mul", last_integer, end.at(*index)), number(0, dtype))
            steps = apply("div", last_integer, where(fits, end.at(*index), number(1, dtype)))
            return where(fits, steps, huge)

        return part(name, element)

    by_low, by_high = from_end("by_low", low, minimum), from_end("by_high", high, limit)

    def chosen(name: str, of_low: Callable[..., Expr], of_high: Callable[..., Expr]) -> Value:
        """Select the value for the end with the smaller scale."""

        def element(*index: Expr) -> Expr:
            fewer = apply("less", by_low.at(*index), by_high.at(*index))
            return where(fewer, of_low(*index), of_high(*index))

        return part(name, element)

    def step_size(end: Value, integer: float) -> Callable[..., Expr]:
        return lambda *index: apply("div", end.at(*index), number(integer, dtype))

    inverse = chosen("inverse", step_size(low, minimum or 1.0), step_size(high, limit))

    def times(integer: float) -> Callable[..., Expr]:
        return lambda *index: apply("mul", number(integer, dtype), inverse.at(*index))

    return _Steps(
        chosen("low", low.at, times(minimum)),
        chosen("high", times(limit), high.at),
        chosen("scale", by_low.at, by_high.at),
        inverse,
    )


def _along(op: Operation, low: Value, high: Value) -> Callable[..., tuple[Expr, ...]]:
    """Map the indices of an element to those of its range (per tensor or per channel)."""
    axis, shape = int(op.node.attrs.get("axis", -1)), op.shape()
    expected = () if axis < 0 else (shape[axis],)
    require(
        low.shape == high.shape == expected,
        "the ranges do not have one element per index of their axis",
    )
    return lambda *index: () if axis < 0 else (index[axis],)


def _given_range(op: Operation, wide: DType) -> tuple[Value, Value]:
    if op.node.type == "QuantizeAndDequantize":
        require(
            op.attr("input_min") <= op.attr("input_max"),
            "the minimum of a range exceeds its maximum",
        )
        low, high = (
            compute_value(f"{op.name}_{end}", wide, (), lambda end=end: number(op.attr(end), wide))
            for end in ("input_min", "input_max")
        )
    else:
        low, high = (compute_value(f"{x.name}_wide", wide, x.shape, x.at) for x in op.inputs[1:3])
    return low, high


@lowers("QuantizeAndDequantize", "QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
@lowers("QuantizeAndDequantizeV3", known_operands=(3,))
def _round_to_integers(op: Operation) -> Value:
    """Quantize and dequantize, by a given range or by the minimum and maximum of the input."""
    has_range, axis = bool(op.attr("range_given")), int(op.node.attrs.get("axis", -1))
    wide = wide_type(op.dtype())
    bits = int(op.known_value(3)) if op.node.type.endswith("V3") else int(op.attr("num_bits"))
    require(
        1 + bool(op.attr("signed_input")) <= bits < _BITS, f"{bits}-bit integers are not supported"
    )
    x = compute_value(f"{op.name}_x", wide, op.shape(), op.inputs[0].at)
    if has_range:
        low, high = _given_range(op, wide)
    else:
        axes = [index for index in range(x.rank) if axis < 0 or index != axis]
        low, high = (
            reduce(f"{op.name}_{combine}", x, axes, combine) for combine in ("minimum", "maximum")
        )
    position, quantization_steps = _along(op, low, high), _steps(op, low, high, bits)

    def element(*index: Expr) -> Expr:
        channel, result = position(*index), x.at(*index)
        if has_range:
            result = apply(
                "clamp",
                result,
                quantization_steps.low.at(*channel),
                quantization_steps.high.at(*channel),
            )
        steps = apply("mul", result, quantization_steps.scale.at(*channel))
        if op.node.attrs.get("round_mode") == "HALF_UP":
            rounded = apply("floor", apply("add", steps, number(0.5, wide)))
        else:
            rounded = apply("rint", steps)
        return apply("mul", rounded, quantization_steps.inverse.at(*channel))

    result = compute_value(op.name, op.dtype(), op.shape(), element)
    if has_range and len(op.inputs) > 1:
        result.requires = (_require_ascending(low, high),)
    return result


def _require_ascending(low: Value, high: Value) -> Requirement:
    def condition(*index: Expr) -> Expr:
        return apply("less_equal", low.at(*index), high.at(*index))

    return Requirement(low.shape, condition, "input_min <= input_max was required")


@lowers("QuantizeAndDequantizeV4Grad")
def _round_gradient(op: Operation) -> list[Value]:
    """Pass the gradient of elements inside the range; the range itself gets no gradient."""
    gradient, x, low, high = op.inputs
    require(gradient.shape == x.shape, "the shapes of gradients and inputs differ")
    position, zero = _along(op, low, high), number(0, op.dtype())

    def element(*index: Expr) -> Expr:
        channel = position(*index)
        in_range = apply(
            "bit_and",
            apply("greater_equal", x.at(*index), low.at(*channel)),
            apply("less_equal", x.at(*index), high.at(*channel)),
        )
        return where(in_range, gradient.at(*index), zero)

    none = [
        compute_value(f"{op.name}_{index}", op.dtype(index), op.shape(index), lambda *_: zero)
        for index in (1, 2)
    ]
    return [compute_value(op.name, op.dtype(), x.shape, element), *none]
