// Gradients of batch normalization; see batch_norm.cu.
#include "element.cuh"

struct Sums {
    W grad, product;  // of the upstream gradient, and of it times the distance from the mean
};

extern "C" __global__ void sums_of_parts(
    const T* grad, const T* x, const U* mean, W* found, I channels, I inner, I count, I lanes)
{
    __shared__ Sums held[256];
    const I lane = threadIdx.x % lanes, height = blockDim.x / lanes;
    const I channel = blockIdx.x * lanes + lane, step = height * (I)gridDim.y;
    const W center = channel < channels ? (W)mean[channel] : 0;
    Sums sum = {0, 0};
    const I first = channel < channels ? blockIdx.y * height + threadIdx.x / lanes : count;
    for (I p = first; p < count; p += step) {
        const I at = (p / inner * channels + channel) * inner + p % inner;
        const W upstream = widened(grad[at]);
        sum.grad += upstream;
        sum.product += upstream * (widened(x[at]) - center);
    }
    held[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half >= lanes; half /= 2) {
        if (threadIdx.x < half) {
            held[threadIdx.x].grad += held[threadIdx.x + half].grad;
            held[threadIdx.x].product += held[threadIdx.x + half].product;
        }
        __syncthreads();
    }
    if (threadIdx.x < lanes && channel < channels) {
        W* part = found + (blockIdx.y * channels + channel) * 2;
        part[0] = held[lane].grad;
        part[1] = held[lane].product;
    }
}

// The gradient of x is (grad - less - (x - mean) * slope) * gain; while the statistics are given
// and not of x, it is grad * gain.
extern "C" __global__ void sums(
    const W* found, const U* scale, const U* variance, U* by_scale, U* by_offset, W* less, W* slope,
    W* gain, W epsilon, I count, I parts, I channels)
{
    const I channel = element();
    if (channel >= channels) return;
    Sums sum = {0, 0};
    for (I n = 0; n < parts; n++) {
        const W* part = found + (n * channels + channel) * 2;
        sum.grad += part[0];
        sum.product += part[1];
    }
    const W inverse = 1 / sqrt((W)variance[channel] + epsilon), number = count > 1 ? (W)count : 1;
    by_scale[channel] = (U)(sum.product * inverse);
    by_offset[channel] = (U)sum.grad;
    less[channel] = sum.grad / number;
    slope[channel] = inverse * (sum.product * inverse) / number;
    gain[channel] = (W)scale[channel] * inverse;
}

extern "C" __global__ void by_input(
    const T* grad, const T* x, const U* mean, const W* less, const W* slope, const W* gain,
    T* result, I training, I channels, I inner, I size)
{
    const I at = element();
    if (at >= size) return;
    const I channel = at / inner % channels;
    W value = widened(grad[at]);
    if (training)
        value -= less[channel] + (widened(x[at]) - (W)mean[channel]) * slope[channel];
    put(result + at, value * gain[channel]);
}

extern "C" __global__ void inverse_roots(const U* variance, U* inverse, W epsilon, I channels)
{
    const I channel = element();
    if (channel < channels) inverse[channel] = (U)(1 / sqrt((W)variance[channel] + epsilon));
}
