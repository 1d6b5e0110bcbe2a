// Batch normalization of elements T by vectors of U. An array is (outer, channels, inner), so that
// `inner` is 1 where the channels are last; a channel has count = outer * inner elements.
//
// Statistics are made in two launches. In the first, a block takes `lanes` channels beside each
// other, and every gridDim.y-th of the heaps of blockDim.x / lanes elements of each; in the second,
// a thread puts together what the blocks have found of a channel.
#include "element.cuh"

struct Moments {
    W number, mean, squares;  // squares: the sum of those of the distances from the mean
};

__device__ inline Moments together(const Moments& a, const Moments& b)
{
    if (b.number == 0) return a;
    const W number = a.number + b.number, distance = b.mean - a.mean, part = b.number / number;
    const Moments both = {number, a.mean + distance * part,
                          a.squares + b.squares + distance * distance * a.number * part};
    return both;
}

__device__ inline I place_of(I position, I channel, I channels, I inner)
{
    return (position / inner * channels + channel) * inner + position % inner;
}

extern "C" __global__ void moments_of_parts(
    const T* x, W* found, I channels, I inner, I count, I lanes)
{
    __shared__ Moments held[256];
    const I lane = threadIdx.x % lanes, height = blockDim.x / lanes;
    const I channel = blockIdx.x * lanes + lane, step = height * (I)gridDim.y;
    Moments sum = {0, 0, 0};
    const I first = channel < channels ? blockIdx.y * height + threadIdx.x / lanes : count;
    for (I p = first; p < count; p += step) {
        const W value = widened(x[place_of(p, channel, channels, inner)]);
        const W before = value - sum.mean;
        sum.number += 1;
        sum.mean += before / sum.number;
        sum.squares += before * (value - sum.mean);
    }
    held[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half >= lanes; half /= 2) {
        if (threadIdx.x < half)
            held[threadIdx.x] = together(held[threadIdx.x], held[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x < lanes && channel < channels) {
        W* part = found + (blockIdx.y * channels + channel) * 3;
        part[0] = held[lane].number;
        part[1] = held[lane].mean;
        part[2] = held[lane].squares;
    }
}

__device__ inline W inverse_root(W variance, W epsilon) { return 1 / sqrt(variance + epsilon); }

// A normalized element is (x - center) * factor + offset.
extern "C" __global__ void moments(
    const W* found, const U* scale, U* mean, U* variance, U* unbiased, W* center, W* factor,
    W epsilon, I count, I parts, I channels)
{
    const I channel = element();
    if (channel >= channels) return;
    Moments sum = {0, 0, 0};
    for (I n = 0; n < parts; n++) {
        const W* part = found + (n * channels + channel) * 3;
        const Moments next = {part[0], part[1], part[2]};
        sum = together(sum, next);
    }
    const W none = (W)0 / (W)count;  // NaN where there are no elements
    const W center_of = sum.mean + none;
    const W spread = sum.squares / (count > 1 ? (W)count : 1) + none;
    mean[channel] = (U)center_of;
    variance[channel] = (U)spread;
    unbiased[channel] = (U)(spread * ((W)count / (count > 2 ? (W)(count - 1) : 1)));
    center[channel] = center_of;
    factor[channel] = (W)scale[channel] * inverse_root(spread, epsilon);
}

extern "C" __global__ void given_moments(
    const U* scale, const U* mean, const U* variance, W* center, W* factor, W epsilon, I channels)
{
    const I channel = element();
    if (channel >= channels) return;
    center[channel] = (W)mean[channel];
    factor[channel] = (W)scale[channel] * inverse_root((W)variance[channel], epsilon);
}

extern "C" __global__ void normalize(
    const T* x, const W* center, const W* factor, const U* offset, T* y, I channels, I inner,
    I size)
{
    const I at = element();
    if (at >= size) return;
    const I channel = at / inner % channels;
    put(y + at, (widened(x[at]) - center[channel]) * factor[channel] + (W)offset[channel]);
}
