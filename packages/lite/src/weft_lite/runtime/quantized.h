/* Products of bytes, or of words and bytes, for the kernels of convolutions and matrices. */
#ifndef WEFT_LITE_QUANTIZED_H
#define WEFT_LITE_QUANTIZED_H

#include "runtime.h"

enum { WL_PADDED_ROWS = 12 }; /* of a tile, where they are copied */

/* Pointers to what `rows` results from `first` on take, tap by tap; `border` is outside of the image. */
typedef void wl_points(const void *windows, size_t first, size_t rows, size_t pixel,
                       const void *border, const void **found);

wl_status wl_check_product8(wl_interpreter *, const wl_op *, int64_t channels);
/* Where bytes that got their scales as they came meet weights: results are real. */
wl_status wl_check_column_scales(wl_interpreter *, const wl_tensor *weights, int64_t columns);
float wl_scale_of(int32_t largest);
void wl_rows_to_bytes(const wl_vector *, size_t count, const float *x, size_t stride, size_t depth, int8_t *bytes,
                      const int8_t **rows, float *scales);

uint64_t wl_rows8_scratch(const wl_tensor *x, size_t taps);
wl_status wl_conv8(wl_interpreter *, wl_op *, wl_points *, const void *windows, size_t taps,
                   size_t results, size_t channels, unsigned activation);
wl_status wl_depthwise8(wl_interpreter *, wl_op *, wl_points *, const void *windows, size_t taps,
                        size_t results, unsigned activation);
wl_status wl_conv16(wl_interpreter *, wl_op *, wl_points *, const void *windows, size_t taps,
                    size_t results, size_t channels, unsigned activation);
wl_status wl_depthwise16(wl_interpreter *, wl_op *, wl_points *, const void *windows, size_t taps,
                         size_t results, unsigned activation);
void wl_clamp8(const wl_tensor *out, unsigned activation, int32_t *low, int32_t *high);

/* Of the bias that goes with a type: sums with words are beyond 32 bits. */
static inline uint32_t wl_bias_type(unsigned dtype) {
  return dtype == WL_TYPE_FLOAT32 ? WL_TYPE(FLOAT32) : dtype == WL_TYPE_INT16 ? WL_TYPE(INT64) : WL_TYPE(INT32);
}

static inline int32_t wl_zero_point(const wl_tensor *t, uint32_t i) {
  return !t->zero_point_count ? 0 : t->zero_points[t->zero_point_count > 1 ? i : 0];
}

#endif
