/* Products of floats in blocks that caches keep, for convolutions and matrices. */
#ifndef WEFT_LITE_PRODUCT_H
#define WEFT_LITE_PRODUCT_H

#include "quantized.h"

/* Rows of results whose operands are pointed to at a time. Scratch begins with pointers for each of their taps,
 * and goes on with the border. */
enum { WL_POINTED_ROWS = 64 };

typedef struct wl_float_product {
  wl_interpreter *r;
  wl_points *points;
  const void *windows;
  const wl_tensor *x;
  float *out;
  size_t results;
  size_t border; /* floats of a pixel outside of an image; 0 for matrices, which have none */
  wl_tile tile; /* all columns, without rows and operands */
} wl_float_product;

/* Results [begin, end) of a wl_float_product. */
void wl_float_product_piece(void *product, unsigned task, size_t begin, size_t end);

#endif
