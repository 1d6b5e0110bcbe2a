/* The runtime of compiled programs: functions that programs call, and those that enter programs. Python reads
 * and writes some of these structures: weft_compiler/native/layouts.py declares them too, and a test compares
 * the two by weft_layout. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* A compiled program, or a nest of one. Returns 0, or the number of the check that failed. */
typedef int32_t weft_program(void **buffers, char *arena, int32_t *interrupt, void *times, int64_t num_threads);

/* ---------------------------------------------------------------- threads: loops.c */

/* Runs the iterations from `low` to before `high` of a loop. */
typedef int32_t weft_loop_body(void *context, int64_t thread, int64_t low, int64_t high);

int32_t weft_parallel_for(weft_loop_body *body, void *context, int64_t num_iterations, int64_t grain,
                          int64_t num_chunks, int64_t num_threads);
void weft_begin_program(int64_t num_threads);
void weft_end_program(void);
void weft_reset_threads(void);
void weft_stop_threads(void);

/* ---------------------------------------------------------------- memory: arena.c */

/* Memory for the temporaries of one program at a time. */
typedef struct weft_arena_slot {
  _Alignas(64) _Atomic int64_t in_use;
  char *memory;
  _Atomic uint64_t size;
} weft_arena_slot;

enum { WEFT_ARENA_SLOTS = 16 }; /* programs that run at once in memory of the arena */

weft_arena_slot *weft_claim_arena(weft_arena_slot *slots, uint64_t size);
void weft_release_arena(weft_arena_slot *slot);
int64_t weft_replace_arena(weft_arena_slot *slot, char *memory, uint64_t size);

/* ---------------------------------------------------------------- calls from Python: entry.c */

/* The header of CPython's objects, and those of NumPy's arrays and scalars, on 64-bit processors. */
typedef struct weft_object {
  intptr_t num_references;
  void *type;
} weft_object;

typedef struct weft_array {
  weft_object object;
  char *data;
  int32_t rank;
  int64_t *sizes;
  int64_t *strides;
  void *base;
  void *dtype;
  int32_t flags;
} weft_array;

typedef struct weft_scalar {
  weft_object object;
  char value[];
} weft_scalar;

/* The requirements on the array of a buffer. Buffers that belong to the program have no type. */
typedef struct weft_buffer {
  void *dtype;
  union {
    int64_t flags;
    char *constant;
  };
  int64_t rank;
  void *scalar_type; /* of NumPy scalars that are accepted too, or NULL */
  int64_t sizes[];
} weft_buffer;

/* A program with all that a call needs, followed by its buffers. */
typedef struct weft_program_state {
  weft_program *run;
  int64_t num_arguments;
  weft_arena_slot *slots;
  uint64_t arena_size; /* 0 if it needs none */
  int64_t num_threads;
  int64_t releases_gil;
  void *array_type;
  int32_t *interrupt;
  void *times;
  weft_object *not_implemented;
  weft_object *none;
  int64_t num_buffers;
  char buffers[];
} weft_program_state;

enum { WEFT_BUSY = -0x10000 }; /* no slot of the arena is free; smaller than any error number */

weft_object *weft_enter(weft_object *self, weft_object **arguments, int64_t num_arguments);

/* ---------------------------------------------------------------- programs in pieces: sequence.c */

/* A call of a nest. An argument is an offset in the arena, or -1 - i for the i-th buffer of the program, where
 * its constants follow the buffers. */
typedef struct weft_call {
  int64_t nest;
  int64_t num_checks;   /* before it */
  int64_t arena_offset; /* of its own part of the arena */
  int64_t num_arguments;
  int64_t arguments[];
} weft_call;

typedef struct weft_sequence {
  const int64_t *calls;
  int64_t num_words;
  weft_program *const *nests;
  void *const *constants;
  int64_t num_buffers;
  int64_t max_arguments; /* of a call */
} weft_sequence;

/* Readings of CLOCK_MONOTONIC in nanoseconds: before the first call of a nest, and after each. */
typedef struct weft_times {
  int64_t capacity;
  int64_t num_times; /* may exceed the capacity */
  int64_t times[];
} weft_times;

int32_t weft_run_sequence(const weft_sequence *sequence, void **buffers, char *arena, int32_t *interrupt,
                          void *times, int64_t num_threads);

#endif
