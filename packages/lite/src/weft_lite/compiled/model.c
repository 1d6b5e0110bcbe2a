/* weft_lite.h for one model that is machine code. `weft_lite_model.inc`, which is written for each model, says
 * what its tensors are, and calls its function. */
#include <string.h>

#include "weft_lite.h"

#include "weft_lite_model.inc"

enum { TENSORS = INPUTS + OUTPUTS };

struct wl_interpreter {
  void (*watch)(void *context, uint32_t op, int ended);
  void *context;
  uint8_t *data[TENSORS + 1];
  uint8_t *arena;
};

static size_t aligned(size_t size) { return (size + WL_ALIGNMENT - 1) / WL_ALIGNMENT * WL_ALIGNMENT; }

static wl_status refuse(wl_error *error, wl_status status, const char *text) {
  if (!error) return status;
  size_t length = 0;
  while (text[length] && length < sizeof error->text - 1) length++;
  memcpy(error->text, text, length);
  error->text[length] = 0;
  error->status = status;
  return status;
}

/* An app may go on to hand over the file that was compiled; another one would give other results. */
static wl_status check_file(const void *file, size_t size, wl_error *error) {
  static const uint8_t header[] = FILE_HEADER;
  if (!file && !size) return WL_OK;
  if (!FILE_SIZE) return refuse(error, WL_INVALID_ARGUMENT, "this model was not compiled from a file: give NULL and 0");
  if (!file || size != FILE_SIZE || memcmp(file, header, sizeof header))
    return refuse(error, WL_INVALID_ARGUMENT, "this library runs one model, and the file is not the one that was compiled");
  return WL_OK;
}

static size_t memory_needed(void) {
  size_t bytes = aligned(sizeof(wl_interpreter)) + ARENA;
  for (uint32_t i = 0; i < TENSORS; i++) bytes += aligned(TENSOR[i].bytes);
  return bytes;
}

WL_API wl_status wl_query(const void *file, size_t size, const wl_config *config, size_t *bytes, wl_error *error) {
  (void)config;
  *bytes = memory_needed();
  return check_file(file, size, error);
}

WL_API wl_status wl_open(const void *file, size_t size, void *memory, size_t bytes, const wl_config *config,
                         wl_interpreter **interpreter, wl_error *error) {
  *interpreter = NULL;
  wl_status status = check_file(file, size, error);
  if (status != WL_OK) return status;
  if (!memory || (uintptr_t)memory % WL_ALIGNMENT)
    return refuse(error, WL_INVALID_ARGUMENT, "memory must lie at a multiple of 64");
  if (bytes < memory_needed()) return refuse(error, WL_RESOURCE_EXHAUSTED, "there is less memory than wl_query says");
  wl_interpreter *r = memory;
  *r = (wl_interpreter){0};
  if (config) r->watch = config->watch, r->context = config->watch_context;
  uint8_t *at = (uint8_t *)memory + aligned(sizeof *r);
  for (uint32_t i = 0; i < TENSORS; i++) {
    r->data[i] = at;
    memset(at, 0, TENSOR[i].bytes);
    at += aligned(TENSOR[i].bytes);
  }
  r->arena = at;
  *interpreter = r;
  return WL_OK;
}

WL_API wl_status wl_verify_weights(const void *file, size_t size, wl_error *error) {
  return check_file(file, size, error); /* its weights are not used */
}

WL_API uint32_t wl_tensor_count(const wl_interpreter *r) {
  (void)r;
  return TENSORS;
}

WL_API uint32_t wl_op_count(const wl_interpreter *r) {
  (void)r;
  return 1;
}

WL_API uint32_t wl_input_count(const wl_interpreter *r) {
  (void)r;
  return INPUTS;
}

WL_API uint32_t wl_output_count(const wl_interpreter *r) {
  (void)r;
  return OUTPUTS;
}

WL_API uint32_t wl_input(const wl_interpreter *r, uint32_t i) {
  (void)r;
  return i < INPUTS ? i : UINT32_MAX;
}

WL_API uint32_t wl_output(const wl_interpreter *r, uint32_t i) {
  (void)r;
  return i < OUTPUTS ? INPUTS + i : UINT32_MAX;
}

WL_API wl_status wl_tensor_info(const wl_interpreter *r, uint32_t tensor, wl_info *info) {
  (void)r;
  if (tensor >= TENSORS) return WL_INVALID_ARGUMENT;
  *info = TENSOR[tensor];
  return WL_OK;
}

WL_API wl_status wl_describe_op(const wl_interpreter *r, uint32_t op, wl_op_info *info) {
  (void)r;
  if (op) return WL_INVALID_ARGUMENT;
  *info = (wl_op_info){"Compiled", MODEL_NAME};
  return WL_OK;
}

WL_API uint32_t wl_op_tensors(const wl_interpreter *r, uint32_t op, int results, int32_t *tensors, uint32_t most) {
  (void)r;
  uint32_t first = results ? INPUTS : 0, count = results ? OUTPUTS : INPUTS;
  if (op) return 0;
  for (uint32_t i = 0; i < count && i < most; i++) tensors[i] = (int32_t)(first + i);
  return count;
}

WL_API void *wl_data(wl_interpreter *r, uint32_t tensor) { return tensor < TENSORS ? r->data[tensor] : NULL; }

WL_API wl_status wl_resize(wl_interpreter *r, uint32_t tensor, uint32_t rank, const int32_t *dims, wl_error *error) {
  (void)r;
  if (tensor >= INPUTS) return refuse(error, WL_INVALID_ARGUMENT, "there is no such input");
  const wl_info *info = &TENSOR[tensor];
  if (rank != info->rank) return refuse(error, WL_INVALID_ARGUMENT, "the input has another rank");
  if (rank && memcmp(dims, info->dims, rank * sizeof *dims))
    return refuse(error, WL_OUT_OF_RANGE, "this model is compiled for the shapes that wl_tensor_info says");
  return WL_OK;
}

WL_API wl_status wl_plan(wl_interpreter *r, wl_error *error) {
  (void)r;
  (void)error;
  return WL_OK;
}

WL_API wl_status wl_invoke(wl_interpreter *r, wl_error *error) {
  if (r->watch) r->watch(r->context, 0, 0);
  int32_t status = compute(r->data, r->arena);
  if (r->watch) r->watch(r->context, 0, 1);
  return status ? refuse(error, WL_INVALID_ARGUMENT, MODEL_ERROR(status)) : WL_OK;
}

WL_API void wl_watch(wl_interpreter *r, void (*watch)(void *context, uint32_t op, int ended), void *context) {
  r->watch = watch;
  r->context = context;
}

WL_API void wl_reset_variables(wl_interpreter *r) { (void)r; /* which has none */ }

WL_API size_t wl_checkpoint_bytes(const wl_interpreter *r) { return (void)r, 0; }

WL_API wl_status wl_save_checkpoint(wl_interpreter *r, void *buffer, size_t bytes, wl_error *error) {
  (void)r, (void)buffer, (void)bytes, (void)error;
  return WL_OK;
}

WL_API wl_status wl_restore_checkpoint(wl_interpreter *r, const void *buffer, size_t bytes, wl_error *error) {
  (void)r, (void)buffer, (void)bytes, (void)error;
  return WL_OK;
}

WL_API uint32_t wl_signature_count(const wl_interpreter *r) {
  (void)r;
  return 1;
}

WL_API const char *wl_signature_key(const wl_interpreter *r, uint32_t signature) {
  (void)r;
  return signature ? NULL : SIGNATURE;
}

WL_API uint32_t wl_binding_count(const wl_interpreter *r, uint32_t signature, int outputs) {
  (void)r;
  return signature ? 0 : outputs ? OUTPUTS : INPUTS;
}

WL_API const char *wl_binding(const wl_interpreter *r, uint32_t signature, int outputs, uint32_t i, uint32_t *tensor) {
  (void)r;
  if (signature || i >= (outputs ? OUTPUTS : INPUTS)) return NULL;
  *tensor = outputs ? INPUTS + i : i;
  return TENSOR[*tensor].name;
}

WL_API size_t wl_scratch_needed(const wl_interpreter *r) {
  (void)r;
  return 0;
}

WL_API size_t wl_arena_bytes(const wl_interpreter *r) {
  (void)r;
  return ARENA;
}

WL_API const char *wl_kernel_name(uint32_t kind, uint32_t *types, int *in_place) {
  (void)kind;
  *types = 0;
  *in_place = 0;
  return NULL;
}

WL_API uint32_t wl_format_version(void) { return FORMAT; }

WL_API const char *wl_instruction_set(void) { return PROCESSOR; }

WL_API const char *wl_use_instruction_set(wl_interpreter *r, uint32_t i) {
  (void)r;
  return i ? NULL : PROCESSOR;
}
