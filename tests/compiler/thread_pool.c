/* Stress of the thread pool, for ThreadSanitizer: each iteration runs once, whatever happens at the same time.
 * Prints "ok" for each part. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUM_LOOPS = 3, NUM_THREADS = 4, NUM_OWNERS = 5, SIZE = 97 };

static weft_pool *pool;

static void require(bool condition, const char *text) {
  if (condition) return;
  printf("failed: %s\n", text);
  _exit(1);
}

/* The runs of each iteration. They are plain: a missing order of two runs is a data race. */
typedef struct counts {
  int runs[SIZE];
  int64_t error_at; /* or -1 */
} counts;

static int32_t count(void *context, int64_t thread, int64_t low, int64_t high) {
  counts *c = context;
  require(0 <= thread && thread < NUM_THREADS && low < high, "numbers of threads and iterations");
  for (int64_t i = low; i < high; i++) {
    if (i == c->error_at) return 7;
    c->runs[i]++;
  }
  return 0;
}

static void run_loops(counts *c, int num_runs, int64_t num_iterations, int64_t grain, int64_t num_chunks) {
  for (int64_t i = 0; i < SIZE; i++) c->runs[i] = 0;
  for (int i = 0; i < num_runs; i++)
    require(weft_pool_run(pool, count, c, num_iterations, grain, num_chunks, NUM_THREADS) == 0, "a result of 0");
  for (int64_t i = 0; i < SIZE; i++)
    require(c->runs[i] == (i < num_iterations ? num_runs : 0), "each iteration runs once");
}

static void run_many(void) {
  counts c = {.error_at = -1};
  for (int64_t n = 1; n <= SIZE; n += 1 + n / 9)
    for (int64_t grain = 1; grain < 9; grain += 3)
      for (int64_t num_chunks = 1; num_chunks < 5; num_chunks += 2) run_loops(&c, 5, n, grain, num_chunks);
  require(WEFT_GET(pool->num_helpers) == NUM_THREADS - 1, "helpers are created once");
}

/* ---------------------------------------------------------------- owners at once */

static void *own(void *argument) {
  counts c = {.error_at = -1};
  (void)argument;
  weft_pool_enter(pool, NUM_THREADS);
  run_loops(&c, 400, SIZE, 1, 4);
  weft_pool_leave(pool);
  return NULL;
}

/* More owners than the pool has loops: some run theirs alone. */
static void run_owners(void *owner(void *)) {
  pthread_t owners[NUM_OWNERS];
  for (int i = 0; i < NUM_OWNERS; i++) require(!pthread_create(&owners[i], NULL, owner, NULL), "a thread");
  for (int i = 0; i < NUM_OWNERS; i++) pthread_join(owners[i], NULL);
}

/* ---------------------------------------------------------------- loops in loops */

static int32_t nest(void *context, int64_t thread, int64_t low, int64_t high) {
  (void)thread;
  for (int64_t i = low; i < high; i++) {
    counts c = {.error_at = -1};
    run_loops(&c, 2, SIZE, 2, 2);
    ((int *)context)[i]++;
  }
  return 0;
}

static void run_nested(void) {
  int runs[8] = {0};
  for (int i = 0; i < 20; i++) weft_pool_run(pool, nest, runs, 8, 1, 2, NUM_THREADS);
  for (int i = 0; i < 8; i++) require(runs[i] == 20, "each outer iteration runs once");
}

/* ---------------------------------------------------------------- sleep, and work that is stolen */

static _Atomic int32_t num_helped;

static bool is_pinned(void) {
  pthread_mutex_lock(&pool->mutex.object);
  bool result = weft_shares_processor(pool);
  pthread_mutex_unlock(&pool->mutex.object);
  return result;
}

/* The owner waits in its first chunk until helpers have run all others, except the last of its part. */
static int32_t steal(void *context, int64_t thread, int64_t low, int64_t high) {
  ((int *)context)[low]++;
  require(high == low + 1, "chunks of one iteration");
  if (thread) WEFT_SET(num_helped, WEFT_GET(num_helped) + 1);
  else if (low == 0)
    while (!is_pinned() && WEFT_GET(num_helped) < 6) sched_yield();
  return 0;
}

static void run_after_sleep(void) {
  for (int i = 0; i < 5; i++) {
    int runs[8] = {0};
    while (WEFT_GET(pool->num_sleeping) < WEFT_GET(pool->num_helpers)) sched_yield();
    WEFT_SET(num_helped, 0);
    weft_pool_run(pool, steal, runs, 8, 1, 4, 2);
    for (int k = 0; k < 8; k++) require(runs[k] == 1, "each iteration runs once");
  }
}

/* ---------------------------------------------------------------- errors, forks and the end */

static void run_errors(void) {
  for (int64_t at = 0; at < SIZE; at++) {
    counts c = {.error_at = at};
    require(weft_pool_run(pool, count, &c, SIZE, 1, 4, NUM_THREADS) == 7, "the error");
    for (int64_t i = 0; i < SIZE; i++) require(c.runs[i] <= (i != at), "no iteration runs twice");
    c.error_at = -1;
    run_loops(&c, 1, SIZE, 1, 4);
  }
}

static void run_in_child(void) {
  pid_t child = fork();
  if (child == 0) {
    require(weft_pool_init(pool, NUM_LOOPS), "a new pool");
#ifdef __SANITIZE_THREAD__ /* it refuses new threads in the child of a process with threads */
    WEFT_SET(pool->is_full, 1);
    counts c = {.error_at = -1};
    run_loops(&c, 3, SIZE, 1, 4);
#else
    run_many();
#endif
    weft_pool_stop(pool);
    _exit(0);
  }
  int status = 1;
  require(waitpid(child, &status, 0) == child && status == 0, "the child of a fork");
  run_many();
}

static void *own_until_stopped(void *argument) {
  do {
    counts c = {.error_at = -1};
    run_loops(&c, 50, SIZE, 1, 4);
  } while (!WEFT_GET(pool->is_stopping));
  return argument;
}

static void *stop_soon(void *argument) {
  weft_pool_stop(pool);
  return argument;
}

static void run_stop(void) {
  for (int i = 0; i < 20; i++) {
    pthread_t owner, other;
    require(!pthread_create(&owner, NULL, own_until_stopped, NULL), "a thread");
    require(!pthread_create(&other, NULL, stop_soon, NULL), "a thread");
    pthread_join(owner, NULL);
    pthread_join(other, NULL);
    require(WEFT_GET(pool->num_helpers) == 0, "all helpers end");
    counts c = {.error_at = -1};
    run_loops(&c, 3, SIZE, 1, 4);
    require(WEFT_GET(pool->num_helpers) == 0, "a stopped pool has no helpers");
    pthread_mutex_destroy(&pool->mutex.object);
    pthread_cond_destroy(&pool->wake.object);
    require(weft_pool_init(pool, NUM_LOOPS), "a new pool");
  }
}

#define PART(call) (call, puts("ok " #call), fflush(stdout))

int main(void) {
  pool = aligned_alloc(WEFT_CACHE_LINE, WEFT_POOL_BYTES(NUM_LOOPS));
  require(pool && weft_pool_init(pool, NUM_LOOPS), "a pool");
  PART(run_many());
  PART(run_owners(own));
  PART(run_nested());
  PART(run_after_sleep());
  PART(run_errors());
  PART(run_in_child());
  PART(run_stop());
  weft_pool_destroy(pool);
  free(pool);
  return 0;
}
