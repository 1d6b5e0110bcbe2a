/* The thread pool of a process, which all compiled programs share. */
#define _GNU_SOURCE
#include "runtime.h"

#ifndef _WIN32

/* The IR of the runtime is the same for all processors: the compiler defines weft_pause for each. */
#ifdef WEFT_PAUSE_FUNCTION
void weft_pause(void);
#define WEFT_PAUSE() weft_pause()
#endif
#include "thread_pool.h"

enum { NUM_LOOPS = 8 };

static _Alignas(WEFT_CACHE_LINE) unsigned char memory[WEFT_POOL_BYTES(NUM_LOOPS)];
#define POOL ((weft_pool *)(void *)memory)

int32_t weft_parallel_for(weft_loop_body *body, void *context, int64_t num_iterations, int64_t grain,
                          int64_t num_chunks, int64_t num_threads) {
  return weft_pool_run(POOL, body, context, num_iterations, grain, num_chunks, num_threads);
}

void weft_begin_program(int64_t num_threads) { weft_pool_enter(POOL, num_threads); }
void weft_end_program(void) { weft_pool_leave(POOL); }
void weft_reset_threads(void) { weft_pool_init(POOL, NUM_LOOPS); }
void weft_stop_threads(void) { weft_pool_stop(POOL); }

#else /* the caller runs all iterations */

int32_t weft_parallel_for(weft_loop_body *body, void *context, int64_t num_iterations, int64_t grain,
                          int64_t num_chunks, int64_t num_threads) {
  (void)grain, (void)num_chunks, (void)num_threads;
  return body(context, 0, 0, num_iterations);
}

void weft_begin_program(int64_t num_threads) { (void)num_threads; }
void weft_end_program(void) {}
void weft_reset_threads(void) {}
void weft_stop_threads(void) {}

#endif
