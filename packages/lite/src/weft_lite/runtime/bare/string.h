/* What the runtime asks of the C library, for systems whose headers are not at hand. */
#ifndef WEFT_LITE_BARE_STRING_H
#define WEFT_LITE_BARE_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *text);

#endif
