// Reductions over the threads of a block, which are a power of two, at most 256.

struct Sum {
    static __device__ W of(W a, W b) { return a + b; }
};

struct Larger {
    static __device__ W of(W a, W b) { return a > b ? a : b; }
};

// The values of all threads in one, which each of them gets.
template <class How> __device__ W over_block(W value)
{
    __shared__ W held[256];
    const unsigned at = threadIdx.x;
    held[at] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (at < half) held[at] = How::of(held[at], held[at + half]);
        __syncthreads();
    }
    const W result = held[0];
    __syncthreads();  // nobody writes the next value before all have read this one
    return result;
}
