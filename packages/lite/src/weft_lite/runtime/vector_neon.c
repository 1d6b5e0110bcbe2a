/* NEON, which every AArch64 processor has: vectors of 16 bytes, 32 of them. */
#define LANES 4
#define ROWS 6
#define WIDE 1
#define NAME wl_vector_neon
#define SET "NEON"
#define BYTES "bytes_neon.inc"
#include "vector.inc"
