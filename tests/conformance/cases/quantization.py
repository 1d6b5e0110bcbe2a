"""Quantization, simulated and to integers, against its formulas over float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from weft_testing.cases import FLOATS, Array, Case, Raw, normal, uniform

import weft as wf

F32 = ("float32",)
X = 3 * normal(4, 5)
G = normal(4, 5, seed=9)
LOW, HIGH = uniform(-3, -0.5, 5), uniform(0.5, 3, 5, seed=2)
ENDS = {"min": -1.25, "max": 2.5}
LIMITS = {"qint8": 8, "quint8": 8, "qint16": 16, "quint16": 16, "qint32": 32}


def _away(x: Any) -> Any:
    return np.trunc(x + np.copysign(0.5, x))


def _nudged(low: Any, high: Any, num_bits: int, narrow_range: bool) -> tuple[Any, Any, Any]:
    first, last = float(narrow_range), 2.0**num_bits - 1
    step = (high - low) / (last - first)
    zero = _away(np.clip(first - low / step, first, last))
    return (first - zero) * step, (last - zero) * step, step


def _fake(x: Array, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False) -> Array:
    low, high, step = _nudged(min, max, num_bits, narrow_range)
    return np.floor(np.clip(x, low, high) / step + 0.5) * step


def _fake_gradient(
    g: Array, x: Array, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False
) -> Any:
    low, high, _ = _nudged(min, max, num_bits, narrow_range)
    below, above = x < low, x > high
    axes = 0 if np.ndim(min) else None
    return g * ~(below | above), (g * below).sum(axes), (g * above).sum(axes)


def _limits(dtype: str) -> tuple[int, int]:
    bits = LIMITS[dtype]
    return (0, 2**bits - 1) if dtype[1] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _quantize(
    x: Array, low: Any, high: Any, dtype: str, mode: str, even: bool = False, narrow: bool = False
) -> Any:
    least, most = _limits(dtype)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    if mode == "SCALED":
        least += narrow
        step = np.maximum(high / most, low / least if least else 0)
        low, high = least * step, most * step
        y = np.clip(x, low, high) / step
        y = np.rint(y) if even else _away(y)
    elif mode == "MIN_FIRST":
        scale = (most - least) / (high - low)
        y = _away(x * scale) - _away(low * scale) + least
    else:
        y = (np.clip(x, low, high) - low) * (most - least) / (high - low)
        y = _away(y - (0 if least == 0 else (most - least + 1) / 2))
    return np.clip(y, least, most).astype(np.int64), low, high


def _dequantize(x: Array, low: Any, high: Any, dtype: str, mode: str, narrow: bool = False) -> Any:
    least, most = _limits(dtype)
    if mode == "SCALED":
        least += narrow
        return x * np.maximum(high / most, low / least if least else 0)
    step = (high - low) / (most - least)
    if mode == "MIN_FIRST":
        return (x.astype(float) - least) * step + _away(low / step) * step
    return (x.astype(float) + (0 if least == 0 else (most - least + 1) / 2)) * step + low


def _rounded(
    x: Array, low: Any, high: Any, bits: Any = 8, *, signed: bool, given: bool,
    narrow: bool = False, half_up: bool = False, axis: int = -1,
) -> Array:  # fmt: skip
    bits = int(bits)
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    least += narrow and signed
    if not given:
        over = None if axis < 0 else tuple(i for i in range(x.ndim) if i != axis)
        low, high = x.min(over, keepdims=True), x.max(over, keepdims=True)
    step = np.maximum(high / most, low / least if least else 0)
    y = np.clip(x, least * step, most * step) if given else x
    return (np.floor(y / step + 0.5) if half_up else np.rint(y / step)) * step


def _in_range(g: Array, x: Array, low: Any, high: Any) -> Any:
    return np.where((x >= low) & (x <= high), g, 0), np.zeros_like(low), np.zeros_like(high)


def _as(dtype: str) -> Any:
    """Plain integers as a quantized type, which no array has."""
    return lambda value: wf.bitcast(value, getattr(wf, dtype))


def _stored(dtype: str, *shape: int) -> Raw:
    low, high = _limits(dtype)
    bits = LIMITS[dtype]
    plain = f"{'uint' if dtype[1] == 'u' else 'int'}{bits}"
    return Raw(np.random.default_rng(bits).integers(low, high + 1, shape), plain, constant=False)


def _quantizes(dtype: str, mode: str, **options: Any) -> Case:
    attrs: dict[str, Any] = {"mode": mode, "T": getattr(wf, dtype)}
    if options.get("even"):
        attrs["round_mode"] = "HALF_TO_EVEN"
    if options.get("narrow"):
        attrs["narrow_range"] = True
    return Case(
        "QuantizeV2",
        [X, Raw(np.float32(-1.25)), Raw(np.float32(2.5))],
        attrs,
        partial(_quantize, dtype=dtype, mode=mode, **options),
        dtypes=F32,
        type_attr="",
        label="-".join([dtype, mode, *options]),
    )


def _dequantizes(dtype: str, mode: str, **options: Any) -> Case:
    return Case(
        "Dequantize",
        [_stored(dtype, 4, 5), Raw(np.float32(-1.25)), Raw(np.float32(2.5))],
        {"mode": mode, "narrow_range": bool(options)},
        partial(_dequantize, dtype=dtype, mode=mode, **options),
        dtypes=F32,
        type_attr="dtype",
        prepare={0: _as(dtype)},
        label="-".join([dtype, mode, *options]),
    )


_MODES = ("MIN_COMBINED", "MIN_FIRST", "SCALED")
_SHORT = ("qint8", "quint8", "qint16", "quint16")
_NEAR = {"float16": (4e-3, 2e-2), "bfloat16": (3e-2, 2e-1)}


def _rounds(version: str, **options: Any) -> Case:
    """A case of QuantizeAndDequantize, of the input's range or a given one."""
    attrs: dict[str, Any] = {"signed_input": options["signed"], "range_given": options["given"]}
    inputs: list[Any] = [X, np.array(-1.25), np.array(2.5)]
    if version == "V3":
        inputs.append(Raw(np.int32(4)))
    elif "narrow" in options:
        attrs |= {"narrow_range": True, "num_bits": 4}
    if options.get("half_up"):
        attrs["round_mode"] = "HALF_UP"
    if "axis" in options:
        attrs["axis"] = options["axis"]
        inputs[1:3] = [LOW, HIGH]
    bits = {} if version == "V3" else {"bits": attrs.get("num_bits", 8)}
    return Case(
        f"QuantizeAndDequantize{version}",
        inputs,
        attrs,
        partial(_rounded, **bits, **options),
        tolerance=_NEAR,
        grad=False,
        label="-".join(key for key, value in options.items() if value is not False),
    )


_FAKE = "FakeQuantWithMinMaxVars"
CASES = [
    *[
        Case(op, inputs, ENDS | attrs, partial(function, **ENDS, **attrs), **single, label=label)
        for label, attrs in (
            ("", {}),
            ("few", {"num_bits": 3}),
            ("narrow", {"num_bits": 4, "narrow_range": True}),
        )
        for op, inputs, function in (
            ("FakeQuantWithMinMaxArgs", [X], _fake),
            (
                "FakeQuantWithMinMaxArgsGradient",
                [G, X],
                lambda *args, **kwargs: _fake_gradient(*args, **kwargs)[0],
            ),
        )
        for single in [{"dtypes": F32, "grad": False}]
    ],
    *[
        Case(f"{_FAKE}{suffix}", inputs, attrs, partial(function, **attrs), dtypes=F32, label=label)
        for label, attrs in (("", {}), ("narrow", {"num_bits": 4, "narrow_range": True}))
        for suffix, inputs, function in (
            ("", [X, np.array(-1.25), np.array(2.5)], _fake),
            ("Gradient", [G, X, np.array(-1.25), np.array(2.5)], _fake_gradient),
            ("PerChannel", [X, LOW, HIGH], _fake),
            ("PerChannelGradient", [G, X, LOW, HIGH], _fake_gradient),
        )
    ],
    Case(
        _FAKE,
        [X, np.array(0.0), np.array(0.0)],
        expected=lambda x, *_: 0 * x,
        dtypes=F32,
        label="nothing",
    ),
    Case(
        f"{_FAKE}Gradient",
        [G, X, np.array(0.0), np.array(0.0)],
        expected=lambda g, *_: (g, np.array(0.0), np.array(0.0)),
        dtypes=F32,
        label="nothing",
    ),
    *[_quantizes(dtype, mode) for dtype in _SHORT for mode in _MODES],
    *[_quantizes(dtype, "SCALED", even=True, narrow=True) for dtype in ("qint8", "quint8")],
    Case(
        "QuantizeV2",
        [X, LOW, HIGH],
        {"T": wf.quint8, "axis": 1},
        partial(_quantize, dtype="quint8", mode="MIN_COMBINED"),
        dtypes=F32,
        type_attr="",
        label="axis",
    ),
    Case(
        "QuantizeV2",
        [np.array([-9.0, 0.0, 9.0]), Raw(np.float32(-1)), Raw(np.float32(1))],
        {"T": wf.qint32, "mode": "SCALED"},
        lambda x, *_: (np.sign(x) * 2.0**31 - (x > 0), np.array(-1.0), np.array(1.0)),
        dtypes=F32,
        type_attr="",
        label="saturates",
    ),
    *[_dequantizes(dtype, mode) for dtype in (*_SHORT, "qint32") for mode in _MODES],
    _dequantizes("qint8", "SCALED", narrow=True),
    *[
        _rounds(version, signed=signed, given=given)
        for version in ("V2", "V4")
        for signed in (True, False)
        for given in (True, False)
        if signed or given
    ],
    _rounds("V2", signed=True, given=True, narrow=True, half_up=True),
    _rounds("V2", signed=True, given=False, axis=1),
    _rounds("V4", signed=True, given=True, axis=1),
    _rounds("V3", signed=True, given=True),
    Case(
        "QuantizeAndDequantize",
        [X],
        {"range_given": True, "input_min": -1.25, "input_max": 2.5},
        lambda x: _rounded(x, -1.25, 2.5, signed=True, given=True),
        tolerance=_NEAR,
        grad=False,
    ),
    *[
        Case(
            "QuantizeAndDequantizeV4Grad",
            [G, X, *ends],
            {"axis": axis},
            _in_range,
            dtypes=FLOATS,
            grad=[0],
            label=label,
        )
        for label, axis, ends in (
            ("", -1, [np.array(-1.25), np.array(2.5)]),
            ("axis", 1, [LOW, HIGH]),
        )
    ],
    *[
        Case(
            "QuantizedConcat",
            [
                Raw(1),
                [_stored(dtype, 2, 3), _stored(dtype, 2, 2)],
                [Raw(np.float32(low)), Raw(np.float32(-1))],
                [Raw(np.float32(4)), Raw(np.float32(4))],
            ],
            {"T": getattr(wf, dtype)},
            expected,
            dtypes=("",),
            type_attr="",
            prepare={1: _as(dtype), 2: _as(dtype)},
            label=f"{dtype}-{low}",
        )
        for dtype, low, expected in (
            (
                "quint8",
                -1,
                lambda axis, values, *_: (np.concatenate(values, 1), np.array(-1.0), np.array(4.0)),
            ),
            (
                "quint8",
                0,
                lambda axis, values, *_: (
                    np.concatenate([_again(values[0], (0, 4), (-1, 4)), values[1]], 1),
                    -1.0,
                    4.0,
                ),
            ),
            (
                "qint8",
                -4,
                lambda axis, values, *_: (
                    np.concatenate([values[0], _again(values[1], (-1, 4), (-4, 4), "qint8")], 1),
                    -4.0,
                    4.0,
                ),
            ),
        )
    ],
]


def _again(x: Array, ends: Any, wanted: Any, dtype: str = "quint8") -> Array:
    real = _dequantize(x, *map(float, ends), dtype, "MIN_FIRST")
    return np.asarray(_quantize(real, *map(float, wanted), dtype, "MIN_FIRST")[0])
