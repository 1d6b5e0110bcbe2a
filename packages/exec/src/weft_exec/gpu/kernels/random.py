"""GPU kernels of random ops: the streams of `weft_exec.kernels.philox`, made on the GPU.

Integers and uniform numbers have the same bits as on the CPU; normal ones are equal up to the
rounding of log and tan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import INTEGERS, REAL
from weft_exec.kernels import philox
from weft_exec.kernels.random import _checked_shape, _range, stream_of
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

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
"""Philox4x64-10, in CUDA."""


class DeviceWords:
    """The words of one execution of a stream, on the GPU; each call gives the next ones.

    Args:
      xp: CuPy.
      key: two numbers of 64 bits.
      execution, tag: the upper half of the counter.
    """

    def __init__(self, xp: Any, key: tuple[int, int], execution: int, tag: int) -> None:
        self._xp = xp
        self._function = xp.RawKernel(SOURCE, "weft_philox")
        self._key = (np.uint64(key[0] & _MASK), np.uint64(key[1] & _MASK))
        self._counter = (np.uint64(execution & _MASK), np.uint64(tag & _MASK))
        self._next = 0

    def __call__(self, count: int) -> Any:
        """The next words, an array of uint64."""
        out = self._xp.empty(count, np.uint64)
        if count:
            first = self._next
            threads = -(-(first + count) // 4) - first // 4
            args = (out, np.uint64(count), np.uint64(first), *self._key, *self._counter)
            self._function((-(-threads // _THREADS),), (_THREADS,), args)
            self._next += count
        return out


def _words(stream: philox.RandomStream, xp: Any) -> DeviceWords:
    """The words of the next execution of a stream."""
    return DeviceWords(xp, stream.key, *stream.next_counter())


def _stateless(xp: Any, seed: Any) -> DeviceWords:
    if seed.shape != (2,):
        raise errors.InvalidArgumentError(f"seed must have shape [2], got {list(seed.shape)}")
    return DeviceWords(xp, (int(seed[0]), int(seed[1])), 0, 0)


def _uniform(xp: Any, words: DeviceWords, shape: Any, dtype: np.dtype[Any]) -> Any:
    result = xp.empty(shape, dtype)
    philox.fill_uniform(words, result)
    return result


def _normal(xp: Any, words: DeviceWords, shape: Any, dtype: np.dtype[Any]) -> Any:
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    kind = wide.type
    size = math.prod(shape)
    half = (size + 1) // 2
    uniform = _uniform(xp, words, 2 * half, wide)
    radii = xp.sqrt(xp.log(kind(1) - uniform[:half]) * kind(-2))
    angles = xp.tan((uniform[half:] - kind(0.5)) * kind(math.pi))
    squares = angles * angles
    radii = radii / (squares + kind(1))
    both = xp.concatenate([radii * (kind(1) - squares), radii * (angles * kind(2))])
    return both[:size].reshape(shape).astype(dtype)


def _truncated(xp: Any, words: DeviceWords, shape: Any, dtype: np.dtype[Any]) -> Any:
    flat = _normal(xp, words, (math.prod(shape),), dtype)
    beyond = xp.nonzero(xp.absolute(flat) > 2)[0]
    while beyond.size:
        fresh = _normal(xp, words, (beyond.size,), dtype)
        flat[beyond] = fresh
        beyond = beyond[xp.nonzero(xp.absolute(fresh) > 2)[0]]
    return flat.reshape(shape)


_MAKERS: Final = {
    "RandomUniform": _uniform,
    "RandomStandardNormal": _normal,
    "TruncatedNormal": _truncated,
    "StatelessRandomUniform": _uniform,
    "StatelessRandomNormal": _normal,
    "StatelessTruncatedNormal": _truncated,
}


@kernel(
    "RandomUniform",
    "RandomStandardNormal",
    "TruncatedNormal",
    device="GPU",
    host=("shape",),
    dtypes={"dtype": REAL},
)
def _floats(node: Node, device: Device) -> KernelFunction:
    stream, xp = stream_of(node, device.resources), device.xp
    make, dtype = _MAKERS[node.type], node.outputs[0].dtype.numpy
    return lambda shape: make(xp, _words(stream, xp), _checked_shape(shape), dtype)


@kernel(
    "StatelessRandomUniform",
    "StatelessRandomNormal",
    "StatelessTruncatedNormal",
    device="GPU",
    host=(
        "shape",
        "seed",
    ),
    dtypes={"dtype": REAL},
)
def _stateless_floats(node: Node, device: Device) -> KernelFunction:
    make, dtype, xp = _MAKERS[node.type], node.outputs[0].dtype.numpy, device.xp
    return lambda shape, seed: make(xp, _stateless(xp, seed), _checked_shape(shape), dtype)


def _integers_of(xp: Any, words: DeviceWords, shape: Any, low: Any, high: Any, dtype: Any) -> Any:
    first, last = _range(low, high)
    result = xp.empty(_checked_shape(shape), dtype)
    philox.fill_integers(words, result, first, last)
    return result


@kernel(
    "RandomUniformInt",
    device="GPU",
    host=(
        "shape",
        "minval",
        "maxval",
    ),
    dtypes={"Tout": INTEGERS},
)
def _integers(node: Node, device: Device) -> KernelFunction:
    stream, xp = stream_of(node, device.resources), device.xp
    dtype = node.outputs[0].dtype.numpy
    return lambda shape, low, high: _integers_of(xp, _words(stream, xp), shape, low, high, dtype)


@kernel(
    "StatelessRandomUniformInt",
    device="GPU",
    host=(
        "shape",
        "seed",
        "minval",
        "maxval",
    ),
    dtypes={"dtype": INTEGERS},
)
def _stateless_integers(node: Node, device: Device) -> KernelFunction:
    dtype, xp = node.outputs[0].dtype.numpy, device.xp

    def run(shape: Any, seed: Any, low: Any, high: Any) -> Any:
        return _integers_of(xp, _stateless(xp, seed), shape, low, high, dtype)

    return run


@kernel("RandomShuffle", device="GPU")
def _shuffle(node: Node, device: Device) -> KernelFunction:
    stream, xp = stream_of(node, device.resources), device.xp

    def run(value: Any) -> Any:
        if not value.shape or value.shape[0] < 2:
            return value.copy()
        return xp.take(value, xp.argsort(_words(stream, xp)(value.shape[0])), axis=0)

    return run
