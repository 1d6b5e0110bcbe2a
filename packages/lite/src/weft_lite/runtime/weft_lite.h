/* weft_lite.h: run `.weftlite` files.
 *
 * The caller gives all memory: the file, which must stay where it is while it is open, and a block of as
 * many bytes as `wl_query` says. Nothing is allocated, no file is read and no thread is started here. An
 * interpreter may be used by one thread at a time; any number of them may share the bytes of a file.
 * After an error an interpreter is usable as before.
 */
#ifndef WEFT_LITE_H
#define WEFT_LITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define WL_API __declspec(dllexport)
#else
#define WL_API __attribute__((visibility("default")))
#endif

enum { WL_MAX_RANK = 8, WL_MAX_TASKS = 64, WL_ALIGNMENT = 64 };

/* The canonical codes of errors. */
typedef enum wl_status {
  WL_OK = 0,
  WL_INVALID_ARGUMENT = 3,
  WL_DEADLINE_EXCEEDED = 4, /* the limit of work was met */
  WL_RESOURCE_EXHAUSTED = 8,
  WL_FAILED_PRECONDITION = 9,
  WL_OUT_OF_RANGE = 11,
  WL_UNIMPLEMENTED = 12,
  WL_DATA_LOSS = 15 /* the file is damaged or hostile */
} wl_status;

/* What went wrong and where; `text` ends with a zero. */
typedef struct wl_error {
  wl_status status;
  char text[384];
} wl_error;

/* Call task(argument, i) for each i below `count`, in any order and on any threads, and return when all
 * have. */
typedef void wl_task(void *argument, unsigned i);
typedef void wl_parallel(void *context, wl_task *task, void *argument, unsigned count);

typedef struct wl_config {
  unsigned tasks;        /* pieces that a kernel is cut into at most; 0 is 1 */
  wl_parallel *parallel; /* NULL runs them one after the other */
  void *context;         /* for `parallel` */
  uint64_t work_limit;   /* of one invocation, in units of about a microsecond; 0 is 2^32 */
  void (*watch)(void *context, uint32_t op, int ended); /* around each op; may be NULL */
  void *watch_context;
} wl_config;

typedef struct wl_interpreter wl_interpreter;

/* A tensor: `dtype` and the others are the numbers of the schema (schema.h). */
typedef struct wl_info {
  const char *name;
  uint8_t dtype, storage, layout, rank;
  int32_t dims[WL_MAX_RANK];     /* now */
  int32_t declared[WL_MAX_RANK]; /* -1 where a size may change */
  size_t bytes;                  /* now */
  const float *scales;           /* NULL without quantization */
  const int32_t *zero_points;
  uint32_t scale_count, zero_point_count;
  int32_t axis;
} wl_info;

typedef struct wl_op_info {
  const char *kind;
  const char *name;
} wl_op_info;

/* The numbers of an op's operands (`results` 0; -1 for one that is not there) or results (1): `most` of
 * them are written. Returns how many there are. */
WL_API uint32_t wl_op_tensors(const wl_interpreter *, uint32_t op, int results, int32_t *tensors,
                              uint32_t most);

/* How many bytes `wl_open` wants, at a multiple of WL_ALIGNMENT. `file` must lie at one as well. */
WL_API wl_status wl_query(const void *file, size_t size, const wl_config *config, size_t *bytes,
                          wl_error *error);

/* Verify a file and make an interpreter in `memory`; nothing needs to be closed. */
WL_API wl_status wl_open(const void *file, size_t size, void *memory, size_t bytes,
                         const wl_config *config, wl_interpreter **interpreter, wl_error *error);

/* Compare the checksum of the weights, which `wl_open` does not. */
WL_API wl_status wl_verify_weights(const void *file, size_t size, wl_error *error);

WL_API uint32_t wl_tensor_count(const wl_interpreter *);
WL_API uint32_t wl_op_count(const wl_interpreter *);
WL_API uint32_t wl_input_count(const wl_interpreter *);
WL_API uint32_t wl_output_count(const wl_interpreter *);
WL_API uint32_t wl_input(const wl_interpreter *, uint32_t i); /* the number of a tensor */
WL_API uint32_t wl_output(const wl_interpreter *, uint32_t i);
WL_API wl_status wl_tensor_info(const wl_interpreter *, uint32_t tensor, wl_info *info);
WL_API wl_status wl_describe_op(const wl_interpreter *, uint32_t op, wl_op_info *info);

/* The bytes of a tensor, valid as long as the interpreter; NULL if there is no such tensor. Those of
 * constants must not be written to; those between inputs and outputs are overwritten by others. */
WL_API void *wl_data(wl_interpreter *, uint32_t tensor);

/* Give an input another shape, within its bound. Takes effect with `wl_plan`. */
WL_API wl_status wl_resize(wl_interpreter *, uint32_t tensor, uint32_t rank, const int32_t *dims,
                           wl_error *error);

/* Derive all shapes; `wl_open` and `wl_invoke` do so when they have to. */
WL_API wl_status wl_plan(wl_interpreter *, wl_error *error);
WL_API wl_status wl_invoke(wl_interpreter *, wl_error *error);

/* Call `watch` around each op from now on, or nothing if it is NULL; as in wl_config. */
WL_API void wl_watch(wl_interpreter *, void (*watch)(void *context, uint32_t op, int ended),
                     void *context);

/* Give all variables the values that they had at first. */
WL_API void wl_reset_variables(wl_interpreter *);

/* Save all variables to a buffer of at least `wl_checkpoint_bytes`, and restore them from one. A checkpoint has a
 * checksum, so that one which was written in part is refused; nothing is changed then. It may come from another
 * file, and have more variables than this one. */
WL_API size_t wl_checkpoint_bytes(const wl_interpreter *);
WL_API wl_status wl_save_checkpoint(wl_interpreter *, void *buffer, size_t bytes, wl_error *error);
WL_API wl_status wl_restore_checkpoint(wl_interpreter *, const void *buffer, size_t bytes, wl_error *error);

/* Signatures: how many, their keys, and their inputs (`outputs` 0) or outputs (1) by name. */
WL_API uint32_t wl_signature_count(const wl_interpreter *);
WL_API const char *wl_signature_key(const wl_interpreter *, uint32_t signature);
WL_API uint32_t wl_binding_count(const wl_interpreter *, uint32_t signature, int outputs);
WL_API const char *wl_binding(const wl_interpreter *, uint32_t signature, int outputs, uint32_t i,
                              uint32_t *tensor);

/* Bytes of scratch that the kernels need, which a file has to declare at least; and its arena. */
WL_API size_t wl_scratch_needed(const wl_interpreter *);
WL_API size_t wl_arena_bytes(const wl_interpreter *);

/* What there is: the name of a kind of op or NULL, the types that it computes with (bit i for type
 * number i), and whether a result may lie where an operand does. For tools. */
WL_API const char *wl_kernel_name(uint32_t kind, uint32_t *types, int *in_place);
WL_API uint32_t wl_format_version(void);
WL_API const char *wl_instruction_set(void);

/* Compute with another of the sets that this processor has, to compare: 0 is the best. Returns its name, or
 * NULL where there are fewer. */
WL_API const char *wl_use_instruction_set(wl_interpreter *, uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
