"""The streams of `weft_exec.kernels.philox`, made on the GPU, for the kernels of random ops.

The kernel has one thread for each block of words, which functions of the array module cannot
express. Integers and uniform numbers have the same bits as on the CPU; normal numbers are equal up
to the rounding of log and tan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels import philox
from weft_exec.kernels.random import Draw, register, stream_of

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_MASK = 2**64 - 1
_THREADS: Final = 256

SOURCE: Final = r"""
extern "C" __global__ void weft_philox(
    unsigned long long* out, unsigned long long count, unsigned long long first,
    unsigned long long key0, unsigned long long key1, unsigned long long execution,
    unsigned long long tag)
{
    // Thread t makes the words of block first / 4 + t of the stream that are asked for.
    unsigned long long t = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long block = first / 4 + t;
    if (block * 4 >= first + count) return;
    unsigned long long c0 = block + 1, c1 = 0, c2 = execution, c3 = tag, k0 = key0, k1 = key1;
    for (int round = 0; round < 10; round++) {
        unsigned long long h0 = __umul64hi(0xD2E7470EE14C6C93ULL, c0);
        unsigned long long l0 = 0xD2E7470EE14C6C93ULL * c0;
        unsigned long long h1 = __umul64hi(0xCA5A826395121157ULL, c2);
        unsigned long long l1 = 0xCA5A826395121157ULL * c2;
        c0 = h1 ^ c1 ^ k0;
        c2 = h0 ^ c3 ^ k1;
        c1 = l1;
        c3 = l0;
        k0 += 0x9E3779B97F4A7C15ULL;
        k1 += 0xBB67AE8584CAA73BULL;
    }
    unsigned long long words[4] = {c0, c1, c2, c3};
    for (int lane = 0; lane < 4; lane++) {
        unsigned long long word = block * 4 + lane;
        if (word >= first && word < first + count) out[word - first] = words[lane];
    }
}
"""
"""Philox4x64-10 as CUDA source."""


class DeviceWords:
    """The words of one execution of a stream, on the GPU; each call returns the next ones.

    Args:
      xp: CuPy.
      key: two 64-bit numbers.
      execution, tag: the number of the execution and the tag of the iteration, the upper half of
        the counter.
    """

    def __init__(self, xp: Any, key: tuple[int, int], execution: int, tag: int) -> None:
        self._xp = xp
        self._function = xp.RawKernel(SOURCE, "weft_philox")
        self._key = (np.uint64(key[0] & _MASK), np.uint64(key[1] & _MASK))
        self._counter = (np.uint64(execution & _MASK), np.uint64(tag & _MASK))
        self._next = 0

    def __call__(self, count: int) -> Any:
        """Return the next words as an array of uint64."""
        out = self._xp.empty(count, np.uint64)
        if count:
            first = self._next
            threads = -(-(first + count) // 4) - first // 4
            args = (out, np.uint64(count), np.uint64(first), *self._key, *self._counter)
            self._function((-(-threads // _THREADS),), (_THREADS,), args)
            self._next += count
        return out


def _from_stream(node: Node, device: Device) -> Draw:
    stream, xp = stream_of(node, device.resources), device.xp

    def draw(function: Callable[..., Any], *args: Any) -> Any:
        return function(DeviceWords(xp, stream.key, *stream.next_counter()), *args)

    return draw


def _from_seed(device: Device, seed: Any) -> Draw:
    words = DeviceWords(device.xp, philox.stateless_key(seed), 0, 0)
    return lambda function, *args: function(words, *args)


register("GPU", _from_stream, _from_seed)
