// Local response normalization over the last axis, of `channels` elements.
#include "element.cuh"

// The channels that are at most `radius` away from that of an element.
struct Near {
    I low, high;
};

__device__ inline Near near(I at, I channels, I radius)
{
    const I channel = at % channels, left = channel < radius ? channel : radius;
    const I after = channels - 1 - channel, right = after < radius ? after : radius;
    const Near found = {at - left, at + right};
    return found;
}

__device__ inline W norm(const T* x, I at, I channels, I radius, W bias, W alpha)
{
    const Near window = near(at, channels, radius);
    W total = 0;
    for (I i = window.low; i <= window.high; i++) total += widened(x[i]) * widened(x[i]);
    return total * alpha + bias;
}

extern "C" __global__ void lrn(
    const T* x, T* y, I channels, I radius, W bias, W alpha, W beta, I size)
{
    const I at = element();
    if (at >= size) return;
    put(y + at, widened(x[at]) * pow(norm(x, at, channels, radius, bias, alpha), -beta));
}

// What lrn_grad reads of each neighbor: its norm, and its share in the gradients of others.
extern "C" __global__ void lrn_shares(
    const T* grad, const T* x, const T* y, W* norms, W* shares, I channels, I radius, W bias,
    W alpha, I size)
{
    const I at = element();
    if (at >= size) return;
    const W found = norm(x, at, channels, radius, bias, alpha);
    norms[at] = found;
    shares[at] = widened(grad[at]) * widened(y[at]) / found;
}

extern "C" __global__ void lrn_grad(
    const T* grad, const T* x, const W* norms, const W* shares, T* result, I channels, I radius,
    W beta, W rate, I size)
{
    const I at = element();
    if (at >= size) return;
    const Near window = near(at, channels, radius);
    W total = 0;
    for (I i = window.low; i <= window.high; i++) total += shares[i];
    put(result + at, widened(grad[at]) * pow(norms[at], -beta) - widened(x[at]) * total * rate);
}
