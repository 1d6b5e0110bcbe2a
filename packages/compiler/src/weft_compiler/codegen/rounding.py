"""Rounding to integers and remainders, for processors and programs without a C library.

LLVM would turn operations without an instruction into calls of `floorf`, `fmod` and the like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes


def emit_rounding(w: Writer, name: str, kind: str, x: str, target: Target) -> str:
    """Emit `floor`, `ceil`, `trunc` or `rint` of a register."""
    if not target.freestanding or target.has("sse4.1"):
        return w.call(f"llvm.{name}.{_suffix(kind)}", kind, x)
    size = w.call(f"llvm.fabs.{_suffix(kind)}", kind, x)
    rounded = _nearest(w, kind, size)
    if name != "rint":
        rounded = _ADJUSTED[name](w, kind, x, size, rounded)
    signed = w.call(f"llvm.copysign.{_suffix(kind)}", kind, rounded, x)
    small = w.put(f"fcmp olt {kind} {size}, {_emit_integer_part(kind)}")
    return w.select(small, kind, signed, x)


def _nearest(w: Writer, kind: str, size: str) -> str:
    """Emit rounding to nearest; numbers beyond 2 ** mantissa have no fraction."""
    moved = w.put(f"fadd {kind} {size}, {_emit_integer_part(kind)}")
    return w.put(f"fsub {kind} {moved}, {_emit_integer_part(kind)}")


def _emit_integer_part(kind: str) -> str:
    return literal(2.0 ** (52 if kind == "double" else 23), dtypes.float64)


def _round_towards_zero(w: Writer, kind: str, size: str, rounded: str) -> str:
    exceeds = w.put(f"fcmp ogt {kind} {rounded}, {size}")
    return w.select(exceeds, kind, w.put(f"fsub {kind} {rounded}, {_one()}"), rounded)


def _round_away(w: Writer, kind: str, size: str, rounded: str) -> str:
    is_smaller = w.put(f"fcmp olt {kind} {rounded}, {size}")
    return w.select(is_smaller, kind, w.put(f"fadd {kind} {rounded}, {_one()}"), rounded)


def _one() -> str:
    return literal(1, dtypes.float64)


def _floor(w: Writer, kind: str, x: str, size: str, rounded: str, comparison: str = "olt") -> str:
    """Emit `floor` or `ceil`, which rounds one sign towards zero and the other away from it."""
    negative = w.put(f"fcmp {comparison} {kind} {x}, {literal(0, dtypes.float64)}")
    return w.select(
        negative,
        kind,
        _round_away(w, kind, size, rounded),
        _round_towards_zero(w, kind, size, rounded),
    )


_ADJUSTED: Final[dict[str, Callable[..., str]]] = {
    "trunc": lambda w, kind, x, size, rounded: _round_towards_zero(w, kind, size, rounded),
    "floor": _floor,
    "ceil": lambda w, kind, x, size, rounded: _floor(w, kind, x, size, rounded, "ogt"),
}


def _suffix(kind: str) -> str:
    return "f64" if kind == "double" else "f32"
