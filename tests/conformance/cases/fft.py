"""Fourier transforms against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from weft_testing.cases import COMPLEXES, WIDE_FLOATS, Array, Case, Raw, complex_normal, normal

from weft_tensor import dtypes

CUBE = complex_normal(2, 3, 4, 5)
REALS = normal(2, 3, 4, 6)
CLOSE = {"float32": (2e-5, 2e-5), "complex64": (2e-5, 2e-5)}


def _axes(rank: int) -> tuple[int, ...]:
    return tuple(range(-rank, 0))


def _cropped(x: Array, needs: list[int], axes: tuple[int, ...]) -> Array:
    for axis, size in zip(axes, needs, strict=True):
        x = np.take(x, np.arange(size), axis)
    return x


def _forward(rank: int) -> Any:
    return lambda x: np.fft.fftn(x, axes=_axes(rank))


def _back(rank: int) -> Any:
    return lambda x: np.fft.ifftn(x, axes=_axes(rank))


def _of_reals(x: Array, lengths: Array, axes: Array) -> Array:
    where = tuple(int(axis) for axis in axes)
    cropped = _cropped(x, lengths.tolist(), where)
    whole = np.fft.fftn(cropped, axes=where)
    return np.take(whole, np.arange(lengths[-1] // 2 + 1), where[-1])


def _to_reals(x: Array, lengths: Array, axes: Array) -> Array:
    """By the whole spectrum, of which the half that is not given follows from the other."""
    where = tuple(int(axis) for axis in axes)
    n = int(lengths[-1])
    x = _cropped(x, [*lengths.tolist()[:-1], n // 2 + 1], where)
    if len(where) > 1:
        x = np.fft.ifftn(x, axes=where[:-1])
    k, j = np.arange(n // 2 + 1), np.arange(n)
    twice = np.where((2 * k) % n == 0, 1, 2)[:, None] / n
    waves = twice * np.exp(2j * np.pi * np.outer(k, j) / n)
    return np.moveaxis(np.moveaxis(x, where[-1], -1) @ waves, -1, where[-1]).real


def _lengths(*sizes: int) -> Raw:
    return Raw(np.array(sizes), "int32", constant=True)


COMPLEX_ROWS = [
    Case(f"{op}{suffix}", [CUBE[..., :count]], {}, reference(rank), dtypes=COMPLEXES,
         type_attr="Tcomplex", tolerance=CLOSE, label=label)
    for suffix, rank in (("", 1), ("2D", 2), ("3D", 3))
    for op, reference in (("FFT", _forward), ("IFFT", _back))
    for label, count in (("", 5), ("one", 1))
]  # fmt: skip


def _real_rows() -> list[Case]:
    rows = []
    for suffix, sizes in (
        ("", (6,)),
        ("", (5,)),
        ("2D", (4, 6)),
        ("2D", (3, 5)),
        ("3D", (3, 2, 4)),
    ):
        axes = np.array(_axes(len(sizes)))
        label = "x".join(map(str, sizes))
        for op, values, dtype, other, reference in (
            ("RFFT", REALS, ("float32", "float64"), "Tcomplex", _of_reals),
            ("IRFFT", CUBE, ("complex64", "complex128"), "Treal", _to_reals),
        ):
            for one in dtype:
                result = {"float32": dtypes.complex64, "float64": dtypes.complex128}.get(one)
                attrs = {other: result or dtypes.as_dtype(one).real_dtype}
                rows.append(
                    Case(
                        f"{op}{suffix}",
                        [values, _lengths(*sizes)],
                        attrs,
                        lambda x, n, axes=axes, reference=reference: reference(x, n, axes),
                        dtypes=(one,),
                        type_attr="Treal" if op == "RFFT" else "Tcomplex",
                        tolerance=CLOSE,
                        label=f"{label}-{one}",
                    )
                )
    return rows


def _over_axes() -> list[Case]:
    axes = Raw(np.array([-1, 1]), "int32", constant=True)
    where = (-1, 1)
    rows = [
        Case(op, [CUBE, _lengths(4, 3), axes], {},
             lambda x, n, a, f=function: f(_cropped(x, n.tolist(), where), axes=where),
             dtypes=COMPLEXES, type_attr="Tcomplex", tolerance=CLOSE)
        for op, function in (("FFTND", np.fft.fftn), ("IFFTND", np.fft.ifftn))
    ]  # fmt: skip
    rows += [
        Case("RFFTND", [REALS, _lengths(5, 3), axes], {"Tcomplex": result}, _of_reals,
             dtypes=(dtype,), type_attr="Treal", tolerance=CLOSE, label=dtype)
        for dtype, result in zip(WIDE_FLOATS, (dtypes.complex64, dtypes.complex128), strict=True)
    ]  # fmt: skip
    rows += [
        Case("IRFFTND", [CUBE, _lengths(5, 4), axes], {"Treal": result}, _to_reals,
             dtypes=(dtype,), type_attr="Tcomplex", tolerance=CLOSE, label=dtype)
        for dtype, result in zip(COMPLEXES, (dtypes.float32, dtypes.float64), strict=True)
    ]  # fmt: skip
    return rows


CASES = [
    *COMPLEX_ROWS,
    *_real_rows(),
    *_over_axes(),
    Case("FFT", [np.zeros((2, 0))], {}, lambda x: x, dtypes=COMPLEXES, type_attr="Tcomplex",
         grad=False, label="empty"),
]  # fmt: skip
