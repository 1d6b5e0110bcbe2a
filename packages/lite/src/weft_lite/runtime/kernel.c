/* What kernels share: their table, checks of operands, shapes, and pieces for tasks. */
#include "runtime.h"

/* A build may choose: only the kernels that are named here become part of a program. */
#ifndef WL_KERNELS
#define WL_KERNELS WL_OPS
#endif

#define OP(kind) extern const wl_kernel wl_op_##kind;
WL_KERNELS(OP)
#undef OP

const wl_kernel *wl_kernel_of(uint32_t kind) {
  switch (kind) {
#define OP(kind) \
  case WL_OP_##kind: return &wl_op_##kind;
    WL_KERNELS(OP)
#undef OP
  }
  return NULL;
}

const char *wl_kernel_name(uint32_t kind, uint32_t *types, int *in_place) {
  const wl_kernel *kernel = wl_kernel_of(kind);
  if (!kernel) return NULL;
  *types = kernel->types;
  *in_place = kernel->in_place;
  return kernel->name;
}

size_t wl_type_size(unsigned dtype) {
  switch (dtype) {
    case WL_TYPE_BOOL: case WL_TYPE_INT8: case WL_TYPE_UINT8: return 1;
    case WL_TYPE_INT16: case WL_TYPE_FLOAT16: return 2;
    case WL_TYPE_INT32: case WL_TYPE_FLOAT32: return 4;
    case WL_TYPE_INT64: return 8;
  }
  return 0;
}

const char *wl_type_name(unsigned dtype) {
  switch (dtype) {
    case WL_TYPE_BOOL: return "bool";
    case WL_TYPE_INT8: return "int8";
    case WL_TYPE_UINT8: return "uint8";
    case WL_TYPE_INT16: return "int16";
    case WL_TYPE_FLOAT16: return "float16";
    case WL_TYPE_INT32: return "int32";
    case WL_TYPE_FLOAT32: return "float32";
    case WL_TYPE_INT64: return "int64";
  }
  return "?";
}

int32_t wl_int(const wl_interpreter *r, const wl_op *op, unsigned slot) {
  return (int32_t)wl_number(r->metadata, op->options, slot, 4);
}

uint8_t wl_byte(const wl_interpreter *r, const wl_op *op, unsigned slot) {
  return (uint8_t)wl_number(r->metadata, op->options, slot, 1);
}

float wl_float(const wl_interpreter *r, const wl_op *op, unsigned slot) {
  uint32_t bits = (uint32_t)wl_number(r->metadata, op->options, slot, 4);
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/* ---------------------------------------------------------------- checks */

wl_status wl_expect_type(wl_interpreter *r, const wl_tensor *t, const char *what, uint32_t types) {
  if (types >> t->dtype & 1) return WL_OK;
  return wl_fail(r, WL_DATA_LOSS, "%s may not be %t", what, (int)t->dtype);
}

wl_status wl_expect_same_type(wl_interpreter *r, const wl_tensor *a, const wl_tensor *b,
                              const char *what) {
  if (a->dtype == b->dtype) return WL_OK;
  return wl_fail(r, WL_DATA_LOSS, "%s is %t, not %t", what, (int)b->dtype, (int)a->dtype);
}

wl_status wl_expect_rank(wl_interpreter *r, const wl_tensor *t, const char *what, int least,
                         int most) {
  if (t->rank >= least && t->rank <= most) return WL_OK;
  return wl_fail(r, WL_INVALID_ARGUMENT, "%s has shape %S, its rank must be %d to %d", what, t,
                 (int64_t)least, (int64_t)most);
}

wl_status wl_expect_plain(wl_interpreter *r, const wl_tensor *t, const char *what) {
  if (t->layout == WL_LAYOUT_PLAIN) return WL_OK;
  return wl_fail(r, WL_DATA_LOSS, "%s may not be packed", what);
}

wl_status wl_check_activation(wl_interpreter *r, unsigned activation) {
  if (activation <= WL_ACTIVATION_RELU_N1_TO_1) return WL_OK;
  return wl_fail(r, WL_DATA_LOSS, "activation %d is unknown", (int64_t)activation);
}

void wl_clamp(unsigned activation, float *low, float *high) {
  *low = activation == WL_ACTIVATION_NONE ? -INFINITY : activation == WL_ACTIVATION_RELU_N1_TO_1 ? -1 : 0;
  *high = activation == WL_ACTIVATION_RELU6 ? 6 : activation == WL_ACTIVATION_RELU_N1_TO_1 ? 1 : INFINITY;
}

wl_status wl_axis(wl_interpreter *r, int64_t axis, int rank, int *found) {
  if (axis < -rank || axis >= rank)
    return wl_fail(r, WL_INVALID_ARGUMENT, "axis %d is not one of rank %d", axis, (int64_t)rank);
  *found = (int)(axis < 0 ? axis + rank : axis);
  return WL_OK;
}

/* ---------------------------------------------------------------- shapes */

bool wl_extend(int64_t *count, int64_t size) {
  return size >= 0 && size <= INT32_MAX && wl_multiply(*count, size > 1 ? size : 1, count);
}

bool wl_multiply(int64_t a, int64_t b, int64_t *result) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, result) && *result < (int64_t)1 << 62;
}

int64_t wl_product(const int32_t *dims, int from, int to) {
  int64_t product = 1;
  for (int i = from; i < to; i++) product *= dims[i];
  return product;
}

int64_t wl_elements(const wl_tensor *t) { return wl_product(t->dims, 0, t->rank); }

wl_status wl_set_shape(wl_interpreter *r, wl_tensor *t, int rank, const int64_t *dims) {
  int64_t room = (int64_t)wl_type_size(t->dtype), bytes = room;
  if (t->rank != rank)
    return wl_fail(r, WL_DATA_LOSS, "a result has rank %d, and the file says %d", (int64_t)rank,
                   (int64_t)t->rank);
  for (int i = 0; i < rank; i++) {
    if (!wl_extend(&room, dims[i]))
      return wl_fail(r, WL_INVALID_ARGUMENT, "a result of size %d is not possible", dims[i]);
    bytes *= dims[i];
    if (t->declared[i] >= 0 && t->declared[i] != dims[i])
      return wl_fail(r, WL_DATA_LOSS, "size %d of a result is %d, and the file says %d", (int64_t)i,
                     dims[i], (int64_t)t->declared[i]);
  }
  if ((uint64_t)bytes > t->capacity)
    return wl_fail(r, WL_RESOURCE_EXHAUSTED, "a result of %d bytes is above its bound, %d", bytes,
                   (int64_t)t->capacity);
  for (int i = 0; i < rank; i++) t->dims[i] = (int32_t)dims[i];
  t->bytes = (size_t)bytes;
  return WL_OK;
}

wl_status wl_set_shape_of(wl_interpreter *r, wl_tensor *t, const wl_tensor *like) {
  int64_t dims[WL_MAX_RANK];
  for (int i = 0; i < like->rank; i++) dims[i] = like->dims[i];
  return wl_set_shape(r, t, like->rank, dims);
}

wl_status wl_read_ints(wl_interpreter *r, const wl_tensor *t, const char *what, int most,
                       int64_t *values, int *count) {
  WL_TRY(wl_expect_type(r, t, what, WL_TYPE(INT32) | WL_TYPE(INT64)));
  WL_TRY(wl_expect_rank(r, t, what, 0, 1));
  int64_t n = wl_elements(t);
  if (n > most)
    return wl_fail(r, WL_INVALID_ARGUMENT, "%s has %d entries, at most %d", what, n, (int64_t)most);
  *count = (int)n;
  if (r->planning && !t->known) return WL_LATER;
  for (int i = 0; i < n; i++)
    values[i] = wl_index(t, i);
  return WL_OK;
}

wl_status wl_read_int(wl_interpreter *r, const wl_tensor *t, const char *what, int64_t *value) {
  int count;
  WL_TRY(wl_read_ints(r, t, what, 1, value, &count));
  return count == 1 ? WL_OK : wl_fail(r, WL_INVALID_ARGUMENT, "%s is empty", what);
}

wl_status wl_broadcast(wl_interpreter *r, const wl_tensor *a, const wl_tensor *b, int64_t *dims,
                       int *rank) {
  int n = a->rank > b->rank ? a->rank : b->rank;
  *rank = n;
  for (int i = 0; i < n; i++) {
    int32_t x = i < n - a->rank ? 1 : a->dims[i - (n - a->rank)];
    int32_t y = i < n - b->rank ? 1 : b->dims[i - (n - b->rank)];
    if (x != y && x != 1 && y != 1)
      return wl_fail(r, WL_INVALID_ARGUMENT, "shapes %S and %S do not broadcast", a, b);
    dims[i] = x == 1 ? y : x;
  }
  return WL_OK;
}

/* ---------------------------------------------------------------- pieces */

typedef struct job {
  wl_piece *piece;
  void *argument;
  size_t total, count;
} job;

static void run_piece(void *argument, unsigned i) {
  const job *j = argument;
  size_t begin = j->total / j->count * i + (i < j->total % j->count ? i : j->total % j->count);
  size_t length = j->total / j->count + (i < j->total % j->count);
  j->piece(j->argument, i, begin, begin + length);
}

void wl_split(wl_interpreter *r, size_t total, size_t grain, wl_piece *piece, void *argument) {
  size_t count = grain ? total / grain : total;
  if (count > r->config.tasks) count = r->config.tasks;
  if (count <= 1) {
    if (total) piece(argument, 0, 0, total);
    return;
  }
  job j = {piece, argument, total, count};
  if (r->config.parallel) {
    r->config.parallel(r->config.context, run_piece, &j, (unsigned)count);
  } else {
    for (unsigned i = 0; i < count; i++) run_piece(&j, i);
  }
}

uint8_t *wl_scratch(wl_interpreter *r, unsigned task) { return r->scratch + task * r->scratch_bytes; }

/* ---------------------------------------------------------------- half precision */

float wl_half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  uint32_t bits;
  float value;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | fraction << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    value = (float)fraction * 0x1p-24f;
    return sign ? -value : value;
  }
  memcpy(&value, &bits, 4);
  return value;
}

uint16_t wl_float_to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x47800000) return sign | 0x7c00; /* 65536 and above */
  if (bits < 0x38800000) { /* a subnormal: count units of 2^-24, to the nearest even */
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    return sign | (uint16_t)lrintf(magnitude * 0x1p24f);
  }
  uint32_t rounded = bits + 0xfff + (bits >> 13 & 1);
  return sign | (uint16_t)((rounded >> 13) - (112 << 10));
}
