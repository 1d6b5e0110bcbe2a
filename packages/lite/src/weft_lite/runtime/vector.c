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

/* Those that this processor has, the best first. */
static size_t vectors(const wl_vector **found) {
  size_t count = 0;
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    if (__builtin_cpu_supports("avx512vnni")) found[count++] = &wl_vector_vnni;
    found[count++] = &wl_vector_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = &wl_vector_avx2;
#endif
#if defined(__aarch64__)
  if (has_dot()) found[count++] = &wl_vector_dot;
  found[count++] = &wl_vector_neon;
#elif defined(__wasm_simd128__)
  found[count++] = &wl_vector_simd128;
#else
  found[count++] = &wl_vector_base;
#endif
  return count;
}

const wl_vector *wl_vector_at(size_t i) {
  const wl_vector *found[WL_MOST_VECTORS];
  return i < vectors(found) ? found[i] : NULL;
}
