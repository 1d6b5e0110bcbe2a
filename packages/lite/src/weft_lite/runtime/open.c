/* Opens a file: header, checksums, tables, tensors and ops, each verified before it is used. */
#include "runtime.h"

enum { HEADER = 64, MOST = 1 << 24 };

typedef struct parts {
  const uint8_t *metadata, *weights;
  size_t metadata_bytes, weights_bytes;
  uint32_t weights_crc;
} parts;

static uint64_t number(const uint8_t *p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << (8 * i);
  return value;
}

#ifdef WL_SMALL_STACK
uint32_t wl_crc32(const uint8_t *p, size_t n) {
  uint32_t c = ~0u;
  while (n--) {
    c ^= *p++;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
  }
  return ~c;
}
#else
static void crc_table(uint32_t table[4][256]) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    table[0][i] = c;
  }
  for (uint32_t i = 0; i < 256; i++)
    for (int k = 1; k < 4; k++)
      table[k][i] = table[0][table[k - 1][i] & 255] ^ table[k - 1][i] >> 8;
}

uint32_t wl_crc32(const uint8_t *p, size_t n) {
  uint32_t table[4][256], c = ~0u;
  crc_table(table);
  for (; n >= 4; n -= 4, p += 4) {
    c ^= (uint32_t)number(p, 4);
    c = table[3][c & 255] ^ table[2][c >> 8 & 255] ^ table[1][c >> 16 & 255] ^ table[0][c >> 24];
  }
  while (n--) c = table[0][(c ^ *p++) & 255] ^ c >> 8;
  return ~c;
}
#endif

static wl_status read_header(const uint8_t *file, size_t size, parts *found, wl_error *error) {
  if ((uintptr_t)file % WL_ALIGNMENT)
    return wl_refuse(error, WL_INVALID_ARGUMENT, "the file must lie at a multiple of 64 bytes");
  if (size < HEADER || memcmp(file, "weftlite", 8) != 0)
    return wl_refuse(error, WL_DATA_LOSS, "this is no weftlite file: it does not begin as one");
  if (number(file + 60, 4) != wl_crc32(file, 60))
    return wl_refuse(error, WL_DATA_LOSS, "header: the checksum does not fit");
  if (number(file + 8, 4) != 1 || number(file + 12, 4) != HEADER)
    return wl_refuse(error, WL_UNIMPLEMENTED, "header: layout %d is unknown",
                     (int64_t)number(file + 8, 4));
  uint64_t metadata = number(file + 16, 8), start = number(file + 24, 8);
  uint64_t weights = number(file + 32, 8);
  if (metadata > size - HEADER || start < HEADER + metadata || start % WL_ALIGNMENT ||
      start > size || weights != size - start)
    return wl_refuse(error, WL_DATA_LOSS, "header: sections do not fit into %d bytes", (int64_t)size);
  *found = (parts){file + HEADER, file + start, (size_t)metadata, (size_t)weights,
                   (uint32_t)number(file + 44, 4)};
  if (number(file + 40, 4) != wl_crc32(found->metadata, found->metadata_bytes))
    return wl_refuse(error, WL_DATA_LOSS, "metadata: the checksum does not fit");
  return wl_check_tables(found->metadata, found->metadata_bytes, error);
}

wl_status wl_verify_weights(const void *file, size_t size, wl_error *error) {
  parts found;
  WL_TRY(read_header(file, size, &found, error));
  if (wl_crc32(found.weights, found.weights_bytes) != found.weights_crc)
    return wl_refuse(error, WL_DATA_LOSS, "weights: the checksum does not fit");
  return WL_OK;
}

/* ---------------------------------------------------------------- memory */

typedef struct needs {
  size_t tensors, ops, plan, scratch, arena, total; /* where each begins, and the end */
} needs;

static size_t round_up(size_t n) { return (n + WL_ALIGNMENT - 1) & ~(size_t)(WL_ALIGNMENT - 1); }

static unsigned tasks_of(const wl_config *config) {
  unsigned tasks = config && config->tasks ? config->tasks : 1;
  return tasks < WL_MAX_TASKS ? tasks : WL_MAX_TASKS;
}

static uint32_t count_of(const uint8_t *m, unsigned slot) {
  return wl_length(m, wl_follow(m, wl_root(m), slot));
}

static wl_status measure(const parts *file, const wl_config *config, needs *found, wl_error *error) {
  const uint8_t *m = file->metadata;
  uint64_t wanted = wl_number(m, wl_root(m), WL_MODEL_MIN_READER, 4);
  if (wanted > WL_FORMAT_VERSION)
    return wl_refuse(error, WL_UNIMPLEMENTED, "the file needs version %d of the format; this is %d",
                     (int64_t)wanted, (int64_t)WL_FORMAT_VERSION);
  uint32_t tensors = count_of(m, WL_MODEL_TENSORS), ops = count_of(m, WL_MODEL_OPS);
  uint32_t subgraphs = count_of(m, WL_MODEL_SUBGRAPHS);
  if (!subgraphs || tensors > MOST || ops > MOST)
    return wl_refuse(error, WL_DATA_LOSS, "the file has no graph, or too large a one");
  uint64_t arena = wl_number(m, wl_root(m), WL_MODEL_ARENA_SIZE, 8);
  uint64_t scratch = wl_number(m, wl_root(m), WL_MODEL_SCRATCH_SIZE, 8);
  if (arena > PTRDIFF_MAX / 4 || scratch > PTRDIFF_MAX / 4 / WL_MAX_TASKS)
    return wl_refuse(error, WL_RESOURCE_EXHAUSTED, "the arena of %d bytes is larger than any memory",
                     (int64_t)arena);
  uint64_t whole = sizeof(wl_interpreter) + (uint64_t)tensors * sizeof(wl_tensor) +
                   (uint64_t)ops * sizeof(wl_op) + wl_plan_memory(tensors, ops, subgraphs) +
                   tasks_of(config) * (scratch + WL_ALIGNMENT) + arena + 6 * WL_ALIGNMENT;
  if (whole > PTRDIFF_MAX) /* on machines of 32 bits */
    return wl_refuse(error, WL_RESOURCE_EXHAUSTED, "%d bytes are more than any memory", (int64_t)whole);
  found->tensors = round_up(sizeof(wl_interpreter));
  found->ops = found->tensors + round_up(sizeof(wl_tensor) * (size_t)tensors);
  found->plan = found->ops + round_up(sizeof(wl_op) * (size_t)ops);
  found->scratch = found->plan + round_up((size_t)wl_plan_memory(tensors, ops, subgraphs));
  found->arena = found->scratch + tasks_of(config) * round_up((size_t)scratch);
  found->total = found->arena + round_up((size_t)arena);
  return WL_OK;
}

wl_status wl_query(const void *file, size_t size, const wl_config *config, size_t *bytes,
                   wl_error *error) {
  parts found;
  needs needed;
  WL_TRY(read_header(file, size, &found, error));
  WL_TRY(measure(&found, config, &needed, error));
  *bytes = needed.total;
  return WL_OK;
}

/* ---------------------------------------------------------------- tensors */

#define REFUSE(...) wl_refuse(error, WL_DATA_LOSS, __VA_ARGS__)

static wl_status bytes_of(const wl_tensor *t, uint64_t *bytes) {
  int64_t room = (int64_t)wl_type_size(t->dtype), count = room;
  for (int i = 0; i < t->rank; i++, count *= t->dims[i - 1])
    if (!wl_extend(&room, t->dims[i])) return WL_DATA_LOSS;
  *bytes = (uint64_t)count;
  return WL_OK;
}

static wl_status read_shape(const uint8_t *m, wl_tensor *t, int64_t i, wl_error *error) {
  uint32_t shape = wl_follow(m, t->table, WL_TENSOR_SHAPE);
  uint32_t bound = wl_follow(m, t->table, WL_TENSOR_BOUND);
  uint32_t rank = wl_length(m, shape);
  if (rank > WL_MAX_RANK) return REFUSE("tensor %d: its rank %d is above 8", i, (int64_t)rank);
  t->rank = (uint8_t)rank;
  t->declared = wl_ints(m, shape);
  t->bound = bound ? wl_ints(m, bound) : NULL;
  if (bound && wl_length(m, bound) != rank) return REFUSE("tensor %d: its bound has another rank", i);
  for (uint32_t d = 0; d < rank; d++) {
    int32_t size = t->declared[d];
    if (size == -1 && t->bound && t->storage == WL_STORAGE_ARENA) size = t->bound[d];
    if (size < 0 || (t->bound && t->bound[d] < size))
      return REFUSE("tensor %d: size %d has no bound, or is above it", i, (int64_t)d);
    t->dims[d] = size;
  }
  return WL_OK;
}

static wl_status read_quantization(const uint8_t *m, wl_tensor *t, int64_t i, wl_error *error) {
  uint32_t table = wl_follow(m, t->table, WL_TENSOR_QUANTIZATION);
  if (!table) return WL_OK;
  uint32_t scales = wl_follow(m, table, WL_QUANTIZATION_SCALES);
  uint32_t zeros = wl_follow(m, table, WL_QUANTIZATION_ZERO_POINTS);
  t->scale_count = wl_length(m, scales);
  t->zero_point_count = wl_length(m, zeros);
  t->axis = (int32_t)wl_number(m, table, WL_QUANTIZATION_AXIS, 4);
  if (!t->scale_count) return REFUSE("tensor %d: its quantization has no scale", i);
  t->scales = (const float *)(const void *)(m + scales + 4);
  t->zero_points = wl_ints(m, zeros);
  if (t->zero_point_count > 1 && t->zero_point_count != t->scale_count)
    return REFUSE("tensor %d: it has other numbers of scales and of zero points", i);
  if (t->scale_count > 1 && t->layout == WL_LAYOUT_PLAIN &&
      (t->axis < 0 || t->axis >= t->rank || t->declared[t->axis] != (int64_t)t->scale_count))
    return REFUSE("tensor %d: it has %d scales, which is not the size of an axis", i,
                  (int64_t)t->scale_count);
  for (uint32_t k = 0; k < t->scale_count; k++)
    if (!(t->scales[k] >= FLT_MIN && t->scales[k] <= FLT_MAX))
      return REFUSE("tensor %d: scale %d is not positive and finite", i, (int64_t)k);
  int64_t low = t->dtype == WL_TYPE_UINT8 ? 0 : t->dtype == WL_TYPE_INT8 ? -128 : 0;
  int64_t high = t->dtype == WL_TYPE_UINT8 ? 255 : t->dtype == WL_TYPE_INT8 ? 127 : 0;
  for (uint32_t k = 0; k < t->zero_point_count; k++)
    if (t->zero_points[k] < low || t->zero_points[k] > high)
      return REFUSE("tensor %d: zero point %d is not one of its type", i, (int64_t)t->zero_points[k]);
  return WL_OK;
}

static wl_status place(wl_interpreter *r, wl_tensor *t, int64_t i, wl_error *error) {
  const uint8_t *m = r->metadata;
  uint64_t offset = wl_number(m, t->table, WL_TENSOR_OFFSET, 8);
  uint64_t size = wl_number(m, t->table, WL_TENSOR_SIZE, 8), bytes;
  uint64_t limit = t->storage == WL_STORAGE_CONSTANT ? r->weights_bytes : r->arena_bytes;
  if (bytes_of(t, &bytes) != WL_OK) return REFUSE("tensor %d: it is larger than any memory", i);
  if (offset % WL_ALIGNMENT || offset > limit || size > limit - offset)
    return REFUSE("tensor %d: bytes %d and %d more are not in its section, or not aligned", i,
                  (int64_t)offset, (int64_t)size);
  if (bytes > size || (t->storage == WL_STORAGE_CONSTANT && bytes != size))
    return REFUSE("tensor %d: its shape has %d bytes, and it has %d", i, (int64_t)bytes,
                  (int64_t)size);
  uint64_t initial = wl_number(m, t->table, WL_TENSOR_INITIAL, 8);
  if (wl_number(m, t->table, WL_TENSOR_HAS_INITIAL, 1) &&
      (initial % WL_ALIGNMENT || initial > r->weights_bytes || bytes > r->weights_bytes - initial))
    return REFUSE("tensor %d: its first value is not in the weights, or not aligned", i);
  t->bytes = (size_t)bytes;
  t->capacity = (size_t)size;
  /* Constants are never written to: the verifier refuses results that are not in the arena. */
  t->data = t->storage == WL_STORAGE_CONSTANT ? (uint8_t *)(uintptr_t)r->weights + offset
                                              : r->arena + offset;
  return WL_OK;
}

static wl_status read_tensors(wl_interpreter *r, wl_error *error) {
  const uint8_t *m = r->metadata;
  uint32_t vector = wl_follow(m, wl_root(m), WL_MODEL_TENSORS);
  for (uint32_t i = 0; i < r->tensor_count; i++) {
    wl_tensor *t = &r->tensors[i];
    memset(t, 0, sizeof *t);
    t->table = wl_item(m, vector, i);
    t->dtype = (uint8_t)wl_number(m, t->table, WL_TENSOR_DTYPE, 1);
    t->storage = (uint8_t)wl_number(m, t->table, WL_TENSOR_STORAGE, 1);
    t->layout = (uint8_t)wl_number(m, t->table, WL_TENSOR_LAYOUT, 1);
    if (!wl_type_size(t->dtype) || t->storage > WL_STORAGE_VARIABLE ||
        t->layout > WL_LAYOUT_PANELS4)
      return REFUSE("tensor %d: its type, storage or layout is unknown", (int64_t)i);
    WL_TRY(read_shape(m, t, i, error));
    WL_TRY(read_quantization(m, t, i, error));
    WL_TRY(place(r, t, i, error));
  }
  return WL_OK;
}

/* ---------------------------------------------------------------- ops */

static wl_status check_operands(wl_interpreter *r, wl_op *op) {
  const wl_kernel *k = op->kernel;
  if ((int64_t)op->input_count < k->least || (k->most >= 0 && (int64_t)op->input_count > k->most))
    return wl_fail(r, WL_DATA_LOSS, "it takes %d to %d operands, not %d", (int64_t)k->least,
                   (int64_t)k->most, (int64_t)op->input_count);
  if (k->results >= 0 && op->output_count != (uint32_t)k->results)
    return wl_fail(r, WL_DATA_LOSS, "it has %d results, not %d", (int64_t)k->results,
                   (int64_t)op->output_count);
  for (uint32_t i = 0; i < op->input_count + op->output_count; i++) {
    bool result = i >= op->input_count;
    int32_t t = result ? op->outputs[i - op->input_count] : op->inputs[i];
    if (t < (result || (int64_t)i < k->least ? 0 : -1) || t >= (int64_t)r->tensor_count)
      return wl_fail(r, WL_DATA_LOSS, "there is no tensor %d", (int64_t)t);
  }
  if (op->input_count && op->inputs[0] >= 0 && k->types)
    WL_TRY(wl_expect_type(r, &r->tensors[op->inputs[0]], "operand 0", k->types));
  return WL_OK;
}

static wl_status read_op(wl_interpreter *r, wl_op *op, uint32_t table) {
  const uint8_t *m = r->metadata;
  memset(op, 0, sizeof *op);
  op->table = table;
  op->kind = (uint16_t)wl_number(m, table, WL_OP_KIND, 2);
  op->kernel = wl_kernel_of(op->kind);
  if (!op->kernel)
    return wl_refuse(r->error, WL_UNIMPLEMENTED, "op %d: this runtime has no kernel for kind %d",
                     (int64_t)(op - r->ops), (int64_t)op->kind);
  uint32_t inputs = wl_follow(m, table, WL_OP_INPUTS), outputs = wl_follow(m, table, WL_OP_OUTPUTS);
  op->inputs = wl_ints(m, inputs);
  op->outputs = wl_ints(m, outputs);
  op->input_count = wl_length(m, inputs);
  op->output_count = wl_length(m, outputs);
  op->options = wl_follow(m, table, WL_OP_OPTIONS);
  unsigned kind = op->options ? (unsigned)wl_number(m, table, WL_OP_OPTIONS - 1, 1) : 0;
  r->current = op;
  if (kind ? kind != (unsigned)op->kernel->options : op->kernel->options != 0)
    return wl_fail(r, WL_DATA_LOSS, "its options are missing or those of another family");
  return check_operands(r, op);
}

static wl_status read_ops(wl_interpreter *r) {
  uint32_t vector = wl_follow(r->metadata, wl_root(r->metadata), WL_MODEL_OPS);
  for (uint32_t i = 0; i < r->op_count; i++)
    WL_TRY(read_op(r, &r->ops[i], wl_item(r->metadata, vector, i)));
  r->current = NULL;
  return WL_OK;
}

static wl_status check_kernels(wl_interpreter *r) {
  for (uint32_t i = 0; i < r->op_count; i++) {
    r->current = &r->ops[i];
    if (r->ops[i].kernel->check) WL_TRY(r->ops[i].kernel->check(r, &r->ops[i]));
  }
  r->current = NULL;
  return WL_OK;
}

static wl_status check_bindings(wl_interpreter *r) {
  for (uint32_t s = 0; s < wl_signature_count(r); s++)
    for (int outputs = 0; outputs < 2; outputs++)
      for (uint32_t i = 0; i < wl_binding_count(r, s, outputs); i++) {
        uint32_t tensor;
        wl_binding(r, s, outputs, i, &tensor);
        if (tensor >= r->tensor_count)
          return wl_refuse(r->error, WL_DATA_LOSS, "signature %d names tensor %d, which is not there",
                           (int64_t)s, (int64_t)tensor);
      }
  return WL_OK;
}

void wl_reset_variables(wl_interpreter *r) {
  for (uint32_t i = 0; i < r->tensor_count; i++) {
    wl_tensor *t = &r->tensors[i];
    if (t->storage != WL_STORAGE_VARIABLE || !t->bytes) continue;
    if (wl_number(r->metadata, t->table, WL_TENSOR_HAS_INITIAL, 1))
      memcpy(t->data, r->weights + wl_number(r->metadata, t->table, WL_TENSOR_INITIAL, 8), t->bytes);
    else
      memset(t->data, 0, t->bytes);
  }
}

static wl_status check_scratch(wl_interpreter *r, wl_error *error) {
  if (r->scratch_needed > r->scratch_bytes && r->scratch_bytes)
    return REFUSE("the kernels need %d bytes of scratch, and the file has %d",
                  (int64_t)r->scratch_needed, (int64_t)r->scratch_bytes);
  return WL_OK;
}

wl_status wl_open(const void *file, size_t size, void *memory, size_t bytes,
                  const wl_config *config, wl_interpreter **interpreter, wl_error *error) {
  parts found;
  needs needed;
  *interpreter = NULL;
  WL_TRY(read_header(file, size, &found, error));
  WL_TRY(measure(&found, config, &needed, error));
  if (!memory || (uintptr_t)memory % WL_ALIGNMENT || bytes < needed.total)
    return wl_refuse(error, WL_RESOURCE_EXHAUSTED, "%d bytes at a multiple of 64 are needed, not %d",
                     (int64_t)needed.total, (int64_t)bytes);
  uint8_t *base = memory;
  wl_interpreter *r = memory;
  memset(r, 0, sizeof *r);
  if (config) r->config = *config;
  r->config.tasks = tasks_of(config);
  if (!r->config.work_limit) r->config.work_limit = 1ull << 32;
  r->error = error;
  r->vector = wl_vector_at(0);
  r->metadata = found.metadata;
  r->metadata_bytes = found.metadata_bytes;
  r->weights = found.weights;
  r->weights_bytes = found.weights_bytes;
  r->tensors = (wl_tensor *)(void *)(base + needed.tensors);
  r->ops = (wl_op *)(void *)(base + needed.ops);
  r->tensor_count = count_of(r->metadata, WL_MODEL_TENSORS);
  r->op_count = count_of(r->metadata, WL_MODEL_OPS);
  r->subgraphs = wl_follow(r->metadata, wl_root(r->metadata), WL_MODEL_SUBGRAPHS);
  r->subgraph_count = wl_length(r->metadata, r->subgraphs);
  r->scratch = base + needed.scratch;
  r->arena = base + needed.arena;
  r->arena_bytes = (size_t)wl_number(r->metadata, wl_root(r->metadata), WL_MODEL_ARENA_SIZE, 8);
  r->scratch_bytes =
      round_up((size_t)wl_number(r->metadata, wl_root(r->metadata), WL_MODEL_SCRATCH_SIZE, 8));
  WL_TRY(read_tensors(r, error));
  WL_TRY(read_ops(r));
  WL_TRY(wl_check_plan(r, base + needed.plan, error));
  WL_TRY(check_bindings(r));
  WL_TRY(check_kernels(r));
  wl_reset_variables(r);
  WL_TRY(wl_plan(r, error));
  WL_TRY(check_scratch(r, error));
  *interpreter = r;
  return WL_OK;
}
