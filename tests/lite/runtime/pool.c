/* The pool of threads where each call that may fail does so in turn: without memory there is no pool, with
 * fewer threads all tasks are run all the same, and nothing is left behind. threads.c is compiled with
 * the names of those calls changed to those here. Prints for each turn on how many threads tasks ran. With an
 * argument, threads do not run before all tasks have. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "threads.h"

enum { THREADS = 4, ROUNDS = 200, TASKS = 9 };

static int calls, failing; /* so many succeed before */
static atomic_int left;    /* of what was made and not given back */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* threads pass it one after another */
static struct start {
  void *(*run)(void *);
  void *argument;
} starts[THREADS];
static int num_starts;

static void *start(void *argument) {
  struct start *s = argument;
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return s->run(s->argument);
}

static int fails(void) { return calls++ == failing; }

void *test_calloc(size_t count, size_t size) {
  if (fails()) return NULL;
  left++;
  return calloc(count, size);
}

void test_free(void *made) {
  left--;
  free(made);
}

int test_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *how) {
  if (fails()) return 12;
  left++;
  return pthread_mutex_init(mutex, how);
}

int test_mutex_destroy(pthread_mutex_t *mutex) {
  left--;
  return pthread_mutex_destroy(mutex);
}

int test_cond_init(pthread_cond_t *wake, const pthread_condattr_t *how) {
  if (fails()) return 12;
  left++;
  return pthread_cond_init(wake, how);
}

int test_cond_destroy(pthread_cond_t *wake) {
  left--;
  return pthread_cond_destroy(wake);
}

int test_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
  if (fails()) return 11;
  left++;
  struct start *s = &starts[num_starts++ % THREADS];
  *s = (struct start){run, argument};
  return pthread_create(thread, how, start, s);
}

int test_join(pthread_t thread, void **result) {
  left--;
  return pthread_join(thread, result);
}

static void count(void *argument, unsigned task) { atomic_fetch_add((atomic_int *)argument + task, 1); }

static int run_late(void) {
  failing = -1;
  pthread_mutex_lock(&gate);
  wl_pool *pool = wl_pool_create(THREADS);
  atomic_int done[TASKS] = {0};
  for (int i = 0; i < ROUNDS; i++) wl_pool_run(pool, count, done, TASKS);
  for (int i = 0; i < TASKS; i++)
    if (done[i] != ROUNDS) return printf("task %d ran %d times\n", i, done[i]), 1;
  pthread_mutex_unlock(&gate);
  wl_pool_destroy(pool);
  return left;
}

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) return run_late();
  for (failing = 0;; failing++) {
    calls = 0;
    wl_pool *pool = wl_pool_create(THREADS);
    printf("%u ", pool ? wl_pool_threads(pool) : 0);
    if (pool) {
      atomic_int done[TASKS] = {0};
      for (int i = 0; i < ROUNDS; i++) wl_pool_run(pool, count, done, TASKS);
      for (int i = 0; i < TASKS; i++)
        if (done[i] != ROUNDS) return printf("task %d ran %d times\n", i, done[i]), 1;
      wl_pool_destroy(pool);
    }
    if (left) return printf("%d things were left\n", left), 1;
    if (calls <= failing) return 0; /* none failed */
  }
}
