"""Rounding to integers and remainders, for processors and programs without a C library.

Operations without an instruction would otherwise be calls of `floorf`, `fmod` and the like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes


def rounded(w: Writer, name: str, kind: str, x: str, target: Target) -> str:
    """Emit `floor`, `ceil`, `trunc` or `rint` of a register."""
    if not target.alone or target.has("sse4.1"):
        return w.call(f"llvm.{name}.{_suffix(kind)}", kind, x)
    size = w.call(f"llvm.fabs.{_suffix(kind)}", kind, x)
    near = _nearest(w, kind, size)
    if name != "rint":
        near = _ADJUSTED[name](w, kind, x, size, near)
    signed = w.call(f"llvm.copysign.{_suffix(kind)}", kind, near, x)
    small = w.put(f"fcmp olt {kind} {size}, {_whole(kind)}")
    return w.select(small, kind, signed, x)


def _nearest(w: Writer, kind: str, size: str) -> str:
    """Emit rounding to nearest; numbers beyond 2 ** mantissa have no fraction."""
    moved = w.put(f"fadd {kind} {size}, {_whole(kind)}")
    return w.put(f"fsub {kind} {moved}, {_whole(kind)}")


def _whole(kind: str) -> str:
    return literal(2.0 ** (52 if kind == "double" else 23), dtypes.float64)


def _towards_zero(w: Writer, kind: str, size: str, near: str) -> str:
    over = w.put(f"fcmp ogt {kind} {near}, {size}")
    return w.select(over, kind, w.put(f"fsub {kind} {near}, {_one()}"), near)


def _away(w: Writer, kind: str, size: str, near: str) -> str:
    under = w.put(f"fcmp olt {kind} {near}, {size}")
    return w.select(under, kind, w.put(f"fadd {kind} {near}, {_one()}"), near)


def _one() -> str:
    return literal(1, dtypes.float64)


def _floor(w: Writer, kind: str, x: str, size: str, near: str, below: str = "olt") -> str:
    """Round the absolute value: towards zero for one sign, away from it for the other."""
    negative = w.put(f"fcmp {below} {kind} {x}, {literal(0, dtypes.float64)}")
    return w.select(negative, kind, _away(w, kind, size, near), _towards_zero(w, kind, size, near))


_ADJUSTED: Final[dict[str, Callable[..., str]]] = {
    "trunc": lambda w, kind, x, size, near: _towards_zero(w, kind, size, near),
    "floor": _floor,
    "ceil": lambda w, kind, x, size, near: _floor(w, kind, x, size, near, "ogt"),
}


def _suffix(kind: str) -> str:
    return "f64" if kind == "double" else "f32"


_FMOD: Final = """
define internal {kind} @weft.fmod.{suffix}({kind} %x, {kind} %y) nounwind {{
entry:
  %px = call {kind} @llvm.fabs.{suffix}({kind} %x)
  %py = call {kind} @llvm.fabs.{suffix}({kind} %y)
  %finite = fcmp olt {kind} %px, {infinity}
  %some = fcmp ogt {kind} %py, {zero}
  %fine = and i1 %finite, %some
  br i1 %fine, label %sizes, label %none
none:
  %product = fmul {kind} %x, %y
  %nan = fdiv {kind} %product, %product
  ret {kind} %nan
sizes:
  %less = fcmp olt {kind} %px, %py
  br i1 %less, label %same, label %begin
same:
  ret {kind} %x
begin:
  %bx = bitcast {kind} %px to {bits}
  %by = bitcast {kind} %py to {bits}
  %ex0 = lshr {bits} %bx, {mantissa}
  %ey0 = lshr {bits} %by, {mantissa}
  %ex = call {bits} @llvm.umax.{bits}({bits} %ex0, {bits} 1)
  %ey = call {bits} @llvm.umax.{bits}({bits} %ey0, {bits} 1)
  %fx = and {bits} %bx, {mask}
  %fy = and {bits} %by, {mask}
  %hx = icmp ne {bits} %ex0, 0
  %hy = icmp ne {bits} %ey0, 0
  %ix = select i1 %hx, {bits} {hidden}, {bits} 0
  %iy = select i1 %hy, {bits} {hidden}, {bits} 0
  %mx = or {bits} %fx, %ix
  %my = or {bits} %fy, %iy
  %first = urem {bits} %mx, %my
  br label %turn
turn:
  %r = phi {bits} [ %first, %begin ], [ %rest, %step ]
  %e = phi {bits} [ %ex, %begin ], [ %lower, %step ]
  %more = icmp ugt {bits} %e, %ey
  br i1 %more, label %step, label %done
step:
  %twice = shl {bits} %r, 1
  %over = icmp uge {bits} %twice, %my
  %taken = sub {bits} %twice, %my
  %rest = select i1 %over, {bits} %taken, {bits} %twice
  %lower = sub {bits} %e, 1
  br label %turn
done:
  %number = uitofp {bits} %r to {kind}
  %power = sub {bits} %ey, {least}
  %half = ashr {bits} %power, 1
  %half.other = sub {bits} %power, %half
  %b1 = add {bits} %half, {bias}
  %b2 = add {bits} %half.other, {bias}
  %s1 = shl {bits} %b1, {mantissa}
  %s2 = shl {bits} %b2, {mantissa}
  %p1 = bitcast {bits} %s1 to {kind}
  %p2 = bitcast {bits} %s2 to {kind}
  %scaled = fmul {kind} %number, %p1
  %exact = fmul {kind} %scaled, %p2
  %signed = call {kind} @llvm.copysign.{suffix}({kind} %exact, {kind} %x)
  ret {kind} %signed
}}
"""


def fmod_text(kind: str) -> str:
    """Return the remainder of C's `fmod`, exact, bit by bit; an infinite divisor returns x."""
    mantissa, bias = (52, 1023) if kind == "double" else (23, 127)
    return _FMOD.format(
        kind=kind,
        suffix=_suffix(kind),
        bits="i64" if kind == "double" else "i32",
        mantissa=mantissa,
        bias=bias,
        least=bias + mantissa,
        mask=(1 << mantissa) - 1,
        hidden=1 << mantissa,
        infinity=literal(float("inf"), dtypes.float64),
        zero=literal(0, dtypes.float64),
    )
