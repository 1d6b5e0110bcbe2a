/* The allocator of the C library, which only threads.c uses, for builds without its headers. */
#ifndef WEFT_LITE_BARE_STDLIB_H
#define WEFT_LITE_BARE_STDLIB_H

#include <stddef.h>

void *calloc(size_t count, size_t size);
void free(void *memory);

#endif
