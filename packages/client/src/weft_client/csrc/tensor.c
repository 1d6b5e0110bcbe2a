/* Tensors. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  size_t size;
} types[] = {
    [WEFT_FLOAT32] = {"float32", 4},
    [WEFT_FLOAT64] = {"float64", 8},
    [WEFT_INT32] = {"int32", 4},
    [WEFT_UINT8] = {"uint8", 1},
    [WEFT_INT16] = {"int16", 2},
    [WEFT_INT8] = {"int8", 1},
    [WEFT_STRING] = {"string", 0},
    [WEFT_COMPLEX64] = {"complex64", 8},
    [WEFT_INT64] = {"int64", 8},
    [WEFT_BOOL] = {"bool", 1},
    [WEFT_QINT8] = {"qint8", 1},
    [WEFT_QUINT8] = {"quint8", 1},
    [WEFT_QINT32] = {"qint32", 4},
    [WEFT_BFLOAT16] = {"bfloat16", 2},
    [WEFT_QINT16] = {"qint16", 2},
    [WEFT_QUINT16] = {"quint16", 2},
    [WEFT_UINT16] = {"uint16", 2},
    [WEFT_COMPLEX128] = {"complex128", 16},
    [WEFT_FLOAT16] = {"float16", 2},
    [WEFT_RESOURCE] = {"resource", 0},
    [WEFT_VARIANT] = {"variant", 0},
    [WEFT_UINT32] = {"uint32", 4},
    [WEFT_UINT64] = {"uint64", 8},
    [WEFT_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [WEFT_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [WEFT_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 1},
    [WEFT_FLOAT8_E4M3B11FNUZ] = {"float8_e4m3b11fnuz", 1},
    [WEFT_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 1},
    [WEFT_INT4] = {"int4", 1},
    [WEFT_UINT4] = {"uint4", 1},
    [WEFT_INT2] = {"int2", 1},
    [WEFT_UINT2] = {"uint2", 1},
    [WEFT_FLOAT4_E2M1FN] = {"float4_e2m1fn", 1},
};

static bool is_type(weft_dtype dtype) {
  return (unsigned)dtype < sizeof types / sizeof *types && types[dtype].name;
}

size_t weft_dtype_size(weft_dtype dtype) { return is_type(dtype) ? types[dtype].size : 0; }

const char *weft_dtype_name(weft_dtype dtype) { return is_type(dtype) ? types[dtype].name : NULL; }

/* A tensor without memory; its elements and their bytes are counted without overflow. */
static weft_tensor *allocate(weft_dtype dtype, const int64_t *dims, int rank, uint64_t *needed,
                             weft_status *status) {
  if (!is_type(dtype) || dtype == WEFT_RESOURCE || dtype == WEFT_VARIANT) {
    const char *name = weft_dtype_name(dtype);
    wc_fail(status, WEFT_INVALID_ARGUMENT, "no tensor can have the type %s (%d)",
            name ? name : "with this number", (int)dtype);
    return NULL;
  }
  if (rank < 0 || rank > WEFT_MAX_RANK) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a tensor has a rank of 0 to %d, got %d", WEFT_MAX_RANK,
            rank);
    return NULL;
  }
  if (rank && !dims) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a tensor of rank %d needs sizes, got NULL", rank);
    return NULL;
  }
  size_t element = dtype == WEFT_STRING ? 8 : types[dtype].size;
  uint64_t count = 1;
  bool has_zero = false, is_vast = false;
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 0) {
      wc_fail(status, WEFT_INVALID_ARGUMENT, "axis %d of a tensor has the size %lld", i,
              (long long)dims[i]);
      return NULL;
    }
    if (!dims[i]) has_zero = true;
    if (dims[i] && count > (uint64_t)(INT64_MAX - 8) / element / (uint64_t)dims[i]) is_vast = true;
    if (!is_vast && dims[i]) count *= (uint64_t)dims[i];
  }
  if (is_vast) {
    wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "a tensor of this shape has more than 2^63 bytes");
    return NULL;
  }
  if (has_zero) count = 0;
  weft_tensor *tensor = calloc(1, sizeof *tensor);
  if (!tensor) {
    wc_no_memory(status);
    return NULL;
  }
  atomic_init(&tensor->references, 1);
  tensor->dtype = dtype;
  tensor->rank = rank;
  if (rank) memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
  tensor->num_elements = (int64_t)count;
  *needed = count * element + (dtype == WEFT_STRING ? 8 : 0);
  return tensor;
}

static void free_data(void *data, void *argument) {
  (void)argument;
  free(data);
}

static weft_tensor *with_memory(weft_tensor *tensor, uint64_t size, weft_status *status) {
  if (!tensor) return NULL;
  tensor->data = size > SIZE_MAX - 1 ? NULL : malloc(size ? (size_t)size : 1);
  tensor->size_bytes = (size_t)size;
  tensor->release = free_data;
  if (tensor->data) return tensor;
  wc_fail(status, WEFT_RESOURCE_EXHAUSTED, "there is no memory for a tensor of %llu bytes",
          (unsigned long long)size);
  free(tensor);
  return NULL;
}

weft_tensor *weft_tensor_new(weft_dtype dtype, const int64_t *dims, int rank,
                             weft_status *status) {
  uint64_t size;
  if (dtype == WEFT_STRING) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "use weft_tensor_strings for a tensor of strings");
    return NULL;
  }
  weft_tensor *tensor = allocate(dtype, dims, rank, &size, status);
  return tensor ? with_memory(tensor, size, status) : NULL;
}

weft_tensor *weft_tensor_borrow(weft_dtype dtype, const int64_t *dims, int rank, void *data,
                                size_t size_bytes, void (*release)(void *, void *),
                                void *argument, weft_status *status) {
  uint64_t needed;
  if (dtype == WEFT_STRING) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "use weft_tensor_strings for a tensor of strings");
    return NULL;
  }
  weft_tensor *tensor = allocate(dtype, dims, rank, &needed, status);
  if (!tensor) return NULL;
  if (needed != size_bytes || (!data && needed)) {
    wc_fail(status, WEFT_INVALID_ARGUMENT, "a tensor of this type and shape has %llu bytes, got %zu",
            (unsigned long long)needed, data ? size_bytes : (size_t)0);
    free(tensor);
    return NULL;
  }
  tensor->data = data;
  tensor->size_bytes = size_bytes;
  tensor->release = release;
  tensor->argument = argument;
  return tensor;
}

weft_tensor *weft_tensor_strings(const char *const *items, const size_t *sizes,
                                 const int64_t *dims, int rank, weft_status *status) {
  uint64_t start;
  weft_tensor *tensor = allocate(WEFT_STRING, dims, rank, &start, status);
  if (!tensor) return NULL;
  uint64_t total = start;
  for (int64_t i = 0; i < tensor->num_elements; i++)
    if (!items || (!items[i] && !(sizes && !sizes[i]))) {
      wc_fail(status, WEFT_INVALID_ARGUMENT, "string %lld of a tensor is NULL", (long long)i);
      free(tensor);
      return NULL;
    }
  for (int64_t i = 0; i < tensor->num_elements; i++)
    total += sizes ? sizes[i] : strlen(items[i]);
  if (!with_memory(tensor, total, status)) return NULL;
  uint64_t offset = 0;
  wc_store(tensor->data, 0, 8);
  for (int64_t i = 0; i < tensor->num_elements; i++) {
    size_t size = sizes ? sizes[i] : strlen(items[i]);
    if (size) memcpy(tensor->data + start + offset, items[i], size);
    offset += size;
    wc_store(tensor->data + 8 * (i + 1), offset, 8);
  }
  return tensor;
}

weft_tensor *wc_tensor_with_size(weft_dtype dtype, const int64_t *dims, int rank,
                                 uint64_t size_bytes, weft_status *status) {
  uint64_t needed;
  weft_tensor *tensor = allocate(dtype, dims, rank, &needed, status);
  if (!tensor) return NULL;
  if (dtype == WEFT_STRING ? size_bytes < needed : size_bytes != needed) {
    wc_fail(status, WEFT_DATA_LOSS, "a value of %llu bytes cannot have its type and shape",
            (unsigned long long)size_bytes);
    free(tensor);
    return NULL;
  }
  return with_memory(tensor, size_bytes, status);
}

bool wc_has_valid_strings(const weft_tensor *tensor) {
  if (tensor->dtype != WEFT_STRING) return true;
  uint64_t before = 0, count = (uint64_t)tensor->num_elements;
  for (uint64_t i = 0; i <= count; i++) {
    uint64_t offset = wc_load(tensor->data + 8 * i, 8);
    if (offset < before || (!i && offset)) return false;
    before = offset;
  }
  return before == tensor->size_bytes - 8 * (count + 1);
}

const char *weft_tensor_string(const weft_tensor *tensor, int64_t index, size_t *size) {
  if (!tensor || tensor->dtype != WEFT_STRING || index < 0 || index >= tensor->num_elements)
    return NULL;
  const uint8_t *offsets = tensor->data + 8 * index;
  uint64_t begin = wc_load(offsets, 8), end = wc_load(offsets + 8, 8);
  if (size) *size = (size_t)(end - begin);
  return (const char *)tensor->data + 8 * (tensor->num_elements + 1) + begin;
}

weft_tensor *weft_tensor_retain(weft_tensor *tensor) {
  if (tensor) atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
  return tensor;
}

void weft_tensor_free(weft_tensor *tensor) {
  if (!tensor || atomic_fetch_sub_explicit(&tensor->references, 1, memory_order_acq_rel) > 1)
    return;
  if (tensor->release) tensor->release(tensor->data, tensor->argument);
  free(tensor);
}

weft_dtype weft_tensor_dtype(const weft_tensor *tensor) {
  return tensor ? tensor->dtype : (weft_dtype)0;
}
int weft_tensor_rank(const weft_tensor *tensor) { return tensor ? tensor->rank : -1; }
int64_t weft_tensor_dim(const weft_tensor *tensor, int axis) {
  return tensor && axis >= 0 && axis < tensor->rank ? tensor->dims[axis] : -1;
}
int64_t weft_tensor_num_elements(const weft_tensor *tensor) {
  return tensor ? tensor->num_elements : 0;
}
size_t weft_tensor_size_bytes(const weft_tensor *tensor) { return tensor ? tensor->size_bytes : 0; }
void *weft_tensor_data(const weft_tensor *tensor) { return tensor ? tensor->data : NULL; }
