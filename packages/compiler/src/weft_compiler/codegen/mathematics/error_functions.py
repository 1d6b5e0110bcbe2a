"""The error function and its complement."""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen.mathematics import exponentials
from weft_compiler.codegen.mathematics.formula import Formula, Value

_ERF: Final = (
    1.1283791670955126,
    -0.37612638903183543,
    0.11283791670945006,
    -0.02686617064323777,
    0.0052239776071164225,
    -0.0008548325975389692,
    0.00012055294904839707,
    -1.492473690741966e-05,
    1.6447424703317362e-06,
    -1.6208483801871705e-07,
    1.3720064546777686e-08,
    -7.795898827002142e-10,
)
"""Coefficients of erf(x) / x in x**2, for |x| up to 1: a Chebyshev expansion."""
_ERFC: Final = (
    1.2329951186255526,
    -0.13962111684056253,
    0.015379652102619027,
    0.0680970542546948,
    -0.10103906603625375,
    0.09373283499828751,
    -0.06633036581360713,
    0.03716751553818893,
    -0.01619773403826592,
    0.0050319699756138135,
    -0.0007577734486762808,
    -0.00019925671345040716,
    0.00015062249512264785,
    -2.4398983809134553e-05,
    -1.12247322473501e-05,
    5.7086428044048145e-06,
    2.9955790685567077e-07,
    -8.22559563206072e-07,
    6.702452833728971e-08,
    1.0568025135820959e-07,
    -1.2224048303152388e-08,
    -1.0476718674668371e-08,
)
"""Coefficients of exp(x**2) erfc(x) (1 + 2 x) in (x - 4) / (x + 4), for x from 0.5 to 28."""

_SPLIT: Final = 0.92
_NEAR_32: Final = (
    0.12837915,
    -0.3761249645,
    0.112818459,
    -0.02676771838,
    0.004994828335,
    -0.0005999396708,
)
"""Coefficients of erf(x) / x - 1 in x**2, for |x| below the split, fitted to 0.13 ulps of float32.
"""
_FAR_32: Final = (
    -0.128514368,
    -0.63571829,
    -0.105261878,
    0.0228899883,
    -0.00321496365,
    0.000213985991,
)
"""Coefficients of log(erfc(x)) / x + 1, for x from the split to 4; 1 - erfc(x) then has an error of
0.03 ulps of float32.
"""


def _tail(f: Formula, x: Value) -> Value:
    """The complement for x >= 0.5: exp(-x**2) in two parts, times a polynomial."""
    x = f.where(x > 28.0, 28.0, x)
    square, low = f.two_product(x, x)
    decay = exponentials.exp(f, -square, low=-low)
    return (
        decay * f.polynomial((x - 4.0) / (x + 4.0), _ERFC) / f.fma(x, f.number(2.0), f.number(1.0))
    )


def _near_zero(f: Formula, x: Value) -> Value:
    return x * f.polynomial(x * x, _ERF)


def erf(f: Formula, x: Value) -> Value:
    """The error function."""
    size = f.abs(x)
    if not f.double:
        return _float32_erf(f, size, x)
    result = f.where(size < 1.0, _near_zero(f, size), 1.0 - _tail(f, size))
    return f.where(f.nan(x), x, f.copy_sign(result, x))


def _float32_erf(f: Formula, size: Value, x: Value) -> Value:
    """The error function in float32: 1 - exp(log(erfc(x))), without divisions; 1 from 4 on."""
    square = size * size
    near = f.fma(size, f.polynomial(square, _NEAR_32), size)
    far = f.where(size > 4.0, 4.0, size)
    logarithm = f.fma(far, f.polynomial(far, _FAR_32), -far)
    tail = exponentials.exp(f, logarithm)
    return f.copy_sign(f.where(size < _SPLIT, near, 1.0 - tail), x)


def erfc(f: Formula, x: Value) -> Value:
    """1 - erf(x)."""
    tail = _tail(f, f.abs(x))
    far = f.where(x < 0.0, 2.0 - tail, tail)
    return f.where(f.nan(x), x, f.where(f.abs(x) < 0.5, 1.0 - _near_zero(f, x), far))
