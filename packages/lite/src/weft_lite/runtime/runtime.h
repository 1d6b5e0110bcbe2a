/* What the files of the runtime share. A kernel sees tensors, its op, and the functions below. */
#ifndef WEFT_LITE_RUNTIME_H
#define WEFT_LITE_RUNTIME_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "schema.h"
#include "vector.h"
#include "weft_lite.h"

/* Whether a build has the kernel of a kind of op: all of them, but where it chose some, each of which
 * `WL_WITH_<kind>` then says, defined as 1. Cases of others are left out of functions that several
 * kernels share. */
#ifdef WL_KERNELS
#define WL_HAS(kind) WL_HAS_OF(WL_WITH_##kind)
#define WL_HAS_OF(value) WL_HAS_JOIN(value)
#define WL_HAS_JOIN(value) WL_SECOND(WL_SAID_##value 1, 0, 0)
#define WL_SAID_1 0,
#define WL_SECOND(...) WL_SECOND_OF(__VA_ARGS__) /* the comma of WL_SAID_1 separates only then */
#define WL_SECOND_OF(first, second, ...) second
#else
#define WL_HAS(kind) 1
#endif

#define WL_TYPE(name) (1u << WL_TYPE_##name)
#define WL_FLOATS WL_TYPE(FLOAT32)
#define WL_NUMBERS (WL_TYPE(FLOAT32) | WL_TYPE(INT32) | WL_TYPE(INT64))
#define WL_QUANTIZED (WL_TYPE(INT8) | WL_TYPE(UINT8) | WL_TYPE(INT16))
#define WL_ANY                                                                                         \
  (WL_NUMBERS | WL_QUANTIZED | WL_TYPE(BOOL) | WL_TYPE(FLOAT16))

#define WL_TRY(call)                                                                                   \
  do {                                                                                                 \
    wl_status status_ = (call);                                                                        \
    if (status_ != WL_OK) return status_;                                                              \
  } while (0)

/* A shape that depends on a value which is not there yet: the plan takes the declared one. */
#define WL_LATER ((wl_status)1000)

typedef struct wl_tensor {
  uint8_t *data;
  size_t bytes;    /* of the shape it has now */
  size_t capacity; /* that the plan gives it */
  int32_t dims[WL_MAX_RANK];
  const int32_t *declared;
  const int32_t *bound; /* as long as `declared`, or NULL */
  const float *scales;
  const int32_t *zero_points;
  uint32_t scale_count, zero_point_count;
  int32_t axis;
  uint32_t table;
  uint8_t rank, dtype, storage, layout;
  bool known;       /* while planning: the value is known, since it follows from shapes and constants */
  bool provisional; /* while planning: sizes are bounds, as they depend on a value that is not known */
} wl_tensor;

typedef struct wl_op wl_op;
typedef wl_status wl_step(wl_interpreter *, wl_op *);

/* An operation. `types` are those of its first operand, `inputs` at least and at most. */
typedef struct wl_kernel {
  const char *name;
  wl_step *check;   /* once: operands, types and options; may be NULL */
  wl_step *shape;   /* when shapes may have changed: those of the results, and scratch */
  wl_step *compute; /* writes the results */
  uint32_t types;
  int8_t least, most; /* operands; most -1 is any number */
  int8_t results;     /* -1 is any number */
  int8_t options;     /* 1 + the WL_TABLE_ of its options, 0 for none */
  uint8_t in_place;   /* a result may lie where one of so many operands does that is not read later */
} wl_kernel;

struct wl_op {
  const wl_kernel *kernel;
  const int32_t *inputs, *outputs;
  uint32_t input_count, output_count;
  uint32_t options; /* the position of its table, or 0 */
  uint32_t table;
  uint32_t begin, end; /* on the clock of the plan */
  uint64_t scratch;    /* bytes of each task; more than a size_t in hostile files */
  uint64_t cost;       /* units of work */
  uint16_t kind;
  bool idle; /* its results are empty */
  int64_t memo[8]; /* what `shape` finds out for `compute` */
};

struct wl_interpreter {
  const uint8_t *metadata, *weights;
  size_t metadata_bytes, weights_bytes;
  wl_tensor *tensors;
  wl_op *ops;
  uint32_t tensor_count, op_count, subgraph_count;
  uint32_t subgraphs; /* the position of their vector */
  uint8_t *arena, *scratch;
  size_t arena_bytes, scratch_bytes; /* scratch of one task */
  uint64_t scratch_needed;
  const wl_vector *vector;
  wl_config config;
  uint64_t work;
  const wl_op *current; /* for errors */
  wl_error *error;
  bool planned;
  bool planning; /* values are not there yet */
  bool dynamic;  /* shapes depend on values, so they are derived as it runs */
};

/* flatbuffer.c */
wl_status wl_check_tables(const uint8_t *metadata, size_t size, wl_error *error);
uint32_t wl_root(const uint8_t *metadata);
uint32_t wl_slot(const uint8_t *metadata, uint32_t table, unsigned slot); /* position, 0 if not said */
uint64_t wl_number(const uint8_t *metadata, uint32_t table, unsigned slot, unsigned size);
uint32_t wl_follow(const uint8_t *metadata, uint32_t table, unsigned slot); /* what it refers to */
uint32_t wl_length(const uint8_t *metadata, uint32_t vector);
uint32_t wl_item(const uint8_t *metadata, uint32_t vector, uint32_t i); /* a table of a vector */
const int32_t *wl_ints(const uint8_t *metadata, uint32_t vector);
const char *wl_text(const uint8_t *metadata, uint32_t table, unsigned slot);

/* open.c */
uint32_t wl_crc32(const uint8_t *p, size_t n); /* four bytes at a time */

/* error.c */
wl_status wl_refuse(wl_error *, wl_status, const char *format, ...);
wl_status wl_fail(wl_interpreter *, wl_status, const char *format, ...); /* names the current op */

/* plan.c */
wl_status wl_check_plan(wl_interpreter *, void *memory, wl_error *);
uint64_t wl_plan_memory(uint32_t tensors, uint32_t ops, uint32_t subgraphs);

/* run.c */
wl_status wl_plan_subgraph(wl_interpreter *, uint32_t subgraph);
wl_status wl_run_subgraph(wl_interpreter *, uint32_t subgraph);
wl_status wl_copy_value(wl_interpreter *, wl_tensor *to, const wl_tensor *from);

/* kernel.c: for kernels */
const wl_kernel *wl_kernel_of(uint32_t kind);
size_t wl_type_size(unsigned dtype);
const char *wl_type_name(unsigned dtype);

/* An operand or NULL where there is none, and a result. */
static inline wl_tensor *wl_in(wl_interpreter *r, const wl_op *op, uint32_t i) {
  return i < op->input_count && op->inputs[i] >= 0 ? &r->tensors[op->inputs[i]] : NULL;
}
static inline wl_tensor *wl_out(wl_interpreter *r, const wl_op *op, uint32_t i) {
  return &r->tensors[op->outputs[i]];
}

/* Options of the op, 0 where they are not said. */
int32_t wl_int(const wl_interpreter *, const wl_op *, unsigned slot);
uint8_t wl_byte(const wl_interpreter *, const wl_op *, unsigned slot);
float wl_float(const wl_interpreter *, const wl_op *, unsigned slot);

wl_status wl_expect_type(wl_interpreter *, const wl_tensor *, const char *what, uint32_t types);
wl_status wl_expect_rank(wl_interpreter *, const wl_tensor *, const char *what, int least, int most);
wl_status wl_expect_plain(wl_interpreter *, const wl_tensor *, const char *what);
wl_status wl_expect_same_type(wl_interpreter *, const wl_tensor *, const wl_tensor *, const char *what);

/* Give a result its shape: refused where it is not the declared one or needs more bytes than planned. */
wl_status wl_set_shape(wl_interpreter *, wl_tensor *, int rank, const int64_t *dims);
wl_status wl_set_shape_of(wl_interpreter *, wl_tensor *, const wl_tensor *like);

/* The integers in an operand of rank 0 or 1; WL_LATER while planning, where they are not constant. */
wl_status wl_read_ints(wl_interpreter *, const wl_tensor *, const char *what, int most, int64_t *values,
                       int *count);
wl_status wl_read_int(wl_interpreter *, const wl_tensor *, const char *what, int64_t *value);

/* An element of what has the type int32 or int64. */
static inline int64_t wl_index(const wl_tensor *t, int64_t i) {
  return t->dtype == WL_TYPE_INT32 ? ((const int32_t *)(const void *)t->data)[i]
                                   : ((const int64_t *)(const void *)t->data)[i];
}

/* An axis counted from the end if it is negative, checked against a rank. */
wl_status wl_axis(wl_interpreter *, int64_t axis, int rank, int *found);

/* The shape that two broadcast to. */
wl_status wl_broadcast(wl_interpreter *, const wl_tensor *a, const wl_tensor *b, int64_t *dims,
                       int *rank);

/* A product, or 2^62 if it is larger: for costs and scratch, which such a value is above any limit of. */
static inline uint64_t wl_work(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) || product > 1ull << 62 ? 1ull << 62 : product;
}

int64_t wl_elements(const wl_tensor *);
int64_t wl_product(const int32_t *dims, int from, int to);

/* Whether a product of sizes stays below 2^62. */
bool wl_multiply(int64_t a, int64_t b, int64_t *result);

/* Multiply a count by a size, an empty one counting as 1: so no product of some of the sizes overflows,
 * whichever of them are 0. */
bool wl_extend(int64_t *count, int64_t size);

/* Call f over [0, total) in pieces of at least `grain`, one for each task at most. */
typedef void wl_piece(void *argument, unsigned task, size_t begin, size_t end);
void wl_split(wl_interpreter *, size_t total, size_t grain, wl_piece *f, void *argument);
uint8_t *wl_scratch(wl_interpreter *, unsigned task);

/* The bounds that an activation keeps float results within. */
void wl_clamp(unsigned activation, float *low, float *high);
wl_status wl_check_activation(wl_interpreter *, unsigned activation);

float wl_half_to_float(uint16_t half);
uint16_t wl_float_to_half(float value);

#endif
