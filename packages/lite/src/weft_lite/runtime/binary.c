/* Functions of two operands that broadcast, and Select of three. Shapes are folded into few loops, the
 * innermost of which has operands that either advance by one element or stand still. */
#include "quantized.h"

enum { BLOCK = 256, LOOPS = WL_MAX_RANK, OPERANDS = 3 };

typedef struct loops {
  int depth;
  int64_t size[LOOPS];            /* outermost first */
  int64_t step[OPERANDS][LOOPS];  /* in elements */
} loops;

/* Dimensions of the result with the steps of each operand; neighbors that go together become one. */
static loops fold(const wl_tensor *out, const wl_tensor *const *operands, int count) {
  loops l = {0};
  int64_t steps[OPERANDS];
  for (int k = 0; k < count; k++) steps[k] = 1;
  for (int d = out->rank - 1; d >= 0; d--) {
    int64_t size = out->dims[d], step[OPERANDS];
    for (int k = 0; k < count; k++) {
      int own = d - (out->rank - operands[k]->rank);
      int64_t own_size = own < 0 ? 1 : operands[k]->dims[own];
      step[k] = own_size == 1 ? 0 : steps[k];
      steps[k] *= own_size;
    }
    if (size == 1) continue;
    bool same = l.depth > 0;
    for (int k = 0; k < count && same; k++)
      same = step[k] == l.step[k][l.depth - 1] * l.size[l.depth - 1];
    if (same) {
      l.size[l.depth - 1] *= size;
      continue;
    }
    l.size[l.depth] = size;
    for (int k = 0; k < count; k++) l.step[k][l.depth] = step[k];
    l.depth++;
  }
  if (!l.depth) l = (loops){.depth = 1, .size = {1}, .step = {{0}}};
  return l; /* innermost first, so far */
}

/* Where each operand is at row `i` of the result, a row being the innermost loop. */
static void row_at(const loops *l, size_t i, int count, int64_t *at) {
  for (int k = 0; k < count; k++) at[k] = 0;
  for (int d = 1; d < l->depth; d++) {
    bool last = d + 1 == l->depth; /* which needs no division */
    int64_t index = (int64_t)(last ? i : i % (size_t)l->size[d]);
    if (!last) i /= (size_t)l->size[d];
    for (int k = 0; k < count; k++) at[k] += index * l->step[k][d];
  }
}

/* ---------------------------------------------------------------- functions */

#define CASES(type, ...)                                                                               \
  static wl_status type##_row(wl_interpreter *r, unsigned kind, size_t n, const type *a, size_t sa,    \
                              const type *b, size_t sb, void *to) {                                    \
    type *out = to;                                                                                    \
    uint8_t *truth = to;                                                                               \
    (void)r, (void)truth;                                                                              \
    switch (kind) { __VA_ARGS__ }                                                                      \
    return WL_OK;                                                                                      \
  }
/* Each has loops of its own for operands that stand still, so that compilers see vectors. */
#define EACH(kind, target, expression)                                                                 \
  case WL_OP_##kind:                                                                                   \
    if (!WL_HAS(kind)) break;                                                                          \
    if (sa && sb)                                                                                      \
      for (size_t i = 0; i < n; i++) { __typeof__(*a) x = a[i], y = b[i]; target[i] = (expression); }    \
    else if (sa)                                                                                       \
      for (size_t i = 0; i < n; i++) { __typeof__(*a) x = a[i], y = b[0]; target[i] = (expression); }    \
    else                                                                                               \
      for (size_t i = 0; i < n; i++) { __typeof__(*a) x = a[0], y = b[sb * i]; target[i] = (expression); } \
    break;
#define COMPARE                                                                                        \
  EACH(Less, truth, x < y) EACH(LessEqual, truth, x <= y) EACH(Greater, truth, x > y)                  \
  EACH(GreaterEqual, truth, x >= y) EACH(Equal, truth, x == y) EACH(NotEqual, truth, x != y)

static float floor_mod(float x, float y) {
  float rest = fmodf(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

CASES(float,
      EACH(Add, out, x + y) EACH(Sub, out, x - y) EACH(Mul, out, x * y) EACH(Div, out, x / y)
      EACH(Maximum, out, x > y || x != x ? x : y) EACH(Minimum, out, x < y || x != x ? x : y)
      EACH(SquaredDifference, out, (x - y) * (x - y)) EACH(Pow, out, powf(x, y))
      EACH(FloorDiv, out, floorf(x / y)) EACH(FloorMod, out, floor_mod(x, y))
      EACH(TruncateMod, out, fmodf(x, y)) EACH(TruncateDiv, out, truncf(x / y))
      EACH(Atan2, out, atan2f(x, y)) COMPARE)

#define POWER(type, unsigned_type)                                                                     \
  static type type##_power(type base, type exponent) {                                                 \
    unsigned_type result = 1, factor = (unsigned_type)base;                                            \
    for (unsigned_type e = (unsigned_type)exponent; e; e >>= 1, factor *= factor)                      \
      if (e & 1) result *= factor;                                                                     \
    return (type)result;                                                                               \
  }
/* Division by -1 is a negation, which wraps where the processor would trap. */
#define DIVISION(type, unsigned_type)                                                                  \
  static type type##_quotient(type x, type y) {                                                        \
    return y == -1 ? (type)(0 - (unsigned_type)x) : x / y;                                             \
  }                                                                                                    \
  static type type##_rest(type x, type y) { return y == -1 ? 0 : x % y; }                              \
  static type type##_floor_div(type x, type y) {                                                       \
    type rest = type##_rest(x, y);                                                                     \
    return type##_quotient(x, y) - (rest != 0 && (rest < 0) != (y < 0));                               \
  }                                                                                                    \
  static type type##_floor_mod(type x, type y) {                                                       \
    type rest = type##_rest(x, y);                                                                     \
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;                                       \
  }
#define INTEGERS(type, U)                                                                              \
  POWER(type, U)                                                                                       \
  DIVISION(type, U)                                                                                    \
  CASES(type, EACH(Add, out, (type)((U)x + (U)y)) EACH(Sub, out, (type)((U)x - (U)y))                  \
                  EACH(Mul, out, (type)((U)x * (U)y)) EACH(Maximum, out, x > y ? x : y)                \
                  EACH(Minimum, out, x < y ? x : y)                                                    \
                  EACH(SquaredDifference, out, (type)(((U)x - (U)y) * ((U)x - (U)y)))                  \
                  EACH(Pow, out, type##_power(x, y)) EACH(FloorDiv, out, type##_floor_div(x, y))       \
                  EACH(FloorMod, out, type##_floor_mod(x, y)) EACH(Div, out, type##_quotient(x, y))    \
                  EACH(TruncateDiv, out, type##_quotient(x, y))                                        \
                  EACH(TruncateMod, out, type##_rest(x, y)) COMPARE)
INTEGERS(int32_t, uint32_t)
INTEGERS(int64_t, uint64_t)
CASES(uint8_t, EACH(LogicalAnd, truth, x && y) EACH(LogicalOr, truth, x || y) COMPARE)
CASES(int8_t, COMPARE)
CASES(int16_t, COMPARE)

static bool divides(unsigned kind) {
  return kind == WL_OP_FloorDiv || kind == WL_OP_FloorMod || kind == WL_OP_Div ||
         kind == WL_OP_TruncateDiv || kind == WL_OP_TruncateMod;
}

static bool compares(unsigned kind) { return kind >= WL_OP_Less && kind <= WL_OP_NotEqual; }

static bool quantized(const wl_tensor *t) { return (WL_QUANTIZED >> t->dtype & 1) && t->scales; }

/* ---------------------------------------------------------------- int16 and uint8, by floats */

static int32_t number_at(const wl_tensor *t, int64_t i) {
  return t->dtype == WL_TYPE_INT16 ? ((const int16_t *)(const void *)t->data)[i] : t->data[i];
}

static void real_block(const wl_tensor *t, int64_t at, size_t step, size_t n, float *out) {
  float zero = t->zero_point_count ? (float)t->zero_points[0] : 0, scale = t->scales[0];
  for (size_t i = 0; i < n; i++)
    out[i] = ((float)number_at(t, at + (int64_t)(step * i)) - zero) * scale;
}

static void store_block(wl_tensor *t, size_t at, size_t n, const float *x) {
  float low = t->dtype == WL_TYPE_INT16 ? -32768 : 0, high = t->dtype == WL_TYPE_INT16 ? 32767 : 255;
  float zero = t->zero_point_count ? (float)t->zero_points[0] : 0, scale = 1 / t->scales[0];
  for (size_t i = 0; i < n; i++) {
    float v = (x[i] * scale + 12582912.0f) - 12582912.0f + zero; /* rounds to an integer */
    if (!(x[i] * scale < 1e6f && x[i] * scale > -1e6f)) v = x[i] > 0 ? high : low;
    v = v > high ? high : v >= low ? v : low;
    if (t->dtype == WL_TYPE_INT16) ((int16_t *)(void *)t->data)[at + i] = (int16_t)v;
    else t->data[at + i] = (uint8_t)(int)v;
  }
}

/* ---------------------------------------------------------------- kernels */

typedef struct pair {
  wl_interpreter *r;
  const wl_op *op;
  const wl_tensor *a, *b;
  wl_tensor *out;
  loops loops;
  float low, high;
  wl_integers8 integers;
  wl_floats8 floats;
  bool has_integers, bytes;
} pair;

static void quantized_row(const pair *p, size_t row, const int64_t *at) {
  size_t n = (size_t)p->loops.size[0], sa = (size_t)p->loops.step[0][0], sb = (size_t)p->loops.step[1][0];
  float a[BLOCK], b[BLOCK], out[BLOCK];
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t count = n - i < BLOCK ? n - i : BLOCK;
    real_block(p->a, at[0] + (int64_t)(sa * i), sa, sa ? count : 1, a);
    real_block(p->b, at[1] + (int64_t)(sb * i), sb, sb ? count : 1, b);
    float_row(p->r, p->op->kind, count, a, sa, b, sb, out);
    for (size_t k = 0; k < count; k++)
      out[k] = out[k] < p->low ? p->low : out[k] > p->high ? p->high : out[k];
    store_block(p->out, row * n + i, count, out);
  }
}

/* The power of two with which the larger of two scales gets 21 bits. */
static double unit_of(double most, int32_t *shift) {
  double unit = 1;
  for (*shift = 0; most * unit < 0x1p20; ++*shift) unit *= 2;
  for (; most * unit >= 0x1p21; --*shift) unit /= 2;
  return unit;
}

/* Whether integers compute rows of bytes. Sums need scales that are neither much above that of the result, where
 * rounded factors would show, nor all far below it. */
static bool by_integers(pair *p, unsigned activation) {
  static const uint8_t functions[] = {
      [WL_OP_Add - WL_OP_Add] = WL_SUM8,         [WL_OP_Sub - WL_OP_Add] = WL_SUM8,
      [WL_OP_Mul - WL_OP_Add] = WL_PRODUCT8,     [WL_OP_Maximum - WL_OP_Add] = WL_MAXIMUM8,
      [WL_OP_Minimum - WL_OP_Add] = WL_MINIMUM8, [WL_OP_SquaredDifference - WL_OP_Add] = WL_SQUARED_DIFFERENCE8};
  unsigned kind = p->op->kind;
  double a = (double)p->a->scales[0], b = (double)p->b->scales[0], out = (double)p->out->scales[0];
  int32_t zero_a = wl_zero_point(p->a, 0), zero_b = wl_zero_point(p->b, 0);
  if (kind == WL_OP_Div) return false;
  wl_integers8 *k = &p->integers;
  *k = (wl_integers8){.function = functions[kind - WL_OP_Add], .zero = wl_zero_point(p->out, 0)};
  wl_clamp8(p->out, activation, &k->low, &k->high);
  if (k->function == WL_PRODUCT8) {
    double scale = a * b / out; /* beyond 2^14 all results but 0 are clamped */
    k->scale = scale < 0x1p14 ? (float)scale : 0x1p14f;
    k->bias[0] = -zero_a;
    k->bias[1] = -zero_b;
    return true;
  }
  double most = (a > b ? a : b) / out, unit = unit_of(most, &k->shift);
  bool squares = k->function == WL_SQUARED_DIFFERENCE8, minus = squares || kind == WL_OP_Sub;
  if (!squares && !(most < 4 && most >= 0x1p-10)) return false;
  k->factor[0] = (int32_t)nearbyint(a / out * unit);
  k->factor[1] = (int32_t)nearbyint((minus ? -b : b) / out * unit);
  k->bias[0] = -zero_a * k->factor[0];
  k->bias[1] = -zero_b * k->factor[1];
  if (squares) {
    double scale = out / unit / unit;
    k->scale = scale < (double)FLT_MAX ? (float)scale : FLT_MAX;
    return true;
  }
  k->bias[0] += 1 << (k->shift - 1);
  if (k->function != WL_SUM8) k->bias[1] += 1 << (k->shift - 1);
  return true;
}

/* The parameters of rows of bytes that floats compute. */
static wl_floats8 by_floats(const pair *p) {
  static const uint8_t functions[] = {
      [WL_OP_Add - WL_OP_Add] = WL_ADD, [WL_OP_Sub - WL_OP_Add] = WL_SUB, [WL_OP_Div - WL_OP_Add] = WL_DIV,
      [WL_OP_Maximum - WL_OP_Add] = WL_MAXIMUM, [WL_OP_Minimum - WL_OP_Add] = WL_MINIMUM};
  float zero = (float)wl_zero_point(p->out, 0), inverse = 1 / p->out->scales[0];
  float low = nearbyintf(p->low * inverse), high = nearbyintf(p->high * inverse);
  return (wl_floats8){
      .function = functions[p->op->kind - WL_OP_Add],
      .zero = {(float)wl_zero_point(p->a, 0), (float)wl_zero_point(p->b, 0)},
      .scale = {p->a->scales[0], p->b->scales[0]},
      .inverse = inverse, .zero_out = (int32_t)zero,
      .low = low > -128 - zero ? low : -128 - zero, .high = high < 127 - zero ? high : 127 - zero};
}

/* An operand that lies where the result goes is copied first, in blocks: compilers have vectors for what does
 * not overlap. */
static void float_blocks(wl_interpreter *r, unsigned kind, size_t n, const float *a, size_t sa, const float *b,
                         size_t sb, void *out) {
  float copy[BLOCK], *to = out;
  if (compares(kind) || (a != to && b != to)) {
    float_row(r, kind, n, a, sa, b, sb, out);
    return;
  }
  for (size_t i = 0; i < n; i += BLOCK) {
    size_t count = n - i < BLOCK ? n - i : BLOCK;
    const float *x = a + sa * i, *y = b + sb * i;
    memcpy(copy, to + i, count * sizeof *copy);
    float_row(r, kind, count, x == to + i ? copy : x, sa, y == to + i ? copy : y, sb, to + i);
  }
}

/* An activation follows in blocks that caches still have. */
static void float_results(const pair *p, size_t n, const float *a, size_t sa, const float *b, size_t sb, float *out) {
  float low = p->low, high = p->high; /* here, since stores might change those of p */
  bool clamps = p->out->dtype == WL_TYPE_FLOAT32 && (low > -INFINITY || high < INFINITY);
  for (size_t i = 0, step = clamps ? 4 * BLOCK : n; i < n; i += step) {
    size_t count = n - i < step ? n - i : step;
    float_blocks(p->r, p->op->kind, count, a + sa * i, sa, b + sb * i, sb, out + i);
    if (clamps)
      for (size_t k = i; k < i + count; k++) out[k] = out[k] < low ? low : out[k] > high ? high : out[k];
  }
}

static void one_row(const pair *p, size_t row) {
  int64_t at[OPERANDS];
  row_at(&p->loops, row, 2, at);
  if (p->bytes) {
    size_t n = (size_t)p->loops.size[0], sa = (size_t)p->loops.step[0][0], sb = (size_t)p->loops.step[1][0];
    const int8_t *a = (const int8_t *)p->a->data + at[0], *b = (const int8_t *)p->b->data + at[1];
    int8_t *out = (int8_t *)p->out->data + row * n;
    if (p->has_integers) p->r->vector->integers8(&p->integers, n, a, sa, b, sb, out);
    else p->r->vector->floats8(&p->floats, n, a, sa, b, sb, out);
    return;
  }
  if (quantized(p->a) && !compares(p->op->kind)) {
    quantized_row(p, row, at);
    return;
  }
  size_t n = (size_t)p->loops.size[0], size = wl_type_size(p->a->dtype);
  size_t sa = (size_t)p->loops.step[0][0], sb = (size_t)p->loops.step[1][0];
  const void *a = p->a->data + at[0] * (int64_t)size, *b = p->b->data + at[1] * (int64_t)size;
  void *out = p->out->data + row * n * wl_type_size(p->out->dtype);
  unsigned kind = p->op->kind;
  switch (p->a->dtype) {
    case WL_TYPE_FLOAT32: float_results(p, n, a, sa, b, sb, out); break;
    case WL_TYPE_INT32: int32_t_row(p->r, kind, n, a, sa, b, sb, out); break;
    case WL_TYPE_INT64: int64_t_row(p->r, kind, n, a, sa, b, sb, out); break;
    case WL_TYPE_INT8: int8_t_row(p->r, kind, n, a, sa, b, sb, out); break;
    case WL_TYPE_INT16: int16_t_row(p->r, kind, n, a, sa, b, sb, out); break;
    default: uint8_t_row(p->r, kind, n, a, sa, b, sb, out);
  }
}

static void rows_piece(void *argument, unsigned task, size_t begin, size_t end) {
  (void)task;
  for (size_t row = begin; row < end; row++) one_row(argument, row);
}

/* One row of a large result is cut as well: then it is all there is, without broadcasting in it. */
static void cut_piece(void *argument, unsigned task, size_t begin, size_t end) {
  pair p = *(const pair *)argument;
  (void)task;
  wl_tensor a = *p.a, b = *p.b, out = *p.out;
  a.data += (size_t)p.loops.step[0][0] * begin * wl_type_size(a.dtype);
  b.data += (size_t)p.loops.step[1][0] * begin * wl_type_size(b.dtype);
  out.data += begin * wl_type_size(out.dtype);
  p.a = &a;
  p.b = &b;
  p.out = &out;
  p.loops.size[0] = (int64_t)(end - begin);
  one_row(&p, 0);
}

static wl_status check_binary(wl_interpreter *r, wl_op *op) {
  const wl_tensor *a = wl_in(r, op, 0), *b = wl_in(r, op, 1), *out = wl_out(r, op, 0);
  WL_TRY(wl_expect_same_type(r, a, b, "operand 1"));
  unsigned activation = wl_byte(r, op, WL_ELEMENTWISE_ACTIVATION);
  WL_TRY(wl_check_activation(r, activation));
  if (compares(op->kind)) return wl_expect_type(r, out, "the result", WL_TYPE(BOOL));
  if (activation && a->dtype != WL_TYPE_FLOAT32 && !quantized(a))
    return wl_fail(r, WL_DATA_LOSS, "an activation needs floats");
  if ((WL_QUANTIZED >> a->dtype & 1) &&
      (a->scale_count != 1 || b->scale_count != 1 || out->scale_count != 1))
    return wl_fail(r, WL_DATA_LOSS, "operands and result need one scale each");
  return wl_expect_same_type(r, a, out, "the result");
}

static wl_status shape_binary(wl_interpreter *r, wl_op *op) {
  int64_t dims[WL_MAX_RANK];
  int rank;
  WL_TRY(wl_broadcast(r, wl_in(r, op, 0), wl_in(r, op, 1), dims, &rank));
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status check_divisor(wl_interpreter *r, const wl_op *op) {
  const wl_tensor *b = wl_in(r, op, 1);
  bool integers = b->dtype == WL_TYPE_INT32 || b->dtype == WL_TYPE_INT64;
  if (!integers || !(divides(op->kind) || op->kind == WL_OP_Pow)) return WL_OK;
  int64_t n = wl_elements(b);
  for (int64_t i = 0; i < n; i++) {
    int64_t value = b->dtype == WL_TYPE_INT32 ? ((const int32_t *)(const void *)b->data)[i]
                                              : ((const int64_t *)(const void *)b->data)[i];
    if (divides(op->kind) ? value == 0 : value < 0)
      return wl_fail(r, WL_INVALID_ARGUMENT, divides(op->kind) ? "integers are divided by 0"
                                                               : "an integer has a negative power");
  }
  return WL_OK;
}

static wl_status compute_binary(wl_interpreter *r, wl_op *op) {
  pair p = {.r = r, .op = op, .a = wl_in(r, op, 0), .b = wl_in(r, op, 1), .out = wl_out(r, op, 0)};
  const wl_tensor *operands[] = {p.a, p.b};
  int64_t total = wl_elements(p.out);
  WL_TRY(check_divisor(r, op));
  if (!total) return WL_OK;
  p.loops = fold(p.out, operands, 2);
  unsigned activation = wl_byte(r, op, WL_ELEMENTWISE_ACTIVATION);
  wl_clamp(activation, &p.low, &p.high);
  p.bytes = p.a->dtype == WL_TYPE_INT8 && quantized(p.a) && !compares(op->kind);
  if (p.bytes && !(p.has_integers = by_integers(&p, activation))) p.floats = by_floats(&p);
  size_t row = (size_t)p.loops.size[0];
  if (p.loops.depth == 1)
    wl_split(r, row, 16384, cut_piece, &p);
  else
    wl_split(r, (size_t)total / row, 1 + 16384 / row, rows_piece, &p);
  return WL_OK;
}

#define KERNEL(kind, types, in_place)                                                                  \
  const wl_kernel wl_op_##kind = {#kind, check_binary, shape_binary, compute_binary, types, 2, 2, 1,   \
                                  1 + WL_TABLE_ELEMENTWISE_OPTIONS, in_place};
#define ARITHMETIC WL_NUMBERS | WL_QUANTIZED
KERNEL(Add, ARITHMETIC, 2)
KERNEL(Sub, ARITHMETIC, 2)
KERNEL(Mul, ARITHMETIC, 2)
KERNEL(Div, ARITHMETIC, 2)
KERNEL(Maximum, ARITHMETIC, 2)
KERNEL(Minimum, ARITHMETIC, 2)
KERNEL(SquaredDifference, ARITHMETIC, 2)
KERNEL(Pow, WL_NUMBERS, 2)
KERNEL(FloorDiv, WL_NUMBERS, 2)
KERNEL(FloorMod, WL_NUMBERS, 2)
KERNEL(TruncateMod, WL_NUMBERS, 2)
KERNEL(TruncateDiv, WL_NUMBERS, 2)
KERNEL(Atan2, WL_FLOATS, 2)
KERNEL(Less, WL_NUMBERS | WL_QUANTIZED, 0)
KERNEL(LessEqual, WL_NUMBERS | WL_QUANTIZED, 0)
KERNEL(Greater, WL_NUMBERS | WL_QUANTIZED, 0)
KERNEL(GreaterEqual, WL_NUMBERS | WL_QUANTIZED, 0)
KERNEL(Equal, WL_NUMBERS | WL_QUANTIZED | WL_TYPE(BOOL), 0)
KERNEL(NotEqual, WL_NUMBERS | WL_QUANTIZED | WL_TYPE(BOOL), 0)
KERNEL(LogicalAnd, WL_TYPE(BOOL), 2)
KERNEL(LogicalOr, WL_TYPE(BOOL), 2)

/* ---------------------------------------------------------------- select */

static wl_status check_select(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 1), wl_in(r, op, 2), "operand 2"));
  return wl_expect_same_type(r, wl_in(r, op, 1), wl_out(r, op, 0), "the result");
}

static wl_status shape_select(wl_interpreter *r, wl_op *op) {
  int64_t dims[WL_MAX_RANK];
  int rank;
  WL_TRY(wl_broadcast(r, wl_in(r, op, 1), wl_in(r, op, 2), dims, &rank));
  wl_tensor both = {.rank = (uint8_t)rank};
  for (int i = 0; i < rank; i++) both.dims[i] = (int32_t)dims[i];
  WL_TRY(wl_broadcast(r, wl_in(r, op, 0), &both, dims, &rank));
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

/* A row of elements of 4 bytes, which compilers see as vectors where all operands advance. */
static void select32(const loops *l, size_t n, const wl_tensor *const *operands, const int64_t *at, uint32_t *out) {
  const uint8_t *condition = operands[0]->data + at[0];
  const uint32_t *x = (const uint32_t *)(const void *)operands[1]->data + at[1];
  const uint32_t *y = (const uint32_t *)(const void *)operands[2]->data + at[2];
  size_t sc = (size_t)l->step[0][0], sx = (size_t)l->step[1][0], sy = (size_t)l->step[2][0];
  if (sc && sx && sy)
    for (size_t k = 0; k < n; k++) out[k] = condition[k] ? x[k] : y[k];
  else
    for (size_t k = 0; k < n; k++) out[k] = condition[sc * k] ? x[sx * k] : y[sy * k];
}

static wl_status compute_select(wl_interpreter *r, wl_op *op) {
  const wl_tensor *operands[] = {wl_in(r, op, 0), wl_in(r, op, 1), wl_in(r, op, 2)};
  wl_tensor *out = wl_out(r, op, 0);
  size_t size = wl_type_size(out->dtype);
  int64_t total = wl_elements(out), at[OPERANDS];
  if (!total) return WL_OK;
  loops l = fold(out, operands, 3);
  size_t row = (size_t)l.size[0], rows = (size_t)total / row;
  for (size_t i = 0; i < rows; i++) {
    row_at(&l, i, 3, at);
    if (size == 4) {
      select32(&l, row, operands, at, (uint32_t *)(void *)out->data + i * row);
      continue;
    }
    for (size_t k = 0; k < row; k++) {
      int taken = operands[0]->data[at[0] + l.step[0][0] * (int64_t)k] ? 1 : 2;
      memcpy(out->data + (i * row + k) * size,
             operands[taken]->data + (size_t)(at[taken] + l.step[taken][0] * (int64_t)k) * size, size);
    }
  }
  return WL_OK;
}

const wl_kernel wl_op_Select = {"Select", check_select, shape_select, compute_select,
                                WL_TYPE(BOOL), 3, 3, 1, 0, 0};
