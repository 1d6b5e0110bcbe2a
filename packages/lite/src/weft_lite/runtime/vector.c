/* Chooses among the instruction sets when a file is opened. */
#include "vector.h"

#if defined(__aarch64__) && (defined(__linux__) || defined(__ANDROID__))
enum { HARDWARE = 16, DOT = 1 << 20 }; /* AT_HWCAP, HWCAP_ASIMDDP */
unsigned long getauxval(unsigned long type);
static int has_dot(void) { return (getauxval(HARDWARE) & DOT) != 0; }
#elif defined(__aarch64__) && defined(__APPLE__)
static int has_dot(void) { return 1; } /* as all of Apple's since 2018 */
#elif defined(__aarch64__)
static int has_dot(void) { return 0; }
#endif

const wl_vector *wl_best_vector(void) {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512vnni") ? &wl_vector_vnni : &wl_vector_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &wl_vector_avx2;
#endif
#if defined(__aarch64__)
  return has_dot() ? &wl_vector_dot : &wl_vector_neon;
#elif defined(__wasm_simd128__)
  return &wl_vector_simd128;
#else
  return &wl_vector_base;
#endif
}
