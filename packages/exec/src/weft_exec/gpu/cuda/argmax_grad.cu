// Gradients of windows to where the windows say that their maxima are. As a rule that is inside
// them, and each input collects what is its own. Windows that point elsewhere into the input are
// strangers: they are looked for, and take their turns one after the other.
#include "element.cuh"
#include "block.cuh"
#include "window.cuh"

// Where a window points, among all elements; `image` is the size of an image that places are in,
// and `windows` how many windows one has, or both are 0 where places are among all.
__device__ inline long long target(const long long* places, I window, I image, I windows)
{
    return places[window] + (windows ? (long long)(window / windows) * image : 0);
}

// Whether a window points into the input of `size` elements, but not at one of its own.
__device__ inline bool is_stranger(const Pool& pool, long long at, I window, I size)
{
    if (at < 0 || at >= size) return false;
    const Box box = inputs_of(pool, window);
    bool inside = true;
    for (int axis = 4; axis >= 0; axis--) {
        const I place = at % pool.size[axis];
        at /= pool.size[axis];
        inside = inside && box.low[axis] <= place && place < box.high[axis];
    }
    return !inside;
}

extern "C" __global__ void collect(
    const T* grad, const long long* places, T* result, I image, I windows, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I at = element();
    if (at >= count) return;
    const Box box = windows_of(pool, at);
    W total = 0;
    WITHIN(box) {
        const I window = FLAT(pool.count);
        if (target(places, window, image, windows) == at) total += widened(grad[window]);
    }
    put(result + at, total);
}

// For each block of windows, whether strangers are among them.
extern "C" __global__ void look_for_strangers(
    const long long* places, unsigned char* found, I image, I windows, I size, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I window = element();
    bool here = false;
    if (window < count)
        here = is_stranger(pool, target(places, window, image, windows), window, size);
    const W any = over_block<Larger>((W)here);
    if (threadIdx.x == 0) found[blockIdx.x] = any > 0;
}

// One block of threads: it looks at what was found, and its first thread adds.
extern "C" __global__ void add_strangers(
    const T* grad, const long long* places, const unsigned char* found, T* result, I blocks,
    I height, I image, I windows, I size, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    for (I base = 0; base < blocks; base += blockDim.x) {
        const I block = base + (I)threadIdx.x;
        const W any = over_block<Larger>((W)(block < blocks && found[block]));
        if (!(any > 0) || threadIdx.x != 0) continue;
        const I first = base * height, end = first + (I)blockDim.x * height;
        for (I window = first; window < end && window < count; window++) {
            const long long at = target(places, window, image, windows);
            if (is_stranger(pool, at, window, size))
                put(result + at, widened(result[at]) + widened(grad[window]));
        }
    }
}
