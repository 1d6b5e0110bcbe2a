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

/* e^-x of x >= 0 by its series, so that all math libraries give the same bits. */
static double negative_exp(double x) {
  int halved = 0;
  double sum = 1;
  for (; x > 0.125 && halved < 16; halved++) x /= 2;
  if (x > 0.125) return 0;
  for (int k = 10; k; k--) sum = 1 - sum * x / k;
  for (; halved; halved--) sum *= sum;
  return sum;
}

enum { DIFFERENCES = 256, UNIT = 1 << 26 };

/* Powers of a number: power k is low[k % 16] * high[k / 16]. */
typedef struct powers {
  double low[16], high[16];
} powers;

static powers powers_of(double base) {
  powers p = {{1, base}, {1}};
  for (int k = 2; k < 16; k++) p.low[k] = p.low[k / 2] * p.low[k - k / 2];
  p.high[1] = p.low[8] * p.low[8];
  for (int k = 2; k < 16; k++) p.high[k] = p.high[k / 2] * p.high[k - k / 2];
  return p;
}

static int32_t power(const powers *p, int k) { return (int32_t)(p->low[k % 16] * p->high[k / 16] * UNIT + 0.5); }

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
  wl_softmax8 softmax8;
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

static rows rows_of(wl_interpreter *r, wl_op *op, row_function row) {
  rows p = {.r = r, .op = op, .row = row, .x = wl_in(r, op, 0), .scale = wl_in(r, op, 1),
            .offset = wl_in(r, op, 2), .out = wl_out(r, op, 0)};
  p.depth = (size_t)p.x->dims[p.x->rank - 1];
  p.beta = wl_float(r, op, WL_AXIS_BETA);
  p.epsilon = wl_float(r, op, WL_AXIS_EPSILON);
  if (p.beta == 0) p.beta = 1;
  return p;
}

static wl_status compute(wl_interpreter *r, wl_op *op, row_function row) {
  rows p = rows_of(r, op, row);
  if (p.depth) wl_split(r, (size_t)wl_elements(p.x) / p.depth, 1 + 4096 / p.depth, piece, &p);
  return WL_OK;
}

static void softmax8_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const rows *p = argument;
  int32_t *numbers = (int32_t *)(void *)wl_scratch(p->r, task);
  for (size_t at = begin * p->depth; begin < end; begin++, at += p->depth)
    p->r->vector->softmax8(&p->softmax8, p->depth, (const int8_t *)p->x->data + at, numbers, (int8_t *)p->out->data + at);
}

/* Results of the differences that rows have, where these are fewer than all. */
static void fill_some(const rows *p, size_t total, const powers *of, int32_t *table) {
  const int8_t *x = (const int8_t *)p->x->data;
  for (size_t at = 0; at < total; at += p->depth) {
    int most = -128;
    for (size_t i = 0; i < p->depth; i++) most = x[at + i] > most ? x[at + i] : most;
    for (size_t i = 0; i < p->depth; i++) table[most - x[at + i]] = power(of, most - x[at + i]);
  }
}

static wl_status compute_softmax(wl_interpreter *r, wl_op *op) {
  rows p = rows_of(r, op, softmax);
  if (p.x->dtype != WL_TYPE_INT8 || !(p.beta > 0)) return compute(r, op, softmax);
  int32_t table[DIFFERENCES];
  size_t total = (size_t)wl_elements(p.x);
  powers of = powers_of(negative_exp((double)p.x->scales[0] * (double)p.beta));
  if (total < DIFFERENCES) fill_some(&p, total, &of, table);
  else
    for (int k = 0; k < DIFFERENCES; k++) table[k] = power(&of, k);
  p.softmax8 = (wl_softmax8){table, (double)p.out->scales[0], zero_point(p.out)};
  if (p.depth) wl_split(r, total / p.depth, 1 + 4096 / p.depth, softmax8_piece, &p);
  return WL_OK;
}

const wl_kernel wl_op_Softmax = {"Softmax", check, shape, compute_softmax, WL_FLOATS | WL_QUANTIZED, 1, 1, 1,
                                 1 + WL_TABLE_AXIS_OPTIONS, 0};

/* Each with its own function, so that builds for a model need no other functions of the math library. */
#define KERNEL(kind, row, types, most)                                                                 \
  static wl_status compute_##row(wl_interpreter *r, wl_op *op) { return compute(r, op, row); }         \
  const wl_kernel wl_op_##kind = {#kind, check, shape, compute_##row, types, 1, most, 1,               \
                                  1 + WL_TABLE_AXIS_OPTIONS, 0};
KERNEL(LogSoftmax, log_softmax, WL_FLOATS | WL_QUANTIZED, 1)
KERNEL(LayerNorm, layer_norm, WL_FLOATS, 3)
KERNEL(L2Normalize, l2_normalize, WL_FLOATS, 1)
