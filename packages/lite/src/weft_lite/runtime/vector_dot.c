/* NEON with products of four bytes at a time (Armv8.2 and later). */
#define LANES 4
#define ROWS 6
#define WIDE 1
#define NAME wl_vector_dot
#define SET "NEON with dot products"
#define BYTES "bytes_neon.inc"
#include "vector.inc"
