/* Pools of threads by thread_pool.h. A forked process has none of their threads: its copy of a pool starts new
 * ones when it is next used. */
#define _GNU_SOURCE
#include "threads.h"

#if !defined(_WIN32) && !defined(__wasm__)

#include <stdlib.h>

#include "thread_pool.h"

_Static_assert((int)WEFT_MAX_THREADS == (int)WL_MAX_TASKS, "a pool has a thread for each task");

struct wl_pool {
  unsigned num_threads; /* the caller's among them */
  unsigned num_forks;   /* of the process that started the threads */
  weft_pool *pool;      /* in this allocation, aligned */
};

/* Forks between the first process and this one. Only the child's only thread changes it. */
static unsigned num_forks;
static int watch_error; /* not 0 if forks are not counted */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count_fork(void) { num_forks++; }
static void watch_forks(void) { watch_error = pthread_atfork(NULL, NULL, count_fork); }

static bool start(wl_pool *p) {
  if (!weft_pool_init(p->pool, 1)) return false;
  p->num_forks = num_forks;
  weft_pool_grow(p->pool, (int64_t)p->num_threads - 1);
  return true;
}

wl_pool *wl_pool_create(unsigned threads) {
  pthread_once(&once, watch_forks);
  size_t bytes = sizeof(wl_pool) + WEFT_CACHE_LINE + WEFT_POOL_BYTES(1);
  wl_pool *p = watch_error ? NULL : calloc(1, bytes);
  if (!p) return NULL;
  uintptr_t end = (uintptr_t)(p + 1) + WEFT_CACHE_LINE - 1;
  p->pool = (weft_pool *)(end - end % WEFT_CACHE_LINE);
  p->num_threads = threads < WL_MAX_TASKS ? threads : WL_MAX_TASKS;
  if (start(p)) return p;
  free(p);
  return NULL;
}

unsigned wl_pool_threads(const wl_pool *p) { return (unsigned)WEFT_GET(p->pool->num_helpers) + 1; }

/* A forked process has no threads to join, and cannot destroy a condition variable that threads of another
 * process waited for. */
void wl_pool_destroy(wl_pool *p) {
  if (!p) return;
  if (p->num_forks == num_forks) weft_pool_destroy(p->pool);
  free(p);
}

typedef struct tasks {
  wl_task *task;
  void *argument;
} tasks;

static int32_t run_tasks(void *context, int64_t thread, int64_t low, int64_t high) {
  const tasks *t = context;
  (void)thread;
  for (int64_t i = low; i < high; i++) t->task(t->argument, (unsigned)i);
  return 0;
}

void wl_pool_run(void *pool, wl_task *task, void *argument, unsigned count) {
  wl_pool *p = pool;
  tasks t = {task, argument};
  unsigned num_threads = count < p->num_threads ? count : p->num_threads;
  if (num_threads < 2 || (p->num_forks != num_forks && !start(p))) run_tasks(&t, 0, 0, count);
  else weft_pool_run(p->pool, run_tasks, &t, count, 1, count, num_threads);
}

#else

wl_pool *wl_pool_create(unsigned threads) {
  (void)threads;
  return NULL;
}
unsigned wl_pool_threads(const wl_pool *p) {
  (void)p;
  return 1;
}
void wl_pool_destroy(wl_pool *p) { (void)p; }
void wl_pool_run(void *pool, wl_task *task, void *argument, unsigned count) {
  (void)pool;
  for (unsigned i = 0; i < count; i++) task(argument, i);
}

#endif
