// Largest elements of windows. The first of equal ones counts; what is no number is the largest.
#include "element.cuh"
#include "window.cuh"

// Where in the input the largest element of a window is.
__device__ inline I largest(const Pool& pool, const T* x, I window)
{
    const Box box = inputs_of(pool, window);
    I place = -1;
    W best = (W)0;
    WITHIN(box) {
        const I at = FLAT(pool.size);
        const W value = widened(x[at]);
        if (place < 0 || value > best || (value != value && best == best)) {
            best = value;
            place = at;
        }
    }
    return place;
}

// Where in the input the element is that a window's output came from, or -1.
__device__ inline I source(const Pool& pool, const T* x, const T* y, I window)
{
    const Box box = inputs_of(pool, window);
    const W wanted = widened(y[window]);
    WITHIN(box) {
        const I at = FLAT(pool.size);
        if (same(widened(x[at]), wanted)) return at;
    }
    return -1;
}

extern "C" __global__ void max_pool(const T* x, T* y, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I window = element();
    if (window < count) y[window] = x[largest(pool, x, window)];
}

// Places are numbers of elements: of all, or of those of an image of `image` elements.
extern "C" __global__ void max_pool_with_argmax(
    const T* x, T* y, long long* places, I image, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I window = element();
    if (window >= count) return;
    const I place = largest(pool, x, window);
    y[window] = x[place];
    places[window] = place % image;
}

// One thread for each input: it collects from the windows whose output it is.
extern "C" __global__ void max_pool_grad(
    const T* x, const T* y, const T* grad, T* result, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I at = element();
    if (at >= count) return;
    const Box box = windows_of(pool, at);
    const W value = widened(x[at]);
    W total = (W)0;
    WITHIN(box) {
        const I window = FLAT(pool.count);
        if (same(widened(y[window]), value) && source(pool, x, y, window) == at)
            total += widened(grad[window]);
    }
    put(result + at, total);
}

extern "C" __global__ void max_pool_grad_grad(
    const T* x, const T* y, const T* grad, T* result, WINDOWS, I count)
{
    const Pool pool = THE_POOL;
    const I window = element();
    if (window >= count) return;
    const I at = source(pool, x, y, window);
    if (at < 0)
        put(result + window, (W)0);
    else
        result[window] = grad[at];
}
