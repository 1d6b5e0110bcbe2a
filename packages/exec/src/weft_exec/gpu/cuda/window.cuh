// Windows that slide over up to five axes.

#define FIVE(x) I x##0, I x##1, I x##2, I x##3, I x##4
#define VALUES(x) {x##0, x##1, x##2, x##3, x##4}
// Sizes of the input, counts of windows, sizes of a window, strides, positions before the input.
#define WINDOWS FIVE(n), FIVE(c), FIVE(k), FIVE(s), FIVE(b)
#define THE_POOL {VALUES(n), VALUES(c), VALUES(k), VALUES(s), VALUES(b)}

struct Pool {
    I size[5], count[5], taps[5], stride[5], before[5];
};

// Positions from `low` up to `high` along each axis.
struct Box {
    I low[5], high[5];
};

#define WITHIN(box)                                    \
    for (I i0 = box.low[0]; i0 < box.high[0]; i0++)     \
    for (I i1 = box.low[1]; i1 < box.high[1]; i1++)     \
    for (I i2 = box.low[2]; i2 < box.high[2]; i2++)     \
    for (I i3 = box.low[3]; i3 < box.high[3]; i3++)     \
    for (I i4 = box.low[4]; i4 < box.high[4]; i4++)
#define FLAT(size) ((((i0 * size[1] + i1) * size[2] + i2) * size[3] + i3) * size[4] + i4)

// The inputs of a window.
__device__ inline Box inputs_of(const Pool& pool, I window)
{
    Box box;
    for (int axis = 4; axis >= 0; axis--) {
        const I at = window % pool.count[axis] * pool.stride[axis] - pool.before[axis];
        const I end = at + pool.taps[axis];
        window /= pool.count[axis];
        box.low[axis] = at < 0 ? 0 : at;
        box.high[axis] = end < pool.size[axis] ? end : pool.size[axis];
    }
    return box;
}

// The windows that an input is in.
__device__ inline Box windows_of(const Pool& pool, I input)
{
    Box box;
    for (int axis = 4; axis >= 0; axis--) {
        const I at = input % pool.size[axis] + pool.before[axis];
        const I past = at - pool.taps[axis] + 1, stride = pool.stride[axis];
        const I end = at / stride + 1;
        input /= pool.size[axis];
        box.low[axis] = past <= 0 ? 0 : (past - 1) / stride + 1;
        box.high[axis] = end < pool.count[axis] ? end : pool.count[axis];
    }
    return box;
}
