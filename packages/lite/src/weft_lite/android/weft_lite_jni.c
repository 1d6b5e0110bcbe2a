/* The native methods of org.weftml.lite.Native. All memory belongs to direct buffers of Java. Texts, shapes and
 * errors are exchanged through one of them, which begins with a wl_error. */
#include <jni.h>
#include <string.h>

#include "threads.h"
#include "weft_lite.h"

#define NATIVE(result, name, ...)                                                                      \
  JNIEXPORT result JNICALL Java_org_weftml_lite_Native_##name(JNIEnv *env, jclass self, __VA_ARGS__);  \
  JNIEXPORT result JNICALL Java_org_weftml_lite_Native_##name(JNIEnv *env, jclass self, __VA_ARGS__)
#define UNUSED ((void)env, (void)self)

static void *address_of(JNIEnv *env, jobject buffer) { return (*env)->GetDirectBufferAddress(env, buffer); }

static wl_interpreter *interpreter_of(jlong handle) { return (wl_interpreter *)(intptr_t)handle; }

static wl_config config_of(jint tasks, jlong pool) {
  wl_config config = {.tasks = (unsigned)tasks};
  if (pool) config.parallel = wl_pool_run, config.context = (void *)(intptr_t)pool;
  return config;
}

/* The distance of a buffer's first byte from an aligned address; -1 if it is not direct. */
NATIVE(jint, misalignment, jobject buffer) {
  (void)self;
  uintptr_t address = (uintptr_t)address_of(env, buffer);
  return address ? (jint)(address % WL_ALIGNMENT) : -1;
}

NATIVE(jlong, createPool, jint threads) {
  UNUSED;
  return (jlong)(intptr_t)wl_pool_create((unsigned)threads);
}

NATIVE(void, destroyPool, jlong pool) {
  UNUSED;
  wl_pool_destroy((wl_pool *)(intptr_t)pool);
}

/* Bytes of memory that an interpreter needs; 0 after an error. */
NATIVE(jlong, query, jobject file, jint size, jint tasks, jlong pool, jobject exchange) {
  (void)self;
  wl_config config = config_of(tasks, pool);
  size_t bytes = 0;
  wl_status status = wl_query(address_of(env, file), (size_t)size, &config, &bytes, address_of(env, exchange));
  return status ? 0 : (jlong)bytes;
}

/* A handle; 0 after an error. `memory` has WL_ALIGNMENT bytes more than `query` says. */
NATIVE(jlong, open, jobject file, jint size, jobject memory, jlong bytes, jint tasks, jlong pool, jobject exchange) {
  (void)self;
  wl_config config = config_of(tasks, pool);
  uintptr_t start = (uintptr_t)address_of(env, memory);
  start = (start + WL_ALIGNMENT - 1) / WL_ALIGNMENT * WL_ALIGNMENT;
  wl_interpreter *interpreter = NULL;
  wl_status status = wl_open(address_of(env, file), (size_t)size, (void *)start, (size_t)bytes, &config,
                             &interpreter, address_of(env, exchange));
  return status ? 0 : (jlong)(intptr_t)interpreter;
}

NATIVE(jint, count, jlong handle, jboolean outputs) {
  UNUSED;
  const wl_interpreter *r = interpreter_of(handle);
  return (jint)(outputs ? wl_output_count(r) : wl_input_count(r));
}

NATIVE(jint, tensor, jlong handle, jboolean outputs, jint i) {
  UNUSED;
  const wl_interpreter *r = interpreter_of(handle);
  return (jint)(outputs ? wl_output(r, (uint32_t)i) : wl_input(r, (uint32_t)i));
}

/* The name that a file's only signature has for a tensor, otherwise the tensor's. */
static const char *name_of(const wl_interpreter *r, uint32_t tensor, int outputs, const char *name) {
  uint32_t number, count = wl_signature_count(r) == 1 ? wl_binding_count(r, 0, outputs) : 0;
  for (uint32_t i = 0; i < count; i++) {
    const char *binding = wl_binding(r, 0, outputs, i, &number);
    if (number == tensor) return binding;
  }
  return name;
}

/* Write the text of a name; returns its length in bytes, which may be above the buffer's. */
NATIVE(jint, name, jlong handle, jboolean outputs, jint tensor, jobject exchange, jint bytes) {
  (void)self;
  wl_info info;
  if (wl_tensor_info(interpreter_of(handle), (uint32_t)tensor, &info)) return -1;
  const char *name = name_of(interpreter_of(handle), (uint32_t)tensor, outputs, info.name);
  size_t length = strlen(name);
  memcpy(address_of(env, exchange), name, length < (size_t)bytes ? length : (size_t)bytes);
  return (jint)length;
}

/* Write the sizes now, then those that the file declares; returns 256 times the type, plus the rank. */
NATIVE(jint, shape, jlong handle, jint tensor, jobject exchange) {
  (void)self;
  wl_info info;
  if (wl_tensor_info(interpreter_of(handle), (uint32_t)tensor, &info)) return -1;
  char *to = address_of(env, exchange);
  memcpy(to, info.dims, sizeof info.dims);
  memcpy(to + sizeof info.dims, info.declared, sizeof info.declared);
  return info.dtype * 256 + info.rank;
}

NATIVE(jobject, data, jlong handle, jint tensor) {
  (void)self;
  wl_info info;
  if (wl_tensor_info(interpreter_of(handle), (uint32_t)tensor, &info)) return NULL;
  return (*env)->NewDirectByteBuffer(env, wl_data(interpreter_of(handle), (uint32_t)tensor), (jlong)info.bytes);
}

/* The new sizes are in `exchange`. */
NATIVE(jint, resize, jlong handle, jint tensor, jint rank, jobject exchange) {
  (void)self;
  int32_t dims[WL_MAX_RANK];
  void *at = address_of(env, exchange);
  memcpy(dims, at, sizeof dims);
  wl_status status = wl_resize(interpreter_of(handle), (uint32_t)tensor, (uint32_t)rank, dims, at);
  return status ? status : wl_plan(interpreter_of(handle), at);
}

NATIVE(jint, invoke, jlong handle, jobject exchange) {
  (void)self;
  return wl_invoke(interpreter_of(handle), address_of(env, exchange));
}

NATIVE(void, resetVariables, jlong handle) {
  UNUSED;
  wl_reset_variables(interpreter_of(handle));
}

NATIVE(jlong, checkpointBytes, jlong handle) {
  UNUSED;
  return (jlong)wl_checkpoint_bytes(interpreter_of(handle));
}

NATIVE(jint, saveCheckpoint, jlong handle, jobject buffer, jint bytes, jobject exchange) {
  (void)self;
  return wl_save_checkpoint(interpreter_of(handle), address_of(env, buffer), (size_t)bytes, address_of(env, exchange));
}

NATIVE(jint, restoreCheckpoint, jlong handle, jobject buffer, jint bytes, jobject exchange) {
  (void)self;
  return wl_restore_checkpoint(interpreter_of(handle), address_of(env, buffer), (size_t)bytes,
                               address_of(env, exchange));
}
