// Elements in memory, and what is computed in.

template <class A> __device__ inline A widened(A value) { return value; }
template <class A> __device__ inline void put(A* at, W value) { *at = (A)value; }

#ifdef WEFT_HALF
__device__ inline float widened(__half value) { return __half2float(value); }
__device__ inline void put(__half* at, W value) { *at = __float2half((float)value); }
#endif

// The number of this thread among all.
__device__ inline I element() { return (I)blockIdx.x * (I)blockDim.x + (I)threadIdx.x; }

// Equal, or both no numbers.
__device__ inline bool same(W a, W b) { return a == b || (a != a && b != b); }
