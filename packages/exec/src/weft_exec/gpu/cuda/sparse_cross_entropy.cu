// The loss of rows whose classes are given as numbers, of type L.
#include "powers.cuh"

// A number that is of no class has no loss to speak of: NaN, as on the GPUs of TensorFlow.
extern "C" __global__ void sparse_cross_entropy(
    const T* logits, const L* labels, T* loss, T* backprop, I rows, I length)
{
    for (I n = blockIdx.x; n < rows; n += gridDim.x) {
        const T* row = logits + n * length;
        const Powers powers = powers_of(row, length);
        const L label = labels[n];
        const bool known = label >= 0 && label < length;
        const W lost = known ? (W)0 : (W)nanf("");
        for (I i = threadIdx.x; i < length; i += blockDim.x) {
            const W power = exp(widened(row[i]) - powers.most) / powers.total;
            put(backprop + n * length + i, power - (W)(known && i == label) + lost);
        }
        if (threadIdx.x == 0)
            put(loss + n, known ? log(powers.total) - (widened(row[label]) - powers.most) : lost);
    }
}
