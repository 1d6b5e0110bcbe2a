/* Plans shapes, runs ops, and answers questions about an interpreter. */
#include "runtime.h"

static const int32_t *list(const wl_interpreter *r, uint32_t subgraph, unsigned slot,
                           uint32_t *count) {
  uint32_t table = wl_item(r->metadata, r->subgraphs, subgraph);
  uint32_t vector = wl_follow(r->metadata, table, slot);
  *count = wl_length(r->metadata, vector);
  return wl_ints(r->metadata, vector);
}

/* ---------------------------------------------------------------- shapes */

/* Results whose shape depends on values: as large as they may be. */
static wl_status take_bounds(wl_interpreter *r, wl_op *op) {
  r->dynamic = true;
  for (uint32_t i = 0; i < op->output_count; i++) {
    wl_tensor *t = wl_out(r, op, i);
    int64_t dims[WL_MAX_RANK];
    for (int d = 0; d < t->rank; d++)
      dims[d] = t->declared[d] >= 0 ? t->declared[d] : t->bound[d];
    WL_TRY(wl_set_shape(r, t, t->rank, dims));
  }
  return WL_OK;
}

static uint64_t bytes_touched(wl_interpreter *r, const wl_op *op) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < op->input_count; i++)
    if (wl_in(r, op, i)) bytes += wl_in(r, op, i)->bytes;
  for (uint32_t i = 0; i < op->output_count; i++) bytes += wl_out(r, op, i)->bytes;
  return bytes;
}

/* A result that lies where an operand does must not be longer: it would be written before it is read. */
static wl_status check_in_place(wl_interpreter *r, const wl_op *op) {
  for (uint32_t i = 0; i < op->input_count && i < op->kernel->in_place; i++) {
    const wl_tensor *operand = wl_in(r, op, i), *result = wl_out(r, op, 0);
    if (operand && operand->data == result->data && operand->bytes != result->bytes &&
        operand->storage != WL_STORAGE_CONSTANT && operand->bytes && result->bytes)
      return wl_fail(r, WL_DATA_LOSS, "its result lies where operand %d does and has another size",
                     (int64_t)i);
  }
  return WL_OK;
}

/* Whether all results are empty, so that there is nothing to compute: loops over what is around an
 * empty axis could be endless. */
static bool is_idle(wl_interpreter *r, const wl_op *op) {
  if (op->kind == WL_OP_If || op->kind == WL_OP_While) return false;
  for (uint32_t i = 0; i < op->output_count; i++)
    if (wl_out(r, op, i)->bytes) return false;
  return true;
}

enum { MOST_KNOWN_BYTES = 1024 };

static bool calls_or_keeps(const wl_op *op) {
  return op->kind == WL_OP_If || op->kind == WL_OP_While || op->kind == WL_OP_Assign;
}

/* What follows from shapes and constants is computed while planning, since shapes may follow from it. */
static void know(wl_interpreter *r, wl_op *op) {
  bool known = op->output_count && !calls_or_keeps(op) && op->scratch <= r->scratch_bytes;
  for (uint32_t i = 0; i < op->input_count; i++)
    if (wl_in(r, op, i) && op->kind != WL_OP_Shape)
      known = known && wl_in(r, op, i)->known && wl_in(r, op, i)->bytes <= MOST_KNOWN_BYTES;
  for (uint32_t i = 0; i < op->output_count; i++)
    known = known && wl_out(r, op, i)->bytes <= MOST_KNOWN_BYTES;
  known = known && (op->idle || op->kernel->compute(r, op) == WL_OK); /* what fails may be in a branch not taken */
  for (uint32_t i = 0; i < op->output_count; i++) wl_out(r, op, i)->known = known;
}

/* What an op was checked with when the file was opened were bounds; the sizes of now may be smaller. */
static wl_status check_again(wl_interpreter *r, wl_op *op) {
  for (uint32_t i = 0; op->kernel->check && i < op->input_count; i++)
    if (wl_in(r, op, i) && wl_in(r, op, i)->bound) return op->kernel->check(r, op);
  return WL_OK;
}

static bool has_provisional_operand(wl_interpreter *r, const wl_op *op) {
  for (uint32_t i = 0; i < op->input_count; i++)
    if (wl_in(r, op, i) && wl_in(r, op, i)->provisional) return true;
  return false;
}

static wl_status shape(wl_interpreter *r, wl_op *op) {
  op->scratch = 0;
  op->cost = 0;
  WL_TRY(check_again(r, op));
  wl_status status = op->kernel->shape(r, op);
  bool later = status == WL_LATER;
  if (r->planning) {
    bool provisional = later || has_provisional_operand(r, op);
    later = later || (provisional && status != WL_OK); /* bounds may not fit together as sizes of a run do */
    for (uint32_t i = 0; i < op->output_count; i++) wl_out(r, op, i)->provisional = provisional;
  }
  if (later) status = take_bounds(r, op);
  WL_TRY(status);
  WL_TRY(check_in_place(r, op));
  op->cost += 1 + bytes_touched(r, op) / 8192;
  op->idle = is_idle(r, op);
  if (r->planning && !later) know(r, op);
  if (op->scratch > r->scratch_needed) r->scratch_needed = op->scratch;
  return WL_OK;
}

wl_status wl_plan_subgraph(wl_interpreter *r, uint32_t subgraph) {
  const wl_op *before = r->current;
  uint32_t table = wl_item(r->metadata, r->subgraphs, subgraph);
  uint32_t first = (uint32_t)wl_number(r->metadata, table, WL_SUBGRAPH_FIRST_OP, 4);
  uint32_t count = (uint32_t)wl_number(r->metadata, table, WL_SUBGRAPH_OP_COUNT, 4);
  for (uint32_t i = first; i < first + count; i++) {
    r->current = &r->ops[i];
    WL_TRY(shape(r, &r->ops[i]));
  }
  r->current = before;
  return WL_OK;
}

wl_status wl_plan(wl_interpreter *r, wl_error *error) {
  r->error = error;
  r->current = NULL;
  r->planning = true;
  r->dynamic = false;
  r->planned = false;
  for (uint32_t i = 0; i < r->tensor_count; i++) {
    r->tensors[i].known = r->tensors[i].storage == WL_STORAGE_CONSTANT;
    r->tensors[i].provisional = false;
  }
  wl_status status = wl_plan_subgraph(r, 0);
  r->planning = false;
  r->planned = status == WL_OK;
  r->current = NULL;
  return status;
}

wl_status wl_resize(wl_interpreter *r, uint32_t tensor, uint32_t rank, const int32_t *dims,
                    wl_error *error) {
  uint32_t count;
  const int32_t *inputs = list(r, 0, WL_SUBGRAPH_INPUTS, &count);
  while (count && (uint32_t)inputs[count - 1] != tensor) count--;
  if (!count)
    return wl_refuse(error, WL_INVALID_ARGUMENT, "tensor %d is not an input", (int64_t)tensor);
  wl_tensor *t = &r->tensors[tensor];
  if (rank != t->rank)
    return wl_refuse(error, WL_INVALID_ARGUMENT, "the input has rank %d, not %d", (int64_t)t->rank,
                     (int64_t)rank);
  int64_t elements = 1;
  for (uint32_t d = 0; d < rank; d++) {
    int64_t most = t->declared[d] >= 0 ? t->declared[d] : t->bound[d];
    if (dims[d] < 0 || dims[d] > most || (t->declared[d] >= 0 && dims[d] != most))
      return wl_refuse(error, WL_OUT_OF_RANGE, "size %d of the input may be %s %d, not %d", (int64_t)d,
                       t->declared[d] >= 0 ? "only" : "at most", most, (int64_t)dims[d]);
    elements *= dims[d];
  }
  for (uint32_t d = 0; d < rank; d++) t->dims[d] = dims[d];
  t->bytes = (size_t)elements * wl_type_size(t->dtype);
  r->planned = false;
  return WL_OK;
}

/* ---------------------------------------------------------------- running */

static wl_status run_op(wl_interpreter *r, wl_op *op) {
  if (r->dynamic) {
    WL_TRY(shape(r, op));
    if (op->scratch > r->scratch_bytes)
      return wl_fail(r, WL_DATA_LOSS, "it needs %d bytes of scratch, and the file has %d",
                     (int64_t)op->scratch, (int64_t)r->scratch_bytes);
  }
  if (op->cost > r->config.work_limit - r->work)
    return wl_fail(r, WL_DEADLINE_EXCEEDED, "the limit of work, %d, is met",
                   (int64_t)r->config.work_limit);
  r->work += op->cost;
  return op->idle ? WL_OK : op->kernel->compute(r, op);
}

wl_status wl_run_subgraph(wl_interpreter *r, uint32_t subgraph) {
  const wl_op *before = r->current;
  uint32_t table = wl_item(r->metadata, r->subgraphs, subgraph);
  uint32_t first = (uint32_t)wl_number(r->metadata, table, WL_SUBGRAPH_FIRST_OP, 4);
  uint32_t end = first + (uint32_t)wl_number(r->metadata, table, WL_SUBGRAPH_OP_COUNT, 4);
  for (uint32_t i = first; i < end; i++) {
    r->current = &r->ops[i];
    if (r->config.watch) r->config.watch(r->config.watch_context, i, 0);
    WL_TRY(run_op(r, &r->ops[i]));
    if (r->config.watch) r->config.watch(r->config.watch_context, i, 1);
  }
  r->current = before;
  return WL_OK;
}

wl_status wl_invoke(wl_interpreter *r, wl_error *error) {
  if (!r->planned) WL_TRY(wl_plan(r, error));
  r->error = error;
  r->current = NULL;
  if (r->scratch_needed > r->scratch_bytes)
    return wl_refuse(error, WL_DATA_LOSS, "the kernels need %d bytes of scratch, and the file has %d",
                     (int64_t)r->scratch_needed, (int64_t)r->scratch_bytes);
  r->work = 0;
  wl_status status = wl_run_subgraph(r, 0);
  r->current = NULL;
  return status;
}

void wl_watch(wl_interpreter *r, void (*watch)(void *, uint32_t, int), void *context) {
  r->config.watch = watch;
  r->config.watch_context = context;
}

/* ---------------------------------------------------------------- questions */

uint32_t wl_tensor_count(const wl_interpreter *r) { return r->tensor_count; }
uint32_t wl_op_count(const wl_interpreter *r) { return r->op_count; }
size_t wl_scratch_needed(const wl_interpreter *r) {
  return r->scratch_needed < SIZE_MAX ? (size_t)r->scratch_needed : SIZE_MAX;
}
size_t wl_arena_bytes(const wl_interpreter *r) { return r->arena_bytes; }
uint32_t wl_format_version(void) { return WL_FORMAT_VERSION; }
const char *wl_instruction_set(void) { return wl_vector_at(0)->name; }

const char *wl_use_instruction_set(wl_interpreter *r, uint32_t i) {
  const wl_vector *vector = wl_vector_at(i);
  if (vector) r->vector = vector;
  return vector ? vector->name : NULL;
}

uint32_t wl_input_count(const wl_interpreter *r) {
  uint32_t count;
  list(r, 0, WL_SUBGRAPH_INPUTS, &count);
  return count;
}

uint32_t wl_output_count(const wl_interpreter *r) {
  uint32_t count;
  list(r, 0, WL_SUBGRAPH_OUTPUTS, &count);
  return count;
}

static uint32_t entry(const wl_interpreter *r, unsigned slot, uint32_t i) {
  uint32_t count;
  const int32_t *found = list(r, 0, slot, &count);
  return i < count ? (uint32_t)found[i] : UINT32_MAX;
}

uint32_t wl_input(const wl_interpreter *r, uint32_t i) { return entry(r, WL_SUBGRAPH_INPUTS, i); }
uint32_t wl_output(const wl_interpreter *r, uint32_t i) { return entry(r, WL_SUBGRAPH_OUTPUTS, i); }

wl_status wl_tensor_info(const wl_interpreter *r, uint32_t tensor, wl_info *info) {
  if (tensor >= r->tensor_count) return WL_INVALID_ARGUMENT;
  const wl_tensor *t = &r->tensors[tensor];
  *info = (wl_info){.name = wl_text(r->metadata, t->table, WL_TENSOR_NAME),
                    .dtype = t->dtype, .storage = t->storage, .layout = t->layout, .rank = t->rank,
                    .bytes = t->bytes, .scales = t->scales, .zero_points = t->zero_points,
                    .scale_count = t->scale_count, .zero_point_count = t->zero_point_count,
                    .axis = t->axis};
  for (int d = 0; d < t->rank; d++) {
    info->dims[d] = t->dims[d];
    info->declared[d] = t->declared[d];
  }
  return WL_OK;
}

wl_status wl_describe_op(const wl_interpreter *r, uint32_t op, wl_op_info *info) {
  if (op >= r->op_count) return WL_INVALID_ARGUMENT;
  info->kind = r->ops[op].kernel->name;
  info->name = wl_text(r->metadata, r->ops[op].table, WL_OP_NAME);
  return WL_OK;
}

uint32_t wl_op_tensors(const wl_interpreter *r, uint32_t op, int results, int32_t *tensors,
                       uint32_t most) {
  if (op >= r->op_count) return 0;
  uint32_t count = results ? r->ops[op].output_count : r->ops[op].input_count;
  const int32_t *found = results ? r->ops[op].outputs : r->ops[op].inputs;
  for (uint32_t i = 0; i < count && i < most; i++) tensors[i] = found[i];
  return count;
}

void *wl_data(wl_interpreter *r, uint32_t tensor) {
  return tensor < r->tensor_count ? r->tensors[tensor].data : NULL;
}

static uint32_t signature_of(const wl_interpreter *r, uint32_t i) {
  uint32_t vector = wl_follow(r->metadata, wl_root(r->metadata), WL_MODEL_SIGNATURES);
  return i < wl_length(r->metadata, vector) ? wl_item(r->metadata, vector, i) : 0;
}

uint32_t wl_signature_count(const wl_interpreter *r) {
  return wl_length(r->metadata, wl_follow(r->metadata, wl_root(r->metadata), WL_MODEL_SIGNATURES));
}

const char *wl_signature_key(const wl_interpreter *r, uint32_t signature) {
  uint32_t table = signature_of(r, signature);
  return table ? wl_text(r->metadata, table, WL_SIGNATURE_KEY) : NULL;
}

uint32_t wl_binding_count(const wl_interpreter *r, uint32_t signature, int outputs) {
  uint32_t table = signature_of(r, signature);
  unsigned slot = outputs ? WL_SIGNATURE_OUTPUTS : WL_SIGNATURE_INPUTS;
  return table ? wl_length(r->metadata, wl_follow(r->metadata, table, slot)) : 0;
}

const char *wl_binding(const wl_interpreter *r, uint32_t signature, int outputs, uint32_t i,
                       uint32_t *tensor) {
  if (i >= wl_binding_count(r, signature, outputs)) return NULL;
  unsigned slot = outputs ? WL_SIGNATURE_OUTPUTS : WL_SIGNATURE_INPUTS;
  uint32_t vector = wl_follow(r->metadata, signature_of(r, signature), slot);
  uint32_t table = wl_item(r->metadata, vector, i);
  *tensor = (uint32_t)wl_number(r->metadata, table, WL_BINDING_TENSOR, 4);
  return wl_text(r->metadata, table, WL_BINDING_NAME);
}
