// Means of the elements of windows that are inside the input.
#include "element.cuh"
#include "window.cuh"

__device__ inline W inside(const Box& box)
{
    W product = 1;
    for (int axis = 0; axis < 5; axis++) product *= (W)(box.high[axis] - box.low[axis]);
    return product;
}

extern "C" __global__ void avg_pool(const T* x, T* y, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I window = element();
    if (window >= count) return;
    const Box box = inputs_of(pool, window);
    W total = 0;
    WITHIN(box) total += widened(x[FLAT(pool.size)]);
    put(y + window, total / inside(box));
}

extern "C" __global__ void avg_pool_grad(const T* grad, T* result, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I at = element();
    if (at >= count) return;
    const Box box = windows_of(pool, at);
    W total = 0;
    WITHIN(box) {
        const I window = FLAT(pool.count);
        total += widened(grad[window]) / inside(inputs_of(pool, window));
    }
    put(result + at, total);
}
