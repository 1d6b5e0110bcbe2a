/* A pool of threads for wl_config.parallel, beside the core: this file alone allocates and starts
 * threads. */
#ifndef WEFT_LITE_THREADS_H
#define WEFT_LITE_THREADS_H

#include "weft_lite.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wl_pool wl_pool;

/* A pool that runs tasks on `threads` threads, the caller's among them; on fewer where the system gives no
 * more. NULL where there is no memory, or no threads on this system. */
WL_API wl_pool *wl_pool_create(unsigned threads);
WL_API unsigned wl_pool_threads(const wl_pool *);
WL_API void wl_pool_destroy(wl_pool *);

/* For wl_config.parallel, with the pool as its context. One caller at a time. A process that was forked while
 * no caller was in it may use it too: it starts threads of its own. */
WL_API void wl_pool_run(void *pool, wl_task *task, void *argument, unsigned count);

#ifdef __cplusplus
}
#endif
#endif
