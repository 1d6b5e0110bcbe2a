/* Vectors of 16 bytes by the compiler's means: SSE2 on x86-64, and what other processors have. */
#define LANES 4
#define ROWS 3
#define WIDE 1
#define NAME wl_vector_base
#if defined(__SSE2__)
#define SET "SSE2"
#else
#define SET "portable"
#endif
#include "vector.inc"
