// Blocks of threads on the host, for kernels that LLVM has compiled for it.
//
// The threads of a block are fibers. They run one after the other, each until it waits for the
// others or has ended, in a mixed order that changes: who reads what another thread has not yet
// written finds something else there. One thread of the host is here at a time.

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef void (*weft_kernel)(void**);

struct weft_fiber {
    ucontext_t context; jmp_buf at; char* stack; int waits; unsigned given;
};

static const unsigned stack_bytes = 1 << 17;
static weft_fiber fibers[1024];
static ucontext_t begins;
static jmp_buf home;
static unsigned current, block, blocks;
static bool alone;
static weft_kernel kernel;
static void** args;

enum { RUNS, OVER, BARRIER, SHUFFLE, SHUFFLED };

extern "C" unsigned weft_thread() { return current; }
extern "C" unsigned weft_block() { return block; }
extern "C" unsigned weft_blocks() { return blocks; }

static void wait(int why)
{
    if (alone) abort();
    fibers[current].waits = why;
    // Jumps take no calls of the system, as swapping contexts does.
    if (!_setjmp(fibers[current].at)) _longjmp(home, 1);
}

extern "C" void weft_barrier(unsigned) { wait(BARRIER); }

extern "C" unsigned weft_shuffle(unsigned mask, unsigned value, unsigned distance, unsigned)
{
    if (mask != ~0u) abort();
    fibers[current].given = value;
    wait(SHUFFLE);
    const unsigned found = fibers[current ^ distance].given;
    wait(SHUFFLED);
    return found;
}

static void run()
{
    kernel(args);
    fibers[current].waits = OVER;
    _longjmp(home, 1);
}

static void go_on(weft_fiber& fiber)
{
    if (_setjmp(home)) return;
    if (fiber.waits == RUNS) swapcontext(&begins, &fiber.context);
    _longjmp(fiber.at, 1);
}

static void begin(weft_fiber& fiber)
{
    if (!fiber.stack) fiber.stack = (char*)malloc(stack_bytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = 0;
    fiber.waits = RUNS;
    makecontext(&fiber.context, run, 0);
}

// Whether all threads of a block have waited for the same.
static bool run_block(unsigned threads)
{
    for (unsigned t = 0; t < threads; t++) begin(fibers[t]);
    static const unsigned primes[] = {1031, 2053, 4099};  // each mixes any number of threads
    for (unsigned phase = 0;; phase++) {
        unsigned same = 0;
        for (unsigned i = 0; i < threads; i++) {
            current = (i * primes[phase % 3] + phase) % threads;
            go_on(fibers[current]);
        }
        for (unsigned t = 0; t < threads; t++) same += fibers[t].waits == fibers[0].waits;
        if (same != threads) return false;
        if (fibers[0].waits == OVER) return true;
    }
}

// 0, or 1 where threads of a block wait for different things. `together` tells whether they wait.
extern "C" int weft_run(
    weft_kernel function, void** given, unsigned grid, unsigned threads, int together,
    void** shared, const unsigned long* sizes, unsigned count)
{
    kernel = function;
    args = given;
    blocks = grid;
    alone = !together;
    for (block = 0; block < grid; block++) {
        for (unsigned i = 0; i < count; i++) memset(shared[i], 0xff, sizes[i]);
        if (together) {
            if (!run_block(threads)) return 1;
            continue;
        }
        for (current = 0; current < threads; current++) kernel(args);
    }
    return 0;
}
