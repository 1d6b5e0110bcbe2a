/* Calls from Python: reads the headers of arrays and enters a program. */
#include "runtime.h"

void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
weft_object *PyLong_FromLongLong(long long);
void Py_IncRef(weft_object *);

_Static_assert(sizeof(void *) != 8 || offsetof(weft_array, flags) == 64, "NumPy 2 has this layout");
_Static_assert(sizeof(weft_buffer) == 4 * sizeof(int64_t), "Python writes buffers as 64-bit words");
_Static_assert(sizeof(weft_program_state) == 12 * sizeof(int64_t), "so it does the state of a program");

/* Offsets, sizes and constants, for the test of their declarations in Python. */
#define FIELD(type, field) offsetof(type, field)
_Alignas(16) const int64_t weft_layout[] = {
    sizeof(weft_arena_slot), FIELD(weft_arena_slot, in_use), FIELD(weft_arena_slot, memory),
    FIELD(weft_arena_slot, size), sizeof(weft_array), FIELD(weft_array, object.type), FIELD(weft_array, data),
    FIELD(weft_array, rank), FIELD(weft_array, sizes), FIELD(weft_array, dtype), FIELD(weft_array, flags),
    FIELD(weft_scalar, value), sizeof(weft_buffer), FIELD(weft_buffer, dtype), FIELD(weft_buffer, flags),
    FIELD(weft_buffer, constant), FIELD(weft_buffer, rank), FIELD(weft_buffer, scalar_type),
    sizeof(weft_program_state), FIELD(weft_program_state, run), FIELD(weft_program_state, num_arguments),
    FIELD(weft_program_state, slots), FIELD(weft_program_state, arena_size),
    FIELD(weft_program_state, num_threads), FIELD(weft_program_state, releases_gil),
    FIELD(weft_program_state, array_type), FIELD(weft_program_state, interrupt),
    FIELD(weft_program_state, times), FIELD(weft_program_state, not_implemented),
    FIELD(weft_program_state, none), FIELD(weft_program_state, num_buffers),
    WEFT_ARENA_SLOTS, WEFT_BUSY};

static inline weft_object *new_reference(weft_object *object) {
  Py_IncRef(object);
  return object;
}

/* Returns the data of an argument that is as its buffer requires, else NULL. */
static inline char *data_of(weft_object *argument, const weft_buffer *buffer, const void *array_type) {
  if (argument->type != array_type)
    return argument->type == buffer->scalar_type ? ((weft_scalar *)argument)->value : NULL;
  const weft_array *array = (const weft_array *)argument;
  if (array->dtype != buffer->dtype || (array->flags & buffer->flags) != buffer->flags) return NULL;
  if (array->rank != buffer->rank) return NULL;
  for (int64_t i = 0; i < buffer->rank; i++)
    if (array->sizes[i] != buffer->sizes[i]) return NULL;
  return array->data;
}

/* Runs a program, without Python's lock if it takes long. */
static inline int32_t run(const weft_program_state *state, void **buffers, char *arena) {
  if (!state->releases_gil)
    return state->run(buffers, arena, state->interrupt, state->times, state->num_threads);
  void *thread = PyEval_SaveThread();
  weft_begin_program(state->num_threads);
  int32_t result = state->run(buffers, arena, state->interrupt, state->times, state->num_threads);
  weft_end_program();
  PyEval_RestoreThread(thread);
  return result;
}

/* Returns None, or the number of the error. Without running, it returns NotImplemented if an array does not
 * match its buffer, and WEFT_BUSY if no slot of the arena is free and large enough. */
weft_object *weft_enter(weft_object *self, weft_object **arguments, int64_t num_arguments) {
  const weft_program_state *state = (const void *)((weft_array *)self)->data;
  if (num_arguments != state->num_arguments) return new_reference(state->not_implemented);
  void **buffers = __builtin_alloca_with_align((size_t)state->num_buffers * sizeof *buffers, 128);
  const char *next = state->buffers;
  for (int64_t i = 0; i < state->num_buffers; i++) {
    const weft_buffer *buffer = (const void *)next;
    next += sizeof *buffer;
    if (!buffer->dtype) {
      buffers[i] = buffer->constant;
      continue;
    }
    next += buffer->rank * (int64_t)sizeof *buffer->sizes;
    buffers[i] = data_of(*arguments++, buffer, state->array_type);
    if (!buffers[i]) return new_reference(state->not_implemented);
  }
  if (!state->arena_size) {
    int32_t result = run(state, buffers, NULL);
    return result ? PyLong_FromLongLong(result) : new_reference(state->none);
  }
  weft_arena_slot *slot = weft_claim_arena(state->slots, state->arena_size);
  if (!slot) return PyLong_FromLongLong(WEFT_BUSY);
  int32_t result = run(state, buffers, slot->memory);
  weft_release_arena(slot);
  return result ? PyLong_FromLongLong(result) : new_reference(state->none);
}
