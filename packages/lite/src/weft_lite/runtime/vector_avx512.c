/* AVX-512: vectors of 64 bytes, 32 of them. */
#define LANES 16
#define ROWS 12
#define WIDE 2
#define NAME wl_vector_avx512
#define SET "AVX-512"
#include "vector.inc"
