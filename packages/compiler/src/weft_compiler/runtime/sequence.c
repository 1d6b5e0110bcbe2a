/* Programs whose nests are compiled separately: calls them in order. */
#include "runtime.h"

/* Stops at the first call that fails. The checks of all nests are numbered together; other errors are
 * negative. */
int32_t weft_run_sequence(const weft_sequence *sequence, void **buffers, char *arena, int32_t *interrupt,
                          void *times, int64_t num_threads) {
  void **arguments = __builtin_alloca_with_align((size_t)sequence->max_arguments * sizeof *arguments, 128);
  const int64_t *end = sequence->calls + sequence->num_words;
  for (const int64_t *next = sequence->calls; next < end;) {
    const weft_call *call = (const void *)next;
    for (int64_t i = 0; i < call->num_arguments; i++) {
      int64_t place = call->arguments[i], number = -1 - place;
      arguments[i] = place >= 0                       ? arena + place
                     : number < sequence->num_buffers ? buffers[number]
                                                      : sequence->constants[number - sequence->num_buffers];
    }
    weft_program *nest = sequence->nests[call->nest];
    int32_t error = nest(arguments, arena + call->arena_offset, interrupt, times, num_threads);
    if (error) return error > 0 ? error + (int32_t)call->num_checks : error;
    next = call->arguments + call->num_arguments;
  }
  return 0;
}
