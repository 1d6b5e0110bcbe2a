/* The signals of Android, for builds without its headers. A set is as large as the largest of Linux. */
#ifndef WEFT_LITE_BARE_SIGNAL_H
#define WEFT_LITE_BARE_SIGNAL_H

enum { SIG_SETMASK = 2, SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8, SIGSEGV = 11 };

typedef struct sigset {
  long words[128 / sizeof(long)];
} sigset_t;

int sigfillset(sigset_t *);
int sigdelset(sigset_t *, int);

#endif
