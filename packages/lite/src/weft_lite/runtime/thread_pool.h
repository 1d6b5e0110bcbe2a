/* A pool of threads that run the iterations of parallel loops, for systems with POSIX threads.
 *
 * The thread that runs a loop, its owner, opens it and runs chunks of it like each helper thread that
 * joins. Each thread has its own part of the iterations, the same for each loop of a shape, so that it
 * finds its data in its own caches. A thread that has finished its part steals chunks of the parts of
 * others, except the last chunk of a thread that has joined. The owner closes the loop when no chunk is
 * left, and waits only for the helpers that joined: a loop never waits for a thread that is asleep or busy.
 *
 * Several threads may run loops at once, also from within a loop. Each uses one loop of the pool; if all are
 * in use, it runs its iterations alone.
 *
 * This file is included by one source file of each library. packages/compiler has the original;
 * `hatch run golden:runtime` copies it to packages/lite. */
#ifndef WEFT_THREAD_POOL_H
#define WEFT_THREAD_POOL_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include: the pool asks for the processors of a thread"
#endif

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  WEFT_MAX_THREADS = 64, /* of a loop, its owner included */
  WEFT_CACHE_LINE = 64,  /* data that different threads write is on different lines */
  WEFT_SPINS = 2000,     /* polls of a thread before it yields: some 20 microseconds */
  WEFT_YIELDS = 400      /* yields before it sleeps: at least 0.1 ms */
};

/* Runs the iterations from `low` to before `high`. `thread` is below the number of threads of the loop, and
 * differs among the threads that run it. Returns 0, or an error code, which ends the loop early. */
typedef int32_t weft_loop_body(void *context, int64_t thread, int64_t low, int64_t high);

typedef struct weft_part {
  _Alignas(WEFT_CACHE_LINE) _Atomic int64_t next; /* the first iteration that no thread has taken */
  _Atomic int64_t has_owner;                      /* 1 if the thread of this part has joined */
} weft_part;

/* The offer is updated as one word: the number of helpers that have finished, the number that have joined,
 * and a sequence number, which is odd while the loop is open. */
#define WEFT_OFFER_FINISHED UINT64_C(1)
#define WEFT_OFFER_JOINED (UINT64_C(1) << 16)
#define WEFT_OFFER_SEQUENCE (UINT64_C(1) << 32)

typedef struct weft_loop {
  _Alignas(WEFT_CACHE_LINE) _Atomic uint64_t offer;
  _Alignas(WEFT_CACHE_LINE) _Atomic int32_t in_use;
  weft_loop_body *body;
  void *context;
  int64_t chunk_size; /* in iterations, as part_size */
  int64_t part_size;
  _Atomic int64_t num_iterations;
  _Atomic int64_t max_helpers;
  _Atomic int64_t is_exhausted; /* 1 if all iterations have been taken */
  _Alignas(WEFT_CACHE_LINE) _Atomic int32_t error;
  weft_part parts[WEFT_MAX_THREADS];
} weft_loop;

/* C libraries have these objects in different sizes, all within a cache line. */
typedef union weft_mutex {
  _Alignas(WEFT_CACHE_LINE) pthread_mutex_t object;
  char line[WEFT_CACHE_LINE];
} weft_mutex;
typedef union weft_condition {
  _Alignas(WEFT_CACHE_LINE) pthread_cond_t object;
  char line[WEFT_CACHE_LINE];
} weft_condition;

typedef struct weft_helper {
  pthread_t thread;
  struct weft_pool *pool;
  int64_t number; /* from 1; also the index of its part in loops of enough threads */
} weft_helper;

typedef struct weft_pool {
  _Atomic int32_t num_helpers; /* threads besides the owners of loops */
  _Atomic int32_t is_full;     /* 1 if no more threads can be created */
  _Atomic int32_t is_stopping;
  int32_t num_loops;
  _Alignas(WEFT_CACHE_LINE) _Atomic int32_t num_programs; /* between weft_pool_enter and weft_pool_leave */
  _Alignas(WEFT_CACHE_LINE) _Atomic int32_t num_active;   /* helpers that run iterations */
  _Alignas(WEFT_CACHE_LINE) _Atomic int32_t num_sleeping; /* or about to sleep */
  weft_mutex mutex;
  weft_condition wake;
  _Alignas(WEFT_CACHE_LINE) weft_helper helpers[WEFT_MAX_THREADS];
  weft_loop loops[];
} weft_pool;

_Static_assert(sizeof(weft_mutex) == WEFT_CACHE_LINE, "a mutex has one cache line");
_Static_assert(sizeof(weft_condition) == WEFT_CACHE_LINE, "a condition variable has one cache line");
_Static_assert(sizeof(weft_part) == WEFT_CACHE_LINE, "a part has one cache line");
_Static_assert(offsetof(weft_loop, parts) == 3 * WEFT_CACHE_LINE, "a loop has three lines before its parts");
_Static_assert(sizeof(weft_loop) % WEFT_CACHE_LINE == 0, "loops are aligned");
_Static_assert(sizeof(pthread_t) == sizeof(void *), "a pool has the same layout with every C library");

/* Memory of a pool that runs so many loops at once; it must be aligned to a cache line. */
#define WEFT_POOL_BYTES(num_loops) (sizeof(weft_pool) + (num_loops) * sizeof(weft_loop))

#ifndef WEFT_PAUSE
#if defined(__x86_64__) || defined(__i386__)
#define WEFT_PAUSE() __builtin_ia32_pause()
#else
#define WEFT_PAUSE() ((void)0)
#endif
#endif

#define WEFT_GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define WEFT_SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* ---------------------------------------------------------------- iterations */

static inline int64_t weft_min(int64_t x, int64_t y) { return x < y ? x : y; }

/* The number of iterations of each of `count` parts, a multiple of `grain`. */
static inline int64_t weft_divide(int64_t num_iterations, int64_t count, int64_t grain) {
  int64_t size = (num_iterations + count - 1) / count;
  return (size + grain - 1) / grain * grain;
}

/* Ends a loop early: leaves no iteration to take. */
static void weft_fail(weft_loop *loop, int32_t error, int64_t num_threads) {
  WEFT_SET(loop->error, error);
  for (int64_t i = 0; i < num_threads; i++) WEFT_SET(loop->parts[i].next, WEFT_GET(loop->num_iterations));
}

/* Runs chunks until all are taken: first those of a thread's own part, then those of others. */
__attribute__((noinline)) static void weft_run_chunks(weft_loop *loop, int64_t thread, int64_t own_part) {
  int64_t num_iterations = WEFT_GET(loop->num_iterations), chunk_size = loop->chunk_size;
  int64_t num_threads = WEFT_GET(loop->max_helpers) + 1;
  WEFT_SET(loop->parts[own_part].has_owner, 1);
  for (int64_t i = 0; i < num_threads; i++) {
    int64_t index = (own_part + i) % num_threads;
    weft_part *part = &loop->parts[index];
    int64_t end = weft_min((index + 1) * loop->part_size, num_iterations);
    for (;;) {
      if (i > 0) {
        int64_t next = WEFT_GET(part->next);
        if (next >= end || (next + chunk_size >= end && WEFT_GET(part->has_owner))) break;
      }
      int64_t low = atomic_fetch_add_explicit(&part->next, chunk_size, memory_order_relaxed);
      if (low >= end) break;
      int32_t error = loop->body(loop->context, thread, low, weft_min(low + chunk_size, end));
      if (error) {
        weft_fail(loop, error, num_threads);
        WEFT_SET(loop->is_exhausted, 1);
        return;
      }
    }
  }
  WEFT_SET(loop->is_exhausted, 1);
}

/* Runs a loop on this thread, in the chunks of `num_threads` threads: a product by BLAS depends on them. */
static int32_t weft_run_alone(weft_loop_body *body, void *context, int64_t num_iterations, int64_t part_size,
                              int64_t chunk_size) {
  for (int64_t low = 0; low < num_iterations; low += part_size) {
    int64_t end = weft_min(low + part_size, num_iterations);
    for (int64_t i = low; i < end; i += chunk_size) {
      int32_t error = body(context, 0, i, weft_min(i + chunk_size, end));
      if (error) return error;
    }
  }
  return 0;
}

/* ---------------------------------------------------------------- helpers */

/* Returns the offer of a loop if one more thread may join it, else 0. */
static uint64_t weft_open_offer(weft_pool *pool, weft_loop *loop) {
  uint64_t offer = atomic_load_explicit(&loop->offer, memory_order_seq_cst);
  if (!(offer & WEFT_OFFER_SEQUENCE) || WEFT_GET(loop->is_exhausted)) return 0;
  int64_t num_joined = (int64_t)(offer / WEFT_OFFER_JOINED & 0xffff);
  int32_t num_running = WEFT_GET(pool->num_programs) + WEFT_GET(pool->num_active);
  bool has_room = num_joined < WEFT_GET(loop->max_helpers) && num_running <= WEFT_GET(pool->num_helpers);
  return has_room ? offer : 0;
}

static bool weft_has_open_loop(weft_pool *pool) {
  for (int32_t i = 0; i < pool->num_loops; i++)
    if (weft_open_offer(pool, &pool->loops[i])) return true;
  return false;
}

/* Joins the first open loop. Returns false if there is none. */
static bool weft_help(weft_pool *pool, int64_t helper) {
  for (int32_t i = 0; i < pool->num_loops; i++) {
    weft_loop *loop = &pool->loops[i];
    uint64_t offer = weft_open_offer(pool, loop);
    if (!offer) continue;
    atomic_fetch_add_explicit(&pool->num_active, 1, memory_order_relaxed);
    uint64_t joined = offer + WEFT_OFFER_JOINED;
    bool joins = atomic_compare_exchange_strong_explicit(&loop->offer, &offer, joined, memory_order_acq_rel,
                                                         memory_order_relaxed);
    if (joins) {
      int64_t thread = (int64_t)(joined / WEFT_OFFER_JOINED & 0xffff);
      weft_run_chunks(loop, thread, helper > WEFT_GET(loop->max_helpers) ? thread : helper);
    }
    atomic_fetch_sub_explicit(&pool->num_active, 1, memory_order_relaxed);
    if (joins) atomic_fetch_add_explicit(&loop->offer, WEFT_OFFER_FINISHED, memory_order_release);
    return true;
  }
  return false;
}

/* Sleeps until a loop is opened. An owner opens its loop before it reads the number of sleeping threads, so
 * either it sees this thread, or this thread sees the loop. */
static void weft_sleep(weft_pool *pool) {
  pthread_mutex_lock(&pool->mutex.object);
  atomic_fetch_add_explicit(&pool->num_sleeping, 1, memory_order_seq_cst);
  if (!weft_has_open_loop(pool) && !atomic_load_explicit(&pool->is_stopping, memory_order_acquire))
    pthread_cond_wait(&pool->wake.object, &pool->mutex.object);
  atomic_fetch_sub_explicit(&pool->num_sleeping, 1, memory_order_seq_cst);
  pthread_mutex_unlock(&pool->mutex.object);
}

static void *weft_work(void *argument) {
  weft_helper *self = argument;
  weft_pool *pool = self->pool;
  int32_t polls = 0;
  while (!atomic_load_explicit(&pool->is_stopping, memory_order_acquire)) {
    if (weft_help(pool, self->number)) {
      polls = 0;
    } else if (polls < WEFT_SPINS) {
      polls++;
      WEFT_PAUSE();
    } else if (polls < WEFT_SPINS + WEFT_YIELDS) {
      polls++;
      sched_yield();
    } else {
      weft_sleep(pool);
      polls = 0;
    }
  }
  return NULL;
}

/* Helpers handle no signals except faults: a handler of the program expects a thread of the program. */
static void weft_block_signals(sigset_t *before) {
  sigset_t blocked;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGSEGV);
  sigdelset(&blocked, SIGBUS);
  sigdelset(&blocked, SIGFPE);
  sigdelset(&blocked, SIGILL);
  sigdelset(&blocked, SIGABRT);
  sigdelset(&blocked, SIGTRAP);
  pthread_sigmask(SIG_SETMASK, &blocked, before);
}

__attribute__((noinline)) static void weft_add_helper(weft_pool *pool, int32_t index) {
  sigset_t before;
  pthread_mutex_lock(&pool->mutex.object);
  if (WEFT_GET(pool->num_helpers) == index && !WEFT_GET(pool->is_full)) {
    weft_helper *helper = &pool->helpers[index];
    helper->pool = pool;
    helper->number = index + 1;
    weft_block_signals(&before);
    if (pthread_create(&helper->thread, NULL, weft_work, helper) == 0)
      WEFT_SET(pool->num_helpers, index + 1);
    else
      WEFT_SET(pool->is_full, 1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  pthread_mutex_unlock(&pool->mutex.object);
}

/* Creates helpers until there are `count`, or fewer if the system refuses. */
static void weft_pool_grow(weft_pool *pool, int64_t count) {
  for (int32_t n; (n = WEFT_GET(pool->num_helpers)) < count && !WEFT_GET(pool->is_full);)
    weft_add_helper(pool, n);
}

/* Returns true if this thread and the helpers may run on one processor only, and it is the same one. There a
 * helper that wakes up takes the processor from the owner of the loop. The caller holds the mutex, so the
 * helpers have not ended. */
static bool weft_shares_processor(weft_pool *pool) {
#if defined(__linux__) && !defined(__ANDROID__)
  cpu_set_t own, other;
  if (sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) != 1) return false;
  if (!WEFT_GET(pool->num_helpers)) return false;
  pthread_t helper = pool->helpers[0].thread;
  return pthread_getaffinity_np(helper, sizeof other, &other) == 0 && CPU_EQUAL(&own, &other);
#else
  (void)pool;
  return false;
#endif
}

__attribute__((noinline)) static void weft_wake_all(weft_pool *pool) {
  pthread_mutex_lock(&pool->mutex.object);
  if (!weft_shares_processor(pool)) pthread_cond_broadcast(&pool->wake.object);
  pthread_mutex_unlock(&pool->mutex.object);
}

static void weft_wake(weft_pool *pool) {
  if (atomic_load_explicit(&pool->num_sleeping, memory_order_seq_cst)) weft_wake_all(pool);
}

/* ---------------------------------------------------------------- loops */

static weft_loop *weft_claim_loop(weft_pool *pool) {
  for (int32_t i = 0; i < pool->num_loops; i++) {
    int32_t unused = 0;
    if (atomic_compare_exchange_strong_explicit(&pool->loops[i].in_use, &unused, 1, memory_order_acquire,
                                                memory_order_relaxed))
      return &pool->loops[i];
  }
  return NULL;
}

static void weft_open_loop(weft_loop *loop, int64_t num_threads) {
  WEFT_SET(loop->max_helpers, num_threads - 1);
  WEFT_SET(loop->is_exhausted, 0);
  WEFT_SET(loop->error, 0);
  for (int64_t i = 0; i < num_threads; i++) {
    WEFT_SET(loop->parts[i].next, i * loop->part_size);
    WEFT_SET(loop->parts[i].has_owner, 0);
  }
  uint64_t sequence = WEFT_GET(loop->offer) / WEFT_OFFER_SEQUENCE | 1;
  atomic_store_explicit(&loop->offer, sequence * WEFT_OFFER_SEQUENCE, memory_order_seq_cst);
}

/* Refuses more helpers, and waits until those that joined have finished. */
static void weft_close_loop(weft_loop *loop) {
  uint64_t offer = atomic_fetch_add_explicit(&loop->offer, WEFT_OFFER_SEQUENCE, memory_order_acq_rel);
  uint64_t num_joined = offer / WEFT_OFFER_JOINED & 0xffff;
  for (int32_t polls = 0;; polls++) {
    uint64_t now = atomic_load_explicit(&loop->offer, memory_order_acquire);
    if ((now & 0xffff) == num_joined) return;
    if (polls < WEFT_SPINS) {
      WEFT_PAUSE();
    } else {
      polls = WEFT_SPINS;
      sched_yield();
    }
  }
}

/* Runs all iterations of a loop on up to `num_threads` threads: each thread's part in about `num_chunks`
 * chunks, each a multiple of `grain`. The chunks do not depend on which threads join. Returns 0 if all calls
 * of the body do, else the result of one that failed. */
static int32_t weft_pool_run(weft_pool *pool, weft_loop_body *body, void *context, int64_t num_iterations,
                             int64_t grain, int64_t num_chunks, int64_t num_threads) {
  num_threads = weft_min(num_threads, WEFT_MAX_THREADS);
  int64_t part_size = weft_divide(num_iterations, num_threads, grain);
  int64_t chunk_size = weft_divide(part_size, num_chunks, grain);
  if (part_size >= num_iterations) return body(context, 0, 0, num_iterations);
  weft_pool_grow(pool, num_threads - 1);
  weft_loop *loop = weft_claim_loop(pool);
  if (!loop) return weft_run_alone(body, context, num_iterations, part_size, chunk_size);
  loop->body = body;
  loop->context = context;
  loop->chunk_size = chunk_size;
  loop->part_size = part_size;
  WEFT_SET(loop->num_iterations, num_iterations);
  weft_open_loop(loop, num_threads);
  weft_wake(pool);
  weft_run_chunks(loop, 0, 0);
  weft_close_loop(loop);
  int32_t error = WEFT_GET(loop->error);
  atomic_store_explicit(&loop->in_use, 0, memory_order_release);
  return error;
}

/* ---------------------------------------------------------------- lifetime */

/* Notes that a program begins, which may run loops: helpers that are asleep wake up, and no more threads run
 * iterations than the pool has helpers. weft_pool_leave ends it. */
static inline void weft_pool_enter(weft_pool *pool, int64_t num_threads) {
  atomic_fetch_add_explicit(&pool->num_programs, 1, memory_order_relaxed);
  if (num_threads > 1) weft_wake(pool);
}

static inline void weft_pool_leave(weft_pool *pool) {
  atomic_fetch_sub_explicit(&pool->num_programs, 1, memory_order_relaxed);
}

/* Initializes a pool without threads; also in the child of a fork, where the threads of the copy do not exist.
 * Returns false if the system refuses. */
static bool weft_pool_init(weft_pool *pool, int32_t num_loops) {
  memset(pool, 0, WEFT_POOL_BYTES((size_t)num_loops));
  pool->num_loops = num_loops;
  if (pthread_mutex_init(&pool->mutex.object, NULL) != 0) return false;
  if (pthread_cond_init(&pool->wake.object, NULL) == 0) return true;
  pthread_mutex_destroy(&pool->mutex.object);
  return false;
}

/* Ends the helpers. Loops still run, on the threads of their owners. */
static void weft_pool_stop(weft_pool *pool) {
  pthread_mutex_lock(&pool->mutex.object);
  int32_t num_helpers = WEFT_GET(pool->num_helpers);
  WEFT_SET(pool->num_helpers, 0);
  WEFT_SET(pool->is_full, 1);
  atomic_store_explicit(&pool->is_stopping, 1, memory_order_release);
  pthread_cond_broadcast(&pool->wake.object);
  pthread_mutex_unlock(&pool->mutex.object);
  for (int32_t i = 0; i < num_helpers; i++) pthread_join(pool->helpers[i].thread, NULL);
}

/* Ends the helpers of a pool that is not used again. */
static inline void weft_pool_destroy(weft_pool *pool) {
  weft_pool_stop(pool);
  pthread_mutex_destroy(&pool->mutex.object);
  pthread_cond_destroy(&pool->wake.object);
}

#endif
