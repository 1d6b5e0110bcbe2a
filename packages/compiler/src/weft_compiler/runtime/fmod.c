/* The remainder of C's fmod, exact, bit by bit, for programs without a C library. An infinite divisor returns
 * x; a divisor that is zero, and an x that is infinite, return NaN. */
#include <stdint.h>

/* MANTISSA: bits of the fraction. BIAS: the exponent of 1. The last steps scale by two powers of two, so that
 * a subnormal result is rounded once. */
#define FMOD(NAME, FLOAT, BITS, SIGNED, ABS, COPYSIGN, MANTISSA, BIAS)                              \
  FLOAT NAME(FLOAT x, FLOAT y) {                                                                    \
    union {                                                                                         \
      FLOAT number;                                                                                 \
      BITS bits;                                                                                    \
    } size_x = {ABS(x)}, size_y = {ABS(y)}, scale1, scale2;                                         \
    if (!(size_x.number < (FLOAT)__builtin_inf() && size_y.number > 0)) return x * y / (x * y);     \
    if (size_x.number < size_y.number) return x;                                                    \
    const BITS hidden = (BITS)1 << MANTISSA;                                                        \
    BITS exponent_x = size_x.bits >> MANTISSA, exponent_y = size_y.bits >> MANTISSA;                \
    BITS remainder = (size_x.bits & (hidden - 1)) | (exponent_x ? hidden : 0);                      \
    BITS divisor = (size_y.bits & (hidden - 1)) | (exponent_y ? hidden : 0);                        \
    if (!exponent_x) exponent_x = 1;                                                                \
    if (!exponent_y) exponent_y = 1;                                                                \
    remainder %= divisor;                                                                           \
    for (; exponent_x > exponent_y; exponent_x--) {                                                 \
      remainder <<= 1;                                                                              \
      if (remainder >= divisor) remainder -= divisor;                                               \
    }                                                                                               \
    SIGNED power = (SIGNED)exponent_y - (BIAS + MANTISSA), half = power >> 1;                       \
    scale1.bits = (BITS)(half + BIAS) << MANTISSA;                                                  \
    scale2.bits = (BITS)(power - half + BIAS) << MANTISSA;                                          \
    return COPYSIGN((FLOAT)remainder * scale1.number * scale2.number, x);                           \
  }

FMOD(weft_fmod_f32, float, uint32_t, int32_t, __builtin_fabsf, __builtin_copysignf, 23, 127)
FMOD(weft_fmod_f64, double, uint64_t, int64_t, __builtin_fabs, __builtin_copysign, 52, 1023)
