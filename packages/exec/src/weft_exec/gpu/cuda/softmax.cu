// Softmax over rows, and the loss of rows of probabilities. A block takes a row at a time.
#include "powers.cuh"

extern "C" __global__ void softmax(const T* logits, T* y, I rows, I length)
{
    for (I n = blockIdx.x; n < rows; n += gridDim.x) {
        const T* row = logits + n * length;
        const Powers powers = powers_of(row, length);
        for (I i = threadIdx.x; i < length; i += blockDim.x)
            put(y + n * length + i, exp(widened(row[i]) - powers.most) / powers.total);
    }
}

extern "C" __global__ void log_softmax(const T* logits, T* y, I rows, I length)
{
    for (I n = blockIdx.x; n < rows; n += gridDim.x) {
        const T* row = logits + n * length;
        const Powers powers = powers_of(row, length);
        const W log_total = log(powers.total);
        for (I i = threadIdx.x; i < length; i += blockDim.x)
            put(y + n * length + i, widened(row[i]) - powers.most - log_total);
    }
}

extern "C" __global__ void cross_entropy(
    const T* logits, const T* labels, T* loss, T* backprop, I rows, I length)
{
    for (I n = blockIdx.x; n < rows; n += gridDim.x) {
        const T* row = logits + n * length;
        const Powers powers = powers_of(row, length);
        const W log_total = log(powers.total);
        W part = 0;
        for (I i = threadIdx.x; i < length; i += blockDim.x) {
            const W shifted = widened(row[i]) - powers.most;
            const W label = widened(labels[n * length + i]);
            part += (log_total - shifted) * label;
            put(backprop + n * length + i, exp(shifted) / powers.total - label);
        }
        part = over_block<Sum>(part);
        if (threadIdx.x == 0) put(loss + n, part);
    }
}
