// Activations of floating types: of an element x, of a result y, of an upstream gradient g.
#include "element.cuh"

__device__ inline W scale() { return (W)1.0507009873554804934193349852946; }
__device__ inline W alpha() { return (W)1.6732632423543772848170429916717; }

struct Elu {
    static __device__ W of(W x) { return x > 0 ? x : expm1(x); }
};
struct Selu {
    static __device__ W of(W x) { return scale() * (x > 0 ? x : alpha() * expm1(x)); }
};
struct Softplus {
    static __device__ W of(W x) { return log1p(exp(-fabs(x))) + (x < 0 ? (W)0 : x); }
};
struct Softsign {
    static __device__ W of(W x) { return x / (fabs(x) + 1); }
};
struct Sigmoid {
    static __device__ W of(W x) { return 1 / (exp(-x) + 1); }
};
struct SigmoidGrad {
    static __device__ W of(W y, W g) { return g * (y * (1 - y)); }
};
struct TanhGrad {
    static __device__ W of(W y, W g) { return g * (1 - y * y); }
};
struct EluGrad {
    static __device__ W of(W g, W y) { return g * ((y > 0 ? (W)0 : y) + 1); }
};
struct SeluGrad {
    static __device__ W of(W g, W y) { return g * (y >= 0 ? scale() : y + scale() * alpha()); }
};
struct SoftplusGrad {
    static __device__ W of(W g, W x) { return g / (exp(-x) + 1); }
};
struct SoftsignGrad {
    static __device__ W of(W g, W x) { return g / ((fabs(x) + 1) * (fabs(x) + 1)); }
};

template <class F> __device__ inline void one(const T* x, T* y, I size)
{
    const I at = element();
    if (at < size) put(y + at, F::of(widened(x[at])));
}

template <class F> __device__ inline void two(const T* a, const T* b, T* result, I size)
{
    const I at = element();
    if (at < size) put(result + at, F::of(widened(a[at]), widened(b[at])));
}

extern "C" __global__ void elu(const T* x, T* y, I size) { one<Elu>(x, y, size); }
extern "C" __global__ void selu(const T* x, T* y, I size) { one<Selu>(x, y, size); }
extern "C" __global__ void softplus(const T* x, T* y, I size) { one<Softplus>(x, y, size); }
extern "C" __global__ void softsign(const T* x, T* y, I size) { one<Softsign>(x, y, size); }
extern "C" __global__ void sigmoid(const T* x, T* y, I size) { one<Sigmoid>(x, y, size); }
extern "C" __global__ void sigmoid_grad(const T* y, const T* g, T* result, I size)
{
    two<SigmoidGrad>(y, g, result, size);
}
extern "C" __global__ void tanh_grad(const T* y, const T* g, T* result, I size)
{
    two<TanhGrad>(y, g, result, size);
}
extern "C" __global__ void elu_grad(const T* g, const T* y, T* result, I size)
{
    two<EluGrad>(g, y, result, size);
}
extern "C" __global__ void selu_grad(const T* g, const T* y, T* result, I size)
{
    two<SeluGrad>(g, y, result, size);
}
extern "C" __global__ void softplus_grad(const T* g, const T* x, T* result, I size)
{
    two<SoftplusGrad>(g, x, result, size);
}
extern "C" __global__ void softsign_grad(const T* g, const T* x, T* result, I size)
{
    two<SoftsignGrad>(g, x, result, size);
}

extern "C" __global__ void leaky_relu(const T* x, T* y, W slope, I size)
{
    const I at = element();
    if (at >= size) return;
    const W value = widened(x[at]);
    put(y + at, value > 0 ? value : value * slope);
}

extern "C" __global__ void leaky_relu_grad(const T* g, const T* x, T* result, W slope, I size)
{
    const I at = element();
    if (at >= size) return;
    const W value = widened(g[at]);
    put(result + at, widened(x[at]) > 0 ? value : value * slope);
}
