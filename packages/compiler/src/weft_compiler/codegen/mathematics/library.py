"""The mathematical functions by name, with their LLVM texts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Final

from weft_compiler.codegen.mathematics import (
    bessel,
    circular,
    error_functions,
    exponentials,
    gamma,
    incomplete,
    inverses,
    powers,
    quantiles,
    zeta,
)
from weft_compiler.codegen.mathematics.formula import Formula, Value
from weft_compiler.codegen.runtime import fmod_text
from weft_compiler.codegen.targets import Target

FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    **{
        name: getattr(exponentials, name)
        for name in ("exp", "expm1", "tanh", "sinh", "cosh", "log", "log1p")
    },
    **{name: getattr(exponentials, name) for name in ("asinh", "acosh", "atanh")},
    **{name: getattr(circular, name) for name in ("sin", "cos", "tan")},
    **{name: getattr(inverses, name) for name in ("asin", "acos", "atan", "atan2")},
    "erf": error_functions.erf,
    "erfc": error_functions.erfc,
    "pow": powers.pow,
    "lgamma": gamma.lgamma,
    "digamma": gamma.digamma,
    "bessel_i0e": bessel.bessel_i0e,
    "bessel_i1e": bessel.bessel_i1e,
    "erfinv": quantiles.erfinv,
    "ndtri": quantiles.ndtri,
}
"""The writers of functions, by the names of primitives."""

ITERATED: Final[dict[str, Callable[..., Value]]] = {
    **{name: getattr(incomplete, name) for name in ("igamma", "igammac", "igamma_grad_a")},
    "betainc": incomplete.betainc,
    "zeta": zeta.zeta,
    "polygamma": zeta.polygamma,
}
"""Functions computed by iteration, in float64 only; they are called for each element."""

WIDENED: Final = FUNCTIONS.keys() - {"exp", "expm1", "tanh", "log", "log1p", "sin", "cos", "erf"}
"""Functions whose float32 version computes in float64 and rounds: they are rarely used and
difficult in float32.
"""

_COARSE: Final = {"pow": "coarse_pow"}
_LOOPS: Final = {**ITERATED, "zeta_sum": zeta.zeta_sum}
_WRITERS: Final = {**FUNCTIONS, **_LOOPS, "coarse_pow": powers.coarse_pow}
_ARITY: Final = {
    **dict.fromkeys(("pow", "coarse_pow", "atan2"), 2),
    **dict.fromkeys(_LOOPS, 2),
    "betainc": 3,
}


def texts(used: Iterable[str], target: Target) -> list[str]:
    """Return the texts of functions and of all functions that they call, without duplicates."""
    names: dict[str, str] = {}
    constants: dict[str, str] = {}
    waiting = sorted(used)
    while waiting:
        name = waiting.pop()
        if name not in names:
            names[name], calls, needs = _function(name, target)
            constants.update(needs)
            waiting += sorted(calls)
    return [*constants.values(), *names.values()]


@functools.cache
def _function(full: str, target: Target) -> tuple[str, frozenset[str], dict[str, str]]:
    """Return the text of a function, the functions that it calls, and its tables."""
    _, name, width = full.split(".")
    if name == "fmod":
        return fmod_text("double" if width == "f64" else "float"), frozenset(), {}
    f = Formula(width == "f64", target)
    names = ["%x", "%y", "%z"][: _ARITY.get(name, 1)]
    operands = [Value(f, f.kind, operand) for operand in names]
    if (name in WIDENED or name in _LOOPS) and not f.double:
        wide = [f.convert("fpext", x, "double") for x in operands]
        result = f.convert("fptrunc", f.call(_COARSE.get(name, name), *wide), "float")
    else:
        result = _WRITERS[name](f, *operands)
    parameters = ", ".join(f"{f.kind} {operand}" for operand in names)
    inlined = "noinline" if name in _LOOPS and f.double else "alwaysinline"
    text = "\n".join(
        [
            f"define internal {f.kind} @{full}({parameters}) {inlined} nounwind {{",
            "entry:",
            *f.w.lines,
            f"  ret {f.kind} {result.name}",
            "}",
        ]
    )
    return text, frozenset(f.used), f.constants
