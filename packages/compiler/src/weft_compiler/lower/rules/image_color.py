"""Colors of pixels, and the contrast of images."""

from __future__ import annotations

from collections.abc import Callable

from weft_compiler.ir.expressions import Expr, Variable, apply, cast, index, number, where
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Body, Buffer, Let, Statement, Store
from weft_compiler.lower.precision import wide_type
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import StatementDefinition, Value, compute_value
from weft_tensor.dtypes import DType

Channels = list[Expr]


class _Pixel:
    """Builder of the computation of one pixel, which names shared subexpressions.

    Attributes:
      steps: the statements that define the names.
    """

    def __init__(self, unique: Unique, dtype: DType) -> None:
        self.steps: list[Statement] = []
        self._unique = unique
        self._dtype = dtype

    def named(self, name: str, value: Expr) -> Expr:
        """Name a value."""
        variable = Variable(value.dtype, self._unique(name))
        self.steps.append(Let(variable.name, value))
        return variable

    def number(self, value: float) -> Expr:
        """Return a constant."""
        return number(value, self._dtype)

    def least(self, channels: Channels) -> Expr:
        """Return the smallest of the three channels."""
        red, green, blue = channels
        return apply("minimum", apply("minimum", red, green), blue)

    def hsv(self, channels: Channels) -> Channels:
        """Convert red, green and blue to hue, saturation and value."""
        red, green, blue = channels
        zero, one, third = self.number(0), self.number(1), self.number(1 / 3)
        value = self.named("value", apply("maximum", apply("maximum", red, green), blue))
        spread = self.named("spread", apply("sub", value, self.least(channels)))
        colored = self.named("colored", apply("greater", spread, zero))
        sixth = apply("mul", self.number(6), where(colored, spread, one))
        scale = self.named("scale", apply("div", one, sixth))
        text = self.named("shown", apply("greater", value, zero))
        saturation = where(text, apply("div", spread, where(text, value, one)), zero)

        def sector(first: Expr, second: Expr) -> Expr:
            return apply("mul", apply("sub", first, second), scale)

        doubled = apply("mul", self.number(2), third)
        of_green, of_blue = (
            apply("add", sector(blue, red), third),
            apply("add", sector(red, green), doubled),
        )
        hue = where(apply("equal", green, value), of_green, of_blue)
        hue = where(apply("equal", red, value), sector(green, blue), hue)
        hue = self.named("hue", where(colored, hue, zero))
        wrapped = where(apply("less", hue, zero), apply("add", hue, one), hue)
        return [self.named("hue", wrapped), self.named("saturation", saturation), value]

    def shares(self, hue: Expr) -> Channels:
        """Convert a hue to red, green and blue at full saturation and value, in [0, 1]."""
        position = self.named("place", apply("mul", hue, self.number(6)))

        def distance(center: float) -> Expr:
            return apply("abs", apply("sub", position, self.number(center)))

        rises = [
            apply("sub", distance(3), self.number(1)),
            apply("sub", self.number(2), distance(2)),
            apply("sub", self.number(2), distance(4)),
        ]
        return [apply("clamp", rise, self.number(0), self.number(1)) for rise in rises]

    def rgb(self, hue: Expr, saturation: Expr, value: Expr) -> Channels:
        """Convert hue, saturation and value to red, green and blue."""
        remaining = self.named("rest", apply("sub", self.number(1), saturation))
        return [
            apply("mul", apply("add", remaining, apply("mul", saturation, share)), value)
            for share in self.shares(hue)
        ]


Change = Callable[..., Channels]
"""Function from a pixel, its channels and an operand of rank 0 to the new channels."""


def _pixelwise(op: Operation, change: Change) -> Value:
    x, shape = op.inputs[0], op.shape()
    require(shape[-1:] == (3,), "the images do not have 3 channels")
    require(
        all(input_.rank == 0 for input_ in op.inputs[1:]),
        "the amount of the change is not a scalar",
    )
    wide = wide_type(x.dtype)

    def write(unique: Unique, result: Buffer, pixels: Buffer, *remaining: Buffer) -> Body:
        def body(*position: Expr) -> Body:
            pixel = _Pixel(unique, wide)
            channels_before = [
                pixel.named(name, cast(load(pixels, shape, [*position, index(channel)]), wide))
                for channel, name in enumerate(("red", "green", "blue"))
            ]
            changes = [cast(load(item, (), ()), wide) for item in remaining]
            channels = change(pixel, channels_before, *changes)
            stores = [
                Store(result.name, (*position, index(channel)), cast(value, x.dtype))
                for channel, value in enumerate(channels)
            ]
            return (*pixel.steps, *stores)

        return nest(unique, shape[:-1], body)

    return Value(op.name, op.dtype(), shape, StatementDefinition(op.inputs, write))


@lowers("RGBToHSV")
def _rgb_to_hsv(op: Operation) -> Value:
    return _pixelwise(op, lambda pixel, channels: pixel.hsv(channels))


@lowers("HSVToRGB")
def _hsv_to_rgb(op: Operation) -> Value:
    return _pixelwise(op, lambda pixel, channels: pixel.rgb(*channels))


@lowers("AdjustHue")
def _adjust_hue(op: Operation) -> Value:
    def shift_hue(pixel: _Pixel, channels: Channels, delta: Expr) -> Channels:
        hue, _, value = pixel.hsv(channels)
        low = pixel.named("low", pixel.least(channels))
        hue = pixel.named("hue", apply("add", hue, delta))
        spread = pixel.named("spread", apply("sub", value, low))
        shares = pixel.shares(apply("sub", hue, apply("floor", hue)))
        return [apply("add", low, apply("mul", share, spread)) for share in shares]

    return _pixelwise(op, shift_hue)


@lowers("AdjustSaturation")
def _adjust_saturation(op: Operation) -> Value:
    def saturated(pixel: _Pixel, channels: Channels, scale: Expr) -> Channels:
        hue, saturation, value = pixel.hsv(channels)
        new = apply("mul", saturation, scale)
        clamped = pixel.named("near", apply("clamp", new, pixel.number(0), pixel.number(1)))
        return pixel.rgb(hue, clamped, value)

    return _pixelwise(op, saturated)


@lowers("AdjustContrastv2")
def _adjust_contrast(op: Operation) -> Value:
    """Scale the difference of each pixel from the mean of its channel and image."""
    x, factor = op.inputs
    require(
        x.rank >= 3 and factor.rank == 0,
        "the images have a rank below 3, or the factor is not a scalar",
    )
    wide = wide_type(x.dtype)
    wide_x = compute_value(f"{op.name}_x", wide, x.shape, x.at)
    total = reduce(f"{op.name}_sum", wide_x, [x.rank - 3, x.rank - 2], "add")
    count = number(max(1, x.shape[-3] * x.shape[-2]), wide)
    mean = compute_value(
        f"{op.name}_mean",
        wide,
        total.shape,
        lambda *position: apply("div", total.at(*position), count),
    )

    def element(*position: Expr) -> Expr:
        middle = mean.at(*position[:-3], position[-1])
        far = apply("mul", apply("sub", wide_x.at(*position), middle), cast(factor.at(), wide))
        return apply("add", far, middle)

    return compute_value(op.name, op.dtype(), x.shape, element)
