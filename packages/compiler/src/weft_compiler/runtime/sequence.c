/* Programs whose nests are compiled separately: calls them in order. */
#include "runtime.h"

#include "clock.h"

/* Appends a reading of the clock if there is room; counts it in any case. */
static inline void add_time(weft_times *times) {
  if (times->num_times < times->capacity) times->times[times->num_times] = read_ticks();
  times->num_times++;
}

/* Stops at the first call that fails. The checks of all nests are numbered together; other errors are
 * negative. */
static inline __attribute__((always_inline)) int32_t run_all(const weft_sequence *sequence, void **buffers,
                                                             char *arena, int32_t *interrupt, weft_times *times,
                                                             int64_t num_threads) {
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
    int32_t error = nest(arguments, arena + call->arena_offset, interrupt, NULL, num_threads);
    if (times) add_time(times);
    if (error) return error > 0 ? error + (int32_t)call->num_checks : error;
    next = call->arguments + call->num_arguments;
  }
  return 0;
}

/* A traced call, which has room for times, runs a loop of its own. */
int32_t weft_run_sequence(const weft_sequence *sequence, void **buffers, char *arena, int32_t *interrupt,
                          void *times, int64_t num_threads) {
  if (!times) return run_all(sequence, buffers, arena, interrupt, NULL, num_threads);
  weft_times *readings = times;
  readings->num_times = 0;
  weft_instant begin;
  read_instant(&begin);
  add_time(readings);
  int32_t result = run_all(sequence, buffers, arena, interrupt, readings, num_threads);
  int64_t num_times = readings->num_times < readings->capacity ? readings->num_times : readings->capacity;
  convert_ticks(readings->times, num_times, &begin);
  return result;
}
