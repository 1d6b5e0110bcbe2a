/* Readings of the clock for traces. A reading is a value of the processor's time-stamp counter if Python has
 * found it to be the clock of the kernel, which is faster; else it is one of CLOCK_MONOTONIC. */
#ifndef WEFT_CLOCK_H
#define WEFT_CLOCK_H

#include <stdint.h>

#ifdef __linux__
#include <time.h>
#endif

/* A time on both clocks. */
typedef struct weft_instant {
  int64_t ticks;
  int64_t nanoseconds; /* of CLOCK_MONOTONIC */
} weft_instant;

int64_t weft_time_stamp(void); /* replaced by an instruction; 0 where there is none */
static int64_t weft_has_counter;

static inline int64_t monotonic_time(void) {
#ifdef __linux__
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
#else
  return 0;
#endif
}

static inline int64_t read_ticks(void) { return weft_has_counter ? weft_time_stamp() : monotonic_time(); }

/* Reads both clocks, again if something came between the readings. */
static __attribute__((noinline)) void read_instant(weft_instant *result) {
  int64_t shortest = INT64_MAX;
  if (!weft_has_counter) {
    result->ticks = result->nanoseconds = monotonic_time();
    return;
  }
  for (int i = 0; i < 3 && shortest > 1000; i++) {
    int64_t before = weft_time_stamp(), nanoseconds = monotonic_time();
    int64_t between = weft_time_stamp() - before;
    if (between < shortest) {
      shortest = between;
      result->ticks = before + between / 2;
      result->nanoseconds = nanoseconds;
    }
  }
}

/* Converts readings since `first` to CLOCK_MONOTONIC. The error of each is at most that of an instant. */
static __attribute__((noinline)) void convert_ticks(int64_t *times, int64_t num_times, const weft_instant *first) {
  if (!weft_has_counter) return;
  weft_instant last;
  read_instant(&last);
  if (last.ticks <= first->ticks) return;
  double scale = (double)(last.nanoseconds - first->nanoseconds) / (double)(last.ticks - first->ticks);
  for (int64_t i = 0; i < num_times; i++)
    times[i] = first->nanoseconds + (int64_t)((double)(times[i] - first->ticks) * scale);
}

#endif
