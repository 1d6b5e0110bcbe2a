"""Kernels of quantized types on handmade files, compared with real arithmetic.

A result is right if it is within half a unit of what float64 gives, and a thousandth for the
float32 in which kernels scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from weft_lite import Interpreter, errors
from weft_lite.convert.packing import panels, panels4
from weft_lite.schema import tables as t
from weft_lite.schema.codec import aligned, encode
from weft_lite.schema.enums import Activation, DataType, Layout, OpKind, Padding, Storage

Array = np.ndarray[Any, Any]
TOLERANCE = 0.501
CLAMPS = {
    Activation.NONE: (-np.inf, np.inf),
    Activation.RELU: (0, np.inf),
    Activation.RELU6: (0, 6),
    Activation.RELU_N1_TO_1: (-1, 1),
}
SMALL = ["int8", "uint8", "int16"]
EXACT = {
    OpKind.Conv2D, OpKind.DepthwiseConv2D, OpKind.FullyConnected, OpKind.Add, OpKind.Sub,
    OpKind.Mul, OpKind.Div, OpKind.Maximum, OpKind.Minimum, OpKind.SquaredDifference,
    OpKind.Relu, OpKind.Lookup, OpKind.Quantize, OpKind.Softmax, OpKind.MaxPool, OpKind.AvgPool,
    OpKind.ResizeBilinear, OpKind.Mean,
}  # fmt: skip
"""What all instruction sets compute alike, to the bit, in quantized types."""


@dataclass
class Q:
    """A quantized tensor: stored integers, scales and zero point."""

    stored: Array
    scales: Any  # one, or one for each index of the last axis
    zero: int = 0

    @property
    def real(self) -> Array:
        return (self.stored.astype(np.float64) - self.zero) * np.float32(self.scales)

    @property
    def quantization(self) -> t.Quantization:
        scales = np.atleast_1d(np.float32(self.scales)).tolist()
        return t.Quantization(scales, [self.zero] if self.zero else [], self.stored.ndim - 1)


def drawn(random: np.random.Generator, shape: Any, dtype: str = "int8", scale: float = 0.05) -> Q:
    """Values over the whole range of a type, ends included."""
    info = np.iinfo(dtype)
    stored = random.integers(info.min, info.max + 1, shape).astype(dtype)
    flat = stored.reshape(-1)
    if flat.size > 2:
        flat[random.integers(flat.size)], flat[random.integers(flat.size)] = info.min, info.max
    zero = 0 if dtype not in ("int8", "uint8") else int(random.integers(info.min, info.max + 1))
    return Q(stored, scale, zero)


class File:
    """A model of one op, with inputs and constants in the order in which they are added."""

    def __init__(self) -> None:
        self.tensors: list[t.Tensor] = []
        self._weights = bytearray()
        self._arena = 0

    def _add(self, array: Array, storage: Storage, q: t.Quantization | None, **more: Any) -> int:
        kind = DataType[array.dtype.name.upper()]
        tensor = t.Tensor(f"t{len(self.tensors)}", kind, storage, shape=list(array.shape), **more)
        tensor.size, tensor.quantization = array.nbytes, q
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def constant(
        self, array: Array, q: t.Quantization | None = None, layout: Layout = Layout.PLAIN
    ) -> int:
        made = self._add(array, Storage.CONSTANT, q, layout=layout, offset=len(self._weights))
        self._weights += array.tobytes().ljust(aligned(array.nbytes), b"\0")
        return made

    def value(self, array: Array, q: t.Quantization | None = None) -> int:
        made = self._add(array, Storage.ARENA, q, offset=self._arena)
        self._arena += aligned(array.nbytes)
        return made

    def run(
        self, kind: OpKind, operands: list[int], result: int, options: Any, fed: dict[int, Array]
    ) -> Array:
        """The result, by one task and by three, and by each instruction set: all are the same."""
        model = t.Model(
            tensors=self.tensors, ops=[t.Op(kind, operands, [result], options, "op")],
            subgraphs=[t.Subgraph(0, 1, list(fed), [result])], arena_size=self._arena,
            scratch_size=1 << 20,
        )  # fmt: skip
        found = []
        for threads in (1, 3):
            interpreter = Interpreter(
                model_content=encode(model, bytes(self._weights)), num_threads=threads
            )
            for index, array in fed.items():
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            found.append(interpreter.get_tensor(result))
        for i in range(8 if kind in EXACT else 0):
            if interpreter._library.wl_use_instruction_set(interpreter._handle, i):
                interpreter.invoke()
                again = interpreter.get_tensor(result)
                if again.dtype.name in SMALL:
                    found.append(again)
                else:
                    close(again, found[0])
        assert {each.tobytes() for each in found} == {found[0].tobytes()}
        return found[0]


def close(got: Array, wanted: Array) -> None:
    """Real values of a product agree up to the order of summation."""
    most = np.abs(wanted).max(initial=1e-30, where=np.isfinite(wanted))
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-5 * most)


def near(got: Array, real: Array, scale: float, zero: int, activation: int = 0) -> None:
    """Stored values are the nearest to the real ones, within the type and the activation."""
    low, high = CLAMPS[Activation(activation)]
    info = np.iinfo(got.dtype)
    wanted = np.clip(np.clip(real, low, high) / np.float32(scale) + zero, info.min, info.max)
    assert got.shape == wanted.shape
    apart = np.abs(got - wanted)
    assert apart.max(initial=0) <= TOLERANCE, np.argwhere(apart > TOLERANCE)[:3]


def fitting(real: Array) -> float:
    """A scale with which most results are within int8, and some beyond."""
    return float(np.float32(np.abs(real).max(initial=1e-3) / 100))


def windows(x: Array, kernel: tuple[int, int], options: t.ConvOptions) -> Array:
    """(N, H, W, taps, C) of real numbers, zeros outside of the image."""
    sizes, strides = x.shape[1:3], (options.stride_h, options.stride_w)
    spans = [
        (k - 1) * d + 1
        for k, d in zip(kernel, (options.dilation_h, options.dilation_w), strict=True)
    ]
    if options.padding == Padding.SAME:
        counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
        missing = [
            max((count - 1) * stride + span - size, 0)
            for count, stride, span, size in zip(counts, strides, spans, sizes, strict=True)
        ]
        pads = [(each // 2, each - each // 2) for each in missing]
    else:
        given = options.pads or [0, 0, 0, 0]
        pads = [(given[0], given[1]), (given[2], given[3])]
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    taps = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * options.dilation_h, j * options.dilation_w
            bottom = x.shape[1] - spans[0] + top + 1
            right = x.shape[2] - spans[1] + left + 1
            taps.append(x[:, top : bottom : strides[0], left : right : strides[1]])
    return np.stack(taps, 3)


def drawn_conv(random: np.random.Generator, kernel: tuple[int, int]) -> t.ConvOptions:
    padding = Padding(int(random.integers(3)))
    return t.ConvOptions(
        stride_h=int(random.integers(1, 3)), stride_w=int(random.integers(1, 3)),
        dilation_h=int(random.integers(1, 3)), dilation_w=int(random.integers(1, 3)),
        padding=padding, pads=[1, 0, 2, 1] if padding is Padding.EXPLICIT else [],
        activation=int(random.integers(4)), kernel_h=kernel[0], kernel_w=kernel[1],
    )  # fmt: skip


def weights(random: np.random.Generator, shape: tuple[int, ...], one_scale: bool) -> Q:
    stored = random.integers(-127, 128, shape).astype("int8")
    scales = 0.02 if one_scale else random.uniform(0.005, 0.05, shape[-1])
    return Q(stored, scales)


def drawn_bias(random: np.random.Generator, x: Q, w: Q, axes: Any) -> tuple[Array, Array]:
    """Return a real bias, and the stored one, which includes the zero point of x."""
    whole = random.integers(-3000, 3000, w.stored.shape[-1])
    real = whole * np.float64(np.float32(x.scales)) * np.float32(w.scales)
    stored = whole - x.zero * w.stored.astype(np.int64).sum(axes)
    return real, stored.astype("int64" if x.stored.dtype == np.int16 else "int32")


def packed(w: Array, dtype: str) -> tuple[Array, Layout]:
    """Weights (taps, depth, columns) as products with a type take them."""
    return (panels(w), Layout.PANELS) if dtype == "int16" else (panels4(w), Layout.PANELS4)


def drawn_ends(random: np.random.Generator, real: Array, dtype: str) -> tuple[float, int]:
    """A scale and a zero point for a result."""
    zero, scale = int(random.integers(-128, 128)), fitting(real)
    return (scale / 256, 0) if dtype == "int16" else (scale, zero)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("seed", range(24))
def test_conv(seed: int, dtype: str) -> None:
    random = np.random.default_rng(seed)
    kernel = (int(random.integers(1, 4)), int(random.integers(1, 4)))
    depth, channels = (
        int(random.choice([1, 3, 4, 5, 16, 20, 64, 100, 132])),
        int(random.choice([1, 15, 16, 17, 40, 70])),
    )
    options = drawn_conv(random, kernel)
    options.channels = channels
    x = drawn(random, (2, 7, 6, depth), dtype)
    w = weights(random, (*kernel, depth, channels), bool(seed % 2))
    bias, stored_bias = drawn_bias(random, x, w, (0, 1, 2))
    seen = windows(x.real, kernel, options)
    flat = w.real.reshape(-1, depth, channels)
    real = np.einsum("nhwtc,tco->nhwo", seen, flat) + bias
    scale, zero = drawn_ends(random, real, dtype)
    file = File()
    given = file.value(x.stored, x.quantization)
    numbers, layout = packed(w.stored.reshape(-1, depth, channels), dtype)
    filters = file.constant(numbers, w.quantization, layout)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    operands = [given, filters, file.constant(stored_bias)]
    got = file.run(OpKind.Conv2D, operands, out, options, {given: x.stored})
    near(got, real, scale, zero, options.activation)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("seed", range(16))
def test_depthwise(seed: int, dtype: str) -> None:
    random = np.random.default_rng(seed)
    kernel = (int(random.integers(1, 4)), int(random.integers(1, 4)))
    depth, multiplier = int(random.choice([1, 3, 16, 70, 131])), int(random.integers(1, 3))
    options = drawn_conv(random, kernel)
    options.channels = depth * multiplier
    x = drawn(random, (2, 6, 7, depth), dtype)
    w = weights(random, (*kernel, depth * multiplier), bool(seed % 2))
    bias, stored_bias = drawn_bias(random, x, w, (0, 1))
    seen = np.repeat(windows(x.real, kernel, options), multiplier, axis=-1)
    real = (seen * w.real.reshape(-1, depth * multiplier)).sum(3) + bias
    scale, zero = drawn_ends(random, real, dtype)
    file = File()
    given = file.value(x.stored, x.quantization)
    filters = file.constant(w.stored, w.quantization)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    operands = [given, filters, file.constant(stored_bias)]
    got = file.run(OpKind.DepthwiseConv2D, operands, out, options, {given: x.stored})
    near(got, real, scale, zero, options.activation)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("extreme", [False, True])
def test_fully_connected(seed: int, extreme: bool, dtype: str) -> None:
    """With all operands at the ends of the range, sums of products are as large as possible."""
    random = np.random.default_rng(seed)
    depth, columns = (
        int(random.choice([1, 4, 7, 64, 130, 600])),
        int(random.choice([1, 16, 31, 50])),
    )
    shape = [(depth,), (3, depth), (2, 3, depth), (37, depth)][seed % 4]
    x, w = drawn(random, shape, dtype), weights(random, (depth, columns), bool(seed % 2))
    if extreme:
        x.stored[...] = random.choice([np.iinfo(dtype).min, np.iinfo(dtype).max])
        w.stored[...] = random.choice([-127, 127], columns)
    bias, stored_bias = drawn_bias(random, x, w, 0)
    real = x.real @ w.real + bias
    scale, zero = drawn_ends(random, real, dtype)
    options = t.MatMulOptions(activation=int(random.integers(4)), columns=columns)
    file = File()
    given = file.value(x.stored, x.quantization)
    numbers, layout = packed(w.stored[None], dtype)
    filters = file.constant(numbers, w.quantization, layout)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    operands = [given, filters, file.constant(stored_bias)]
    got = file.run(OpKind.FullyConnected, operands, out, options, {given: x.stored})
    near(got, real, scale, zero, options.activation)


@pytest.mark.parametrize("seed", range(12))
def test_floats_times_bytes(seed: int) -> None:
    """Each row is quantized with its own scale, that of its largest magnitude."""
    random = np.random.default_rng(seed)
    depth, columns = int(random.choice([1, 4, 7, 130])), int(random.choice([1, 16, 31, 70]))
    shape = [(depth,), (3, depth), (2, 3, depth), (37, depth)][seed % 4]
    x = (random.normal(size=shape) * random.choice([1e-3, 1, 1e6])).astype("float32")
    x.reshape(-1, depth)[0] = 0
    w = weights(random, (depth, columns), bool(seed % 2))
    bias = random.normal(size=columns).astype("float32")
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    stored = np.rint(x / np.where(scale > 0, scale, 1))
    wanted = np.maximum(scale * (stored.astype(np.float64) @ w.real) + bias, 0)
    file = File()
    given, out = file.value(x), file.value(np.zeros(wanted.shape, "float32"))
    filters = file.constant(panels4(w.stored[None]), w.quantization, Layout.PANELS4)
    options = t.MatMulOptions(activation=Activation.RELU, columns=columns)
    operands = [given, filters, file.constant(bias)]
    close(file.run(OpKind.FullyConnected, operands, out, options, {given: x}), wanted)


@pytest.mark.parametrize("kind", [OpKind.Conv2D, OpKind.DepthwiseConv2D])
@pytest.mark.parametrize("seed", range(16))
def test_images_of_bytes_with_scales_of_their_own(seed: int, kind: OpKind) -> None:
    """The results of DynamicQuantize are multiplied by int8 weights; the result is float."""
    random = np.random.default_rng(seed)
    kernel = (int(random.integers(1, 4)), int(random.integers(1, 4)))
    depth, channels = int(random.choice([1, 3, 4, 16, 70])), int(random.choice([1, 16, 17, 70]))
    if kind is OpKind.DepthwiseConv2D:
        channels = depth * int(random.integers(1, 3))
    options = drawn_conv(random, kernel)
    options.channels = channels
    stored = random.integers(-127, 128, (3, 7, 6, depth)).astype("int8")
    scales = np.float32([0.02, 3.0, 1e-4])
    seen = windows(stored * scales[:, None, None, None].astype(float), kernel, options)
    bias = random.normal(size=channels).astype("float32")
    if kind is OpKind.Conv2D:
        w = weights(random, (*kernel, depth, channels), bool(seed % 2))
        numbers, layout = packed(w.stored.reshape(-1, depth, channels), "int8")
        real = np.einsum("nhwtc,tco->nhwo", seen, w.real.reshape(-1, depth, channels)) + bias
    else:
        w = weights(random, (*kernel, channels), bool(seed % 2))
        numbers, layout = w.stored, Layout.PLAIN
        seen = np.repeat(seen, channels // depth, axis=-1)
        real = (seen * w.real.reshape(-1, channels)).sum(3) + bias
    file = File()
    given, factors = file.value(stored), file.value(scales)
    filters = file.constant(numbers, w.quantization, layout)
    out = file.value(np.zeros(real.shape, "float32"))
    operands = [given, filters, file.constant(bias), factors]
    got = file.run(kind, operands, out, options, {given: stored, factors: scales})
    wanted = np.clip(real, *CLAMPS[Activation(options.activation)])
    for image, each in zip(got, wanted, strict=True):
        close(image, each)


@pytest.mark.parametrize("kind", [OpKind.Conv2D, OpKind.DepthwiseConv2D])
@pytest.mark.parametrize(
    ("scales", "own", "words"),
    [
        (np.ones(3, "float32"), None, r"shape \(2, 3, 3, 4\), and the scales of its images \(3\)"),
        (np.ones((2, 1), "float32"), None, "operand 3 has shape .2, 1., its rank"),
        (np.ones(2, "int32"), None, "operand 3 .* int32"),
        (np.ones(2, "float32"), t.Quantization([0.5]), "scales of its own beside operand 3"),
    ],
)
def test_scales_that_do_not_fit_images(kind: OpKind, scales: Array, own: Any, words: str) -> None:
    stored, file = np.zeros((2, 3, 3, 4), "int8"), File()
    given, factors = file.value(stored, own), file.value(scales)
    numbers, layout = packed(np.ones((1, 4, 4), "int8"), "int8")
    if kind is OpKind.DepthwiseConv2D:
        numbers, layout = np.ones((1, 1, 4), "int8"), Layout.PLAIN
    filters = file.constant(numbers, t.Quantization([1.0]), layout)
    out = file.value(np.zeros(stored.shape, "float32"))
    options = t.ConvOptions(kernel_h=1, kernel_w=1, channels=4)
    with pytest.raises((errors.InvalidArgumentError, errors.DataLossError), match=words):
        fed = {given: stored, factors: scales}
        file.run(kind, [given, filters, -1, factors], out, options, fed)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_so_in_its_row(bad: float) -> None:
    x = np.ones((2, 4), "float32")
    x[1, 2] = bad
    file = File()
    given, out = file.value(x), file.value(np.zeros((2, 1), "float32"))
    numbers = panels4(np.ones((1, 4, 1), "int8"))
    filters = file.constant(numbers, t.Quantization([1.0]), Layout.PANELS4)
    options = t.MatMulOptions(columns=1)
    got = file.run(OpKind.FullyConnected, [given, filters], out, options, {given: x})
    assert got[0] == 4.0
    assert not np.isfinite(got[1])


@pytest.mark.parametrize("kind", [OpKind.MaxPool, OpKind.AvgPool])
@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("padding", [Padding.VALID, Padding.SAME])
def test_pool(kind: OpKind, dtype: str, padding: Padding) -> None:
    """Compare the results inside the image only; both sides have one scale."""
    random = np.random.default_rng(int(kind))
    options = t.PoolOptions(3, 2, 2, 1, padding, activation=int(Activation.RELU6))
    x = drawn(random, (2, 7, 6, 67), dtype)
    around = t.ConvOptions(2, 1, 1, 1, padding)
    seen = windows(x.real, (3, 2), around)
    inside = windows(np.ones(x.stored.shape), (3, 2), around)
    if kind is OpKind.AvgPool:
        real = seen.sum(3) / inside.sum(3)
    else:
        real = np.where(inside > 0, seen, -np.inf).max(3)
    file = File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros(real.shape, dtype), x.quantization)
    got = file.run(kind, [given], out, options, {given: x.stored})
    near(got, real, x.scales, x.zero, Activation.RELU6)


TWO: dict[OpKind, Callable[[Any, Any], Any]] = {
    OpKind.Add: np.add,
    OpKind.Sub: np.subtract,
    OpKind.Mul: np.multiply,
    OpKind.Maximum: np.maximum,
    OpKind.Minimum: np.minimum,
    OpKind.SquaredDifference: lambda a, b: (a - b) ** 2,
}


@pytest.mark.parametrize("kind", list(TWO), ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", SMALL)
def test_two_operands(kind: OpKind, dtype: str) -> None:
    random = np.random.default_rng(int(kind))
    for shape, other in [((2, 300), (2, 300)), ((3, 1, 5), (4, 1)), ((7,), ()), ((1,), (2, 9))]:
        a = drawn(random, shape, dtype, 0.03)
        b = drawn(random, other, dtype, 0.07)
        real = TWO[kind](a.real, b.real)
        limit = np.iinfo(dtype).max
        scale, zero = fitting(real) * 100 / limit * 1.2, 0 if dtype == "int16" else 11
        for activation in (Activation.NONE, Activation.RELU6):
            file = File()
            given = {file.value(each.stored, each.quantization): each.stored for each in (a, b)}
            out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
            options = t.ElementwiseOptions(activation)
            got = file.run(kind, list(given), out, options, given)
            near(got, real, scale, zero, activation)


@pytest.mark.parametrize("kind", list(TWO), ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (1.0, 1.0, 3e-5),
        (1e-6, 1e-6, 1.0),
        (1.0, 1e-5, 0.9),
        (1e-9, 1e9, 1.0),
        (1e-30, 1e-30, 1e-30),
    ],
)
def test_two_operands_of_unlike_scales(
    kind: OpKind, left: float, right: float, result: float
) -> None:
    """Integers and floats compute the same to half a unit, all instruction sets the same bits."""
    random = np.random.default_rng(11)
    a, b = drawn(random, (3, 130), scale=left), drawn(random, (3, 130), scale=right)
    file, q = File(), t.Quantization([result], [-5])
    given = {file.value(each.stored, each.quantization): each.stored for each in (a, b)}
    out = file.value(np.zeros((3, 130), "int8"), q)
    got = file.run(kind, list(given), out, t.ElementwiseOptions(), given)
    near(got, TWO[kind](a.real, b.real), result, -5)


@pytest.mark.parametrize("channels", [1, 17, 64, 130])
def test_resize_bilinear(channels: int) -> None:
    """Means of four neighbors, and constant images that stay constant."""
    x = drawn(np.random.default_rng(channels), (1, 3, 4, channels))
    x.stored[0, 0, :2] = x.stored[0, 1, :2] = 127
    size, file = np.array([5, 7], "int32"), File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros((1, 5, 7, channels), "int8"), x.quantization)
    got = file.run(
        OpKind.ResizeBilinear,
        [given, file.constant(size)],
        out,
        t.ResizeOptions(),
        {given: x.stored},
    )
    rows, columns = np.arange(5) * 3 / 5, np.arange(7) * 4 / 7
    seen = x.stored[0].astype(float)
    for axis, at in ((0, rows), (1, columns)):
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, seen.shape[axis] - 1)
        part = (at - low).reshape([-1 if d == axis else 1 for d in range(3)])
        seen = seen.take(low, axis) * (1 - part) + seen.take(high, axis) * part
    assert np.abs(got[0] - seen).max() <= TOLERANCE
    assert (got[0, 0, 0] == 127).all()


@pytest.mark.parametrize("length", [1, 10, 64, 700])
@pytest.mark.parametrize("rows", [1, 6])
def test_softmax_of_long_and_short_rows(length: int, rows: int) -> None:
    """A table of all differences, or of those that few elements have."""
    x = drawn(np.random.default_rng(length), (rows, length), scale=0.07)
    real = np.exp(x.real - x.real.max(-1, keepdims=True))
    real /= real.sum(-1, keepdims=True)
    file = File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros(real.shape, "int8"), t.Quantization([1 / 256], [-128]))
    got = file.run(OpKind.Softmax, [given], out, t.AxisOptions(-1), {given: x.stored})
    near(got, real, 1 / 256, -128)


@pytest.mark.parametrize("count", [1, 37, 64, 300, 1000])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_lookups_of_all_bytes(dtype: str, count: int) -> None:
    """Vectors of each instruction set, and the elements after the last whole vector."""
    random, least = np.random.default_rng(count), np.iinfo(dtype).min
    x, table = (random.integers(0, 256, size).astype("uint8").view(dtype) for size in (count, 256))
    file, q = File(), t.Quantization([0.1], [3])
    given, numbers = file.value(x, q), file.constant(table, q)
    out = file.value(np.zeros(count, dtype), q)
    got = file.run(OpKind.Lookup, [given, numbers], out, None, {given: x})
    assert got.tolist() == table[x.astype(int) - least].tolist()


@pytest.mark.parametrize("kind", ["Tanh", "Silu", "LeakyRelu"])
def test_few_elements_have_the_bits_of_many(kind: str) -> None:
    """Up to 256 results are computed, and more are looked up."""
    x = np.arange(-128, 128, dtype="int8")
    q, scaled = t.Quantization([0.03], [7]), t.Quantization([0.02], [-3])
    results = []
    for stored in (x, np.tile(x, 2)):
        file = File()
        given, out = file.value(stored, q), file.value(np.zeros_like(stored), scaled)
        options = t.ElementwiseOptions(alpha=0.2)
        results.append(file.run(OpKind[kind], [given], out, options, {given: stored}))
    assert results[0].tolist() == results[1][:256].tolist()


@pytest.mark.parametrize("kind", [OpKind.Softmax, OpKind.LogSoftmax], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dtype", SMALL)
def test_softmax(kind: OpKind, dtype: str) -> None:
    random, info = np.random.default_rng(3), np.iinfo(dtype)
    x = drawn(random, (5, 33), dtype, 16 / info.max)
    soft = kind is OpKind.Softmax
    options = t.AxisOptions(-1, beta=0.5 if soft else 0.0)
    scaled = x.real * 0.5 if soft else x.real
    logarithm = scaled - scaled.max(-1, keepdims=True)
    logarithm -= np.log(np.exp(logarithm).sum(-1, keepdims=True))
    real = np.exp(logarithm) if soft else logarithm
    span = float(info.max) - info.min
    scale, zero = (1 if soft else 40) / span, info.min if soft else info.max
    if dtype == "int16":  # which has no zero point
        scale, zero = 2 * scale, 0
    file = File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    got = file.run(kind, [given], out, options, {given: x.stored})
    near(got, real, scale, zero)


@pytest.mark.parametrize("kind", ["Relu", "Relu6", "Tanh", "Sigmoid", "Exp", "HardSwish", "Neg"])
@pytest.mark.parametrize("dtype", SMALL)
def test_one_operand(kind: str, dtype: str) -> None:
    x = drawn(np.random.default_rng(5), (3, 301), dtype, 4 / np.iinfo(dtype).max)
    functions: dict[str, Callable[[Array], Array]] = {
        "Relu": lambda v: np.maximum(v, 0),
        "Relu6": lambda v: np.clip(v, 0, 6),
        "Tanh": np.tanh,
        "Sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "Exp": np.exp,
        "HardSwish": lambda v: v * np.clip(v + 3, 0, 6) / 6,
        "Neg": np.negative,
    }
    real = functions[kind](x.real)
    scale = float(np.abs(real).max()) / np.iinfo(dtype).max
    zero = 0 if dtype == "int16" else 5
    file = File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    got = file.run(OpKind[kind], [given], out, t.ElementwiseOptions(), {given: x.stored})
    near(got, real, scale, zero)


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("source", ["float32", *SMALL])
def test_quantize(dtype: str, source: str) -> None:
    """Floats beyond the range, infinite ones too, become its ends."""
    random = np.random.default_rng(9)
    if source == "float32":
        stored = random.normal(0, 9, (4, 65)).astype("float32")
        stored[0, :3] = [np.inf, -np.inf, 1e30]
        real, q = stored.astype(np.float64), None
    else:
        x = drawn(random, (4, 65), source, 10 / np.iinfo(source).max)
        stored, real, q = x.stored, x.real, x.quantization
    scale, zero = 12 / np.iinfo(dtype).max, 0 if dtype == "int16" else 3
    file = File()
    given = file.value(stored, q)
    out = file.value(np.zeros(real.shape, dtype), t.Quantization([scale], [zero]))
    near(file.run(OpKind.Quantize, [given], out, None, {given: stored}), real, scale, zero)


@pytest.mark.parametrize("dtype", [*SMALL, "int32"])
@pytest.mark.parametrize("one_scale", [True, False])
def test_dequantize(dtype: str, one_scale: bool) -> None:
    random = np.random.default_rng(2)
    x = drawn(random, (6, 5), dtype, 0.1)
    if not one_scale:
        x = Q(x.stored, random.uniform(0.01, 1, 5))
    file = File()
    given = file.value(x.stored, x.quantization)
    out = file.value(np.zeros(x.stored.shape, "float32"))
    got = file.run(OpKind.Dequantize, [given], out, None, {given: x.stored})
    np.testing.assert_allclose(got, x.real, 2e-6)


def test_scales_that_are_not_there_are_asked_for() -> None:
    for scales in ([], [0.1, 0.2]):
        file = File()
        x = np.zeros((1, 2), "int8")
        given = file.value(x, t.Quantization(scales, [], 1) if scales else None)
        out = file.value(x, t.Quantization([0.1]))
        with pytest.raises(errors.DataLossError, match="one scale each"):
            file.run(OpKind.Softmax, [given], out, t.AxisOptions(-1), {given: x})


@pytest.mark.parametrize("kind", [OpKind.Conv2D, OpKind.DepthwiseConv2D, OpKind.FullyConnected])
def test_a_ratio_of_scales_that_is_infinite_is_refused(kind: OpKind) -> None:
    """Zero times infinity is no number, and none of a byte."""
    shape = (2, 16) if kind is OpKind.FullyConnected else (1, 4, 4, 16)
    x, file = np.zeros(shape, "int8"), File()
    given = file.value(x, t.Quantization([1e30]))
    scales = t.Quantization([1.0] * 15 + [1e30], [], 2)
    if kind is OpKind.DepthwiseConv2D:
        filters = file.constant(np.zeros((1, 1, 16), "int8"), scales)
    else:
        filters = file.constant(panels4(np.zeros((1, 16, 16), "int8")), scales, Layout.PANELS4)
    out = file.value(x, t.Quantization([1e-8]))
    options: Any = t.ConvOptions(1, 1, 1, 1, kernel_h=1, kernel_w=1, channels=16)
    if kind is OpKind.FullyConnected:
        options = t.MatMulOptions(columns=16)
    with pytest.raises(errors.DataLossError, match="ratio of its scales is infinite in channel 15"):
        file.run(kind, [given, filters], out, options, {given: x})
