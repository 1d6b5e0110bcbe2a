/* Chooses among the instruction sets when a file is opened. */
#define _GNU_SOURCE
#include "vector.h"

#if defined(WL_HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__aarch64__) && (defined(__linux__) || defined(__ANDROID__))
enum { HARDWARE = 16, DOT = 1 << 20 }; /* AT_HWCAP, HWCAP_ASIMDDP */
unsigned long getauxval(unsigned long type);
static int has_dot(void) { return (getauxval(HARDWARE) & DOT) != 0; }
#elif defined(__aarch64__) && defined(__APPLE__)
static int has_dot(void) { return 1; } /* as all of Apple's since 2018 */
#elif defined(__aarch64__)
static int has_dot(void) { return 0; }
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(WL_PORTABLE_ONLY)
#define WL_ASKS_X86
/* Asked of the processor itself: where __builtin_cpu_supports looks, not every compiler's library has put
 * something. A set needs its instructions and a system that keeps its registers. */
enum { FMA = 1 << 12, SAVED = 1 << 27, AVX2 = 1 << 5, AVX512 = 1 << 16 | 1 << 17 | 1 << 30, VL = 31, VNNI = 1 << 11 };
enum { AMX = 1 << 24 | 1 << 25, VBMI = 1 << 1 };

static void ask(uint32_t leaf, uint32_t said[4]) {
  __asm__ volatile("cpuid" : "=a"(said[0]), "=b"(said[1]), "=c"(said[2]), "=d"(said[3]) : "a"(leaf), "c"(0));
}

#if defined(WL_HAS_AMX)
/* The system keeps these registers, which are large, only for processes that ask for them. */
static int may_use_amx(void) {
  enum { ASK = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM */
  return syscall(SYS_arch_prctl, ASK, TILES) == 0;
}
#endif

static size_t x86_vectors(const wl_vector **found) {
  uint32_t first[4], more[4], kept, high;
  size_t count = 0;
  ask(0, first);
  if (first[0] < 7) return 0;
  ask(1, first);
  ask(7, more);
  if (!(first[2] & SAVED)) return 0;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  if ((kept & 0xe6) == 0xe6 && (more[1] & AVX512) == AVX512 && more[1] >> VL) {
#if defined(WL_HAS_AMX)
    int has_amx = (more[3] & AMX) == AMX && (kept & 0x60000) == 0x60000;
    if (has_amx && more[2] & VNNI && more[2] & VBMI && may_use_amx())
      found[count++] = &wl_vector_amx;
#endif
    if (more[2] & VNNI && more[2] & VBMI) found[count++] = &wl_vector_vbmi;
    if (more[2] & VNNI) found[count++] = &wl_vector_vnni;
    found[count++] = &wl_vector_avx512;
  }
  if ((kept & 6) == 6 && more[1] & AVX2 && first[2] & FMA) found[count++] = &wl_vector_avx2;
  return count;
}
#endif

/* Those that this processor has, the best first. */
static size_t vectors(const wl_vector **found) {
  size_t count = 0;
#ifdef WL_ASKS_X86
  count = x86_vectors(found);
#endif
#if defined(__aarch64__) && !defined(WL_PORTABLE_ONLY)
  if (has_dot()) found[count++] = &wl_vector_dot;
  found[count++] = &wl_vector_neon;
#elif defined(__wasm_simd128__) && !defined(WL_PORTABLE_ONLY)
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
