// Activations that are there for integers too. What is no number stays none.
#include "element.cuh"

extern "C" __global__ void relu(const T* x, T* y, I size)
{
    const I at = element();
    if (at >= size) return;
    const W value = widened(x[at]);
    put(y + at, value <= 0 ? (W)0 : value);
}

extern "C" __global__ void relu6(const T* x, T* y, I size)
{
    const I at = element();
    if (at >= size) return;
    const W value = widened(x[at]);
    put(y + at, value <= 0 ? (W)0 : value > 6 ? (W)6 : value);
}

extern "C" __global__ void relu_grad(const T* grad, const T* x, T* result, I size)
{
    const I at = element();
    if (at < size) put(result + at, widened(grad[at]) * (W)(widened(x[at]) > 0));
}

extern "C" __global__ void relu6_grad(const T* grad, const T* x, T* result, I size)
{
    const I at = element();
    if (at >= size) return;
    const W value = widened(x[at]);
    put(result + at, widened(grad[at]) * (W)(value > 0 && value < 6));
}
