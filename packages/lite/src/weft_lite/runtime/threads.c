/* Threads that wait for tasks: for some microseconds awake, since ops follow each other closely, then
 * asleep. */
#include "threads.h"

#if !defined(_WIN32) && !defined(__wasm__)

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SPINS = 4000 };

struct wl_pool {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  pthread_t threads[WL_MAX_TASKS];
  unsigned count; /* of threads besides the caller's */
  wl_task *task;
  void *argument;
  unsigned total;
  atomic_uint round;        /* of work; threads run each once */
  atomic_uint next;         /* the task that is taken next */
  atomic_uint working;      /* threads that have not finished the round */
  atomic_bool stop;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void take_tasks(wl_pool *p) {
  for (unsigned i; (i = atomic_fetch_add(&p->next, 1)) < p->total;) p->task(p->argument, i);
}

static void wait_for_round(wl_pool *p, unsigned seen) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load(&p->round) != seen) return;
    relax();
  }
  pthread_mutex_lock(&p->mutex);
  while (atomic_load(&p->round) == seen) pthread_cond_wait(&p->wake, &p->mutex);
  pthread_mutex_unlock(&p->mutex);
}

static void *work(void *argument) {
  wl_pool *p = argument;
  for (unsigned seen = 0;; seen++) {
    wait_for_round(p, seen);
    if (atomic_load(&p->stop)) return NULL;
    take_tasks(p);
    atomic_fetch_sub(&p->working, 1);
  }
}

static void begin_round(wl_pool *p) {
  pthread_mutex_lock(&p->mutex);
  atomic_fetch_add(&p->round, 1);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->mutex);
}

wl_pool *wl_pool_create(unsigned threads) {
  wl_pool *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  if (pthread_mutex_init(&p->mutex, NULL) != 0) {
    free(p);
    return NULL;
  }
  if (pthread_cond_init(&p->wake, NULL) != 0) {
    pthread_mutex_destroy(&p->mutex);
    free(p);
    return NULL;
  }
  for (unsigned i = 1; i < threads && i < WL_MAX_TASKS; i++, p->count++)
    if (pthread_create(&p->threads[p->count], NULL, work, p) != 0) break; /* those that there are do all */
  return p;
}

unsigned wl_pool_threads(const wl_pool *p) { return p->count + 1; }

void wl_pool_destroy(wl_pool *p) {
  if (!p) return;
  atomic_store(&p->stop, true);
  begin_round(p);
  for (unsigned i = 0; i < p->count; i++) pthread_join(p->threads[i], NULL);
  pthread_mutex_destroy(&p->mutex);
  pthread_cond_destroy(&p->wake);
  free(p);
}

void wl_pool_run(void *pool, wl_task *task, void *argument, unsigned count) {
  wl_pool *p = pool;
  p->task = task;
  p->argument = argument;
  p->total = count;
  atomic_store(&p->next, 0);
  atomic_store(&p->working, p->count);
  begin_round(p);
  take_tasks(p);
  for (unsigned spins = 0; atomic_load(&p->working); spins++) {
    relax();
    if (spins > SPINS) sched_yield();
  }
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
