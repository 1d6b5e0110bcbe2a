/* What has a body for each instruction set: `vector.inc` is compiled by one file for each of them. */
#ifndef WEFT_LITE_VECTOR_H
#define WEFT_LITE_VECTOR_H

/* A folder of sources for build systems that pass no flags has this file, which chooses kernels. */
#ifdef __has_include
#if __has_include("weft_lite_config.h")
#include "weft_lite_config.h"
#endif
#endif

#include <stddef.h>
#include <stdint.h>

/* Whether there is a set with AMX: where the compiler has it, and the system can be asked for its registers. */
#if defined(__x86_64__) && defined(__linux__) && !defined(__ANDROID__) && defined(__has_include)
#if __has_include(<amxintrin.h>) || __has_include(<amxint8intrin.h>)
#define WL_HAS_AMX
#endif
#endif

enum { WL_PANEL = 16, WL_MOST_ROWS = 16, WL_MOST_ROWS8 = 64, WL_MOST_VECTORS = 6 };

/* A tile of a product: results (rows, columns) = bias + sum over taps and depth of a * b, clamped.
 * a[tap * rows + row] points to `depth` numbers; b is the first of the panels (Layout PANELS). */
typedef struct wl_tile {
  size_t rows, columns, taps, depth;
  const float *const *a;
  const float *b;
  const float *bias; /* of `columns`, or NULL */
  float *c;
  size_t stride; /* between rows of c, in elements */
  float low, high;
} wl_tile;

/* The same of bytes: b has Layout PANELS4. Results are bytes, or where there is `real`, real numbers. */
typedef struct wl_tile8 {
  size_t rows, columns, taps, depth; /* depth: a multiple of 4 */
  const int8_t *const *a;
  const int8_t *b;
  size_t panel; /* bytes from a panel of b to the next, of which these taps are a part */
  const int32_t *bias; /* of `columns`, with the zero point of a taken into account; or NULL */
  const float *scales; /* of each column, or one where `one_scale` */
  int one_scale;
  float factor; /* the scale of a over that of the result */
  int32_t zero; /* of the result */
  int32_t low, high;
  int8_t *c;
  size_t stride;
  float *real;             /* or NULL */
  const float *row_scales; /* of a, for each row; with `real` alone, as what follows */
  const float *real_bias;  /* of `columns`, or NULL */
  float least, most;
} wl_tile8;

/* Words times bytes: b has Layout PANELS, or is b[tap * columns + column] for filters of each channel. */
typedef struct wl_tile16 {
  size_t rows, columns, taps, depth;
  const int16_t *const *a;
  const int8_t *b;
  const int64_t *bias; /* of `columns`, or NULL */
  const float *scales; /* of each column, or one where `one_scale` */
  int one_scale;
  double factor, low, high; /* as in wl_tile8 */
  int16_t *c;
  size_t stride;
} wl_tile16;

/* Filters of each channel: c[row][channel] = clamp(bias[channel] + sum over taps of
 * a[tap * rows + row][channel] * b[tap * channels + channel]). */
typedef struct wl_depthwise {
  size_t rows, channels, taps;
  const float *const *a;
  const float *b, *bias; /* `bias` may be NULL */
  float *c;
  float low, high;
} wl_depthwise;

/* Functions of two bytes by integers. Each operand has a factor of at most 21 bits, and a bias:
 *   SUM                  ((a * x + bias_a + b * y + bias_b) >> shift) + zero
 *   MAXIMUM, MINIMUM     (the larger or smaller of a * x + bias_a and b * y + bias_b >> shift) + zero
 *   PRODUCT              the nearest integer to (a + bias_a) * (b + bias_b) * scale, + zero
 *   SQUARED_DIFFERENCE   the same of the square of the sum
 * clamped. An operand with step 0 is one number. */
enum { WL_SUM8, WL_MAXIMUM8, WL_MINIMUM8, WL_PRODUCT8, WL_SQUARED_DIFFERENCE8 };

typedef struct wl_integers8 {
  int function;
  int32_t factor[2], bias[2], shift;
  float scale; /* at most 2^14 in PRODUCT */
  int32_t zero, low, high;
} wl_integers8;

/* Functions of two bytes by floats, of all scales: f((a - zero_a) * scale_a, (b - zero_b) * scale_b) over the
 * scale of the result, clamped, plus its zero point. */
enum { WL_ADD, WL_SUB, WL_DIV, WL_MAXIMUM, WL_MINIMUM };

typedef struct wl_floats8 {
  int function;
  float zero[2], scale[2], inverse; /* inverse: 1 / the scale of the result */
  float low, high;                  /* integers, without the zero point of the result */
  int32_t zero_out;
} wl_floats8;

/* The unit of the parts of a mean of four bytes. */
enum { WL_MIX8 = 1 << 20 };

/* Softmax of a row of bytes. `table` has e^(-d * the scale of the row) in units of 2^-26, for the differences d of
 * a byte from the largest one. */
typedef struct wl_softmax8 {
  const int32_t *table;
  double scale; /* of the result */
  int32_t zero;
} wl_softmax8;

typedef struct wl_vector {
  const char *name;
  size_t rows;   /* that a tile has at most */
  void (*tile)(const wl_tile *);
  size_t rows8;
  void (*tile8)(const wl_tile8 *);
  void (*depthwise8)(const wl_tile8 *); /* any rows; b[tap * columns + column] */
  void (*tile16)(const wl_tile16 *); /* of as many rows as `tile` has */
  void (*depthwise16)(const wl_tile16 *); /* any rows */
  void (*integers8)(const wl_integers8 *, size_t n, const int8_t *a, size_t sa, const int8_t *b, size_t sb, int8_t *out);
  void (*floats8)(const wl_floats8 *, size_t n, const int8_t *a, size_t sa, const int8_t *b, size_t sb, int8_t *out);
  void (*mix8)(const int32_t parts[4], size_t n, const int8_t *const x[4], int8_t *out);
  void (*softmax8)(const wl_softmax8 *, size_t n, const int8_t *x, int32_t *numbers, int8_t *out); /* n numbers */
  void (*lookup8)(size_t n, const uint8_t *x, const uint8_t *table, uint8_t *out); /* table[x], of 256 */
  void (*quantize8)(size_t n, const float *x, float scale, int32_t zero, int8_t *out);
  int32_t (*largest)(size_t n, const float *x); /* bits of a magnitude, which are ordered as these; most of all NaN */
  void (*bytes_of)(size_t n, const float *x, float factor, int8_t *out); /* x * factor to the nearest */
  void (*depthwise)(const wl_depthwise *);
  void (*exp)(size_t n, const float *x, float *out, float minus);
  void (*tanh)(size_t n, const float *x, float *out);
  void (*sigmoid)(size_t n, const float *x, float *out);
  float (*sum)(size_t n, const float *x);
  float (*max)(size_t n, const float *x);
} wl_vector;

/* The instruction sets that this processor has, the best first; NULL behind the last. */
const wl_vector *wl_vector_at(size_t i);
extern const wl_vector wl_vector_base, wl_vector_avx2, wl_vector_avx512;
extern const wl_vector wl_vector_vnni, wl_vector_vbmi, wl_vector_amx;
extern const wl_vector wl_vector_neon, wl_vector_dot, wl_vector_simd128;

#endif
