/* Reductions over axes, ArgMax and ArgMin, TopK, and Cumsum. */
#include "runtime.h"

enum { AXES = 0, OUTER = 1, LENGTH = 2, INNER = 3 }; /* memo */

/* The axes that go, as bits; none are those of an empty list. */
static wl_status read_axes(wl_interpreter *r, wl_op *op, const wl_tensor *x) {
  int64_t axes[WL_MAX_RANK];
  int count, axis;
  WL_TRY(wl_read_ints(r, wl_in(r, op, 1), "axes", WL_MAX_RANK, axes, &count));
  op->memo[AXES] = 0;
  for (int i = 0; i < count; i++) {
    WL_TRY(wl_axis(r, axes[i], x->rank, &axis));
    op->memo[AXES] |= 1 << axis;
  }
  return WL_OK;
}

static wl_status shape_reduce(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t dims[WL_MAX_RANK];
  int rank = 0;
  WL_TRY(read_axes(r, op, x));
  bool keep = wl_byte(r, op, WL_REDUCE_KEEP_DIMS);
  for (int d = 0; d < x->rank; d++) {
    bool gone = op->memo[AXES] >> d & 1;
    if (!gone || keep) dims[rank++] = gone ? 1 : x->dims[d];
  }
  return wl_set_shape(r, wl_out(r, op, 0), rank, dims);
}

static wl_status check_reduce(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0), *out = wl_out(r, op, 0);
  if ((WL_QUANTIZED >> x->dtype & 1) && (x->scale_count != 1 || out->scale_count != 1))
    return wl_fail(r, WL_DATA_LOSS, "operand and result need one scale each");
  return wl_expect_same_type(r, x, out, "the result");
}

/* Loops over what stays and over what goes, with steps in elements of the operand. */
typedef struct nest {
  int kept, gone;
  int64_t kept_size[WL_MAX_RANK], kept_step[WL_MAX_RANK];
  int64_t gone_size[WL_MAX_RANK], gone_step[WL_MAX_RANK];
} nest;

static nest nest_of(const wl_tensor *x, int64_t axes) {
  nest n = {0};
  int64_t step = 1;
  for (int d = x->rank - 1; d >= 0; d--) { /* innermost first */
    bool gone = axes >> d & 1;
    int *count = gone ? &n.gone : &n.kept;
    int64_t *size = gone ? n.gone_size : n.kept_size, *steps = gone ? n.gone_step : n.kept_step;
    if (*count && steps[*count - 1] * size[*count - 1] == step) {
      size[*count - 1] *= x->dims[d];
    } else if (x->dims[d] != 1) {
      size[*count] = x->dims[d];
      steps[(*count)++] = step;
    }
    step *= x->dims[d];
  }
  return n;
}

static int64_t offset_of(int count, const int64_t *size, const int64_t *step, int64_t i) {
  int64_t at = 0;
  for (int d = 0; d < count; d++) {
    at += i % size[d] * step[d];
    i /= size[d];
  }
  return at;
}

static int64_t size_of(int count, const int64_t *size) {
  int64_t n = 1;
  for (int d = 0; d < count; d++) n *= size[d];
  return n;
}

typedef struct reduction {
  wl_interpreter *r;
  unsigned kind;
  const wl_tensor *x;
  wl_tensor *out;
  nest nest;
  int64_t length;
} reduction;

static double real(const wl_tensor *t, int64_t i) {
  double zero = t->zero_point_count ? t->zero_points[0] : 0, scale = t->scales ? (double)t->scales[0] : 1;
  switch (t->dtype) {
    case WL_TYPE_FLOAT32: return (double)((const float *)(const void *)t->data)[i];
    case WL_TYPE_INT8: return (((const int8_t *)t->data)[i] - zero) * scale;
    case WL_TYPE_UINT8: return (t->data[i] - zero) * scale;
    default: return (((const int16_t *)(const void *)t->data)[i] - zero) * scale;
  }
}

static double combine(unsigned kind, double a, double b) {
  switch (kind) {
    case WL_OP_Max: return a > b || a != a ? a : b;
    case WL_OP_Min: return a < b || a != a ? a : b;
    case WL_OP_Prod: return a * b;
    default: return a + b;
  }
}

static double start_of(unsigned kind) {
  return kind == WL_OP_Max ? -INFINITY : kind == WL_OP_Min ? INFINITY : kind == WL_OP_Prod ? 1 : 0;
}

enum { CHANNELS = 256, ROWS = 128, MOST_ROWS = 1 << 23 };

/* The largest, the smallest or the sum of a row of bytes, of which there are some. */
static int32_t reduce_bytes(unsigned kind, size_t n, const int8_t *x) {
  int32_t sum = 0;
  int8_t found = x[0];
  if (kind == WL_OP_Max)
    for (size_t i = 0; i < n; i++) found = x[i] > found ? x[i] : found;
  else if (kind == WL_OP_Min)
    for (size_t i = 0; i < n; i++) found = x[i] < found ? x[i] : found;
  else
    for (size_t i = 0; i < n;) {
      int16_t part = 0; /* of 16 bits, of which vectors have twice as many */
      for (size_t end = n - i < 256 ? n : i + 256; i < end; i++) part = (int16_t)(part + x[i]);
      sum += part;
    }
  return kind == WL_OP_Max || kind == WL_OP_Min ? found : sum;
}

/* Along elements that lie side by side; false if there is no such function. */
static bool reduce_row(const reduction *p, int64_t start, double *found) {
  size_t n = (size_t)p->length;
  bool adds = p->kind == WL_OP_Sum || p->kind == WL_OP_Mean;
  if (p->nest.gone != 1 || p->nest.gone_step[0] != 1 || !n || n > MOST_ROWS) return false;
  if (p->x->dtype == WL_TYPE_FLOAT32 && (adds || p->kind == WL_OP_Max)) {
    const float *x = (const float *)(const void *)p->x->data + start;
    *found = (double)(adds ? p->r->vector->sum(n, x) : p->r->vector->max(n, x));
  } else if (p->x->dtype == WL_TYPE_INT8 && p->kind != WL_OP_Prod) {
    double zero = p->x->zero_point_count ? p->x->zero_points[0] : 0;
    double whole = reduce_bytes(p->kind, n, (const int8_t *)p->x->data + start);
    *found = (whole - (adds ? (double)n * zero : zero)) * (double)p->x->scales[0];
  } else {
    return false;
  }
  if (p->kind == WL_OP_Mean) *found /= (double)n;
  return true;
}

static double reduce_real(const reduction *p, int64_t start) {
  double found = start_of(p->kind);
  if (reduce_row(p, start, &found)) return found;
  for (int64_t i = 0; i < p->length; i++)
    found = combine(p->kind, found,
                    real(p->x, start + offset_of(p->nest.gone, p->nest.gone_size, p->nest.gone_step, i)));
  return p->kind == WL_OP_Mean ? found / (double)p->length : found;
}

static void put_real(wl_tensor *t, size_t i, double value) {
  if (t->dtype == WL_TYPE_FLOAT32) {
    ((float *)(void *)t->data)[i] = (float)value;
    return;
  }
  double low = t->dtype == WL_TYPE_INT16 ? -32768 : t->dtype == WL_TYPE_UINT8 ? 0 : -128;
  double high = t->dtype == WL_TYPE_INT16 ? 32767 : t->dtype == WL_TYPE_UINT8 ? 255 : 127;
  double v = nearbyint(value / (double)t->scales[0]) + (t->zero_point_count ? t->zero_points[0] : 0);
  v = v > high ? high : v >= low ? v : low;
  if (t->dtype == WL_TYPE_INT16) ((int16_t *)(void *)t->data)[i] = (int16_t)v;
  else t->data[i] = (uint8_t)(int)v;
}

static int64_t integer(const wl_tensor *t, int64_t i) {
  return t->dtype == WL_TYPE_BOOL    ? t->data[i] != 0
         : t->dtype == WL_TYPE_INT32 ? ((const int32_t *)(const void *)t->data)[i]
                                     : ((const int64_t *)(const void *)t->data)[i];
}

static void put_integer(wl_tensor *t, size_t i, int64_t value) {
  if (t->dtype == WL_TYPE_BOOL) t->data[i] = (uint8_t)value;
  else if (t->dtype == WL_TYPE_INT32) ((int32_t *)(void *)t->data)[i] = (int32_t)value;
  else ((int64_t *)(void *)t->data)[i] = value;
}

static int64_t reduce_integer(const reduction *p, int64_t start) {
  bool wide = p->x->dtype == WL_TYPE_INT64;
  uint64_t found = p->kind == WL_OP_Prod || p->kind == WL_OP_All ? 1 : 0;
  int64_t most = wide ? INT64_MIN : INT32_MIN, least = wide ? INT64_MAX : INT32_MAX;
  for (int64_t i = 0; i < p->length; i++) {
    int64_t v = integer(p->x, start + offset_of(p->nest.gone, p->nest.gone_size, p->nest.gone_step, i));
    if (v > most) most = v;
    if (v < least) least = v;
    found = p->kind == WL_OP_Prod  ? found * (uint64_t)v
            : p->kind == WL_OP_All ? (uint64_t)(found && v)
            : p->kind == WL_OP_Any ? (uint64_t)(found || v)
                                   : found + (uint64_t)v;
  }
  if (p->kind == WL_OP_Max) return most;
  if (p->kind == WL_OP_Min) return least;
  if (p->kind == WL_OP_Mean && p->length) return (int64_t)found / p->length;
  return (int64_t)found;
}

/* Sums over rows of floats that lie side by side, such as means over an image: along the channels.
   Blocks of rows are added in double, so that errors do not grow with their number. */
static bool add_rows(const reduction *p, size_t begin, size_t end) {
  const nest *n = &p->nest;
  if (p->x->dtype != WL_TYPE_FLOAT32 || (p->kind != WL_OP_Sum && p->kind != WL_OP_Mean)) return false;
  if (n->kept < 1 || n->kept_step[0] != 1 || n->gone != 1) return false;
  float *out = (float *)(void *)p->out->data;
  int64_t width = n->kept_size[0];
  for (size_t i = begin; i < end;) {
    double totals[CHANNELS] = {0};
    size_t count = (i / (size_t)width + 1) * (size_t)width - i;
    if (count > end - i) count = end - i;
    if (count > CHANNELS) count = CHANNELS;
    const float *x = (const float *)(const void *)p->x->data + offset_of(n->kept, n->kept_size, n->kept_step, (int64_t)i);
    for (int64_t k = 0; k < p->length;) {
      float sums[CHANNELS] = {0};
      for (int64_t stop = k + ROWS; k < p->length && k < stop; k++, x += n->gone_step[0])
        for (size_t c = 0; c < count; c++) sums[c] += x[c];
      for (size_t c = 0; c < count; c++) totals[c] += (double)sums[c];
    }
    for (size_t c = 0; c < count; c++) {
      out[i + c] = (float)totals[c];
      if (p->kind == WL_OP_Mean) out[i + c] /= (float)p->length;
    }
    i += count;
  }
  return true;
}

/* The same of bytes. */
static bool add_bytes(const reduction *p, size_t begin, size_t end) {
  const nest *n = &p->nest;
  if (p->x->dtype != WL_TYPE_INT8 || (p->kind != WL_OP_Sum && p->kind != WL_OP_Mean)) return false;
  if (n->kept < 1 || n->kept_step[0] != 1 || n->gone != 1 || p->length > MOST_ROWS) return false;
  double zero = p->x->zero_point_count ? p->x->zero_points[0] : 0, scale = (double)p->x->scales[0];
  for (size_t i = begin, width = (size_t)n->kept_size[0]; i < end;) {
    int32_t sums[CHANNELS] = {0};
    size_t count = (i / width + 1) * width - i;
    if (count > end - i) count = end - i;
    if (count > CHANNELS) count = CHANNELS;
    const int8_t *x = (const int8_t *)p->x->data + offset_of(n->kept, n->kept_size, n->kept_step, (int64_t)i);
    for (int64_t k = 0; k < p->length; k++, x += n->gone_step[0])
      for (size_t c = 0; c < count; c++) sums[c] += x[c];
    for (size_t c = 0; c < count; c++) {
      double whole = (sums[c] - (double)p->length * zero) * scale;
      put_real(p->out, i + c, p->kind == WL_OP_Mean ? whole / (double)p->length : whole);
    }
    i += count;
  }
  return true;
}

static void reduce_piece(void *argument, unsigned task, size_t begin, size_t end) {
  const reduction *p = argument;
  (void)task;
  if (add_rows(p, begin, end) || add_bytes(p, begin, end)) return;
  bool integers = p->x->dtype == WL_TYPE_INT32 || p->x->dtype == WL_TYPE_INT64 || p->x->dtype == WL_TYPE_BOOL;
  for (size_t i = begin; i < end; i++) {
    int64_t start = offset_of(p->nest.kept, p->nest.kept_size, p->nest.kept_step, (int64_t)i);
    if (integers) put_integer(p->out, i, reduce_integer(p, start));
    else put_real(p->out, i, reduce_real(p, start));
  }
}

static wl_status compute_reduce(wl_interpreter *r, wl_op *op) {
  reduction p = {.r = r, .kind = op->kind, .x = wl_in(r, op, 0), .out = wl_out(r, op, 0)};
  p.nest = nest_of(p.x, op->memo[AXES]);
  p.length = size_of(p.nest.gone, p.nest.gone_size);
  int64_t total = wl_elements(p.out);
  wl_split(r, (size_t)total, 1 + 16384 / (size_t)(p.length + 1), reduce_piece, &p);
  return WL_OK;
}

#define KERNEL(kind, types)                                                                            \
  const wl_kernel wl_op_##kind = {#kind, check_reduce, shape_reduce, compute_reduce, types, 2, 2, 1,   \
                                  1 + WL_TABLE_REDUCE_OPTIONS, 0};
KERNEL(Sum, WL_NUMBERS | WL_QUANTIZED)
KERNEL(Mean, WL_NUMBERS | WL_QUANTIZED)
KERNEL(Max, WL_NUMBERS | WL_QUANTIZED)
KERNEL(Min, WL_NUMBERS | WL_QUANTIZED)
KERNEL(Prod, WL_NUMBERS | WL_QUANTIZED)
KERNEL(All, WL_TYPE(BOOL))
KERNEL(Any, WL_TYPE(BOOL))

/* ---------------------------------------------------------------- where the largest is */

static double comparable(const wl_tensor *t, int64_t i) {
  if (t->dtype == WL_TYPE_INT32 || t->dtype == WL_TYPE_BOOL) return (double)integer(t, i);
  return real(t, i);
}

/* Whether a comes before b among the largest: a NaN is larger than any number. */
static bool larger(const wl_tensor *t, int64_t a, int64_t b) {
  if (t->dtype == WL_TYPE_INT64) return integer(t, a) > integer(t, b);
  double x = comparable(t, a), y = comparable(t, b);
  return x > y || (x != x && y == y);
}

/* Whether ArgMin prefers a to b: a NaN is smaller than any number here, so its place is the result. */
static bool smaller(const wl_tensor *t, int64_t a, int64_t b) {
  if (t->dtype == WL_TYPE_INT64) return integer(t, a) < integer(t, b);
  double x = comparable(t, a), y = comparable(t, b);
  return x < y || (x != x && y == y);
}

static wl_status check_arg(wl_interpreter *r, wl_op *op) {
  return wl_expect_type(r, wl_out(r, op, 0), "the result", WL_TYPE(INT32) | WL_TYPE(INT64));
}

static wl_status shape_arg(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t axis, dims[WL_MAX_RANK];
  int at, rank = 0;
  WL_TRY(wl_read_int(r, wl_in(r, op, 1), "the axis", &axis));
  WL_TRY(wl_axis(r, axis, x->rank, &at));
  for (int d = 0; d < x->rank; d++)
    if (d != at) dims[rank++] = x->dims[d];
  op->memo[OUTER] = wl_product(x->dims, 0, at);
  op->memo[LENGTH] = x->dims[at];
  op->memo[INNER] = wl_product(x->dims, at + 1, x->rank);
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), rank, dims));
  if (!op->memo[LENGTH] && wl_elements(wl_out(r, op, 0)))
    return wl_fail(r, WL_INVALID_ARGUMENT, "axis %d of shape %S is empty", (int64_t)at, x);
  return WL_OK;
}

static wl_status compute_arg(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  bool least = op->kind == WL_OP_ArgMin;
  int64_t inner = op->memo[INNER], length = op->memo[LENGTH];
  for (int64_t i = 0; i < op->memo[OUTER]; i++)
    for (int64_t j = 0; j < inner; j++) {
      int64_t start = i * length * inner + j, best = 0;
      for (int64_t k = 1; k < length; k++)
        if ((least ? smaller : larger)(x, start + k * inner, start + best * inner)) best = k;
      put_integer(wl_out(r, op, 0), (size_t)(i * inner + j), best);
    }
  return WL_OK;
}

const wl_kernel wl_op_ArgMax = {"ArgMax", check_arg, shape_arg, compute_arg, WL_NUMBERS | WL_QUANTIZED | WL_TYPE(BOOL), 2, 2, 1, 0, 0};
const wl_kernel wl_op_ArgMin = {"ArgMin", check_arg, shape_arg, compute_arg, WL_NUMBERS | WL_QUANTIZED | WL_TYPE(BOOL), 2, 2, 1, 0, 0};

/* ---------------------------------------------------------------- the k largest */

static wl_status check_top(wl_interpreter *r, wl_op *op) {
  WL_TRY(wl_expect_same_type(r, wl_in(r, op, 0), wl_out(r, op, 0), "the result"));
  return wl_expect_type(r, wl_out(r, op, 1), "result 1", WL_TYPE(INT32));
}

static wl_status shape_top(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t k, dims[WL_MAX_RANK];
  WL_TRY(wl_expect_rank(r, x, "operand 0", 1, WL_MAX_RANK));
  WL_TRY(wl_read_int(r, wl_in(r, op, 1), "k", &k));
  int32_t n = x->dims[x->rank - 1];
  if (k < 0 || k > n)
    return wl_fail(r, WL_INVALID_ARGUMENT, "the %d largest of shape %S are asked for", k, x);
  for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
  dims[x->rank - 1] = k;
  op->scratch = (uint64_t)n * sizeof(int32_t);
  WL_TRY(wl_set_shape(r, wl_out(r, op, 0), x->rank, dims));
  return wl_set_shape(r, wl_out(r, op, 1), x->rank, dims);
}

/* Whether a stands before b in the result: larger, or equal and earlier. */
static bool precedes(const wl_tensor *x, int64_t row, int32_t a, int32_t b) {
  if (larger(x, row + a, row + b)) return true;
  return !larger(x, row + b, row + a) && a < b;
}

static void sift(const wl_tensor *x, int64_t row, int32_t *heap, int32_t root, int32_t count) {
  for (int32_t child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && precedes(x, row, heap[child + 1], heap[child])) child++;
    if (!precedes(x, row, heap[child], heap[root])) return;
    int32_t swap = heap[root];
    heap[root] = heap[child];
    heap[child] = swap;
  }
}

static wl_status compute_top(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  wl_tensor *values = wl_out(r, op, 0);
  int32_t n = x->dims[x->rank - 1], k = values->dims[x->rank - 1];
  int32_t *heap = (int32_t *)(void *)wl_scratch(r, 0), *indices = (int32_t *)(void *)wl_out(r, op, 1)->data;
  int64_t rows = wl_product(x->dims, 0, x->rank - 1);
  size_t size = wl_type_size(x->dtype);
  for (int64_t row = 0; row < rows && k; row++) {
    for (int32_t i = 0; i < n; i++) heap[i] = i;
    for (int32_t i = n / 2; i-- > 0;) sift(x, row * n, heap, i, n);
    for (int32_t i = 0; i < k; i++) {
      int64_t at = row * k + i;
      indices[at] = heap[0];
      memcpy(values->data + (size_t)at * size, x->data + (size_t)(row * n + heap[0]) * size, size);
      heap[0] = heap[n - 1 - i];
      sift(x, row * n, heap, 0, n - 1 - i);
    }
  }
  return WL_OK;
}

const wl_kernel wl_op_TopK = {"TopK", check_top, shape_top, compute_top, WL_NUMBERS | WL_QUANTIZED, 2, 2, 2, 0, 0};

/* ---------------------------------------------------------------- running sums */

static wl_status shape_cumsum(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  int64_t axis;
  int at;
  WL_TRY(wl_read_int(r, wl_in(r, op, 1), "the axis", &axis));
  WL_TRY(wl_axis(r, axis, x->rank, &at));
  op->memo[OUTER] = wl_product(x->dims, 0, at);
  op->memo[LENGTH] = x->dims[at];
  op->memo[INNER] = wl_product(x->dims, at + 1, x->rank);
  return wl_set_shape_of(r, wl_out(r, op, 0), x);
}

#define SUMS(type, sum_type)                                                                           \
  static void type##_sums(const wl_op *op, bool exclusive, bool reverse, const type *x, type *out) {   \
    int64_t inner = op->memo[INNER], length = op->memo[LENGTH];                                        \
    for (int64_t i = 0; i < op->memo[OUTER]; i++)                                                      \
      for (int64_t j = 0; j < inner; j++) {                                                            \
        sum_type sum = 0;                                                                              \
        for (int64_t k = 0; k < length; k++) {                                                         \
          int64_t at = (i * length + (reverse ? length - 1 - k : k)) * inner + j;                      \
          sum_type next = sum + (sum_type)x[at];                                                       \
          out[at] = (type)(exclusive ? sum : next);                                                    \
          sum = next;                                                                                  \
        }                                                                                              \
      }                                                                                                \
  }
SUMS(float, float)
SUMS(int32_t, uint32_t)
SUMS(int64_t, uint64_t)

static wl_status compute_cumsum(wl_interpreter *r, wl_op *op) {
  const wl_tensor *x = wl_in(r, op, 0);
  void *out = wl_out(r, op, 0)->data;
  const void *in = x->data;
  bool exclusive = wl_byte(r, op, WL_REDUCE_EXCLUSIVE), reverse = wl_byte(r, op, WL_REDUCE_REVERSE);
  if (x->dtype == WL_TYPE_FLOAT32) float_sums(op, exclusive, reverse, in, out);
  else if (x->dtype == WL_TYPE_INT32) int32_t_sums(op, exclusive, reverse, in, out);
  else int64_t_sums(op, exclusive, reverse, in, out);
  return WL_OK;
}

const wl_kernel wl_op_Cumsum = {"Cumsum", check_reduce, shape_cumsum, compute_cumsum, WL_NUMBERS, 2, 2, 1, 1 + WL_TABLE_REDUCE_OPTIONS, 0};
