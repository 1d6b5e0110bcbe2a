/* Between types: Cast of numbers, Quantize and Dequantize by scales and zero points. */
#include "quantized.h"
#include "runtime.h"

static wl_status shape(wl_interpreter *r, wl_op *op) {
  return wl_set_shape_of(r, wl_out(r, op, 0), wl_in(r, op, 0));
}

static int64_t integer(const wl_tensor *t, int64_t i) {
  switch (t->dtype) {
    case WL_TYPE_BOOL: return t->data[i] != 0;
    case WL_TYPE_UINT8: return t->data[i];
    case WL_TYPE_INT8: return ((const int8_t *)t->data)[i];
    case WL_TYPE_INT16: return ((const int16_t *)(const void *)t->data)[i];
    case WL_TYPE_INT32: return ((const int32_t *)(const void *)t->data)[i];
    default: return ((const int64_t *)(const void *)t->data)[i];
  }
}

static bool floating(const wl_tensor *t) {
  return t->dtype == WL_TYPE_FLOAT32 || t->dtype == WL_TYPE_FLOAT16;
}

static float real(const wl_tensor *t, int64_t i) {
  if (t->dtype == WL_TYPE_FLOAT32) return ((const float *)(const void *)t->data)[i];
  if (t->dtype == WL_TYPE_FLOAT16) return wl_half_to_float(((const uint16_t *)(const void *)t->data)[i]);
  return (float)integer(t, i);
}

static void put_float(wl_tensor *t, int64_t i, float value) {
  if (t->dtype == WL_TYPE_FLOAT32) ((float *)(void *)t->data)[i] = value;
  else ((uint16_t *)(void *)t->data)[i] = wl_float_to_half(value);
}

/* Integers wrap, as in the graph. */
static void put_integer(wl_tensor *t, int64_t i, int64_t value) {
  switch (t->dtype) {
    case WL_TYPE_BOOL: t->data[i] = value != 0; return;
    case WL_TYPE_UINT8: case WL_TYPE_INT8: t->data[i] = (uint8_t)value; return;
    case WL_TYPE_INT16: ((uint16_t *)(void *)t->data)[i] = (uint16_t)value; return;
    case WL_TYPE_INT32: ((uint32_t *)(void *)t->data)[i] = (uint32_t)value; return;
    default: ((int64_t *)(void *)t->data)[i] = value;
  }
}

/* Where no integer is near, the least one: what x86-64 processors give. */
static int64_t truncated(float value, unsigned type) {
  if (type == WL_TYPE_INT64) return value >= -0x1p63f && value < 0x1p63f ? (int64_t)value : INT64_MIN;
  return value > -2147483904.0f && value < 2147483648.0f ? (int64_t)(int32_t)value : INT32_MIN;
}

static wl_status compute_cast(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  int64_t n = wl_elements(x);
  if (x->dtype == out->dtype) memmove(out->data, x->data, x->bytes);
  else if (floating(out))
    for (int64_t i = 0; i < n; i++) put_float(out, i, real(x, i));
  else if (floating(x))
    for (int64_t i = 0; i < n; i++) {
      float value = real(x, i);
      put_integer(out, i, out->dtype == WL_TYPE_BOOL ? value != 0 : truncated(value, out->dtype));
    }
  else
    for (int64_t i = 0; i < n; i++) put_integer(out, i, integer(x, i));
  return WL_OK;
}

const wl_kernel wl_op_Cast = {"Cast", NULL, shape, compute_cast, WL_ANY, 1, 1, 1, 0, 0};

/* ---------------------------------------------------------------- scales */

/* The scale and zero point of element i: of the whole, or of its index along an axis. */
typedef struct scaling {
  const wl_tensor *t;
  int64_t inner, count;
} scaling;

static scaling scaling_of(const wl_tensor *t) {
  scaling s = {t, 1, t->scale_count};
  if (t->scale_count > 1) s.inner = wl_product(t->dims, t->axis + 1, t->rank);
  return s;
}

/* Packed weights have a scale for each of their columns, those of zeros included. */
static int64_t column_of(const wl_tensor *t, int64_t i) {
  return i / wl_product(t->dims, 1, t->rank) * WL_PANEL + i % WL_PANEL;
}

static int64_t which(const scaling *s, int64_t i) {
  if (s->count > 1 && s->t->layout == WL_LAYOUT_PANELS) return column_of(s->t, i);
  return s->count > 1 ? i / s->inner % s->count : 0;
}

static float zero_of(const scaling *s, int64_t k) {
  return !s->t->zero_point_count ? 0 : (float)s->t->zero_points[s->t->zero_point_count > 1 ? k : 0];
}

static float dequantized(const scaling *s, int64_t i) {
  if (!s->t->scales) return real(s->t, i);
  int64_t k = which(s, i);
  return ((float)integer(s->t, i) - zero_of(s, k)) * s->t->scales[k];
}

static bool per_axis_packed(const wl_tensor *t) {
  return t->scale_count > 1 && t->layout != WL_LAYOUT_PLAIN;
}

static bool scaled_by_columns(const wl_tensor *t) {
  return t->layout == WL_LAYOUT_PANELS && t->rank == 4 && t->dims[3] == WL_PANEL &&
         t->scale_count == (uint64_t)t->dims[0] * WL_PANEL && t->zero_point_count <= 1;
}

static wl_status check_quantize(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_type(r, out, "the result", WL_QUANTIZED));
  if (!out->scales || (!x->scales && x->dtype != WL_TYPE_FLOAT32))
    return wl_fail(r, WL_DATA_LOSS, "it needs scales");
  if (per_axis_packed(x) || per_axis_packed(out))
    return wl_fail(r, WL_DATA_LOSS, "scales of an axis need a plain layout");
  return WL_OK;
}

typedef struct floats {
  const wl_interpreter *r;
  const wl_tensor *x, *out;
} floats;

/* As below, without a branch: no number is beyond 2^22, where adding rounds to integers. */
static void quantize_words(size_t n, const float *x, float scale, int32_t zero, int16_t *out) {
  const float magic = 0x1.8p23f, low = (float)(INT16_MIN - zero), high = (float)(INT16_MAX - zero);
  for (size_t i = 0; i < n; i++) {
    float v = x[i] / scale;
    v = v >= low ? v : low; /* what is no number becomes the least, too */
    v = v < high ? v : high;
    out[i] = (int16_t)((int32_t)((v + magic) - magic) + zero);
  }
}

static void quantize_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const floats *p = argument;
  (void)task;
  if (p->out->dtype == WL_TYPE_INT16) {
    quantize_words(end - begin, (const float *)(const void *)p->x->data + begin, p->out->scales[0],
                   p->out->zero_point_count ? p->out->zero_points[0] : 0, (int16_t *)(void *)p->out->data + begin);
    return;
  }
  p->r->vector->quantize8(end - begin, (const float *)(const void *)p->x->data + begin, p->out->scales[0],
                          p->out->zero_point_count ? p->out->zero_points[0] : 0, (int8_t *)p->out->data + begin);
}

static wl_status compute_quantize(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *out = wl_out(r, op, 0);
  bool words = out->dtype == WL_TYPE_INT16;
  if (x->dtype == WL_TYPE_FLOAT32 && (words || out->dtype == WL_TYPE_INT8) && out->scale_count == 1) {
    floats p = {r, x, out};
    wl_split(r, (size_t)wl_elements(x), 16384, quantize_piece, &p);
    return WL_OK;
  }
  scaling from = scaling_of(x), to = scaling_of(out);
  float low = out->dtype == WL_TYPE_INT16 ? -32768 : out->dtype == WL_TYPE_UINT8 ? 0 : -128;
  float high = out->dtype == WL_TYPE_INT16 ? 32767 : out->dtype == WL_TYPE_UINT8 ? 255 : 127;
  int64_t n = wl_elements(x);
  for (int64_t i = 0; i < n; i++) {
    int64_t k = which(&to, i);
    float v = nearbyintf(dequantized(&from, i) / out->scales[k]) + zero_of(&to, k);
    put_integer(out, i, (int64_t)(v > high ? high : v >= low ? v : low));
  }
  return WL_OK;
}

const wl_kernel wl_op_Quantize = {"Quantize", check_quantize, shape, compute_quantize, WL_FLOATS | WL_QUANTIZED, 1, 1, 1, 0, 0};

static wl_status check_dequantize(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_expect_type(r, wl_out(r, op, 0), "the result", WL_FLOATS));
  if (x->dtype != WL_TYPE_FLOAT16 && !x->scales) return wl_fail(r, WL_DATA_LOSS, "it needs scales");
  if (per_axis_packed(x) && !scaled_by_columns(x))
    return wl_fail(r, WL_DATA_LOSS, "packed weights need a scale for each of their columns");
  return WL_OK;
}

/* Half precision without branches: numbers of all sizes by one product, infinities by their exponent. */
static void widen(const uint16_t *x, size_t n, float *out) {
  for (size_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)(x[i] & 0x7fff) << 13;
    float value;
    memcpy(&value, &bits, 4);
    value *= 0x1p112f;
    memcpy(&bits, &value, 4);
    bits |= (x[i] & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    bits |= (uint32_t)(x[i] & 0x8000) << 16;
    memcpy(out + i, &bits, 4);
  }
}

/* Weights of int8 in panels, with a scale for each column. */
static void scale_panels(const wl_tensor *x, float *out) {
  const int8_t *in = (const int8_t *)x->data;
  size_t rows = (size_t)wl_product(x->dims, 1, 3);
  for (int32_t p = 0; p < x->dims[0]; p++)
    for (size_t k = 0; k < rows; k++, in += WL_PANEL, out += WL_PANEL)
      for (size_t n = 0; n < WL_PANEL; n++) out[n] = (float)in[n] * x->scales[(size_t)p * WL_PANEL + n];
}

/* With one scale and no choice to make at each element. */
static void dequantize_all(const wl_tensor *x, size_t n, float *out) {
  float scale = x->scales[0], zero = x->zero_point_count ? (float)x->zero_points[0] : 0;
  const int8_t *bytes = (const int8_t *)x->data;
  const int16_t *words = (const int16_t *)(const void *)x->data;
  if (x->dtype == WL_TYPE_INT8)
    for (size_t i = 0; i < n; i++) out[i] = ((float)bytes[i] - zero) * scale;
  else
    for (size_t i = 0; i < n; i++) out[i] = ((float)words[i] - zero) * scale;
}

static wl_status compute_dequantize(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  float *out = (float *)(void *)wl_out(r, op, 0)->data;
  scaling from = scaling_of(x);
  int64_t n = wl_elements(x);
  if (x->dtype == WL_TYPE_FLOAT16 && !x->scales)
    widen((const uint16_t *)(const void *)x->data, (size_t)n, out);
  else if (x->dtype == WL_TYPE_INT8 && scaled_by_columns(x) && !x->zero_point_count)
    scale_panels(x, out);
  else if (x->scale_count == 1 && (x->dtype == WL_TYPE_INT8 || x->dtype == WL_TYPE_INT16))
    dequantize_all(x, (size_t)n, out);
  else
    for (int64_t i = 0; i < n; i++) out[i] = dequantized(&from, i);
  return WL_OK;
}

const wl_kernel wl_op_Dequantize = {"Dequantize", check_dequantize, shape, compute_dequantize, WL_QUANTIZED | WL_TYPE(INT32) | WL_TYPE(FLOAT16), 1, 1, 1, 0, 0};

/* ---------------------------------------------------------------- scales that values tell */

static wl_status check_dynamic(wl_interpreter *r, wl_op *op) {
  const wl_tensor *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_type(r, out, "the result", WL_TYPE(INT8)));
  if (out->scale_count) return wl_fail(r, WL_DATA_LOSS, "its result has scales already");
  return wl_expect_type(r, wl_out(r, op, 1), "the scales", WL_FLOATS);
}

static wl_status shape_dynamic(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1, WL_MAX_RANK));
  WL_TRY(wl_set_shape_of(r, wl_out(r, op, 0), x));
  return wl_set_shape(r, wl_out(r, op, 1), 1, (int64_t[]){x->dims[0]});
}

typedef struct slab {
  const wl_interpreter *r;
  const float *x;
  int8_t *out;
  float scale;
  int32_t largest[WL_MAX_TASKS]; /* of each piece */
} slab;

static void measure_piece(void *argument, unsigned task, size_t begin, size_t end) {
  slab *s = argument;
  s->largest[task] = s->r->vector->largest(end - begin, s->x + begin);
}

static void slab_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const slab *s = argument;
  (void)task;
  s->r->vector->bytes_of(end - begin, s->x + begin, 1 / s->scale, s->out + begin);
}

static wl_status compute_dynamic(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  size_t count = (size_t)x->dims[0], each = (size_t)wl_product(x->dims, 1, x->rank);
  float *scales = (float *)(void *)wl_out(r, op, 1)->data;
  for (size_t i = 0; i < count; i++) {
    slab s = {.r = r, .x = (const float *)(const void *)x->data + i * each,
              .out = (int8_t *)wl_out(r, op, 0)->data + i * each};
    int32_t largest = 0;
    wl_split(r, each, 16384, measure_piece, &s);
    for (size_t task = 0; task < WL_MAX_TASKS; task++) largest = s.largest[task] > largest ? s.largest[task] : largest;
    s.scale = scales[i] = wl_scale_of(largest);
    wl_split(r, each, 16384, slab_piece, &s);
  }
  return WL_OK;
}

const wl_kernel wl_op_DynamicQuantize = {"DynamicQuantize", check_dynamic, shape_dynamic, compute_dynamic, WL_FLOATS, 1, 1, 2, 0, 0};
