"""Fourier transforms and functions based on them; complex numbers are pairs on the last axis."""

from __future__ import annotations

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.array import zeros_like
from weft_graph.ops.casting import complex as complex_of, imag, real
from weft_graph.ops.comparison import greater_equal, less_equal
from weft_graph.ops.division import floormod
from weft_graph.ops.elementary import exp, log
from weft_graph.ops.fft import fftnd, ifftnd, irfftnd
from weft_graph.ops.gather import gather
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import where_v2
from weft_graph.ops.permutation import invert_permutation, transpose
from weft_graph.ops.rounding import floor
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape
from weft_io.onnx.operation import Operation, as_int32, cast, like
from weft_io.onnx.registry import importer
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims


def _complex(x: Output) -> Output:
    """Convert pairs along the last axis, or single real parts, to complex numbers."""
    width = None if x.dims is None else x.dims[-1]
    if width not in (1, 2, None):
        raise errors.InvalidArgumentError(
            f"the last axis of a signal must have size 1 or 2, got shape {format_dims(x.dims)}"
        )
    x = x if x.dtype in (dtypes.float32, dtypes.float64) else cast(x, dtypes.float32)
    if width == 2:
        return complex_of(x[..., 0], x[..., 1])
    if width == 1:
        return complex_of(x[..., 0], zeros_like(x[..., 0]))
    # Where the size is unknown, a 0 behind stands for the imaginary part that may be missing.
    padded = concat([x, zeros_like(x[..., :1])], -1)
    return complex_of(padded[..., 0], padded[..., 1])


def _pairs(x: Output, dtype: dtypes.DType) -> Output:
    return cast(stack([real(x), imag(x)], axis=-1), dtype)


@importer("DFT")
def _dft(operation: Operation) -> Output:
    x, length_input = operation[0], operation.get(1)
    count = operation.rank() - 1
    if operation.version < 20:
        axis: Output = constant(operation.attribute("axis", 1))
    elif operation.get(2) is None:
        axis = constant(-2)
    else:
        axis = as_int32(reshape(operation[2], []))
    axis = where_v2(axis < 0, axis + count + 1, axis)
    positions = sequence(count - 1)
    order = concat([where_v2(positions < axis, positions, positions + 1), [axis]], 0)
    order = reshape(order, [count])
    rows = transpose(_complex(x), order)
    rows.set_shape([None] * count)
    size = shape(rows)[count - 1]
    inverse, onesided = operation.attribute("inverse", 0), operation.attribute("onesided", 0)
    dtype = x.dtype.base_dtype
    inverse_order = invert_permutation(order)
    if inverse and onesided:
        length = 2 * (size - 1) if length_input is None else as_int32(reshape(length_input, []))
        result = transpose(irfftnd(rows, [length], axes=[count - 1]), inverse_order)
        return cast(expand_dims(result, -1), dtype)
    length = size if length_input is None else as_int32(reshape(length_input, []))
    rule = ifftnd if inverse else fftnd
    result = rule(rows, [length], axes=[count - 1])
    if onesided:
        result = gather(result, sequence(length // 2 + 1), axis=count - 1)
    return _pairs(transpose(result, inverse_order), dtype)


@importer("STFT")
def _stft(operation: Operation) -> Output:
    x, step = operation.require_rank(3), as_int32(reshape(operation[1], []))
    window, length = operation.vector(2), operation.get(3)
    if length is not None:
        size = as_int32(reshape(length, []))
    elif window is not None:
        size = shape(window)[0]
    else:
        raise errors.InvalidArgumentError("STFT requires a window or a frame_length")
    count = (shape(x)[1] - size) // step + 1
    positions = expand_dims(sequence(count) * step, 1) + sequence(size)
    frames = gather(_complex(x), positions, axis=1)
    if window is not None:
        frames = frames * cast(window, frames.dtype)
    result = fftnd(frames, axes=[2])
    if operation.attribute("onesided", 1):
        result = result[:, :, : size // 2 + 1]
    return _pairs(result, x.dtype.base_dtype)


@importer("MelWeightMatrix")
def _mel_weights(operation: Operation) -> Output:
    """Return triangular filters over the bins of a spectrum, equidistant on the mel scale."""
    bins, size, rate = (cast(reshape(operation[i], []), dtypes.float64) for i in range(3))
    low, high = (cast(reshape(operation[i], []), dtypes.float64) for i in (3, 4))
    count = cast(bins, dtypes.int64)
    edges = sequence(count + 2)
    bottom, top = (_mel(item) for item in (low, high))
    steps = bottom + cast(edges, dtypes.float64) * ((top - bottom) / (bins + 2.0))
    hertz = 700.0 * (exp(steps / 2595.0 * log(like(10.0, steps))) - 1.0)
    bin_index = floor((size + 1.0) * hertz / rate)
    spectrum = cast(sequence(cast(floor(size / 2.0), dtypes.int64) + 1), dtypes.float64)
    rows = expand_dims(spectrum, 1)
    lower, centre, upper = bin_index[:-2], bin_index[1:-1], bin_index[2:]
    rising = (rows - lower) / maximum(centre - lower, like(1, centre))
    falling = (upper - rows) / maximum(upper - centre, like(1, centre))
    none = like(0, rising)
    up = where_v2(
        less_equal(rows, centre), where_v2(greater_equal(rows, lower), rising, none), none
    )
    flat = where_v2(rows - centre < none, up, where_v2(rows < upper, falling, none))
    result = where_v2(floormod(rows - centre, like(1e30, rows)) <= none, like(1, flat), flat)
    return cast(result, operation.dtype_of("output_datatype", dtypes.float32))


def _mel(hertz: Output) -> Output:
    return 2595.0 * log(1.0 + hertz / 700.0) / log(like(10.0, hertz))
