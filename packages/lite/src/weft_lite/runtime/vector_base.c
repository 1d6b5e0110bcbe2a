/* Vectors of 16 bytes, which every machine of a family has: SSE2, NEON, SIMD128; or the compiler's. */
#define LANES 4
#if defined(__aarch64__)
#define ROWS 6
#else
#define ROWS 3
#endif
#define WIDE 1
#define NAME wl_vector_base
#if defined(__SSE2__)
#define SET "SSE2"
#elif defined(__ARM_NEON)
#define SET "NEON"
#elif defined(__wasm_simd128__)
#define SET "SIMD128"
#else
#define SET "portable"
#endif
#include "vector.inc"
