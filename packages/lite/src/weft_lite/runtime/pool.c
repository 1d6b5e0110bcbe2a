/* Windows over images: MaxPool, AvgPool, which counts only elements inside of the image, and the gradients. */
#include "quantized.h"
#include "runtime.h"

enum { OUT_H, OUT_W, PAD_TOP, PAD_LEFT }; /* memo */
enum { CHANNELS = 64 };

static wl_status check_options(wl_interpreter *r, const wl_op *op) {
  for (unsigned slot = WL_POOL_WINDOW_H; slot <= WL_POOL_STRIDE_W; slot++)
    if (wl_int(r, op, slot) < 1 || wl_int(r, op, slot) > 1 << 16)
      return wl_fail(r, WL_DATA_LOSS, "a window or stride is not possible");
  return wl_check_activation(r, wl_byte(r, op, WL_POOL_ACTIVATION));
}

static wl_status check(wl_interpreter *r, wl_op *op) {
  WL_TRY(check_options(r, op));
  const wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  if (x->dtype != WL_TYPE_FLOAT32) {
    if (x->scale_count != 1 || out->scale_count != 1)
      return wl_fail(r, WL_DATA_LOSS, "operand and result need one scale each");
    if (x->scales[0] != out->scales[0] || wl_zero_point(x, 0) != wl_zero_point(out, 0))
      return wl_fail(r, WL_DATA_LOSS, "operand and result need the same scale and zero point");
  }
  return wl_expect_same_type(r, x, out, "the result");
}

static wl_status place(wl_interpreter *r, const wl_op *op, int axis, int64_t size, int64_t *out,
                       int64_t *before) {
  int64_t window = wl_int(r, op, axis ? WL_POOL_WINDOW_W : WL_POOL_WINDOW_H);
  int64_t stride = wl_int(r, op, axis ? WL_POOL_STRIDE_W : WL_POOL_STRIDE_H), after = 0;
  unsigned padding = wl_byte(r, op, WL_POOL_PADDING);
  *before = 0;
  if (padding == WL_PADDING_SAME) {
    *out = (size + stride - 1) / stride;
    int64_t missing = (*out - 1) * stride + window - size;
    *before = missing > 0 ? missing / 2 : 0;
    return WL_OK;
  }
  uint32_t pads = wl_follow(r->metadata, op->options, WL_POOL_PADS);
  if (padding == WL_PADDING_EXPLICIT && wl_length(r->metadata, pads) == 4) {
    *before = wl_ints(r->metadata, pads)[2 * axis];
    after = wl_ints(r->metadata, pads)[2 * axis + 1];
    if (*before < 0 || after < 0 || *before >= window || after >= window)
      return wl_fail(r, WL_DATA_LOSS, "a pad is negative, or as large as the window");
  } else if (padding != WL_PADDING_VALID) {
    return wl_fail(r, WL_DATA_LOSS, "padding %d is not known, or has no four pads", (int64_t)padding);
  }
  int64_t room = size + *before + after - window;
  *out = room < 0 ? 0 : room / stride + 1;
  return WL_OK;
}

static wl_status shape(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  int64_t dims[4] = {x->dims[0], 0, 0, x->dims[3]};
  WL_TRY(place(r, op, 0, x->dims[1], &dims[1], &op->memo[PAD_TOP]));
  WL_TRY(place(r, op, 1, x->dims[2], &dims[2], &op->memo[PAD_LEFT]));
  op->memo[OUT_H] = dims[1];
  op->memo[OUT_W] = dims[2];
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  int64_t window_h = wl_int(r, op, WL_POOL_WINDOW_H), window_w = wl_int(r, op, WL_POOL_WINDOW_W);
  int64_t window = (window_h < x->dims[1] ? window_h : x->dims[1]) *
                   (window_w < x->dims[2] ? window_w : x->dims[2]);
  if (x->dtype != WL_TYPE_FLOAT32 && window > 1 << 23)
    return wl_fail(r, WL_INVALID_ARGUMENT, "a window of %d bytes has sums above 32 bits", window);
  op->cost = wl_work((uint64_t)wl_elements(wl_out(r, op, 0)), (uint64_t)window) / 8192;
  return WL_OK;
}

typedef struct windows {
  wl_interpreter *r;
  const wl_op *op;
  const wl_tensor *x;
  wl_tensor *out;
  bool average;
  int32_t stride_h, stride_w, window_h, window_w; /* read once, since each read searches the options */
  float low, high;
  int32_t low8, high8;
} windows;

static windows windows_of(wl_interpreter *r, const wl_op *op, bool average) {
  return (windows){.r = r, .op = op, .out = wl_out(r, op, 0), .average = average,
                   .stride_h = wl_int(r, op, WL_POOL_STRIDE_H), .stride_w = wl_int(r, op, WL_POOL_STRIDE_W),
                   .window_h = wl_int(r, op, WL_POOL_WINDOW_H), .window_w = wl_int(r, op, WL_POOL_WINDOW_W)};
}

typedef struct area {
  int64_t n, top, bottom, left, right;
} area;

static int64_t clip(int64_t value, int64_t most) { return value < 0 ? 0 : value > most ? most : value; }

static area area_of(const windows *w, size_t result) {
  const int64_t *memo = w->op->memo;
  int64_t x = (int64_t)result % memo[OUT_W], rest = (int64_t)result / memo[OUT_W];
  int64_t top = rest % memo[OUT_H] * w->stride_h - memo[PAD_TOP];
  int64_t left = x * w->stride_w - memo[PAD_LEFT];
  int64_t bottom = top + w->window_h;
  int64_t right = left + w->window_w;
  return (area){rest / memo[OUT_H], clip(top, w->x->dims[1]), clip(bottom, w->x->dims[1]),
                clip(left, w->x->dims[2]), clip(right, w->x->dims[2])};
}

/* Sums and maxima of the channels of a window. */
#define OVER_WINDOW(type, statement)                                                                   \
  size_t channels = (size_t)w->x->dims[3];                                                             \
  for (int64_t i = a.top; i < a.bottom; i++)                                                           \
    for (int64_t j = a.left; j < a.right; j++) {                                                       \
      size_t at = (size_t)((a.n * w->x->dims[1] + i) * w->x->dims[2] + j) * channels + first;          \
      const type *x = (const type *)(const void *)w->x->data + at;                                     \
      for (size_t c = 0; c < count; c++) statement;                                                    \
    }
#define SUMS(name, type, sum_type)                                                                     \
  static void name(const windows *w, area a, size_t first, size_t count, sum_type *found) {            \
    for (size_t c = 0; c < count; c++) found[c] = 0;                                                   \
    OVER_WINDOW(type, found[c] = (sum_type)(found[c] + x[c]))                                          \
  }
#define MAXIMA(name, type, lowest)                                                                     \
  static void name(const windows *w, area a, size_t first, size_t count, type *found) {                \
    for (size_t c = 0; c < count; c++) found[c] = lowest;                                              \
    OVER_WINDOW(type, found[c] = found[c] > x[c] || found[c] != found[c] ? found[c] : x[c])            \
  }
SUMS(float_sums, float, float)
SUMS(int8_sums, int8_t, int16_t)
SUMS(int8_long_sums, int8_t, int32_t)
SUMS(uint8_sums, uint8_t, uint16_t)
SUMS(uint8_long_sums, uint8_t, int32_t)
SUMS(int16_sums, int16_t, int64_t)
MAXIMA(float_maxima, float, -INFINITY)
MAXIMA(int8_maxima, int8_t, -128)
MAXIMA(uint8_maxima, uint8_t, 0)
MAXIMA(int16_maxima, int16_t, INT16_MIN)
#undef OVER_WINDOW
#undef SUMS
#undef MAXIMA

static void float_result(const windows *w, area a, size_t result, size_t first, size_t count) {
  float found[CHANNELS], *out = (float *)(void *)w->out->data;
  out += result * (size_t)w->x->dims[3] + first;
  if (w->average) float_sums(w, a, first, count, found);
  else float_maxima(w, a, first, count, found);
  float inside = (float)((a.bottom - a.top) * (a.right - a.left));
  for (size_t c = 0; c < count; c++) {
    float v = w->average ? found[c] / inside : found[c];
    out[c] = v < w->low ? w->low : v > w->high ? w->high : v;
  }
}

/* The nearest integer, halves to even ones; by sums, which compilers see as vectors. */
static int32_t nearest(float mean) { return (int32_t)((mean + 12582912.0f) - 12582912.0f); }

enum { SHORT_SUM = 255 }; /* bytes whose sum has 16 bits */

#define BYTES_RESULT(name, type, sum_type)                                                             \
  static void name##_result(const windows *w, area a, size_t result, size_t first, size_t count) {     \
    int32_t found[CHANNELS], inside = (int32_t)((a.bottom - a.top) * (a.right - a.left));              \
    type *out = (type *)w->out->data + result * (size_t)w->x->dims[3] + first, most[CHANNELS];         \
    sum_type sums[CHANNELS];                                                                           \
    if (!w->average) {                                                                                 \
      type low = (type)w->low8, high = (type)w->high8;                                                 \
      name##_maxima(w, a, first, count, most);                                                         \
      for (size_t c = 0; c < count; c++) out[c] = most[c] < low ? low : most[c] > high ? high : most[c]; \
      return;                                                                                          \
    }                                                                                                  \
    if (inside > SHORT_SUM) {                                                                          \
      name##_long_sums(w, a, first, count, found);                                                     \
    } else {                                                                                           \
      name##_sums(w, a, first, count, sums);                                                           \
      for (size_t c = 0; c < count; c++) found[c] = sums[c];                                           \
    }                                                                                                  \
    int32_t low = w->low8, high = w->high8; /* which no store may change */                            \
    float divisor = inside ? (float)inside : 1;                                                        \
    for (size_t c = 0; c < count; c++) found[c] = nearest((float)found[c] / divisor);                  \
    for (size_t c = 0; c < count; c++)                                                                 \
      out[c] = (type)(found[c] < low ? low : found[c] > high ? high : found[c]);                       \
  }
BYTES_RESULT(int8, int8_t, int16_t)
BYTES_RESULT(uint8, uint8_t, uint16_t)
#undef BYTES_RESULT

static void word_result(const windows *w, area a, size_t result, size_t first, size_t count) {
  int64_t sums[CHANNELS], inside = (a.bottom - a.top) * (a.right - a.left);
  int16_t *out = (int16_t *)(void *)w->out->data + result * (size_t)w->x->dims[3] + first, most[CHANNELS];
  if (w->average) int16_sums(w, a, first, count, sums);
  else int16_maxima(w, a, first, count, most);
  for (size_t c = 0; c < count; c++) {
    int64_t v = !w->average ? most[c] : inside ? (int64_t)nearbyint((double)sums[c] / (double)inside) : 0;
    out[c] = (int16_t)(v < w->low8 ? w->low8 : v > w->high8 ? w->high8 : v);
  }
}

static void piece(void *argument, unsigned task, size_t begin, size_t end) {
  const windows *w = argument;
  size_t channels = (size_t)w->x->dims[3];
  (void)task;
  for (size_t m = begin; m < end; m++) {
    area a = area_of(w, m);
    for (size_t first = 0; first < channels; first += CHANNELS) {
      size_t count = channels - first < CHANNELS ? channels - first : CHANNELS;
      if (w->x->dtype == WL_TYPE_FLOAT32) float_result(w, a, m, first, count);
      else if (w->x->dtype == WL_TYPE_INT16) word_result(w, a, m, first, count);
      else if (w->x->dtype == WL_TYPE_INT8) int8_result(w, a, m, first, count);
      else uint8_result(w, a, m, first, count);
    }
  }
}

static wl_status compute(wl_interpreter *r, wl_op *op) {
  windows w = windows_of(r, op, op->kind == WL_OP_AvgPool);
  w.x = wl_in(r, op, 0);
  unsigned activation = wl_byte(r, op, WL_POOL_ACTIVATION);
  wl_clamp(activation, &w.low, &w.high);
  if (w.x->dtype != WL_TYPE_FLOAT32) wl_clamp8(w.out, activation, &w.low8, &w.high8);
  if (wl_elements(w.out))
    wl_split(r, (size_t)wl_product(w.out->dims, 0, 3), 1 + 4096 / (size_t)w.x->dims[3], piece, &w);
  return WL_OK;
}

#define KERNEL(kind)                                                                         \
  const wl_kernel wl_op_##kind = {#kind, check, shape, compute,                              \
                                  WL_FLOATS | WL_QUANTIZED, 1, 1, 1,                       \
                                  1 + WL_TABLE_POOL_OPTIONS, 0};
KERNEL(MaxPool)
KERNEL(AvgPool)

/* ---------------------------------------------------------------- gradients */

/* Operands: x, y and the gradient of y for MaxPoolGrad; sizes and the gradient for AvgPoolGrad. */
static wl_status check_grad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *grad = wl_in(r, op, op->input_count - 1);
  WL_TRY(check_options(r, op));
  WL_TRY(wl_expect_type(r, grad, "the gradient", WL_FLOATS));
  return wl_expect_same_type(r, grad, wl_out(r, op, 0), "the result");
}

/* Derive the windows of images of shape `dims`, and compare them with the gradient. */
static wl_status shape_grad(wl_interpreter *r, wl_op *op, const int64_t *dims) {
  const wl_tensor *grad = wl_in(r, op, op->input_count - 1);
  WL_TRY(wl_expect_rank(r, grad, "the gradient", 4, 4));
  WL_TRY(place(r, op, 0, dims[1], &op->memo[OUT_H], &op->memo[PAD_TOP]));
  WL_TRY(place(r, op, 1, dims[2], &op->memo[OUT_W], &op->memo[PAD_LEFT]));
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  if (grad->dims[0] != dims[0] || grad->dims[1] != op->memo[OUT_H] || grad->dims[2] != op->memo[OUT_W] ||
      grad->dims[3] != dims[3])
    return wl_fail(r, WL_INVALID_ARGUMENT, "a gradient of shape %S does not come from images of shape %S", grad,
                   wl_out(r, op, 0));
  uint64_t window = wl_work((uint64_t)wl_int(r, op, WL_POOL_WINDOW_H), (uint64_t)wl_int(r, op, WL_POOL_WINDOW_W));
  op->cost = wl_work((uint64_t)wl_elements(grad), window) / 4096;
  return WL_OK;
}

static wl_status shape_max_grad(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *y = wl_in(r, op, 1), *grad = wl_in(r, op, 2);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  WL_TRY(wl_expect_same_type(r, x, y, "operand 1"));
  int64_t dims[4] = {x->dims[0], x->dims[1], x->dims[2], x->dims[3]};
  WL_TRY(shape_grad(r, op, dims));
  if (y->rank != 4 || memcmp(y->dims, grad->dims, sizeof(int32_t) * 4))
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 1 has shape %S, and its gradient %S", y, grad);
  return WL_OK;
}

static wl_status shape_average_grad(wl_interpreter *r, wl_op *op) {
  int64_t dims[4];
  int count;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 0), "operand 0", 4, dims, &count));
  if (count != 4) return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has %d sizes, not 4", (int64_t)count);
  return shape_grad(r, op, dims);
}

/* Add the gradient of one result to the first element of its window that is equal to it. */
static void add_to_largest(const windows *w, area a, const float *y, const float *grad) {
  size_t channels = (size_t)w->out->dims[3];
  for (size_t c = 0; c < channels; c++)
    for (int64_t i = a.top, found = 0; i < a.bottom && !found; i++)
      for (int64_t j = a.left; j < a.right && !found; j++) {
        size_t at = (size_t)((a.n * w->out->dims[1] + i) * w->out->dims[2] + j) * channels + c;
        float x = ((const float *)(const void *)w->x->data)[at];
        found = x == y[c] || (x != x && y[c] != y[c]);
        if (found) ((float *)(void *)w->out->data)[at] += grad[c];
      }
}

/* Add an equal share of the gradient of one result to all elements of its window. */
static void add_shares(const windows *w, area a, const float *grad) {
  size_t channels = (size_t)w->out->dims[3];
  float inside = (float)((a.bottom - a.top) * (a.right - a.left));
  for (int64_t i = a.top; i < a.bottom; i++)
    for (int64_t j = a.left; j < a.right; j++) {
      float *to = (float *)(void *)w->out->data;
      to += (size_t)((a.n * w->out->dims[1] + i) * w->out->dims[2] + j) * channels;
      for (size_t c = 0; c < channels; c++) to[c] += grad[c] / inside;
    }
}

/* Windows overlap, so that a task has whole images. */
static void grad_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const windows *w = argument;
  const wl_tensor *y = w->average ? NULL : wl_in(w->r, w->op, 1);
  const wl_tensor *grad = wl_in(w->r, w->op, w->op->input_count - 1);
  size_t image = w->out->bytes / (size_t)w->out->dims[0], channels = (size_t)w->out->dims[3];
  size_t results = (size_t)(w->op->memo[OUT_H] * w->op->memo[OUT_W]);
  (void)task;
  memset(w->out->data + begin * image, 0, (end - begin) * image);
  for (size_t m = begin * results; m < end * results; m++) {
    const float *g = (const float *)(const void *)grad->data + m * channels;
    if (w->average) add_shares(w, area_of(w, m), g);
    else add_to_largest(w, area_of(w, m), (const float *)(const void *)y->data + m * channels, g);
  }
}

static wl_status compute_grad(wl_interpreter *r, wl_op *op) {
  windows w = windows_of(r, op, op->kind == WL_OP_AvgPoolGrad);
  w.x = w.average ? w.out : wl_in(r, op, 0);
  if (wl_elements(w.out)) wl_split(r, (size_t)w.out->dims[0], 1, grad_piece, &w);
  return WL_OK;
}

const wl_kernel wl_op_MaxPoolGrad = {"MaxPoolGrad", check_grad, shape_max_grad, compute_grad, WL_FLOATS, 3, 3, 1,
                                     1 + WL_TABLE_POOL_OPTIONS, 0};
const wl_kernel wl_op_AvgPoolGrad = {"AvgPoolGrad", check_grad, shape_average_grad, compute_grad,
                                     WL_TYPE(INT32) | WL_TYPE(INT64), 2, 2, 1, 1 + WL_TABLE_POOL_OPTIONS, 0};
