"""Discrete cosine transforms, computed by Fourier transforms."""

from __future__ import annotations

__all__ = ["dct", "idct"]

import math
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import casting, fft, shape_rules, trigonometry
from weft_graph.signal.sizes import Size, cast, max_size, pad_at_end, size_of
from weft_tensor import dtypes, errors


def dct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the discrete cosine transform over the last axis.

    With N elements x[j], element k of the unnormalized result is:

    - type 1: x[0] + (-1)^k x[N-1] + 2 * the sum of x[j] cos(pi j k / (N - 1)) over 0 < j < N - 1;
    - type 2: 2 * the sum of x[j] cos(pi k (2 j + 1) / (2 N));
    - type 3: x[0] + 2 * the sum of x[j] cos(pi j (2 k + 1) / (2 N)) over j > 0;
    - type 4: 2 * the sum of x[j] cos(pi (2 j + 1) (2 k + 1) / (4 N)).

    Args:
      input: float32 or float64, shape (..., M).
      type: 1, 2, 3 or 4.
      n: N, to which the axis is cropped or padded with zeros; M by default.
      axis: must be -1.
      norm: None, or "ortho" for an orthonormal transform (not for type 1).
    Returns: shape (..., N).
    Raises: InvalidArgumentError: an argument is invalid, or type 1 has fewer than 2 elements.

    Examples:
      >>> np.round(wf.Session().run(wf.signal.dct([1.0, 2.0, 3.0])), 3)
      array([12.   , -3.464,  0.   ], dtype=float32)
    """
    _check(type, n, axis, norm)
    with scope(name, "dct") as scope_name:
        value = convert_to_tensor(input, preferred_dtype=dtypes.float32)
        return out("Identity", [_transform_type2(value, type, n, norm)], name=scope_name)


def idct(
    input: Any,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the inverse of `dct` of the same type, up to a factor: 2 N, or 2 (N - 1) for type 1.

    With "ortho" there is no factor.

    Args:
      input: float32 or float64, shape (..., M).
      type, n, axis, norm: as in `dct`.
    Returns: shape (..., N).
    Raises: InvalidArgumentError: as `dct`.

    Examples:
      >>> there = wf.signal.dct([1.0, 2.0, 3.0], norm="ortho")
      >>> np.round(wf.Session().run(wf.signal.idct(there, norm="ortho")), 3)
      array([1., 2., 3.], dtype=float32)
    """
    _check(type, n, axis, norm)
    with scope(name, "idct") as scope_name:
        value = convert_to_tensor(input, preferred_dtype=dtypes.float32)
        inverse = {1: 1, 2: 3, 3: 2, 4: 4}[type]
        return out("Identity", [_transform_type2(value, inverse, n, norm)], name=scope_name)


def _check(type: int, n: int | None, axis: int, norm: str | None) -> None:
    if axis != -1:
        raise errors.InvalidArgumentError(f"axis must be -1, got {axis!r}")
    if n is not None and n < 1:
        raise errors.InvalidArgumentError(f"n must be at least 1, got {n}")
    if type not in (1, 2, 3, 4):
        raise errors.InvalidArgumentError(f"type must be 1, 2, 3 or 4, got {type!r}")
    if norm not in (None, "ortho"):
        raise errors.InvalidArgumentError(f"norm must be None or 'ortho', got {norm!r}")
    if type == 1 and norm is not None:
        raise errors.InvalidArgumentError(
            "a cosine transform of type 1 does not support norm='ortho'"
        )


def _transform_type2(value: Output, kind: int, n: int | None, norm: str | None) -> Output:
    shape_rules.with_rank_at_least(value.dims, 1, "input")
    if n is not None:
        value = pad_at_end(value[..., :n], max_size(0, n - size_of(value, -1)))
    size = size_of(value, -1)
    if kind == 1:
        return _dct_type1(value, size)
    if kind == 2:
        result = _second(value, size)
        return result if norm is None else _scale_ortho(result, size, forward=True)
    if kind == 3:
        return _third(value if norm is None else _scale_ortho(value, size, forward=False), size)
    # Type 4 is every other element of type 2, of twice as many.
    wide = _second(pad_at_end(value, size), size * 2)[..., 1::2]
    if norm is None:
        return wide
    return out("Mul", [wide, out("Rsqrt", [_number(size * 2, wide)])])


def _number(size: Any, template: Output) -> Output:
    return cast(size, template.dtype.base_dtype)


def _dct_type1(value: Output, size: Size) -> Output:
    if isinstance(size, int) and size < 2:
        raise errors.InvalidArgumentError(
            f"a cosine transform of type 1 requires at least 2 elements, got {size}"
        )
    mirrored = out("ReverseV2", [value[..., 1:-1], [-1]])
    return casting.real(fft.rfft(out("ConcatV2", [[value, mirrored], -1])))


def _rotation_factors(size: Size, template: Output, sign: int) -> Output:
    """Return exp(sign * 1j * pi * k / (2 * size)) for each k below `size`."""
    steps = cast(out("Range", [0, size, 1]), dtypes.float64)
    angle = out("Mul", [steps, sign * math.pi / 2 / cast(size, dtypes.float64)])
    return casting.complex(
        _number(trigonometry.cos(angle), template), _number(trigonometry.sin(angle), template)
    )


def _second(value: Output, size: Size) -> Output:
    spectrum = fft.rfft(value, out("Pack", [[2 * size]]))[..., :size]
    return 2.0 * casting.real(out("Mul", [spectrum, _rotation_factors(size, value, -1)]))


def _third(value: Output, size: Size) -> Output:
    rotated = out(
        "Mul",
        [casting.complex(value, out("ZerosLike", [value])), _rotation_factors(size, value, 1)],
    )
    result = fft.irfft(rotated, out("Pack", [[2 * size]]))[..., :size]
    return out("Mul", [result, _number(2 * size, value)])


def _scale_ortho(value: Output, size: Size, forward: bool) -> Output:
    """Apply the orthonormal scale to a type 2 result or a type 3 input."""
    factor = out("Rsqrt", [_number(2 * size, value)])
    first = out("Mul", [factor, math.sqrt(0.5) if forward else math.sqrt(2)])
    scale = out("ConcatV2", [[out("Fill", [[1], first]), out("Fill", [[size - 1], factor])], 0])
    return out("Mul", [value, scale])
