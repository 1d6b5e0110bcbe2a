// What softmax makes of a row, by a block of threads.
#include "element.cuh"
#include "block.cuh"

// The maximum of a row, and the sum of the powers of e to what remains of its elements.
struct Powers {
    W most, total;
};

__device__ inline Powers powers_of(const T* row, I length)
{
    Powers found;
    W most = widened(row[0]);
    for (I i = threadIdx.x; i < length; i += blockDim.x) most = Larger::of(widened(row[i]), most);
    found.most = over_block<Larger>(most);
    W total = 0;
    for (I i = threadIdx.x; i < length; i += blockDim.x) total += exp(widened(row[i]) - found.most);
    found.total = over_block<Sum>(total);
    return found;
}
