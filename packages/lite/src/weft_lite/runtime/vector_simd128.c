/* WebAssembly's vectors of 16 bytes. */
#define LANES 4
#define ROWS 4
#define WIDE 1
#define NAME wl_vector_simd128
#define SET "SIMD128"
#define BYTES "bytes_simd128.inc"
#include "vector.inc"
