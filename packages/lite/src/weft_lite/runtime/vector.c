/* Chooses among the instruction sets when a file is opened. */
#include "vector.h"

const wl_vector *wl_best_vector(void) {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512vnni") ? &wl_vector_vnni : &wl_vector_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &wl_vector_avx2;
#endif
  return &wl_vector_base;
}
