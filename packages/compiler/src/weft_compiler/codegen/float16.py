"""Conversion between float32 and the 16-bit floats float16 and bfloat16.

bfloat16 is rounded by integer arithmetic on every processor, because the AVX-512 instruction
flushes denormals to zero.  float16 uses instructions on processors with F16C.
"""

from __future__ import annotations

from weft_compiler.codegen.targets import Target
from weft_compiler.codegen.writer import Writer, literal
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


def round_half(w: Writer, x: str, dtype: DType, target: Target) -> str:
    """Round a float32 to a 16-bit float, to nearest even; the result stays a float32."""
    if dtype is dtypes.bfloat16:
        return _round_bits(w, x, 16)
    if _is_native(target):
        return w.put(f"fpext half {w.put(f'fptrunc float {x} to half')} to float")
    rounded = _round_bits(w, x, 13)
    size = w.call("llvm.fabs.f32", "float", rounded)
    infinite = w.call("llvm.copysign.f32", "float", _constant(float("inf")), x)
    overflows = w.put(f"fcmp oge float {size}, {_constant(65536.0)}")
    rounded = w.select(overflows, "float", infinite, rounded)
    # float32 numbers in [0.5, 1) have the spacing of denormal float16 numbers
    magnitude = w.call("llvm.fabs.f32", "float", x)
    up = w.put(f"fadd float {magnitude}, {_constant(0.5)}")
    small = w.put(f"fsub float {up}, {_constant(0.5)}")
    small = w.call("llvm.copysign.f32", "float", small, x)
    is_subnormal = w.put(f"fcmp olt float {magnitude}, {_constant(2.0**-14)}")
    return w.select(is_subnormal, "float", small, rounded)


def half_from_bits(w: Writer, bits: str, dtype: DType, target: Target) -> str:
    """Convert the bits of a 16-bit float to float32."""
    wide = w.put(f"zext i16 {bits} to i32")
    if dtype is dtypes.bfloat16:
        return w.put(f"bitcast i32 {w.put(f'shl i32 {wide}, 16')} to float")
    if _is_native(target):
        return w.put(f"fpext half {w.put(f'bitcast i16 {bits} to half')} to float")
    sign = w.put(f"shl i32 {w.put(f'and i32 {wide}, 32768')}, 16")
    size = w.put(f"shl i32 {w.put(f'and i32 {wide}, 32767')}, 13")
    scaled = w.put(f"fmul float {w.put(f'bitcast i32 {size} to float')}, {_constant(2.0**112)}")
    full_count = w.put(f"bitcast float {scaled} to i32")
    special = w.put(f"fcmp oge float {scaled}, {_constant(65536.0)}")
    full_count = w.select(special, "i32", w.put(f"or i32 {full_count}, 2139095040"), full_count)
    return w.put(f"bitcast i32 {w.put(f'or i32 {full_count}, {sign}')} to float")


def half_to_bits(w: Writer, x: str, dtype: DType, target: Target) -> str:
    """Return the 16 bits of a float32 that is already rounded."""
    if dtype is dtypes.float16 and _is_native(target):
        return w.put(f"bitcast half {w.put(f'fptrunc float {x} to half')} to i16")
    full_count = w.put(f"bitcast float {x} to i32")
    if dtype is dtypes.bfloat16:
        return w.put(f"trunc i32 {w.put(f'lshr i32 {full_count}, 16')} to i16")
    sign = w.put(f"and i32 {w.put(f'lshr i32 {full_count}, 16')}, 32768")
    size = w.call("llvm.fabs.f32", "float", x)
    scaled = w.put(f"fmul float {size}, {_constant(2.0**-112)}")
    result = w.put(f"lshr i32 {w.put(f'bitcast float {scaled} to i32')}, 13")
    finite = w.put(f"fcmp olt float {size}, {_constant(float('inf'))}")
    is_nan = w.put(f"fcmp uno float {x}, {x}")
    special = w.select(is_nan, "i32", "32256", "31744")
    result = w.select(finite, "i32", result, special)
    return w.put(f"trunc i32 {w.put(f'or i32 {result}, {sign}')} to i16")


def _is_native(target: Target) -> bool:
    return target.has("f16c")


def _constant(value: float) -> str:
    return literal(value, dtypes.float32)


def _round_bits(w: Writer, x: str, dropped: int) -> str:
    """Drop the last bits of a float32, rounding to nearest even; NaN loses its payload."""
    bits = w.put(f"bitcast float {x} to i32")
    last = w.put(f"and i32 {w.put(f'lshr i32 {bits}, {dropped}')}, 1")
    half = w.put(f"add i32 {bits}, {(1 << (dropped - 1)) - 1}")
    rounded_bits = w.put(f"and i32 {w.put(f'add i32 {half}, {last}')}, {-(1 << dropped)}")
    rounded = w.put(f"bitcast i32 {rounded_bits} to float")
    is_nan = w.put(f"fcmp uno float {x}, {x}")
    nan = w.call("llvm.copysign.f32", "float", _constant(float("nan")), x)
    return w.select(is_nan, "float", nan, rounded)
