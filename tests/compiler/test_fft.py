"""Compiled Fourier transforms and complex numbers, compared with their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft as wf

EPSILON = {np.dtype(np.float32): 1e-6, np.dtype(np.complex64): 1e-6}


def both(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arrays: Any
) -> list[tuple[Any, Any]]:
    """Return the results by kernels and compiled, with a neighbor so that there is a region."""
    with wf.Graph().as_default():
        inputs = [wf.placeholder(wf.as_dtype(a.dtype), a.shape) for a in arrays]
        y = function(*inputs)
        parts = [wf.real(y) * 2.0, wf.imag(y) + 1.0] if y.dtype.is_complex else [y * 2.0]
        results = []
        for mode in ("off", "now"):
            monkeypatch.setenv("WEFT_JIT", mode)
            with wf.Session() as session:
                report = session.explain([y, *parts], inputs)
                assert not report.compiled if mode == "off" else y.op.name in compiled(report)
                results.append(session.run([y, *parts], dict(zip(inputs, arrays, strict=True))))
    return list(zip(*results, strict=True))


def compiled(report: Any) -> set[str]:
    return {name for nodes in report.compiled for name, _ in nodes}


def check(pairs: Sequence[tuple[Any, Any]]) -> None:
    for expected, result in pairs:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        scale = np.abs(expected).max(initial=1e-30)
        error = np.abs(result - expected).max(initial=0.0)
        assert error <= EPSILON.get(result.dtype, 1e-14) * scale


def real(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.RandomState(0).randn(*shape).astype(dtype)


def pairs_of(*shape: int, dtype: Any = np.complex64) -> Any:
    rng = np.random.RandomState(0)
    return (rng.randn(*shape) + 1j * rng.randn(*shape)).astype(dtype)


@pytest.mark.parametrize(
    ("size", "rows"), [(1, (3,)), (3, ()), (13, (2, 3, 2)), (16, (17,)), (60, (2, 17))]
)
def test_transforms_of_rows(
    size: int, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    values, half = pairs_of(*rows, size), pairs_of(*rows, size // 2 + 1)
    check(both(monkeypatch, wf.signal.fft, values))
    check(both(monkeypatch, wf.signal.ifft, values))
    check(both(monkeypatch, lambda x: wf.signal.rfft(x, [size]), real(*rows, size + 1)))
    check(both(monkeypatch, lambda x: wf.signal.irfft(x, [size]), half))


def test_transforms_of_several_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pairs_of(3, 2, 12, 20)
    check(both(monkeypatch, wf.signal.fft2d, values))
    check(both(monkeypatch, wf.signal.ifft3d, values))
    check(both(monkeypatch, lambda x: wf.signal.rfft2d(x, [10, 15]), real(3, 12, 20)))
    check(both(monkeypatch, wf.signal.irfft2d, pairs_of(3, 12, 11)))


def test_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    check(both(monkeypatch, wf.signal.fft, pairs_of(5, 24, dtype=np.complex128)))
    check(both(monkeypatch, wf.signal.irfft, pairs_of(5, 13, dtype=np.complex128)))


def test_large_transforms_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    check(both(monkeypatch, wf.signal.rfft, real(3, 37, 64)))
    check(both(monkeypatch, wf.signal.fft2d, pairs_of(4, 32, 32)))


def test_the_imaginary_ends_of_a_real_spectrum_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spectrum = pairs_of(4, 5)
    check(both(monkeypatch, lambda x: wf.signal.irfft(x, [8]), spectrum))
    check(both(monkeypatch, lambda x: wf.signal.irfft(x, [9]), spectrum))


@pytest.mark.parametrize("size", [17, 34, 1 << 18])
def test_long_rows_and_large_primes_stay_with_kernels(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    x = wf.placeholder(wf.float32, [8, size])
    y = wf.signal.rfft(x)
    with wf.Session() as session:
        left = session.explain([y, wf.real(y) * 2.0], [x]).left
    (reason,) = [why for op, why in left if op == "RFFT"]
    assert "prime factors" in reason or "too long" in reason


def test_arithmetic_of_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pairs_of(4, 5), pairs_of(5, 4).T.copy()
    check(both(monkeypatch, lambda x, y: x * y / (wf.conj(x) - pairs_of(5)), x, y))
    check(both(monkeypatch, lambda x, y: wf.abs(x + y) + wf.math.angle(x) * wf.imag(y), x, y))
    check(both(monkeypatch, lambda x, y: -wf.square(x) + wf.add_n([x, y, y]), x, y))
    check(both(monkeypatch, lambda x: wf.cast(wf.cast(x, wf.complex128) * 1j, wf.complex64), x))


def test_quotients_and_lengths_of_extreme_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    huge, tiny = np.float32(1e30), np.float32(1e-30)
    x = np.array([huge * (1 + 2j), tiny * (1 - 1j), 0, complex(np.inf, 1)], np.complex64)
    (expected, result), *_ = both(monkeypatch, lambda x: wf.abs(x) * 1.0, x)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    y = np.array([huge * (2 - 1j), tiny * (3 + 1j), 1, 2], np.complex64)
    check(both(monkeypatch, lambda x, y: x / y, x[:3], y[:3]))


def test_moved_complex_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    x = pairs_of(4, 5)
    check(both(monkeypatch, lambda x: wf.transpose(wf.reshape(x * x, [2, 10])), x))
    check(both(monkeypatch, lambda x: wf.concat([x, x * 2.0], 1)[:, 1:4], x))
    check(both(monkeypatch, lambda x: wf.pad(x * 2.0, [[1, 0], [0, 2]]), x))
    check(both(monkeypatch, lambda x: wf.reduce_sum(x * 2.0, 0) + wf.gather(x, 2), x))


def test_gradient_of_a_spectrogram(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient(x: Any) -> Any:
        spectrum = wf.signal.stft(x, 32, 8)
        powers = wf.square(wf.real(spectrum)) + wf.square(wf.imag(spectrum))
        return wf.gradients(wf.reduce_mean(wf.log(powers + 0.1)), [x])[0]

    check(both(monkeypatch, gradient, real(2, 256)))


def test_inputs_that_are_not_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    check(both(monkeypatch, wf.signal.fft, pairs_of(16, 6).T[:, ::2]))


def test_shapes_that_are_known_at_run_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    x = wf.placeholder(wf.complex64, [None, 12])
    y = wf.signal.fft(x) * 2.0
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Session() as session:
        for count in (5, 16, 33, 0):
            value = pairs_of(count, 12)
            np.testing.assert_allclose(
                session.run(y, {x: value}), 2 * np.fft.fft(value), rtol=1e-4, atol=1e-5
            )
