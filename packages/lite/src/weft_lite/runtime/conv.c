/* Convolutions: tiles of a product whose rows are found through pointers, one for each tap.
 * Conv2D takes packed filters (Layout PANELS); DepthwiseConv2D plain ones. */
#include "product.h"
#include "quantized.h"
#include "windows.h"

enum { OUT_H, OUT_W, PAD_TOP, PAD_LEFT }; /* memo */

static int32_t positive(int32_t value) { return value < 1 ? 1 : value; }

wl_status wl_place_windows(wl_interpreter *r, const wl_op *op, int64_t size, int64_t window, int64_t stride,
                           int axis, int64_t *out, int64_t *before) {
  unsigned padding = wl_byte(r, op, WL_CONV_PADDING);
  *before = 0;
  if (padding == WL_PADDING_SAME) {
    *out = (size + stride - 1) / stride;
    int64_t missing = (*out - 1) * stride + window - size;
    *before = missing > 0 ? missing / 2 : 0;
    return WL_OK;
  }
  int64_t after = 0;
  if (padding == WL_PADDING_EXPLICIT) {
    uint32_t pads = wl_follow(r->metadata, op->options, WL_CONV_PADS);
    if (wl_length(r->metadata, pads) != 4) return wl_fail(r, WL_DATA_LOSS, "it has no four pads");
    *before = wl_ints(r->metadata, pads)[2 * axis];
    after = wl_ints(r->metadata, pads)[2 * axis + 1];
    if (*before < 0 || after < 0) return wl_fail(r, WL_DATA_LOSS, "a pad is negative");
  } else if (padding != WL_PADDING_VALID) {
    return wl_fail(r, WL_DATA_LOSS, "padding %d is unknown", (int64_t)padding);
  }
  int64_t room = size + *before + after - window;
  *out = room < 0 ? 0 : room / stride + 1;
  return WL_OK;
}

wl_status wl_check_windows(wl_interpreter *r, wl_op *op) {
  for (unsigned slot = WL_CONV_STRIDE_H; slot <= WL_CONV_DILATION_W; slot++)
    if (wl_int(r, op, slot) < 0 || wl_int(r, op, slot) > 1 << 16)
      return wl_fail(r, WL_DATA_LOSS, "a stride or dilation is not possible");
  if (wl_int(r, op, WL_CONV_KERNEL_H) < 1 || wl_int(r, op, WL_CONV_KERNEL_W) < 1 ||
      wl_int(r, op, WL_CONV_KERNEL_H) > 1 << 12 || wl_int(r, op, WL_CONV_KERNEL_W) > 1 << 12)
    return wl_fail(r, WL_DATA_LOSS, "the size of its filter is not possible");
  return wl_check_activation(r, wl_byte(r, op, WL_CONV_ACTIVATION));
}

static wl_status check_bias(wl_interpreter *r, const wl_op *op, int64_t channels) {
  const wl_tensor *bias = wl_in(r, op, 2);
  if (!bias) return WL_OK;
  WL_TRY(wl_expect_type(r, bias, "the bias", wl_bias_type(wl_out(r, op, 0)->dtype)));
  if (bias->rank != 1 || bias->dims[0] != channels)
    return wl_fail(r, WL_DATA_LOSS, "the bias has shape %S, not one number for each of %d channels",
                   bias, channels);
  return WL_OK;
}

/* Types of operand 0 and the result: the same, but where bytes that got a scale as they came, which is in
 * operand 3, give real numbers. */
static wl_status check_types(wl_interpreter *r, const wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *scales = wl_in(r, op, 3);
  if (!scales) return wl_expect_same_type(r, x, wl_out(r, op, 0), "the result");
  WL_TRY(wl_expect_type(r, x, "operand 0, which has scales in operand 3,", WL_TYPE(INT8)));
  if (x->scale_count) return wl_fail(r, WL_DATA_LOSS, "operand 0 has scales of its own beside operand 3");
  WL_TRY(wl_expect_type(r, scales, "operand 3", WL_FLOATS));
  WL_TRY(wl_expect_rank(r, scales, "operand 3", 1, 1));
  return wl_expect_type(r, wl_out(r, op, 0), "the result", WL_FLOATS);
}

static wl_status check_scales(wl_interpreter *r, const wl_op *op, int64_t channels) {
  if (wl_in(r, op, 0)->dtype == WL_TYPE_FLOAT32) return WL_OK;
  if (wl_in(r, op, 3)) return wl_check_column_scales(r, wl_in(r, op, 1), channels);
  return wl_check_product8(r, op, channels);
}

static wl_status check_conv(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1);
  bool floats = x->dtype == WL_TYPE_FLOAT32, fours = x->dtype == WL_TYPE_INT8;
  WL_TRY(wl_check_windows(r, op));
  WL_TRY(wl_expect_type(r, filter, "the filter", floats ? WL_TYPE(FLOAT32) : WL_TYPE(INT8)));
  WL_TRY(check_types(r, op));
  int64_t taps = (int64_t)wl_int(r, op, WL_CONV_KERNEL_H) * wl_int(r, op, WL_CONV_KERNEL_W);
  int64_t channels = wl_int(r, op, WL_CONV_CHANNELS);
  if (filter->layout != (fours ? WL_LAYOUT_PANELS4 : WL_LAYOUT_PANELS) ||
      filter->rank != (fours ? 5 : 4) || filter->dims[1] != taps || channels < 1 ||
      filter->dims[0] != (channels + WL_PANEL - 1) / WL_PANEL || filter->dims[3] != WL_PANEL ||
      (fours && filter->dims[4] != 4))
    return wl_fail(r, WL_DATA_LOSS, "its filter is not packed for %d taps and %d channels", taps,
                   channels);
  WL_TRY(check_bias(r, op, channels));
  return check_scales(r, op, channels);
}

static wl_status shape_windows(wl_interpreter *r, wl_op *op, int64_t channels) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t kernel_h = wl_int(r, op, WL_CONV_KERNEL_H), kernel_w = wl_int(r, op, WL_CONV_KERNEL_W);
  const wl_tensor *scales = wl_in(r, op, 3);
  int64_t dims[4] = {x->dims[0], 0, 0, channels};
  if (scales && scales->dims[0] != x->dims[0])
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has shape %S, and the scales of its images %S", x, scales);
  WL_TRY(wl_place_windows(r, op, x->dims[1], (kernel_h - 1) * positive(wl_int(r, op, WL_CONV_DILATION_H)) + 1,
               positive(wl_int(r, op, WL_CONV_STRIDE_H)), 0, &dims[1], &op->memo[PAD_TOP]));
  WL_TRY(wl_place_windows(r, op, x->dims[2], (kernel_w - 1) * positive(wl_int(r, op, WL_CONV_DILATION_W)) + 1,
               positive(wl_int(r, op, WL_CONV_STRIDE_W)), 1, &dims[2], &op->memo[PAD_LEFT]));
  op->memo[OUT_H] = dims[1];
  op->memo[OUT_W] = dims[2];
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  uint64_t depth = op->kind == WL_OP_Conv2D ? (uint64_t)x->dims[3] : 0; /* a tap has a fixed cost, too */
  uint64_t pixels = (uint64_t)wl_product(wl_out(r, op, 0)->dims, 0, 3);
  uint64_t each = wl_work((uint64_t)channels, depth + 1);
  op->cost = wl_work(wl_work(pixels, (uint64_t)(kernel_h * kernel_w)), each) / 16384;
  return WL_OK;
}

static uint64_t pointers(const wl_interpreter *r, const wl_op *op) {
  uint64_t taps = (uint64_t)wl_int(r, op, WL_CONV_KERNEL_H) * (uint64_t)wl_int(r, op, WL_CONV_KERNEL_W);
  return taps * WL_POINTED_ROWS * sizeof(void *);
}

static wl_status shape_conv(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  bool fours = x->dtype == WL_TYPE_INT8;
  int64_t depth = filter->dims[2] * (fours ? 4 : 1);
  if (fours ? depth != (x->dims[3] + 3) / 4 * 4 : depth != x->dims[3])
    return wl_fail(r, WL_INVALID_ARGUMENT, "operand 0 has %d channels, and the filter takes %d",
                   (int64_t)x->dims[3], depth);
  WL_TRY(shape_windows(r, op, wl_int(r, op, WL_CONV_CHANNELS)));
  size_t taps = (size_t)filter->dims[1];
  op->scratch = pointers(r, op) + (uint64_t)depth * (fours ? 1 : wl_type_size(x->dtype)) + 2 * WL_ALIGNMENT;
  if (fours) op->scratch += wl_rows8_scratch(x, taps);
  return WL_OK;
}

typedef struct windows {
  wl_interpreter *r;
  const wl_op *op;
  const wl_tensor *x;
  int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
  size_t taps;
  bool direct; /* one tap, no stride and no pads: row m of x is what result m needs */
} windows;

static windows windows_of(wl_interpreter *r, const wl_op *op) {
  windows w = {.r = r, .op = op, .x = wl_in(r, op, 0)};
  w.kernel_h = wl_int(r, op, WL_CONV_KERNEL_H);
  w.kernel_w = wl_int(r, op, WL_CONV_KERNEL_W);
  w.stride_h = positive(wl_int(r, op, WL_CONV_STRIDE_H));
  w.stride_w = positive(wl_int(r, op, WL_CONV_STRIDE_W));
  w.dilation_h = positive(wl_int(r, op, WL_CONV_DILATION_H));
  w.dilation_w = positive(wl_int(r, op, WL_CONV_DILATION_W));
  w.taps = (size_t)w.kernel_h * (size_t)w.kernel_w;
  w.direct = w.taps == 1 && w.stride_h == 1 && w.stride_w == 1 && op->memo[OUT_H] == w.x->dims[1] &&
             op->memo[OUT_W] == w.x->dims[2] && !op->memo[PAD_TOP] && !op->memo[PAD_LEFT];
  return w;
}

/* Pointers of `run` results of one row, tap by tap, `rows` apart. Their columns are within the image; rows of taps
 * outside of it point to `border`. */
static void point_run(const windows *w, const uint8_t *image, int64_t row, int64_t left, size_t run, size_t rows,
                      size_t pixel, const uint8_t *border, const void **to) {
  size_t width = (size_t)w->x->dims[2] * pixel;
  for (int i = 0; i < w->kernel_h; i++, row += w->dilation_h) {
    bool inside = row >= 0 && row < w->x->dims[1];
    const uint8_t *first = inside ? image + (size_t)row * width + (size_t)left * pixel : border;
    size_t step = inside ? (size_t)w->stride_w * pixel : 0, across = inside ? (size_t)w->dilation_w * pixel : 0;
    for (int j = 0; j < w->kernel_w; j++, to += rows, first += across)
      for (size_t m = 0; m < run; m++) to[m] = first + m * step;
  }
}

/* Pointers of one result, some of whose columns may be outside. */
static void point_one(const windows *w, const uint8_t *image, int64_t row, int64_t left, size_t rows, size_t pixel,
                      const uint8_t *border, const void **to) {
  size_t width = (size_t)w->x->dims[2] * pixel;
  for (int i = 0; i < w->kernel_h; i++, row += w->dilation_h) {
    bool inside = row >= 0 && row < w->x->dims[1];
    int64_t column = left;
    for (int j = 0; j < w->kernel_w; j++, column += w->dilation_w, to += rows)
      *to = inside && column >= 0 && column < w->x->dims[2]
                ? image + (size_t)row * width + (size_t)column * pixel
                : border;
  }
}

/* Pointers for `rows` results from `first` on. */
static void point(const windows *w, size_t first, size_t rows, size_t pixel, const void *border,
                  const void **found) {
  if (w->direct) {
    for (size_t m = 0; m < rows; m++) found[m] = w->x->data + (first + m) * pixel;
    return;
  }
  const int64_t *memo = w->op->memo;
  size_t out_w = (size_t)memo[OUT_W], out_h = (size_t)memo[OUT_H];
  size_t x = first % out_w, y = first / out_w % out_h, n = first / out_w / out_h;
  int64_t left_most = memo[PAD_LEFT], room = w->x->dims[2] + left_most - (int64_t)(w->kernel_w - 1) * w->dilation_w;
  size_t inner = (size_t)((left_most + w->stride_w - 1) / w->stride_w); /* first column without border */
  size_t outer = room > 0 ? (size_t)((room - 1) / w->stride_w) + 1 : 0; /* first behind these */
  if (outer > out_w) outer = out_w;
  for (size_t m = 0, run; m < rows; m += run) {
    const uint8_t *image = w->x->data + n * (size_t)w->x->dims[1] * (size_t)w->x->dims[2] * pixel;
    int64_t row = (int64_t)y * w->stride_h - memo[PAD_TOP], left = (int64_t)x * w->stride_w - left_most;
    run = x >= inner && x < outer ? outer - x : 0;
    if (run > rows - m) run = rows - m;
    if (run) point_run(w, image, row, left, run, rows, pixel, border, found + m);
    else point_one(w, image, row, left, rows, pixel, border, found + m), run = 1;
    x += run;
    if (x < out_w) continue;
    x = 0;
    if (++y < out_h) continue;
    y = 0;
    n++;
  }
}

static const float *floats_of(const wl_tensor *t) {
  return t ? (const float *)(const void *)t->data : NULL;
}

static wl_status compute_conv(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  windows w = windows_of(r, op);
  size_t channels = (size_t)wl_int(r, op, WL_CONV_CHANNELS);
  size_t results = (size_t)(wl_elements(out) / (int64_t)channels);
  unsigned activation = wl_byte(r, op, WL_CONV_ACTIVATION);
  if (x->dtype == WL_TYPE_INT16)
    return wl_conv16(r, op, (wl_points *)point, &w, w.taps, results, channels, activation);
  if (x->dtype == WL_TYPE_INT8)
    return wl_conv8(r, op, (wl_points *)point, &w, w.taps, results, channels, activation);
  wl_float_product p = {.r = r, .points = (wl_points *)point, .windows = &w, .x = x,
                        .out = (float *)(void *)out->data, .results = results, .border = (size_t)x->dims[3]};
  p.tile = (wl_tile){.taps = w.taps, .depth = (size_t)x->dims[3], .b = floats_of(wl_in(r, op, 1)),
                     .bias = floats_of(wl_in(r, op, 2)), .columns = channels, .stride = channels};
  wl_clamp(activation, &p.tile.low, &p.tile.high);
  wl_split(r, results, 1 + 32768 / (1 + p.tile.taps * p.tile.depth * channels), wl_float_product_piece, &p);
  return WL_OK;
}

const wl_kernel wl_op_Conv2D = {"Conv2D", check_conv, shape_conv, compute_conv,
                                WL_FLOATS | WL_TYPE(INT8) | WL_TYPE(INT16), 2, 4, 1,
                                1 + WL_TABLE_CONV_OPTIONS, 0};

/* ---------------------------------------------------------------- depthwise */

static wl_status check_depthwise(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1);
  WL_TRY(wl_check_windows(r, op));
  WL_TRY(wl_expect_type(r, filter, "the filter", x->dtype == WL_TYPE_FLOAT32 ? WL_FLOATS : WL_TYPE(INT8)));
  WL_TRY(check_types(r, op));
  WL_TRY(wl_expect_plain(r, filter, "the filter"));
  if (filter->rank != 3 || filter->dims[0] != wl_int(r, op, WL_CONV_KERNEL_H) ||
      filter->dims[1] != wl_int(r, op, WL_CONV_KERNEL_W) || filter->dims[2] < 1)
    return wl_fail(r, WL_DATA_LOSS, "its filter has shape %S, which is not its height, width, channels",
                   filter);
  WL_TRY(check_bias(r, op, filter->dims[2]));
  return check_scales(r, op, filter->dims[2]);
}

static wl_status shape_depthwise(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *filter = wl_in(r, op, 1);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 4, 4));
  if (x->dims[3] < 1 || filter->dims[2] % x->dims[3])
    return wl_fail(r, WL_INVALID_ARGUMENT, "%d channels do not divide those of the filter, %d",
                   (int64_t)x->dims[3], (int64_t)filter->dims[2]);
  WL_TRY(shape_windows(r, op, filter->dims[2]));
  op->scratch = pointers(r, op) + (uint64_t)filter->dims[2] * 4 + 2 * WL_ALIGNMENT;
  return WL_OK;
}

typedef struct depthwise {
  windows windows;
  size_t multiplier;
  wl_depthwise all; /* without rows and operands */
} depthwise;

/* Several results for each channel: the loops of the definition. */
static void multiply_channels(const wl_depthwise *d, size_t multiplier) {
  for (size_t m = 0; m < d->rows; m++)
    for (size_t c = 0; c < d->channels; c++) {
      float sum = d->bias ? d->bias[c] : 0;
      for (size_t t = 0; t < d->taps; t++) sum += d->a[t * d->rows + m][c / multiplier] * d->b[t * d->channels + c];
      d->c[m * d->channels + c] = sum < d->low ? d->low : sum > d->high ? d->high : sum;
    }
}

static void depthwise_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const depthwise *d = argument;
  wl_interpreter *r = d->windows.r;
  size_t pixel = (size_t)d->windows.x->dims[3] * 4;
  const void **in = (const void **)(void *)wl_scratch(r, task);
  float *zeros = (float *)(void *)(wl_scratch(r, task) + pointers(r, d->windows.op));
  memset(zeros, 0, pixel);
  wl_depthwise part = d->all;
  part.a = (const float *const *)in;
  for (; begin < end; begin += part.rows) {
    part.rows = end - begin < WL_POINTED_ROWS ? end - begin : WL_POINTED_ROWS;
    part.c = d->all.c + begin * part.channels;
    point(&d->windows, begin, part.rows, pixel, zeros, in);
    if (d->multiplier > 1) multiply_channels(&part, d->multiplier);
    else r->vector->depthwise(&part);
  }
}

static wl_status compute_depthwise(wl_interpreter *r, wl_op *op) {
  wl_tensor *out = wl_out(r, op, 0);
  depthwise d = {.windows = windows_of(r, op)};
  size_t channels = (size_t)wl_in(r, op, 1)->dims[2];
  d.multiplier = channels / (size_t)d.windows.x->dims[3];
  size_t results = (size_t)(wl_elements(out) / (int64_t)channels);
  if (d.windows.x->dtype == WL_TYPE_INT16)
    return wl_depthwise16(r, op, (wl_points *)point, &d.windows, d.windows.taps, results,
                          wl_byte(r, op, WL_CONV_ACTIVATION));
  if (d.windows.x->dtype == WL_TYPE_INT8)
    return wl_depthwise8(r, op, (wl_points *)point, &d.windows, d.windows.taps, results,
                         wl_byte(r, op, WL_CONV_ACTIVATION));
  d.all = (wl_depthwise){.channels = channels, .taps = d.windows.taps, .b = floats_of(wl_in(r, op, 1)),
                         .bias = floats_of(wl_in(r, op, 2)), .c = (float *)(void *)out->data};
  wl_clamp(wl_byte(r, op, WL_CONV_ACTIVATION), &d.all.low, &d.all.high);
  wl_split(r, results, 1 + 8192 / (1 + d.windows.taps * channels), depthwise_piece, &d);
  return WL_OK;
}

const wl_kernel wl_op_DepthwiseConv2D = {
    "DepthwiseConv2D", check_depthwise, shape_depthwise, compute_depthwise,
    WL_FLOATS | WL_TYPE(INT8) | WL_TYPE(INT16), 2, 4, 1, 1 + WL_TABLE_CONV_OPTIONS, 0};

/* ---------------------------------------------------------------- transposed */

enum { TRANSPOSED_H = 4, TRANSPOSED_W }; /* memo: sizes of the result */

static wl_status check_transposed(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_check_windows(r, op));
  const wl_tensor *filter = wl_in(r, op, 1), *x = wl_in(r, op, 2), *bias = wl_in(r, op, 3);
  WL_TRY(wl_expect_type(r, filter, "the filter", WL_FLOATS));
  WL_TRY(wl_expect_type(r, x, "operand 2", WL_FLOATS));
  WL_TRY(wl_expect_plain(r, filter, "the filter"));
  WL_TRY(wl_expect_rank(r, filter, "the filter", 4, 4));
  if (filter->dims[0] != wl_int(r, op, WL_CONV_KERNEL_H) ||
      filter->dims[1] != wl_int(r, op, WL_CONV_KERNEL_W))
    return wl_fail(r, WL_DATA_LOSS, "its filter has shape %S, which is not its size", filter);
  if (bias) WL_TRY(wl_expect_type(r, bias, "the bias", WL_FLOATS));
  if (bias && (bias->rank != 1 || bias->dims[0] != filter->dims[2]))
    return wl_fail(r, WL_DATA_LOSS, "the bias has shape %S", bias);
  return wl_expect_type(r, wl_out(r, op, 0), "the result", WL_FLOATS);
}

static wl_status shape_transposed(wl_interpreter *r, wl_op *op) {
  const wl_tensor *filter = wl_in(r, op, 1), *x = wl_in(r, op, 2);
  int64_t dims[4], out_h, out_w;
  int count;
  WL_TRY(wl_expect_rank(r, x, "operand 2", 4, 4));
  WL_TRY(wl_read_ints(r, wl_in(r, op, 0), "operand 0", 4, dims, &count));
  if (count != 4 || dims[3] != filter->dims[2] || x->dims[3] != filter->dims[3] ||
      dims[0] != x->dims[0])
    return wl_fail(r, WL_INVALID_ARGUMENT, "shape %S does not fit its filter and its result", x);
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), 4, dims));
  WL_TRY(wl_place_windows(r, op, dims[1], (filter->dims[0] - 1) * (int64_t)positive(wl_int(r, op, WL_CONV_DILATION_H)) + 1,
               positive(wl_int(r, op, WL_CONV_STRIDE_H)), 0, &out_h, &op->memo[PAD_TOP]));
  WL_TRY(wl_place_windows(r, op, dims[2], (filter->dims[1] - 1) * (int64_t)positive(wl_int(r, op, WL_CONV_DILATION_W)) + 1,
               positive(wl_int(r, op, WL_CONV_STRIDE_W)), 1, &out_w, &op->memo[PAD_LEFT]));
  if (out_h != x->dims[1] || out_w != x->dims[2])
    return wl_fail(r, WL_INVALID_ARGUMENT, "a result of that size does not come from shape %S", x);
  uint64_t taps = (uint64_t)filter->dims[0] * (uint64_t)filter->dims[1];
  uint64_t each = wl_work((uint64_t)filter->dims[2], (uint64_t)filter->dims[3]) + 1;
  op->cost = wl_work(wl_work((uint64_t)wl_product(x->dims, 0, 3), taps), each) / 2048;
  return WL_OK;
}

/* Each pixel adds its products to the window that it came from. */
static void spread(const windows *w, const wl_tensor *x, const wl_tensor *filter, wl_tensor *out,
                   size_t pixel) {
  const int64_t *memo = w->op->memo;
  int64_t column = (int64_t)pixel % x->dims[2], row = (int64_t)pixel / x->dims[2] % x->dims[1];
  int64_t n = (int64_t)pixel / x->dims[2] / x->dims[1];
  int32_t results = filter->dims[2], depth = filter->dims[3];
  const float *in = floats_of(x) + pixel * (size_t)depth;
  for (int32_t i = 0; i < w->kernel_h; i++)
    for (int32_t j = 0; j < w->kernel_w; j++) {
      int64_t y = row * w->stride_h - memo[PAD_TOP] + (int64_t)i * w->dilation_h;
      int64_t c = column * w->stride_w - memo[PAD_LEFT] + (int64_t)j * w->dilation_w;
      if (y < 0 || y >= out->dims[1] || c < 0 || c >= out->dims[2]) continue;
      float *to = (float *)(void *)out->data + ((n * out->dims[1] + y) * out->dims[2] + c) * results;
      const float *f = floats_of(filter) + ((size_t)i * (size_t)w->kernel_w + (size_t)j) * (size_t)results * (size_t)depth;
      for (int32_t o = 0; o < results; o++, f += depth) {
        float sum = 0;
        for (int32_t k = 0; k < depth; k++) sum += in[k] * f[k];
        to[o] += sum;
      }
    }
}

static wl_status compute_transposed(wl_interpreter *r, wl_op *op) {
  const wl_tensor *filter = wl_in(r, op, 1), *x = wl_in(r, op, 2), *bias = wl_in(r, op, 3);
  wl_tensor *out = wl_out(r, op, 0);
  windows w = windows_of(r, op);
  float *to = (float *)(void *)out->data, low, high;
  int64_t total = wl_elements(out), pixels = wl_product(x->dims, 0, 3);
  for (int64_t i = 0; i < total; i++) to[i] = bias ? floats_of(bias)[i % filter->dims[2]] : 0;
  for (int64_t i = 0; i < pixels; i++) spread(&w, x, filter, out, (size_t)i);
  wl_clamp(wl_byte(r, op, WL_CONV_ACTIVATION), &low, &high);
  for (int64_t i = 0; i < total; i++) to[i] = to[i] < low ? low : to[i] > high ? high : to[i];
  return WL_OK;
}

const wl_kernel wl_op_Conv2DTranspose = {
    "Conv2DTranspose", check_transposed, shape_transposed, compute_transposed,
    WL_TYPE(INT32) | WL_TYPE(INT64), 3, 4, 1, 1 + WL_TABLE_CONV_OPTIONS, 0};
