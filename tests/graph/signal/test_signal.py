"""Windows, frames, spectra and cosine transforms against their formulas, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft_tensor import errors

Array = np.ndarray[Any, Any]
SIGNAL = np.random.default_rng(0).normal(size=(2, 3, 22))
SPECTRA = np.random.default_rng(1).normal(size=(2, 4, 9, 2)) @ [1, 1j]


def _run(build: Callable[[Any], Any], value: Any) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        return session.run(build(wf.constant(value)))


def _hann(n: int, a: float = 0.5, periodic: bool = True) -> Array:
    steps = n - 1 + (periodic and n % 2 == 0)
    return a - (1 - a) * np.cos(2 * np.pi * np.arange(n) / steps) if n > 1 else np.ones(1)


def _derived(n: int, beta: float) -> Array:
    sums = np.cumsum(np.kaiser(n // 2 + 1, beta))
    half = np.sqrt(sums[:-1] / sums[-1])
    return np.concatenate([half, half[::-1]])


def _vorbis(n: int) -> Array:
    return np.asarray(np.sin(np.pi / 2 * np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_windows(dtype: str) -> None:
    signal, exact = (
        wf.signal,
        {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-7}.get(dtype, 1e-14),
    )
    with Parts() as parts:
        for n in (1, 2, 5, 8):
            for name, made, want in (
                ("hann", signal.hann_window(n, dtype=dtype), _hann(n)),
                ("symmetric", signal.hann_window(n, False, dtype), _hann(n, 0.5, False)),
                ("hamming", signal.hamming_window(n, dtype=dtype), _hann(n, 0.54)),
                ("kaiser", signal.kaiser_window(n, 5.0, dtype), np.kaiser(n, 5.0)),
                ("vorbis", signal.vorbis_window(wf.constant(n), dtype), _vorbis(n)),
            ):
                with parts.part(f"{name} {n}"):
                    np.testing.assert_allclose(
                        wf.Session().run(made).astype(float), want, atol=exact
                    )
        with parts.part("derived"):
            made = signal.kaiser_bessel_derived_window(8, 3.0, dtype)
            found = wf.Session().run(made).astype(float)
            np.testing.assert_allclose(found, _derived(8, 3.0), atol=exact)


def _frames(x: Array, length: int, step: int, pad_end: bool) -> Array:
    n = x.shape[-1]
    count = -(-n // step) if pad_end else max(0, (n - length) // step + 1)
    x = np.concatenate([x, np.full((*x.shape[:-1], length), 7.0)], -1)
    parts = [x[..., i * step : i * step + length] for i in range(count)]
    return np.stack(parts, -2) if parts else np.zeros((*x.shape[:-1], 0, length))


def _added(frames: Array, step: int) -> Array:
    *lead, count, length = frames.shape
    result = np.zeros((*lead, (count - 1) * step + length))
    for i in range(count):
        result[..., i * step : i * step + length] += frames[..., i, :]
    return result


def _cosines(kind: int, n: int) -> Array:
    j, k = np.arange(n), np.arange(n)[:, None]
    if kind == 1:
        weights = np.where((j == 0) | (j == n - 1), 1, 2)
        return np.asarray(weights * np.cos(np.pi * j * k / (n - 1)))
    if kind == 2:
        return np.asarray(2 * np.cos(np.pi * k * (2 * j + 1) / (2 * n)))
    if kind == 3:
        return np.where(j == 0, 1, 2) * np.cos(np.pi * j * (2 * k + 1) / (2 * n))
    return np.asarray(2 * np.cos(np.pi * (2 * j + 1) * (2 * k + 1) / (4 * n)))


def _table() -> list[tuple[str, Callable[[Any], Any], Array, Any]]:
    """Name, builder, input and expected result; "!" if the rank must be known."""
    s = wf.signal
    rows: list[tuple[str, Callable[[Any], Any], Array, Any]] = []
    for length, step, pad in ((8, 4, False), (7, 3, True), (4, 8, True), (30, 4, False)):
        want = _frames(SIGNAL, length, step, pad)
        rows += [
            (f"frame {length} {step} {pad} {axis}!",
             lambda x, a=(length, step, pad), axis=axis: s.frame(x, *a, pad_value=7.0, axis=axis),
             np.moveaxis(SIGNAL, -1, axis), np.moveaxis(want, [-2, -1], [axis, axis + 1])
             if axis >= 0 else want)
            for axis in (-1, 1)
        ]  # fmt: skip
    for step in (4, 30):
        rows.append((f"overlap {step}", lambda x, n=step: s.overlap_and_add(x, n), SIGNAL,
                     _added(SIGNAL, step)))  # fmt: skip
    for kind in (1, 2, 3, 4):
        matrix = _cosines(kind, 22)
        rows.append((f"dct {kind}", lambda x, k=kind: s.dct(x, k), SIGNAL, SIGNAL @ matrix.T))
        cropped = SIGNAL[..., :5] @ _cosines(kind, 5).T
        rows.append((f"dct {kind} of 5", lambda x, k=kind: s.dct(x, k, n=5), SIGNAL, cropped))
        factor = 2 * (21 if kind == 1 else 22)
        rows.append((f"idct {kind}", lambda x, k=kind, f=factor: s.idct(s.dct(x, k), k) / f,
                     SIGNAL, SIGNAL))  # fmt: skip
        if kind > 1:
            rows.append((f"idct {kind} orthonormal", lambda x, k=kind: s.idct(
                s.dct(x, k, norm="ortho"), k, norm="ortho"), SIGNAL, SIGNAL))  # fmt: skip
            rows.append((f"dct {kind} keeps the norm", lambda x, k=kind: wf.norm(
                s.dct(x, k, norm="ortho")), SIGNAL, np.linalg.norm(SIGNAL)))  # fmt: skip
    spectrum = np.fft.rfft(_frames(SIGNAL, 6, 4, False) * _hann(6), 8)
    rows.append(("stft", lambda x: wf.abs(s.stft(x, 6, 4)), SIGNAL, np.abs(spectrum)))
    back = _added(np.fft.irfft(SPECTRA, 16)[..., :10], 4)
    rows.append(("inverse_stft", lambda x: s.inverse_stft(x, 10, 4, 16, None), SPECTRA, back))
    rows.append(("inverse_stft of stft", lambda x: s.inverse_stft(
        s.stft(x, 8, 2), 8, 2, window_fn=s.inverse_stft_window_fn(2))[..., 6:-6],
        SIGNAL, SIGNAL[..., 6:-6]))  # fmt: skip
    for norm in (None, "ortho"):
        for window in (None, s.vorbis_window, s.kaiser_bessel_derived_window):
            rows.append((f"mdct {norm} {window}", lambda x, w=window, n=norm: s.inverse_mdct(
                s.mdct(x, 4, w, norm=n), w, n)[..., 2:-2], SIGNAL, SIGNAL[..., 2:-2]))  # fmt: skip
    for axes in (None, 1, [0, -1]):
        for name in ("fftshift", "ifftshift"):
            want = getattr(np.fft, name)(SIGNAL, axes)
            rows.append((f"{name} {axes}!", lambda x, f=name, a=axes: getattr(s, f)(x, a),
                         SIGNAL, want))  # fmt: skip
    for norm in ("forward", "ortho"):
        rows.append((f"{norm}!", lambda x, n=norm: wf.real(s.ifftnd(s.fftnd(wf.cast(
            x, "complex128"), [3, 20], [1, 2], n), norm="backward")), SIGNAL,
            np.fft.ifftn(np.fft.fftn(SIGNAL, (3, 20), (1, 2), norm)).real))  # fmt: skip
    rows.append(("rfftnd fills,!", lambda x: wf.abs(s.rfftnd(x, [4, 30], [0, 2])), SIGNAL,
                 np.abs(np.fft.rfftn(SIGNAL, (4, 30), (0, 2)))))  # fmt: skip
    rows.append(("irfft fills", lambda x: s.irfft2d(x, [6, 20]), SPECTRA,
                 np.fft.irfft2(SPECTRA, (6, 20))))  # fmt: skip
    return rows


def test_values_and_gradients() -> None:
    """With known and with unknown shapes; gradients along a random direction."""
    generator = np.random.default_rng(2)
    with Parts() as parts:
        for name, build, value, want in _table():
            with parts.part(name), wf.Graph().as_default(), wf.Session() as session:
                known = session.run(build(wf.constant(value)))
                np.testing.assert_allclose(known, want, atol=1e-11)
                _compare_unknown(session, name, build, value, want, generator)


def _compare_unknown(
    session: Any, name: str, build: Any, value: Array, want: Any, generator: Any
) -> None:
    shape = [None] * value.ndim if name.endswith("!") else None
    x = wf.placeholder(value.dtype, shape)
    y = build(x)
    np.testing.assert_allclose(session.run(y, {x: value}), want, atol=1e-11)
    if not np.size(want):
        return
    weights = generator.normal(size=np.shape(want))
    slope = wf.convert_to_tensor(wf.gradients(wf.reduce_sum(y * weights), x)[0])
    along, step = generator.normal(size=value.shape), 1e-5
    got = (session.run(slope, {x: value}).conj() * along).sum().real
    ahead, behind = (
        (session.run(y, {x: value + sign * step * along}) * weights).sum() for sign in (1, -1)
    )
    np.testing.assert_allclose(got, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)


def test_mel_bands_and_their_coefficients() -> None:
    def mel(hertz: Any) -> Any:
        return 1127 * np.log1p(np.asarray(hertz) / 700)

    edges = np.linspace(mel(20.0), mel(7600.0), 12)
    points = mel(np.linspace(0, 8000, 65))[:, None]
    rising = (points - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - points) / (edges[2:] - edges[1:-1])
    want = np.maximum(0, np.minimum(rising, falling))
    matrix = wf.signal.linear_to_mel_weight_matrix(10, 65, 16000, 20.0, 7600.0, wf.float64)
    np.testing.assert_allclose(wf.Session().run(matrix), want, atol=1e-12)
    found = _run(wf.signal.mfccs_from_log_mel_spectrograms, SIGNAL)
    np.testing.assert_allclose(found, SIGNAL @ _cosines(2, 22).T / np.sqrt(44), atol=1e-12)


def test_bad_calls_say_what_is_wanted() -> None:
    s, x = wf.signal, wf.zeros([8])
    with Parts() as parts:
        for says, call in (
            ("frame_step must be at least 1, got 0", lambda: s.frame(x, 2, 0)),
            ("rank at least 2", lambda: s.overlap_and_add(x, 2)),
            ("must be floating, got dtype int32", lambda: s.hann_window(4, dtype=wf.int32)),
            ("type must be 1, 2, 3 or 4, got 5", lambda: s.dct(x, 5)),
            ("does not support norm", lambda: s.dct(x, 1, norm="ortho")),
            ("a multiple of 4, got 6", lambda: s.mdct(x, 6)),
            ("0 <= lower_edge_hertz", lambda: s.linear_to_mel_weight_matrix(3, 9, 8000, 5.0, 5e3)),
            ("norm must be", lambda: s.rfftnd(x, norm="both")),
            ("occurs twice", lambda: s.rfftnd(x, axes=[0, -1])),
            ("at least 0, got [-1]", lambda: s.rfft(x, [-1])),
            ("known rank and constant axes", lambda: s.rfftnd(wf.placeholder(wf.float32))),
        ):
            with parts.part(says), pytest.raises(errors.OpError, match=None) as caught:
                call()
            with parts.part(says):
                assert says in str(caught.value)
