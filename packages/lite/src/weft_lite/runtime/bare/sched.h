/* The scheduler of Android, for builds without its headers. */
#ifndef WEFT_LITE_BARE_SCHED_H
#define WEFT_LITE_BARE_SCHED_H

int sched_yield(void);

#endif
