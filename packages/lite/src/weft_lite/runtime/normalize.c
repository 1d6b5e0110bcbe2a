/* Along the last axis: Softmax, LogSoftmax, LayerNorm, L2Normalize. */
#include "runtime.h"

static wl_status check(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_same_type(r, x, out, "the result"));
  if (x->dtype != WL_TYPE_FLOAT32 && (x->scale_count != 1 || out->scale_count != 1))
    return wl_fail(r, WL_DATA_LOSS, "operand and result need one scale each");
  for (uint32_t i = 1; i < op->input_count; i++)
    if (wl_in(r, op, i)) WL_TRY(wl_expect_type(r, wl_in(r, op, i), "scale or offset", WL_FLOATS));
  return WL_OK;
}

static wl_status shape(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1, WL_MAX_RANK));
  int32_t depth = x->dims[x->rank - 1];
  for (uint32_t i = 1; i < op->input_count; i++) {
    const wl_tensor *t = wl_in(r, op, i);
    if (t && (t->rank != 1 || t->dims[0] != depth))
      return wl_fail(r, WL_INVALID_ARGUMENT, "operand %d has shape %S for %d columns", (int64_t)i, t,
                     (int64_t)depth);
  }
  op->scratch = x->dtype == WL_TYPE_FLOAT32 ? 0 : (uint64_t)depth * 4;
  return wl_set_shape_of(r, wl_out(r, op, 0), x);
}

typedef struct rows rows;
typedef void (*row_function)(const rows *, const float *x, float *out);

struct rows {
  wl_interpreter *r;
  const wl_op *op;
  row_function row;
  const wl_tensor *x, *scale, *offset;
  wl_tensor *out;
  size_t depth;
  float beta, epsilon;
};

static void softmax(const rows *p, const float *x, float *out) {
  const wl_vector *v = p->r->vector;
  size_t n = p->depth;
  if (p->beta != 1) {
    for (size_t i = 0; i < n; i++) out[i] = x[i] * p->beta;
    x = out;
  }
  v->exp(n, x, out, v->max(n, x));
  float factor = 1 / v->sum(n, out);
  for (size_t i = 0; i < n; i++) out[i] *= factor;
}

static void log_softmax(const rows *p, const float *x, float *out) {
  float most = p->r->vector->max(p->depth, x);
  double total = 0;
  for (size_t i = 0; i < p->depth; i++) total += (double)expf(x[i] - most);
  float sum = logf((float)total);
  for (size_t i = 0; i < p->depth; i++) out[i] = x[i] - most - sum;
}

enum { LANES = 16, BLOCK = 2048 };

/* The sum of squares: blocks in lanes, which are added in double, as in `sum`. */
static float squares_of(const rows *p, size_t n, const float *x) {
  double total = 0;
  for (size_t begin = 0; begin < n; begin += BLOCK) {
    float lanes[LANES] = {0}, rest = 0;
    size_t k = begin, end = n - begin < BLOCK ? n : begin + BLOCK;
    for (; k + LANES <= end; k += LANES)
      for (size_t i = 0; i < LANES; i++) lanes[i] += x[k + i] * x[k + i];
    for (; k < end; k++) rest += x[k] * x[k];
    total += (double)(rest + p->r->vector->sum(LANES, lanes));
  }
  return (float)total;
}

static void layer_norm(const rows *p, const float *x, float *out) {
  size_t n = p->depth;
  const float *scale = p->scale ? (const float *)(const void *)p->scale->data : NULL;
  const float *offset = p->offset ? (const float *)(const void *)p->offset->data : NULL;
  float mean = p->r->vector->sum(n, x) / (float)n;
  for (size_t i = 0; i < n; i++) out[i] = x[i] - mean;
  float factor = 1 / sqrtf(squares_of(p, n, out) / (float)n + p->epsilon);
  for (size_t i = 0; i < n; i++)
    out[i] = out[i] * factor * (scale ? scale[i] : 1) + (offset ? offset[i] : 0);
}

static void l2_normalize(const rows *p, const float *x, float *out) {
  float squares = squares_of(p, p->depth, x);
  float factor = 1 / sqrtf(squares > p->epsilon ? squares : p->epsilon);
  for (size_t i = 0; i < p->depth; i++) out[i] = x[i] * factor;
}

static int32_t zero_point(const wl_tensor *t) { return t->zero_point_count ? t->zero_points[0] : 0; }

static void quantized_row(const rows *p, unsigned task, size_t row) {
  float *real = (float *)(void *)wl_scratch(p->r, task);
  bool bytes = p->x->dtype != WL_TYPE_INT16, s8 = p->x->dtype == WL_TYPE_INT8;
  float zero = (float)zero_point(p->x), scale = p->x->scales[0];
  const uint8_t *x = p->x->data + row * p->depth * (bytes ? 1 : 2);
  uint8_t *out = p->out->data + row * p->depth * (bytes ? 1 : 2);
  if (s8)
    for (size_t i = 0; i < p->depth; i++) real[i] = ((float)(int8_t)x[i] - zero) * scale;
  else
    for (size_t i = 0; i < p->depth; i++)
      real[i] = ((float)(bytes ? x[i] : ((const int16_t *)(const void *)x)[i]) - zero) * scale;
  p->row(p, real, real);
  if (s8) {
    p->r->vector->quantize8(p->depth, real, p->out->scales[0], zero_point(p->out), (int8_t *)out);
    return;
  }
  float low = bytes ? 0 : -32768, high = bytes ? 255 : 32767;
  for (size_t i = 0; i < p->depth; i++) {
    float v = nearbyintf(real[i] / p->out->scales[0]) + (float)zero_point(p->out);
    v = v > high ? high : v >= low ? v : low;
    if (bytes) out[i] = (uint8_t)(int)v;
    else ((int16_t *)(void *)out)[i] = (int16_t)v;
  }
}

static void piece(void *argument, unsigned task, size_t begin, size_t end) {
  const rows *p = argument;
  for (size_t row = begin; row < end; row++) {
    if (p->x->dtype != WL_TYPE_FLOAT32)
      quantized_row(p, task, row);
    else
      p->row(p, (const float *)(const void *)p->x->data + row * p->depth,
             (float *)(void *)p->out->data + row * p->depth);
  }
}

static wl_status compute(wl_interpreter *r, wl_op *op, row_function row) {
  rows p = {.r = r, .op = op, .row = row, .x = wl_in(r, op, 0), .scale = wl_in(r, op, 1),
            .offset = wl_in(r, op, 2), .out = wl_out(r, op, 0)};
  p.depth = (size_t)p.x->dims[p.x->rank - 1];
  p.beta = wl_float(r, op, WL_AXIS_BETA);
  p.epsilon = wl_float(r, op, WL_AXIS_EPSILON);
  if (p.beta == 0) p.beta = 1;
  if (p.depth) wl_split(r, (size_t)wl_elements(p.x) / p.depth, 1 + 4096 / p.depth, piece, &p);
  return WL_OK;
}

/* Each with its own function, so that builds for a model need no other functions of the math library. */
#define KERNEL(kind, row, types, most)                                                                 \
  static wl_status compute_##row(wl_interpreter *r, wl_op *op) { return compute(r, op, row); }         \
  const wl_kernel wl_op_##kind = {#kind, check, shape, compute_##row, types, 1, most, 1,               \
                                  1 + WL_TABLE_AXIS_OPTIONS, 0};
KERNEL(Softmax, softmax, WL_FLOATS | WL_QUANTIZED, 1)
KERNEL(LogSoftmax, log_softmax, WL_FLOATS | WL_QUANTIZED, 1)
KERNEL(LayerNorm, layer_norm, WL_FLOATS, 3)
KERNEL(L2Normalize, l2_normalize, WL_FLOATS, 1)
