// What CUDA has and C++ has not, for kernels that are run on the host.
//
// The threads of a block are fibers. They run one after the other, each until it is at a barrier
// or has ended, in a mixed order that changes from barrier to barrier: who reads what another
// thread has not yet written, finds something else there. Shared memory is full of what is no
// number when a block begins. One thread of the host is here at a time.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __shared__ static __attribute__((section("weft_shared")))

struct weft_dim3 { unsigned x, y, z; };
static weft_dim3 blockIdx, blockDim, threadIdx, gridDim;

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{ return (unsigned long long)(((unsigned __int128)a * b) >> 64); }

// ---------------------------------------------------------------------------- float16

struct __half { unsigned short bits; };

static inline float __half2float(__half value)
{
    const unsigned sign = (value.bits & 0x8000u) << 16, exponent = value.bits >> 10 & 31;
    const unsigned fraction = value.bits & 1023;
    unsigned bits = sign | (exponent + 112) << 23 | fraction << 13;
    if (exponent == 31) bits = sign | 0x7f800000u | fraction << 13;
    float found;
    memcpy(&found, &bits, 4);
    if (exponent == 0) found = ldexpf((float)fraction, -24) * (sign ? -1.0f : 1.0f);
    return found;
}

static inline __half __float2half(float value)
{
    unsigned bits;
    memcpy(&bits, &value, 4);
    const unsigned short sign = bits >> 16 & 0x8000u;
    const float size = fabsf(value);
    unsigned short found;
    if (value != value) found = 0x7e00;
    else if (size >= 65520.0f) found = 0x7c00;
    else if (size < 6.103515625e-05f) found = (unsigned short)lrintf(ldexpf(size, 24));
    else {
        bits &= 0x7fffffffu;
        bits += 0xfff + (bits >> 13 & 1);
        found = (unsigned short)((bits >> 13) - (112 << 10));
    }
    const __half half = {(unsigned short)(sign | found)};
    return half;
}

// ----------------------------------------------------------------- the threads of a block

struct weft_Fiber { ucontext_t context; char* stack; bool over; };
struct weft_Body { virtual void run() = 0; };
static const unsigned weft_stack = 1 << 16;
static weft_Fiber weft_fibers[1024];
static ucontext_t weft_home;
static unsigned weft_current;
static weft_Body* weft_body;

static void weft_fiber()
{
    weft_body->run();
    weft_fibers[weft_current].over = true;
    swapcontext(&weft_fibers[weft_current].context, &weft_home);
}

static inline void __syncthreads()
{
    swapcontext(&weft_fibers[weft_current].context, &weft_home);
}

static void weft_begin(weft_Fiber& fiber)
{
    if (!fiber.stack) fiber.stack = (char*)malloc(weft_stack);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = weft_stack;
    fiber.context.uc_link = 0;
    fiber.over = false;
    makecontext(&fiber.context, weft_fiber, 0);
}

__attribute__((section("weft_shared"), used)) static char weft_first_shared[8];
extern char __start_weft_shared[], __stop_weft_shared[];

// Whether all threads of a block have come to the same barriers.
static bool weft_block(unsigned threads, weft_Body& body)
{
    weft_body = &body;
    memset(__start_weft_shared, 0xff, __stop_weft_shared - __start_weft_shared);
    for (unsigned t = 0; t < threads; t++) weft_begin(weft_fibers[t]);
    static const unsigned primes[] = {1031, 2053, 4099};  // each mixes any number of threads
    for (unsigned phase = 0;; phase++) {
        unsigned over = 0;
        for (unsigned i = 0; i < threads; i++) {
            weft_current = threadIdx.x = (i * primes[phase % 3] + phase) % threads;
            swapcontext(&weft_home, &weft_fibers[weft_current].context);
            over += weft_fibers[weft_current].over;
        }
        if (over) return over == threads;
    }
}

// ------------------------------------------------------------------------- arguments

template <class A> struct weft_name {
    static char kind() { return std::is_floating_point<A>() ? 'f' : std::is_signed<A>() ? 'i' : 'u'; }
};
template <> struct weft_name<__half> { static char kind() { return 'f'; } };

// Two or three characters: "=" for a number, "<" for a pointer to read, ">" to write; the type.
template <class A> struct weft_sign {
    static void write(char*& to) { put(to, '=', weft_name<A>::kind(), sizeof(A)); }
    static void put(char*& to, char how, char kind, int size)
    { *to++ = how; *to++ = kind; *to++ = (char)('0' + size); }
};
template <class A> struct weft_sign<A*> {
    static void write(char*& to)
    { weft_sign<int>::put(to, '>', weft_name<A>::kind(), sizeof(A)); }
};
template <class A> struct weft_sign<const A*> {
    static void write(char*& to)
    { weft_sign<int>::put(to, '<', weft_name<A>::kind(), sizeof(A)); }
};

template <class... A> void weft_signature(void (*)(A...), char* to)
{
    const int each[] = {(weft_sign<A>::write(to), 0)...};
    (void)each;
    *to = 0;
}

template <class... A> struct weft_Call : weft_Body {
    void (*function)(A...);
    void** args;
    template <size_t... N> void with(std::index_sequence<N...>) { function(*(A*)args[N]...); }
    void run() override { with(std::index_sequence_for<A...>()); }
};

// 0, or 1 where the threads of a block have not come to the same barriers.
template <class... A>
int weft_launch(void (*function)(A...), void** args, const unsigned* sizes, bool together)
{
    weft_Call<A...> call;
    call.function = function;
    call.args = args;
    gridDim = {sizes[0], sizes[1], sizes[2]};
    blockDim = {sizes[3], 1, 1};
    for (unsigned z = 0; z < sizes[2]; z++)
    for (unsigned y = 0; y < sizes[1]; y++)
    for (unsigned x = 0; x < sizes[0]; x++) {
        blockIdx = {x, y, z};
        if (together) {
            if (!weft_block(sizes[3], call)) return 1;
            continue;
        }
        for (unsigned t = 0; t < sizes[3]; t++) {
            threadIdx.x = t;
            call.run();
        }
    }
    return 0;
}
