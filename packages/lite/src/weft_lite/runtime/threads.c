/* Threads that wait for tasks: for some microseconds awake, since ops follow each other closely, then
 * asleep. A forked process has none of them: its copy of a pool starts new ones when it is next used. */
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
  unsigned wanted;          /* threads, the caller's among them */
  unsigned count;           /* of threads besides the caller's */
  unsigned forks;           /* of the process that started the threads */
  wl_task *task;
  void *argument;
  unsigned total;
  atomic_uint round;        /* of work; threads run each once */
  atomic_uint next;         /* the task that is taken next */
  atomic_uint working;      /* threads that have not finished the round */
  atomic_bool stop;
};

/* Forks between the first process and this one. Only the child's only thread changes it. */
static unsigned forks;
static int unwatched; /* an error number: forks are not counted */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count_fork(void) { forks++; }
static void watch_forks(void) { unwatched = pthread_atfork(NULL, NULL, count_fork); }

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

static bool start(wl_pool *p) {
  p->count = 0;
  atomic_store(&p->round, 0);
  if (pthread_mutex_init(&p->mutex, NULL) != 0) return false;
  if (pthread_cond_init(&p->wake, NULL) != 0) {
    pthread_mutex_destroy(&p->mutex);
    return false;
  }
  for (; p->count + 1 < p->wanted && p->count + 1 < WL_MAX_TASKS; p->count++)
    if (pthread_create(&p->threads[p->count], NULL, work, p) != 0) break; /* those that there are do all */
  p->forks = forks;
  return true;
}

wl_pool *wl_pool_create(unsigned threads) {
  pthread_once(&once, watch_forks);
  wl_pool *p = unwatched ? NULL : calloc(1, sizeof *p);
  if (!p) return NULL;
  p->wanted = threads;
  if (start(p)) return p;
  free(p);
  return NULL;
}

unsigned wl_pool_threads(const wl_pool *p) { return p->count + 1; }

/* In a forked process there is nobody to join, and a condition that threads of another waited for cannot
 * be destroyed. */
void wl_pool_destroy(wl_pool *p) {
  if (!p) return;
  if (p->forks == forks) {
    atomic_store(&p->stop, true);
    begin_round(p);
    for (unsigned i = 0; i < p->count; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->wake);
  }
  free(p);
}

void wl_pool_run(void *pool, wl_task *task, void *argument, unsigned count) {
  wl_pool *p = pool;
  bool ready = p->forks == forks || start(p);
  p->task = task;
  p->argument = argument;
  p->total = count;
  atomic_store(&p->next, 0);
  atomic_store(&p->working, p->count);
  if (ready) begin_round(p);
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
