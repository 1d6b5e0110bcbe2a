/* The POSIX threads of Android, for builds without its headers. Objects have at least the size of Android's, so
 * that they also fit other C libraries of Linux. */
#ifndef WEFT_LITE_BARE_PTHREAD_H
#define WEFT_LITE_BARE_PTHREAD_H

#include <signal.h>

#define PTHREAD_ONCE_INIT 0

typedef long pthread_t;
typedef int pthread_once_t;
typedef struct pthread_attr pthread_attr_t;
typedef struct pthread_mutexattr pthread_mutexattr_t;
typedef struct pthread_condattr pthread_condattr_t;
typedef struct pthread_mutex {
  long words[64 / sizeof(long)];
} pthread_mutex_t;
typedef struct pthread_cond {
  long words[64 / sizeof(long)];
} pthread_cond_t;

int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_join(pthread_t, void **);
int pthread_once(pthread_once_t *, void (*)(void));
int pthread_atfork(void (*)(void), void (*)(void), void (*)(void));
int pthread_sigmask(int, const sigset_t *, sigset_t *);
int pthread_mutex_init(pthread_mutex_t *, const pthread_mutexattr_t *);
int pthread_mutex_lock(pthread_mutex_t *);
int pthread_mutex_unlock(pthread_mutex_t *);
int pthread_mutex_destroy(pthread_mutex_t *);
int pthread_cond_init(pthread_cond_t *, const pthread_condattr_t *);
int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int pthread_cond_broadcast(pthread_cond_t *);
int pthread_cond_destroy(pthread_cond_t *);

#endif
