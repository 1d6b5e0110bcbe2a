/* Rounding and roots for processors that may lack the C library: Cortex-M4 has no instruction that rounds to an
 * integer in floating point. Results have the bits of the C library's functions in the default rounding mode. */
#ifndef WEFT_LITE_BARE_ROUNDING_H
#define WEFT_LITE_BARE_ROUNDING_H

#include <stdint.h>

static inline float wl_floorf(float x) {
  if (!(__builtin_fabsf(x) < 0x1p23f)) return x; /* an integer, infinite or NaN */
  float whole = (float)(int32_t)x;
  return __builtin_copysignf(whole > x ? whole - 1 : whole, x);
}

static inline float wl_ceilf(float x) { return -wl_floorf(-x); }

static inline float wl_truncf(float x) {
  return __builtin_fabsf(x) < 0x1p23f ? __builtin_copysignf((float)(int32_t)x, x) : x;
}

/* The sum with 2^23 rounds a magnitude below it to the nearest integer, half to even. */
static inline float wl_rintf(float x) {
  float magnitude = __builtin_fabsf(x);
  if (!(magnitude < 0x1p23f)) return x;
  volatile float sum = magnitude + 0x1p23f;
  return __builtin_copysignf(sum - 0x1p23f, x);
}

static inline double wl_rint(double x) {
  double magnitude = __builtin_fabs(x);
  if (!(magnitude < 0x1p52)) return x;
  volatile double sum = magnitude + 0x1p52;
  return __builtin_copysign(sum - 0x1p52, x);
}

static inline float wl_roundf(float x) {
  float whole = wl_truncf(x);
  return __builtin_fabsf(x - whole) >= 0.5f ? whole + __builtin_copysignf(1, x) : whole;
}

#define floorf wl_floorf
#define ceilf wl_ceilf
#define truncf wl_truncf
#define rintf wl_rintf
#define nearbyintf wl_rintf
#define nearbyint wl_rint
#define roundf wl_roundf
#define fabsf __builtin_fabsf
#define lrintf(x) ((long)wl_rintf(x))

#endif
