/* AVX-512 with products of bytes (VNNI). */
#define LANES 16
#define ROWS 12
#define WIDE 2
#define NAME wl_vector_vnni
#define SET "AVX-512 VNNI"
#include "vector.inc"
