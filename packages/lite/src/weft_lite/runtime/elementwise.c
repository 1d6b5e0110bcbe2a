/* Functions of one operand. Each is a loop over floats; quantized types go through it: bytes by a table
 * of all 256, int16 in blocks. A few have integers, too. */
#include "runtime.h"

typedef void floats_fn(const wl_interpreter *, const wl_op *, size_t n, const float *x, float *out);

#define FLOATS(name, expression)                                                                       \
  static void name##_floats(const wl_interpreter *r, const wl_op *op, size_t n, const float *in,       \
                            float *out) {                                                              \
    (void)r, (void)op;                                                                                 \
    for (size_t i = 0; i < n; i++) {                                                                   \
      float x = in[i];                                                                                 \
      out[i] = (expression);                                                                           \
    }                                                                                                  \
  }
#define VECTORS(name, call)                                                                            \
  static void name##_floats(const wl_interpreter *r, const wl_op *op, size_t n, const float *x,        \
                            float *out) {                                                              \
    (void)op;                                                                                          \
    r->vector->call;                                                                                   \
  }

FLOATS(Abs, fabsf(x))
FLOATS(Neg, -x)
FLOATS(Sign, x > 0 ? 1 : x < 0 ? -1 : x)
FLOATS(Square, x *x)
FLOATS(Sqrt, sqrtf(x))
FLOATS(Rsqrt, 1 / sqrtf(x))
FLOATS(Expm1, expm1f(x))
FLOATS(Log, logf(x))
FLOATS(Log1p, log1pf(x))
FLOATS(Sin, sinf(x))
FLOATS(Cos, cosf(x))
FLOATS(Tan, tanf(x))
FLOATS(Asin, asinf(x))
FLOATS(Acos, acosf(x))
FLOATS(Atan, atanf(x))
FLOATS(Sinh, sinhf(x))
FLOATS(Cosh, coshf(x))
FLOATS(Asinh, asinhf(x))
FLOATS(Acosh, acoshf(x))
FLOATS(Atanh, atanhf(x))
FLOATS(Relu, x < 0 ? 0 : x)
FLOATS(Relu6, x < 0 ? 0 : x > 6 ? 6 : x)
FLOATS(Elu, x < 0 ? expm1f(x) : x)
FLOATS(Selu, x < 0 ? 1.7580993408473766f * expm1f(x) : 1.0507009873554805f * x)
FLOATS(Softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))))
FLOATS(Softsign, x / (1 + fabsf(x)))
FLOATS(Erf, erff(x))
FLOATS(Erfc, erfcf(x))
FLOATS(Floor, floorf(x))
FLOATS(Ceil, ceilf(x))
FLOATS(Rint, nearbyintf(x))
FLOATS(Reciprocal, 1 / x)
FLOATS(HardSwish, x *(x < -3 ? 0 : x > 3 ? 6 : x + 3) * (1.0f / 6))
VECTORS(Exp, exp(n, x, out, 0))
VECTORS(Tanh, tanh(n, x, out))
VECTORS(Sigmoid, sigmoid(n, x, out))

static void LeakyRelu_floats(const wl_interpreter *r, const wl_op *op, size_t n, const float *x,
                             float *out) {
  float alpha = wl_float(r, op, WL_ELEMENTWISE_ALPHA);
  for (size_t i = 0; i < n; i++) {
    float small = alpha * x[i]; /* computed in all cases, so that there is no branch */
    out[i] = x[i] < 0 ? small : x[i];
  }
}

/* In blocks, since a result may lie where the operand does. */
enum { BLOCK = 256 };

static void Silu_floats(const wl_interpreter *r, const wl_op *op, size_t n, const float *x, float *out) {
  (void)op;
  float gate[BLOCK];
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t count = n - i < BLOCK ? n - i : BLOCK;
    r->vector->sigmoid(count, x + i, gate);
    for (size_t k = 0; k < count; k++) out[i + k] = x[i + k] * gate[k];
  }
}

/* x times the normal distribution's function, by erf, or by tanh of a cubic. */
static void Gelu_floats(const wl_interpreter *r, const wl_op *op, size_t n, const float *x, float *out) {
  float gate[BLOCK];
  if (wl_byte(r, op, WL_ELEMENTWISE_EXACT)) {
    for (size_t i = 0; i < n; i++) out[i] = 0.5f * x[i] * erfcf(x[i] * -0.70710678f);
    return;
  }
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t count = n - i < BLOCK ? n - i : BLOCK;
    for (size_t k = 0; k < count; k++) {
      float v = x[i + k];
      gate[k] = 0.79788456f * (v + 0.044715f * v * v * v);
    }
    r->vector->tanh(count, gate, gate);
    for (size_t k = 0; k < count; k++) out[i + k] = 0.5f * x[i + k] * (1 + gate[k]);
  }
}

static floats_fn *function_of(const wl_op *op) {
  switch (op->kind) {
#define ENTRY(name) \
  case WL_OP_##name: return WL_HAS(name) ? name##_floats : NULL;
    ENTRY(Abs) ENTRY(Neg) ENTRY(Sign) ENTRY(Square) ENTRY(Sqrt) ENTRY(Rsqrt) ENTRY(Exp) ENTRY(Expm1)
    ENTRY(Log) ENTRY(Log1p) ENTRY(Sin) ENTRY(Cos) ENTRY(Tan) ENTRY(Asin) ENTRY(Acos) ENTRY(Atan)
    ENTRY(Sinh) ENTRY(Cosh) ENTRY(Asinh) ENTRY(Acosh) ENTRY(Atanh) ENTRY(Tanh) ENTRY(Sigmoid)
    ENTRY(Relu) ENTRY(Relu6) ENTRY(LeakyRelu) ENTRY(Elu) ENTRY(Selu) ENTRY(Softplus) ENTRY(Softsign)
    ENTRY(Gelu) ENTRY(Silu) ENTRY(Erf) ENTRY(Erfc) ENTRY(Floor) ENTRY(Ceil) ENTRY(Rint)
    ENTRY(Reciprocal) ENTRY(HardSwish)
#undef ENTRY
  }
  return NULL;
}

static wl_status check(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_same_type(r, x, out, "the result"));
  if ((WL_QUANTIZED >> x->dtype & 1) && (x->scale_count != 1 || out->scale_count != 1))
    return wl_fail(r, WL_DATA_LOSS, "operand and result need one scale each");
  return WL_OK;
}

static wl_status shape(wl_interpreter *r, wl_op *op) {
  return wl_set_shape_of(r, wl_out(r, op, 0), wl_in(r, op, 0));
}

#define INTEGERS(type, unsigned_type)                                                                  \
  static void type##_loop(unsigned kind, size_t n, const type *x, type *out) {                         \
    for (size_t i = 0; i < n; i++) {                                                                   \
      type v = x[i];                                                                                   \
      out[i] = kind == WL_OP_Sign     ? (v > 0) - (v < 0)                                              \
               : kind == WL_OP_Square ? (type)((unsigned_type)v * (unsigned_type)v)                    \
               : kind == WL_OP_Relu   ? (v < 0 ? 0 : v)                                                \
               : kind == WL_OP_Neg || v < 0 ? (type)(0 - (unsigned_type)v)                             \
                                            : v;                                                       \
    }                                                                                                  \
  }
INTEGERS(int32_t, uint32_t)
INTEGERS(int64_t, uint64_t)
#undef INTEGERS

typedef struct elements {
  wl_interpreter *r;
  const wl_op *op;
  const wl_tensor *x;
  wl_tensor *out;
  const uint8_t *table; /* results of all bytes; NULL if there are fewer elements */
} elements;

static float stored(const wl_tensor *t, float value) {
  float low = t->dtype == WL_TYPE_INT16 ? -32768 : t->dtype == WL_TYPE_UINT8 ? 0 : -128;
  float high = t->dtype == WL_TYPE_INT16 ? 32767 : t->dtype == WL_TYPE_UINT8 ? 255 : 127;
  float zero = t->zero_point_count ? (float)t->zero_points[0] : 0;
  float rounded = nearbyintf(value / t->scales[0]) + zero;
  return rounded > high ? high : rounded >= low ? rounded : low; /* a NaN is the lowest */
}

enum { BYTES = 256 };

/* The results of n <= BYTES elements of one byte. */
static void bytes_loop(const elements *e, size_t n, const uint8_t *x, uint8_t *out) {
  float block[BYTES];
  float zero = e->x->zero_point_count ? (float)e->x->zero_points[0] : 0;
  for (size_t i = 0; i < n; i++)
    block[i] = ((e->x->dtype == WL_TYPE_UINT8 ? (float)x[i] : (float)(int8_t)x[i]) - zero) * e->x->scales[0];
  function_of(e->op)(e->r, e->op, n, block, block);
  for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(int)stored(e->out, block[i]);
}

static void int16_loop(const elements *e, size_t begin, size_t end) {
  const int16_t *x = (const int16_t *)(const void *)e->x->data;
  int16_t *out = (int16_t *)(void *)e->out->data;
  float block[BLOCK];
  for (; begin < end; begin += BLOCK) {
    size_t n = end - begin < BLOCK ? end - begin : BLOCK;
    for (size_t i = 0; i < n; i++) block[i] = x[begin + i] * e->x->scales[0];
    function_of(e->op)(e->r, e->op, n, block, block);
    for (size_t i = 0; i < n; i++) out[begin + i] = (int16_t)stored(e->out, block[i]);
  }
}

/* What lies where its result goes is copied first, in blocks: compilers have vectors for what does not overlap. */
static void float_loop(const elements *e, size_t n, const float *x, float *out) {
  float block[BLOCK];
  if (x != out) {
    function_of(e->op)(e->r, e->op, n, x, out);
    return;
  }
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t count = n - i < BLOCK ? n - i : BLOCK;
    memcpy(block, x + i, count * sizeof *block);
    function_of(e->op)(e->r, e->op, count, block, out + i);
  }
}

static void piece(void *argument, unsigned task, size_t begin, size_t end) {
  const elements *e = argument;
  const uint8_t *x = e->x->data;
  uint8_t *out = e->out->data;
  size_t n = end - begin, at = begin * wl_type_size(e->x->dtype);
  (void)task;
  switch (e->x->dtype) {
    case WL_TYPE_FLOAT32:
      float_loop(e, n, (const float *)(const void *)(x + at), (float *)(void *)(out + at));
      return;
    case WL_TYPE_INT32:
      int32_t_loop(e->op->kind, n, (const int32_t *)(const void *)(x + at), (int32_t *)(void *)(out + at));
      return;
    case WL_TYPE_INT64:
      int64_t_loop(e->op->kind, n, (const int64_t *)(const void *)(x + at), (int64_t *)(void *)(out + at));
      return;
    case WL_TYPE_INT16: int16_loop(e, begin, end); return;
    default:
      if (e->table) e->r->vector->lookup8(n, x + begin, e->table, out + begin);
      else bytes_loop(e, n, x + begin, out + begin);
  }
}

static wl_status compute(wl_interpreter *r, wl_op *op) {
  uint8_t table[BYTES];
  elements e = {r, op, wl_in(r, op, 0), wl_out(r, op, 0), NULL};
  size_t count = (size_t)wl_elements(e.out);
  if (count > BYTES && wl_type_size(e.x->dtype) == 1) {
    for (size_t i = 0; i < BYTES; i++) table[i] = (uint8_t)i;
    bytes_loop(&e, BYTES, table, table);
    e.table = table;
  }
  wl_split(r, count, 4096, piece, &e);
  return WL_OK;
}

#define KERNEL(kind, types)                                                                            \
  const wl_kernel wl_op_##kind = {                                                                     \
      #kind, check, shape, compute, types, 1, 1, 1, 1 + WL_TABLE_ELEMENTWISE_OPTIONS, 1};
#define REAL WL_FLOATS | WL_QUANTIZED
#define ALSO_INTEGERS WL_NUMBERS | WL_QUANTIZED

KERNEL(Abs, ALSO_INTEGERS)
KERNEL(Neg, ALSO_INTEGERS)
KERNEL(Sign, ALSO_INTEGERS)
KERNEL(Square, ALSO_INTEGERS)
KERNEL(Relu, ALSO_INTEGERS)
KERNEL(Sqrt, REAL)
KERNEL(Rsqrt, REAL)
KERNEL(Exp, REAL)
KERNEL(Expm1, REAL)
KERNEL(Log, REAL)
KERNEL(Log1p, REAL)
KERNEL(Sin, REAL)
KERNEL(Cos, REAL)
KERNEL(Tan, REAL)
KERNEL(Asin, REAL)
KERNEL(Acos, REAL)
KERNEL(Atan, REAL)
KERNEL(Sinh, REAL)
KERNEL(Cosh, REAL)
KERNEL(Asinh, REAL)
KERNEL(Acosh, REAL)
KERNEL(Atanh, REAL)
KERNEL(Tanh, REAL)
KERNEL(Sigmoid, REAL)
KERNEL(Relu6, REAL)
KERNEL(LeakyRelu, REAL)
KERNEL(Elu, REAL)
KERNEL(Selu, REAL)
KERNEL(Softplus, REAL)
KERNEL(Softsign, REAL)
KERNEL(Gelu, REAL)
KERNEL(Silu, REAL)
KERNEL(Erf, REAL)
KERNEL(Erfc, REAL)
KERNEL(Floor, REAL)
KERNEL(Ceil, REAL)
KERNEL(Rint, REAL)
KERNEL(Reciprocal, REAL)
KERNEL(HardSwish, REAL)

/* ---------------------------------------------------------------- Lookup */

static wl_status check_lookup(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *table = wl_in(r, op, 1), *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_type(r, out, "the result", WL_TYPE(INT8) | WL_TYPE(UINT8)));
  WL_TRY(wl_expect_same_type(r, out, table, "the table"));
  WL_TRY(wl_expect_plain(r, table, "the table"));
  if (table->rank != 1 || table->dims[0] != 256)
    return wl_fail(r, WL_DATA_LOSS, "the table has shape %S, not (256)", table);
  return wl_expect_type(r, x, "operand 0", WL_TYPE(INT8) | WL_TYPE(UINT8));
}

static void lookup_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const elements *e = argument;
  (void)task;
  e->r->vector->lookup8(end - begin, e->x->data + begin, e->table, e->out->data + begin);
}

static wl_status compute_lookup(wl_interpreter *r, wl_op *op) {
  elements e = {r, op, wl_in(r, op, 0), wl_out(r, op, 0), wl_in(r, op, 1)->data};
  uint8_t table[BYTES];
  if (e.x->dtype == WL_TYPE_INT8) { /* by the bits of a number, not by its rank */
    memcpy(table, e.table + BYTES / 2, BYTES / 2);
    memcpy(table + BYTES / 2, e.table, BYTES / 2);
    e.table = table;
  }
  wl_split(r, (size_t)wl_elements(e.out), 4096, lookup_piece, &e);
  return WL_OK;
}

const wl_kernel wl_op_Lookup = {"Lookup", check_lookup, shape, compute_lookup, WL_TYPE(INT8) | WL_TYPE(UINT8),
                                2, 2, 1, 0, 1};

/* ---------------------------------------------------------------- to bool */

static wl_status check_test(wl_interpreter *r, wl_op *op) {
  return wl_expect_type(r, wl_out(r, op, 0), "the result", WL_TYPE(BOOL));
}

static wl_status compute_test(wl_interpreter *r, wl_op *op) {
  const wl_tensor *t = wl_in(r, op, 0);
  uint8_t *out = wl_out(r, op, 0)->data;
  const float *x = (const float *)(const void *)t->data;
  int64_t n = wl_elements(t);
  for (int64_t i = 0; i < n; i++)
    out[i] = op->kind == WL_OP_LogicalNot ? !t->data[i]
             : op->kind == WL_OP_IsNan    ? isnan(x[i])
             : op->kind == WL_OP_IsInf    ? isinf(x[i])
                                          : isfinite(x[i]);
  return WL_OK;
}

#define TEST(kind, types, in_place)                                                                    \
  const wl_kernel wl_op_##kind = {#kind, check_test, shape, compute_test, types, 1, 1, 1,              \
                                  1 + WL_TABLE_ELEMENTWISE_OPTIONS, in_place};
TEST(LogicalNot, WL_TYPE(BOOL), 2)
TEST(IsNan, WL_FLOATS, 0)
TEST(IsInf, WL_FLOATS, 0)
TEST(IsFinite, WL_FLOATS, 0)
