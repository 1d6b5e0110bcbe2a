"""Kernels of quantization.

The results are integers or multiples of a scale, so a difference of one ulp may change a result.
Therefore operations are in TensorFlow's order, and in float32 unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from weft_exec.kernels.common import accumulation_dtype, as_exact, copy_sign, new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

F32 = np.float32
Array = np.ndarray[Any, Any]


def require_shape(op: str, label: str, actual: Any, expected: tuple[int, ...]) -> None:
    """Raise InvalidArgumentError unless an array has the expected shape."""
    if actual.shape != expected:
        raise errors.InvalidArgumentError(
            f"{op} requires {label} of shape {format_dims(expected)}, got "
            f"{format_dims(actual.shape)}"
        )


def round_away(xp: Any, x: Any) -> Any:
    """Round to the nearest integers, halves away from 0."""
    # Adding 0.5 would round the number just below it to 1. The next number below 0.5 still rounds
    # 0.5 to 1, since the sum is rounded.
    kind = x.dtype.type
    half = np.nextafter(kind(0.5), kind(0))
    offset = copy_sign(half, x) if xp is np else xp.sign(x) * half  # NumPy's sign is slow
    offset += x
    return xp.trunc(offset)


def clip(xp: Any, x: Any, low: Any, high: Any, out: Any = None) -> Any:
    """Clamp x to a range."""
    return xp.minimum(xp.maximum(x, low, out=out), high, out=out)


_BLOCK: Final = 1 << 14
"""Number of elements of a block, so that several passes over it stay in the cache."""


def _fill_in_blocks(
    xp: Any, fill: Callable[..., Any], arrays: Sequence[Any], ends: Sequence[Any]
) -> None:
    """Call `fill(*arrays, *ends)` for blocks of arrays of equal shape, the last one contiguous.

    Ends are scalars, or have an element for each channel, the last axis of the arrays. They are
    repeated to the size of a block, because loops over a few channels are slow, and the minimum
    with a scalar takes three times as long as with an array. On other devices, and if the ends are
    along another axis, there is a single block.
    """
    size, width = arrays[0].size, max((end.size for end in ends if end.ndim), default=1)
    step = max(1, _BLOCK // max(width, 1)) * width
    if xp is not np or size <= step or any(end.ndim > 1 for end in ends):
        fill(*arrays, *ends)
        return
    ends = [np.tile(end, step // end.size) for end in ends]
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, size, step):
        parts = [array[start : start + step] for array in flat]
        fill(*parts, *(end[: parts[0].size] for end in ends))


# ---------------------------------------------------------------------- fake quantization


class _NudgedRange(NamedTuple):
    """A range in which 0 is exactly representable."""

    low: Any
    high: Any
    scale: Any
    inverse: Any
    zero: Any


def _nudge(xp: Any, node: Node, low: Any, high: Any) -> _NudgedRange:
    """Shift a range so that 0 is exactly representable; the range [0, 0] has the scale 0."""
    first = F32(1 if node.attrs["narrow_range"] else 0)
    last = F32(2 ** node.attrs["num_bits"] - 1)
    scale = (high - low) / (last - first)
    divisor = xp.where(scale == 0, F32(1), scale)
    zero = round_away(xp, clip(xp, first - low / divisor, first, last))
    low, high, inverse = (first - zero) * scale, (last - zero) * scale, F32(1) / divisor
    return _NudgedRange(low, high, scale, inverse, xp.floor(-low * inverse + F32(0.5)))


def _fake(device: Device, x: Any, nudged: _NudgedRange) -> Any:
    xp = device.xp

    def fill(x: Any, y: Any, low: Any, high: Any, scale: Any, inverse: Any, zero: Any) -> None:
        clip(xp, x, low, high, y)
        y -= low
        y *= inverse
        y -= zero
        y += F32(0.5)
        xp.floor(y, out=y)
        y *= scale

    result = new_array(device, x.shape, np.dtype(F32))
    _fill_in_blocks(xp, fill, [x, result], nudged)
    return result


def _require_channels(op: str, x: Any, low: Any, high: Any, per_channel: bool) -> None:
    if per_channel and not x.ndim:
        raise errors.InvalidArgumentError(f"{op} requires inputs of rank 1 or more, got a scalar")
    for label, end in (("min", low), ("max", high)):
        require_shape(op, label, end, x.shape[-1:] if per_channel else ())


@kernel("FakeQuantWithMinMaxArgs", device=ARRAY_DEVICE)
def _fake_args(node: Node, device: Device) -> KernelFunction:
    nudged = _nudge(np, node, F32(node.attrs["min"]), F32(node.attrs["max"]))
    return lambda x: _fake(device, x, nudged)


@kernel("FakeQuantWithMinMaxArgsGradient", device=ARRAY_DEVICE)
def _fake_args_gradient(node: Node, device: Device) -> KernelFunction:
    op = node.type
    nudged = _nudge(np, node, F32(node.attrs["min"]), F32(node.attrs["max"]))

    def run(grad: Any, x: Any) -> Any:
        require_shape(op, "gradients", grad, x.shape)
        return grad * ((x >= nudged.low) & (x <= nudged.high))

    return run


@kernel("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel", device=ARRAY_DEVICE)
def _fake_vars(node: Node, device: Device) -> KernelFunction:
    xp, op, per_channel = device.xp, node.type, node.type.endswith("PerChannel")

    def run(x: Any, low: Any, high: Any) -> Any:
        _require_channels(op, x, low, high, per_channel)
        return _fake(device, x, _nudge(xp, node, low, high))

    return run


@kernel(
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    device=ARRAY_DEVICE,
)
def _fake_vars_gradient(node: Node, device: Device) -> KernelFunction:
    xp, op, per_channel = device.xp, node.type, "PerChannel" in node.type

    def run(grad: Any, x: Any, low: Any, high: Any) -> Any:
        require_shape(op, "gradients", grad, x.shape)
        _require_channels(op, x, low, high, per_channel)
        nudged = _nudge(xp, node, low, high)
        is_empty = (low == 0) & (high == 0)  # such a range passes all gradients on
        ends = xp.where(is_empty, -inf, nudged.low), xp.where(is_empty, inf, nudged.high)
        is_inside, sums = new_array(device, x.shape, np.dtype(F32)), list[Any]()

        def fill(grad: Any, x: Any, is_inside: Any, low: Any, high: Any) -> None:
            below, above = x < low, x > high
            xp.multiply(grad, ~(below | above), out=is_inside)
            parts = [grad * below, grad * above]
            for total, part in zip(sums, parts, strict=False):
                total[: part.size] += part
            sums.extend(parts[len(sums) :])

        _fill_in_blocks(xp, fill, [grad, x, is_inside], ends)
        if per_channel:
            width = x.shape[-1]
            rows = (sums[0].size // max(width, 1), width)
            return is_inside, *(total.reshape(rows).sum(0) for total in sums)
        return is_inside, *(total.sum() for total in sums)

    return run


# ------------------------------------------------------------------ to integers and back


def limits(dtype: DType) -> tuple[float, float]:
    """Return the lowest and the highest integer of a quantized type."""
    info = np.iinfo(dtype.numpy)
    return float(info.min), float(info.max)


def reshape_along(op: str, axis: int, x: Any, *ends: Any) -> list[Any]:
    """Return the ends of ranges, shaped to broadcast along an axis of x.

    Axis -1 means a single range.
    """
    if axis >= x.ndim:
        raise errors.InvalidArgumentError(
            f"{op} requires an input with axis {axis}, got shape {format_dims(x.shape)}"
        )
    expected = () if axis < 0 else x.shape[axis : axis + 1]
    for end in ends:
        require_shape(op, "ends of ranges", end, expected)
    if axis < 0:
        return list(ends)
    return [end.reshape(expected + (1,) * (x.ndim - axis - 1)) for end in ends]


def to_integers(xp: Any, x: Any, dtype: DType) -> Any:
    """Convert integers in a floating-point type to an integer type, saturating.

    NaN becomes the lowest.
    """
    if dtype.size == 4:  # float32 has no 2 ** 31 - 1
        x = x.astype(np.float64)
    low, high = (_repeat_number(xp, end, x) for end in limits(dtype))
    return xp.minimum(xp.fmax(x, low), high).astype(dtype.numpy)


def _repeat_number(xp: Any, number: float, block: Any) -> Any:
    """Repeat a number to a block's size: a minimum with a scalar is three times slower."""
    if xp is not np or not 1 < block.size <= _BLOCK:
        return number
    return _block_of(number, block.dtype)[: block.size].reshape(block.shape)


@cache
def _block_of(number: float, dtype: np.dtype[Any]) -> Array:
    return np.full(_BLOCK, number, dtype)


@kernel("QuantizeV2")
def _quantize(node: Node, device: Device) -> KernelFunction:
    xp, attrs, dtype = device.xp, node.attrs, node.attrs["T"]
    axis, mode, smallest = attrs["axis"], attrs["mode"], F32(attrs["ensure_minimum_range"])
    prepare = {"MIN_COMBINED": _combined, "MIN_FIRST": _min_first, "SCALED": _scaled}[mode]

    def run(x: Any, low: Any, high: Any) -> Any:
        shape = low.shape
        low, high = reshape_along("QuantizeV2", axis, x, low, high)
        if not bool((low <= high).all()):
            raise errors.InvalidArgumentError(
                f"QuantizeV2 requires min_range <= max_range, got {low.min()} and {high.max()}"
            )
        size = xp.maximum(abs(low), abs(high))
        margin = xp.maximum(F32(1), size) * smallest
        low = xp.minimum(F32(0), low)
        high = xp.maximum(F32(0), xp.maximum(high, low + margin))
        low, high, round_all, numbers = prepare(xp, node, low, high)
        result = new_array(device, x.shape, dtype.numpy)

        def fill(x: Any, y: Any, *numbers: Any) -> None:
            y[...] = to_integers(xp, round_all(x, *numbers), dtype)

        _fill_in_blocks(xp, fill, [x, result], numbers)
        return (result, *(xp.asarray(end, F32).reshape(shape) for end in (low, high)))

    return run


_Way = tuple[Any, Any, Callable[..., Any], Sequence[Any]]
"""The ends of the resulting range, the function that quantizes elements, and further arguments of
the function, which are scalars or rows.
"""


def _combined(xp: Any, node: Node, low: Any, high: Any) -> _Way:
    minimum, maximum = limits(node.attrs["T"])
    half = F32(0) if minimum == 0 else F32((maximum - minimum + 1) / 2)

    def round_all(x: Any, low: Any, high: Any, scale: Any) -> Any:
        y = clip(xp, x, low, high)
        y -= low
        y *= scale
        y -= half
        return round_away(xp, y)

    scale = (F32(maximum - minimum) / (high - low)).astype(F32)
    return low, high, round_all, [low, high, scale]


def _min_first(xp: Any, node: Node, low: Any, high: Any) -> _Way:
    minimum, maximum = limits(node.attrs["T"])
    steps = maximum - minimum + 1
    span = (high - low).astype(np.float64) * (steps / (steps - 1))
    scale = (xp.where(span == 0, 0, steps / xp.where(span == 0, 1, span))).astype(F32)
    first = round_away(xp, low * scale) - F32(minimum)
    return low, high, lambda x, scale, first: round_away(xp, x * scale) - first, [scale, first]


def _scaled(xp: Any, node: Node, low: Any, high: Any) -> _Way:
    lowest, highest = limits(node.attrs["T"])
    minimum, limit = F32(lowest + node.attrs["narrow_range"]), F32(highest)
    huge = np.finfo(F32).max
    from_low = xp.where(minimum * low > 0, minimum / xp.where(low == 0, 1, low), huge).astype(F32)
    from_high = xp.where(high > 0, limit / xp.where(high == 0, 1, high), huge).astype(F32)
    scale = xp.minimum(from_low, from_high)
    low, high = minimum / scale, limit / scale
    half_even = node.attrs["round_mode"] == "HALF_TO_EVEN"

    def round_all(x: Any, low: Any, high: Any, scale: Any) -> Any:
        y = clip(xp, x, low, high)
        y *= scale
        return xp.rint(y) if half_even else round_away(xp, y)

    return low, high, round_all, [low, high, scale]


@kernel("Dequantize")
def _dequantize(node: Node, device: Device) -> KernelFunction:
    xp, attrs, dtype = device.xp, node.attrs, node.attrs["T"]
    axis, mode, exact = attrs["axis"], attrs["mode"], node.outputs[0].dtype.numpy
    minimum, limit = limits(dtype)

    def run(x: Any, low: Any, high: Any) -> Any:
        low, high = reshape_along("Dequantize", axis, x, low, high)
        y = x.astype(F32)
        if mode == "SCALED":
            first = F32(minimum + 1 if attrs["narrow_range"] else minimum)
            scale = high / F32(limit)
            if minimum:
                scale = xp.maximum(low / first, scale)
            y *= scale
        elif mode == "MIN_FIRST":
            scale = ((high - low).astype(np.float64) / (limit - minimum)).astype(F32)
            rounded = round_away(xp, low / xp.where(scale == 0, F32(1), scale)) * scale
            y = y * scale + (xp.where(high == low, low, rounded) - F32(minimum) * scale)
        else:
            scale = (high - low) / F32(limit - minimum)
            half = F32(0) if minimum == 0 else F32((limit - minimum + 1) / 2)
            y = (y + half) * scale + low
        return as_exact(y, exact, device)

    return run


# -------------------------------------------------------------- rounding to what integers hold


def _round_to(
    device: Device, attrs: Any, x: Any, low: Any, high: Any, bits: int, has_range: bool
) -> Any:
    """Round x to values that `bits`-bit integers represent in a range."""
    xp, kind = device.xp, x.dtype.type
    if attrs["signed_input"]:
        minimum, limit = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
        minimum += 1 if attrs.get("narrow_range") else 0
    else:
        minimum, limit = 0.0, 2.0**bits - 1
    minimum, limit = kind(minimum), kind(limit)
    huge, unit = np.finfo(kind).max, kind(1)
    by_low, by_high = minimum * low > 0, limit * high > 0
    from_low = xp.where(by_low, minimum / xp.where(by_low, low, unit), huge)
    from_high = xp.where(by_high, limit / xp.where(by_high, high, unit), huge)
    lower = from_low < from_high
    scale = xp.where(lower, from_low, from_high)
    inverse = xp.where(lower, low / (minimum if minimum else unit), high / limit)
    low, high = xp.where(lower, low, minimum * inverse), xp.where(lower, limit * inverse, high)
    half_up = attrs.get("round_mode") == "HALF_UP"

    def fill(x: Any, y: Any, scale: Any, inverse: Any, low: Any, high: Any) -> None:
        if has_range:
            x = clip(xp, x, low, high, y)
        xp.multiply(x, scale, out=y)
        if half_up:
            y += kind(0.5)
        xp.floor(y, out=y) if half_up else xp.rint(y, out=y)
        y *= inverse

    result = new_array(device, x.shape, x.dtype)
    _fill_in_blocks(xp, fill, [x, result], [scale, inverse, low, high])
    return result


@kernel("QuantizeAndDequantize", device=ARRAY_DEVICE)
@kernel("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4", device=ARRAY_DEVICE)
@kernel("QuantizeAndDequantizeV3", device=ARRAY_DEVICE, host=("num_bits",))
def _round(node: Node, device: Device) -> KernelFunction:
    op, attrs, exact = node.type, node.attrs, node.outputs[0].dtype.numpy
    has_range, axis, kind = (
        attrs["range_given"],
        attrs.get("axis", -1),
        accumulation_dtype(node.outputs[0].dtype),
    )
    ends = [exact.type(attrs[key]) for key in ("input_min", "input_max") if key in attrs]
    minimum = 2 if attrs["signed_input"] else 1

    def run(x: Any, *remaining: Any) -> Any:
        low, high, bits = [*ends, *remaining, attrs.get("num_bits")][:3]
        if not minimum <= int(bits) < 64:
            raise errors.InvalidArgumentError(
                f"{op} requires num_bits from {minimum} to 63, got {int(bits)}"
            )
        low, high = reshape_along(op, axis, x, low, high)
        x = x.astype(kind, copy=False)
        if not x.size:
            return x.astype(exact)
        if has_range:
            low, high = low.astype(kind), high.astype(kind)
            if not bool((low <= high).all()):
                raise errors.InvalidArgumentError(
                    f"{op} requires input_min <= input_max, got {low.min()} and {high.max()}"
                )
        else:
            axes = None if axis < 0 else tuple(i for i in range(x.ndim) if i != axis)
            low, high = x.min(axes, keepdims=axis >= 0), x.max(axes, keepdims=axis >= 0)
        return as_exact(_round_to(device, attrs, x, low, high, int(bits), has_range), exact, device)

    return run


@kernel("QuantizeAndDequantizeV4Grad", device=ARRAY_DEVICE)
def _round_grad(node: Node, device: Device) -> KernelFunction:
    xp, op, axis = device.xp, node.type, node.attrs["axis"]

    def run(grad: Any, x: Any, low: Any, high: Any) -> Any:
        require_shape(op, "gradients", grad, x.shape)
        zeros = xp.zeros(low.shape, x.dtype)
        low, high = reshape_along(op, axis, x, low, high)
        is_inside = (x >= low) & (x <= high)
        return xp.where(is_inside, grad, xp.zeros((), x.dtype)), zeros, zeros.copy()

    return run


# ------------------------------------------------------------------------------ joining


def requantize(xp: Any, x: Any, dtype: DType, ends: Any, target: DType, expected: Any) -> Any:
    """Convert integers of one range to the nearest values in another range."""
    return to_integers(
        xp, quantize_values(xp, dequantize_values(xp, x, dtype, *ends), target, *expected), target
    )


def dequantize_values(xp: Any, x: Any, dtype: DType, low: Any, high: Any) -> Any:
    """Return the values that integers represent in a range whose step divides it evenly."""
    minimum, limit = limits(dtype)
    kind = np.float64 if dtype.size == 4 else F32
    low, high = kind(low), kind(high)
    if low == high:
        return xp.full(x.shape, low, kind)
    scale = (high - low) / kind(limit - minimum)
    first = kind(round_away(np, low / scale)) * scale
    return x.astype(kind) * scale + (first - kind(minimum) * scale)


def quantize_values(xp: Any, x: Any, target: DType, low: Any, high: Any) -> Any:
    """Quantize the values of a range to integers in a floating-point type."""
    minimum, limit = limits(target)
    low, high = x.dtype.type(low), x.dtype.type(high)
    if low == high:
        return xp.full(x.shape, minimum, x.dtype)
    steps = limit - minimum + 1
    scale = x.dtype.type(steps / ((float(high) - float(low)) * (steps / (steps - 1))))
    y = round_away(xp, x * scale) - (round_away(np, low * scale) - x.dtype.type(minimum))
    return y


@kernel("QuantizedConcat")
def _concat(node: Node, device: Device) -> KernelFunction:
    count, dtype = node.attrs["N"], node.attrs["T"]
    signed = limits(dtype)[0] < 0

    def run(axis: Any, *remaining: Any) -> Any:
        values = remaining[:count]
        lows, highs = [[float(v) for v in remaining[count * i :][:count]] for i in (1, 2)]
        low, high = min(0.0, *lows), max(highs)
        if signed:
            high = max(abs(low), abs(high))
            low = -high
        parts = [
            x if a == low and b == high else requantize(np, x, dtype, (a, b), dtype, (low, high))
            for x, a, b in zip(values, lows, highs, strict=True)
        ]
        try:
            joined = np.concatenate(parts, int(axis))
        except ValueError:
            raise errors.InvalidArgumentError(
                f"QuantizedConcat requires values of equal sizes except for axis {int(axis)}, got "
                f"shapes {[list(x.shape) for x in values]}"
            ) from None
        return joined, F32(low), F32(high)

    return run
