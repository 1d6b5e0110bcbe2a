"""Short-time Fourier transforms, and modified discrete cosine transforms."""

from __future__ import annotations

__all__ = ["inverse_mdct", "inverse_stft", "inverse_stft_window_fn", "mdct", "stft"]

import math
from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import fft, join, reduction, shape_rules
from weft_graph.signal.cosine import dct
from weft_graph.signal.framing import frame, overlap_and_add
from weft_graph.signal.sizes import (
    Size,
    cast,
    check_size,
    max_size,
    pad_at_end,
    reshape_to_parts,
    size_of,
)
from weft_graph.signal.windows import hann_window, vorbis_window, window_of
from weft_tensor import dtypes, errors

Window = Callable[..., Output] | None


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Window = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Output:
    """Return the short-time Fourier transform: the transform of each windowed frame.

    Args:
      signals: float32 or float64, shape (..., N).
      frame_length, frame_step: integers of rank 0, at least 1.
      fft_length: integer of rank 0; by default the smallest power of 2 that is at least
        `frame_length`.
      window_fn: function from a length and `dtype=` to a window; None for no window.
      pad_end: as in `frame`.
    Returns: complex, shape (..., F, fft_length // 2 + 1) with F frames.
    Raises: InvalidArgumentError: a length is below 1.

    Examples:
      >>> spectrum = wf.signal.stft(wf.ones([8]), frame_length=4, frame_step=2)
      >>> np.round(wf.Session().run(spectrum), 3)
      array([[ 2.+0.j, -1.+0.j,  0.+0.j],
             [ 2.+0.j, -1.+0.j,  0.+0.j],
             [ 2.+0.j, -1.+0.j,  0.+0.j]], dtype=complex64)
    """
    with scope(name, "stft") as scope_name:
        value = convert_to_tensor(signals, preferred_dtype=dtypes.float32)
        length = check_size(frame_length, "frame_length")
        size = _transform_length(fft_length, length)
        frames = frame(value, length, frame_step, pad_end)
        window = window_of(window_fn, length, frames.dtype.base_dtype)
        if window is not None:
            frames = out("Mul", [frames, window])
        return fft.rfft(frames, out("Pack", [[size]]), scope_name)


def _transform_length(fft_length: Any, length: Size) -> Size:
    """Return the transform length: `fft_length`, or the least power of 2 of at least `length`."""
    if fft_length is not None:
        return check_size(fft_length, "fft_length")
    if isinstance(length, int):
        return 1 << (length - 1).bit_length()
    bits = out("Ceil", [out("Log", [cast(length, dtypes.float64)]) / math.log(2)])
    return cast(out("Pow", [2.0, bits]), dtypes.int32)


def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Window = hann_window, name: str | None = None
) -> Callable[..., Output]:
    """Return the window for `inverse_stft` that compensates the window of `stft` in overlaps.

    Args:
      frame_step: integer of rank 0, at least 1.
      forward_window_fn: window function of the forward transform.
    Returns: a function from a frame's length and `dtype=` to the window.

    Examples:
      >>> window = wf.signal.inverse_stft_window_fn(2)
      >>> np.round(wf.Session().run(window(4, dtype=wf.float32)), 3)
      array([0., 1., 1., 1.], dtype=float32)
    """

    def inverse_window(frame_length: Any, dtype: Any) -> Output:
        with scope(name, "inverse_stft_window_fn") as scope_name:
            length = check_size(frame_length, "frame_length")
            step = check_size(frame_step, "frame_step")
            element_type = dtypes.as_dtype(dtype)
            forward = window_of(forward_window_fn, length, element_type)
            if forward is None:
                forward = out("Cast", [out("Fill", [[length], 1.0])], {"DstT": element_type})
            parts = -(-length // step)
            squares = reshape_to_parts(
                pad_at_end(out("Square", [forward]), parts * step - length), parts, step
            )
            total = reduction.reduce_sum(squares, 0, keepdims=True)
            everywhere = reshape_to_parts(
                out("Tile", [total, out("Pack", [[parts, 1]])]), parts * step
            )
            return out("RealDiv", [forward, everywhere[:length]], name=scope_name)

    return inverse_window


def inverse_stft(
    stfts: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Window = hann_window,
    name: str | None = None,
) -> Output:
    """Return the signals of short-time Fourier transforms.

    It is the inverse of `stft` if `window_fn` is the result of `inverse_stft_window_fn` for the
    window of `stft`.

    Args:
      stfts: complex, shape (..., F, fft_length // 2 + 1).
      frame_length, frame_step: integers of rank 0, at least 1.
      fft_length: as in `stft`.
      window_fn: function from a length and `dtype=` to a window; None for no window.
    Returns: float32 or float64, shape (..., (F - 1) * frame_step + frame_length).
    Raises: InvalidArgumentError: a length is below 1.

    Examples:
      >>> spectrum = wf.signal.stft([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0], 4, 2)
      >>> window = wf.signal.inverse_stft_window_fn(2)
      >>> back = wf.signal.inverse_stft(spectrum, 4, 2, window_fn=window)
      >>> np.abs(np.round(wf.Session().run(back), 3))
      array([0., 0., 1., 2., 3., 4., 0., 0.], dtype=float32)
    """
    with scope(name, "inverse_stft") as scope_name:
        value = convert_to_tensor(stfts, preferred_dtype=dtypes.complex64)
        if not value.dtype.is_complex:
            raise errors.InvalidTypeError(f"stfts must be complex, got {value!r}")
        shape_rules.with_rank_at_least(value.dims, 2, "stfts")
        length = check_size(frame_length, "frame_length")
        size = _transform_length(fft_length, length)
        frames = fft.irfft(value, out("Pack", [[size]]))[..., :length]
        frames = pad_at_end(frames, max_size(0, length - size))
        window = window_of(window_fn, length, frames.dtype.base_dtype)
        if window is not None:
            frames = out("Mul", [frames, window])
        return overlap_and_add(frames, frame_step, scope_name)


def mdct(
    signals: Any,
    frame_length: Any,
    window_fn: Window = vorbis_window,
    pad_end: bool = False,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the modified discrete cosine transform of frames that overlap by half.

    Args:
      signals: float32 or float64, shape (..., N).
      frame_length: integer of rank 0, a multiple of 4.
      window_fn: function from a length and `dtype=` to a window; None for 1 / sqrt(2).
      pad_end: as in `frame`.
      norm: None, or "ortho" for an orthonormal transform.
    Returns: shape (..., F, frame_length // 2) with F frames.
    Raises: InvalidArgumentError: the length is not a multiple of 4.

    Examples:
      >>> frames = wf.signal.mdct(wf.ones([8]), 4, norm="ortho")
      >>> np.round(wf.Session().run(frames), 3)
      array([[-1.396,  0.229],
             [-1.396,  0.229],
             [-1.396,  0.229]], dtype=float32)
    """
    with scope(name, "mdct") as scope_name:
        value = convert_to_tensor(signals, preferred_dtype=dtypes.float32)
        length = check_size(frame_length, "frame_length")
        if isinstance(length, int) and length % 4:
            raise errors.InvalidArgumentError(f"frame_length must be a multiple of 4, got {length}")
        frames = _apply_window(frame(value, length, length // 2, pad_end), window_fn, length)
        a, b, c, d = join.split(frames, 4, -1)
        folded = [out("Neg", [_reverse(c) + d]), out("Sub", [a, _reverse(b)])]
        return dct(out("ConcatV2", [folded, -1]), 4, norm=norm, name=scope_name)


def _apply_window(frames: Output, window_fn: Window, length: Size) -> Output:
    window = window_of(window_fn, length, frames.dtype.base_dtype)
    return out("Mul", [frames, math.sqrt(0.5) if window is None else window])


def _reverse(value: Output) -> Output:
    return out("ReverseV2", [value, [-1]])


def inverse_mdct(
    mdcts: Any, window_fn: Window = vorbis_window, norm: str | None = None, name: str | None = None
) -> Output:
    """Return the inverse of `mdct` with the same window.

    Args:
      mdcts: float32 or float64, shape (..., F, L).
      window_fn: function from a length and `dtype=` to a window; None for 1 / sqrt(2).
      norm: None or "ortho", as in the transform.
    Returns: shape (..., (F + 1) * L).

    Examples:
      >>> frames = wf.signal.mdct([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0], 4)
      >>> np.abs(np.round(wf.Session().run(wf.signal.inverse_mdct(frames)), 3))
      array([0., 0., 1., 2., 3., 4., 0., 0.], dtype=float32)
    """
    with scope(name, "inverse_mdct") as scope_name:
        value = convert_to_tensor(mdcts, preferred_dtype=dtypes.float32)
        shape_rules.with_rank_at_least(value.dims, 2, "mdcts")
        half = size_of(value, -1)
        frames = dct(value, 4, norm=norm)
        if norm is None:
            count = out("Cast", [half], {"DstT": frames.dtype.base_dtype})
            frames = out("Mul", [frames, out("RealDiv", [0.5, count])])
        first, second = join.split(frames, 2, -1)
        parts = [second, out("Neg", [_reverse(second)]), out("Neg", [_reverse(first)]),
                 out("Neg", [first])]  # fmt: skip
        windowed = _apply_window(out("ConcatV2", [parts, -1]), window_fn, half * 2)
        return overlap_and_add(windowed, half, scope_name)
