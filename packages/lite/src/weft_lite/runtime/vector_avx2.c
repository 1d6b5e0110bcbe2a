/* AVX2 and FMA: vectors of 32 bytes, 16 of them. */
#define LANES 8
#define ROWS 6
#define WIDE 1
#define NAME wl_vector_avx2
#define SET "AVX2"
#include "vector.inc"
