/* Windows of images as rows (im2col) and the sum of such rows (col2im): Patches, PatchesGrad.
 *
 * A convolution is Patches times a matrix. With a filter that changes between invocations, as in training,
 * that costs less than to pack it; the gradients of a convolution are products with the same rows. */
#include "windows.h"

enum { OUT_H, OUT_W, PAD_TOP, PAD_LEFT }; /* memo */

typedef struct axis {
  int64_t kernel, stride, dilation, pad, size, results;
} axis;

static int64_t at_least_one(int32_t value) { return value < 1 ? 1 : value; }

/* The windows along one axis of an image of `size`, without their number and what precedes them. */
static axis axis_of(const wl_interpreter *r, const wl_op *op, int i, int64_t size) {
  return (axis){.kernel = wl_int(r, op, i ? WL_CONV_KERNEL_W : WL_CONV_KERNEL_H),
                .stride = at_least_one(wl_int(r, op, i ? WL_CONV_STRIDE_W : WL_CONV_STRIDE_H)),
                .dilation = at_least_one(wl_int(r, op, i ? WL_CONV_DILATION_W : WL_CONV_DILATION_H)),
                .pad = op->memo[i ? PAD_LEFT : PAD_TOP],
                .size = size,
                .results = op->memo[i ? OUT_W : OUT_H]};
}

static wl_status check(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, op->kind == WL_OP_Patches ? 0 : 1);
  WL_TRY(wl_check_windows(r, op));
  WL_TRY(wl_expect_type(r, x, "the operand", WL_FLOATS));
  return wl_expect_same_type(r, x, wl_out(r, op, 0), "the result");
}

/* Derive the windows of images of a size; `taps` becomes their elements. */
static wl_status shape_windows(wl_interpreter *r, wl_op *op, const int64_t *size, int64_t *taps) {
  for (int i = 0; i < 2; i++) {
    axis a = axis_of(r, op, i, size[i]);
    WL_TRY(wl_place_windows(r, op, size[i], (a.kernel - 1) * a.dilation + 1, a.stride, i,
                            &op->memo[OUT_H + i], &op->memo[PAD_TOP + i]));
  }
  *taps = (int64_t)wl_int(r, op, WL_CONV_KERNEL_H) * wl_int(r, op, WL_CONV_KERNEL_W);
  return WL_OK;
}

static wl_status shape_patches(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  int64_t size[2] = {x->dims[1], x->dims[2]}, taps, width;
  WL_TRY(shape_windows(r, op, size, &taps));
  if (!wl_multiply(taps, x->dims[3], &width))
    return wl_fail(r, WL_INVALID_ARGUMENT, "patches of %d taps of shape %S are too large", taps, x);
  int64_t dims[4] = {x->dims[0], op->memo[OUT_H], op->memo[OUT_W], width};
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  op->cost = (uint64_t)wl_elements(wl_out(r, op, 0)) / 8192;
  return WL_OK;
}

/* Copy the window of a result; elements outside of the image are zeros. */
static void copy_patch(const wl_tensor *x, const axis *rows, const axis *columns, int64_t result, float *to) {
  int64_t column = result % columns->results, rest = result / columns->results;
  int64_t row = rest % rows->results, n = rest / rows->results;
  size_t pixel = (size_t)x->dims[3];
  for (int64_t i = 0; i < rows->kernel; i++) {
    int64_t y = row * rows->stride - rows->pad + i * rows->dilation;
    bool inside = y >= 0 && y < rows->size;
    const float *line = (const float *)(const void *)x->data + (size_t)((n * rows->size + (inside ? y : 0)) * columns->size) * pixel;
    for (int64_t j = 0; j < columns->kernel; j++, to += pixel) {
      int64_t c = column * columns->stride - columns->pad + j * columns->dilation;
      if (inside && c >= 0 && c < columns->size) memcpy(to, line + (size_t)c * pixel, pixel * sizeof(float));
      else memset(to, 0, pixel * sizeof(float));
    }
  }
}

typedef struct job {
  const wl_tensor *from;
  wl_tensor *to;
  axis rows, columns;
} job;

static void patches_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const job *j = argument;
  size_t width = (size_t)j->to->dims[3];
  (void)task;
  for (size_t m = begin; m < end; m++)
    copy_patch(j->from, &j->rows, &j->columns, (int64_t)m, (float *)(void *)j->to->data + m * width);
}

static wl_status compute_patches(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  job j = {x, wl_out(r, op, 0), axis_of(r, op, 0, x->dims[1]), axis_of(r, op, 1, x->dims[2])};
  if (wl_elements(j.to))
    wl_split(r, (size_t)wl_product(j.to->dims, 0, 3), 1 + 8192 / (size_t)j.to->dims[3], patches_piece, &j);
  return WL_OK;
}

const wl_kernel wl_op_Patches = {"Patches", check, shape_patches, compute_patches, WL_FLOATS, 1, 1, 1,
                                 1 + WL_TABLE_CONV_OPTIONS, 0};

/* ---------------------------------------------------------------- PatchesGrad */

static wl_status shape_grad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *patches = wl_in(r, op, 1);
  int64_t dims[4], taps;
  int count;
  WL_TRY(wl_expect_rank(r, patches, "operand 1", 4, 4));
  WL_TRY(wl_read_ints(r, wl_in(r, op, 0), "operand 0", 4, dims, &count));
  if (count != 4) return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has %d sizes, not 4", (int64_t)count);
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  WL_TRY(shape_windows(r, op, dims + 1, &taps));
  int64_t width;
  if (!wl_multiply(taps, dims[3], &width) || patches->dims[0] != dims[0] || patches->dims[3] != width ||
      patches->dims[1] != op->memo[OUT_H] || patches->dims[2] != op->memo[OUT_W])
    return wl_fail(r, WL_INVALID_ARGUMENT, "patches of shape %S do not come from images of shape %S", patches,
                   wl_out(r, op, 0));
  op->cost = (uint64_t)wl_elements(patches) / 8192;
  return WL_OK;
}

/* Rows of images: each is the sum of the parts of windows that cover it, so that no two tasks share one. */
static void grad_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const job *j = argument;
  const axis *rows = &j->rows, *columns = &j->columns;
  size_t pixel = (size_t)j->to->dims[3], line = (size_t)columns->size * pixel;
  size_t width = (size_t)j->from->dims[3];
  (void)task;
  for (size_t m = begin; m < end; m++) {
    int64_t n = (int64_t)m / rows->size, y = (int64_t)m % rows->size;
    float *to = (float *)(void *)j->to->data + m * line;
    memset(to, 0, line * sizeof(float));
    for (int64_t i = 0; i < rows->kernel; i++) {
      int64_t offset = y + rows->pad - i * rows->dilation, row = offset / rows->stride;
      if (offset < 0 || offset % rows->stride || row >= rows->results) continue;
      const float *from = (const float *)(const void *)j->from->data +
                          (size_t)((n * rows->results + row) * columns->results) * width +
                          (size_t)(i * columns->kernel) * pixel;
      for (int64_t column = 0; column < columns->results; column++, from += width)
        for (int64_t k = 0; k < columns->kernel; k++) {
          int64_t c = column * columns->stride - columns->pad + k * columns->dilation;
          if (c < 0 || c >= columns->size) continue;
          float *sum = to + (size_t)c * pixel;
          const float *term = from + (size_t)k * pixel;
          for (size_t e = 0; e < pixel; e++) sum[e] += term[e];
        }
    }
  }
}

static wl_status compute_grad(wl_interpreter *r, wl_op *op) {
  wl_tensor *out = wl_out(r, op, 0);
  job j = {wl_in(r, op, 1), out, axis_of(r, op, 0, out->dims[1]), axis_of(r, op, 1, out->dims[2])};
  size_t line = (size_t)out->dims[2] * (size_t)out->dims[3];
  if (wl_elements(out))
    wl_split(r, (size_t)(wl_elements(out) / (int64_t)line), 1 + 2048 / line, grad_piece, &j);
  return WL_OK;
}

const wl_kernel wl_op_PatchesGrad = {"PatchesGrad", check, shape_grad, compute_grad,
                                     WL_TYPE(INT32) | WL_TYPE(INT64), 2, 2, 1, 1 + WL_TABLE_CONV_OPTIONS, 0};
