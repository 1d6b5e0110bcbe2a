"""Kernels of random numbers whose state is a variable, and of permutations of indices.

A draw uses the words of Philox4x64-10 with the key (state[2], 0), starting at the counter
(state[0], state[1], 0, 0). A draw of n numbers advances the counter by 256 n.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import philox
from weft_exec.kernels.common import as_exact, new_array
from weft_exec.kernels.random import check_range, check_shape
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.kernels.stateless_random import binomial, check_parameters
from weft_exec.resources.resources import ResourceHandle, VariableState
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]

_MASK = 2**64 - 1
_BLOCKS_PER_NUMBER = 256
_ALGORITHMS = (1, 3)  # Philox, and the best there is


def advance_state(state: VariableState, algorithm: Any, count: int) -> Array:
    """Return the current state, and advance it for a draw of `count` numbers.

    Raises: InvalidArgumentError: the value is not a state of this algorithm.
    """
    if int(algorithm) not in _ALGORITHMS:
        raise errors.InvalidArgumentError(
            f"requires the algorithm Philox, which is 1, got {int(algorithm)}"
        )
    old_values: list[Array] = []

    def move(value: Any) -> Array:
        if value.dtype != np.int64 or value.ndim != 1 or len(value) < 3:
            raise errors.InvalidArgumentError(
                "the state of random numbers must be int64 of shape [3], got "
                f"{value.dtype} of shape {list(value.shape)}"
            )
        old_values.append(value)
        low, high = (number & _MASK for number in value[:2].tolist())
        counter = (low | high << 64) + count * _BLOCKS_PER_NUMBER
        advanced_state = np.array(value)
        advanced_state[:2] = np.array([counter & _MASK, counter >> 64 & _MASK], np.uint64).view(
            np.int64
        )
        return advanced_state

    state.replace(move)
    return old_values[0]


def _stream(handle: ResourceHandle, algorithm: Any, count: int) -> np.random.Philox:
    """Return the random bits at a variable's state, and advance the state for `count` numbers."""
    value = advance_state(handle.resource, algorithm, count)
    low, high, key = value[:3].view(np.uint64).tolist()
    return np.random.Philox(
        key=np.array([key, 0], np.uint64), counter=np.array([low, high, 0, 0], np.uint64)
    )


def _finish(result: Array) -> Any:
    return result if result.ndim else result[()]


@kernel("RngSkip")
def _skip(node: Node, device: Device) -> KernelFunction:
    def run(handle: ResourceHandle, algorithm: Any, delta: Any) -> None:
        if delta < 0:
            raise errors.InvalidArgumentError(f"delta must be at least 0, got {delta}")
        advance_state(handle.resource, algorithm, int(delta))

    return run


@kernel("RngReadAndSkip")
def _read_and_skip(node: Node, device: Device) -> KernelFunction:
    def run(handle: ResourceHandle, algorithm: Any, delta: Any) -> Any:
        return advance_state(handle.resource, algorithm, int(delta))[:3].copy()

    return run


_FILLS: dict[str, philox.Fill] = {
    "StatefulUniform": philox.fill_uniform,
    "StatefulStandardNormalV2": philox.fill_normal,
    "StatefulTruncatedNormal": philox.fill_truncated_normal,
}


@kernel(*_FILLS, heavy=True)
def _floats(node: Node, device: Device) -> KernelFunction:
    fill, dtype = _FILLS[node.type], node.outputs[0].dtype.numpy

    def run(handle: ResourceHandle, algorithm: Any, shape: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        fill(_stream(handle, algorithm, result.size).random_raw, result, np)
        return _finish(result)

    return run


@kernel("StatefulUniformInt", heavy=True)
def _integers(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(handle: ResourceHandle, algorithm: Any, shape: Any, low: Any, high: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        if not result.size:
            return result
        first, last = check_range(low, high)
        words = _stream(handle, algorithm, result.size).random_raw
        philox.fill_integers(words, result, first, last)
        return _finish(result)

    return run


@kernel("StatefulUniformFullInt", heavy=True)
def _full_integers(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(handle: ResourceHandle, algorithm: Any, shape: Any) -> Any:
        size = check_shape(shape)
        count = prod(size)
        result = new_array(device, size, dtype)
        raw = _stream(handle, algorithm, count).random_raw(count)
        result.reshape(-1)[...] = raw.astype(dtype)
        return _finish(result)

    return run


@kernel("StatefulRandomBinomial", heavy=True)
def _binomials(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(handle: ResourceHandle, algorithm: Any, shape: Any, counts: Any, probs: Any) -> Any:
        size = check_shape(shape)
        wide = check_parameters(size, counts, probs)
        generator = np.random.Generator(_stream(handle, algorithm, prod(size)))
        return as_exact(np.asarray(binomial(generator, size, *wide)), dtype, device)

    return run


@kernel("NonDeterministicInts")
def _entropy(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(shape: Any) -> Any:
        result = new_array(device, check_shape(shape), dtype)
        words = np.random.Philox(key=np.array(philox.random_key(), np.uint64)).random_raw
        view = np.asarray(words(-(-result.nbytes // 8))).view(np.uint8)
        result.reshape(-1)[...] = view[: result.nbytes].view(dtype)
        return _finish(result)

    return run


# ---------------------------------------------------------------------- permutations of indices


def _mix_bits(x: Array) -> Array:
    """Mix 64 bits (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


def _permute(index: Array, keys: list[Array], half: Array) -> Array:
    """Permute numbers of `2 * half` bits by a Feistel network."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = index >> half, index & mask
    for key in keys:
        left, right = right, left ^ (_mix_bits(right + key) & mask)
    joined: Array = left << half | right
    return joined


def _round_keys(seed: Array, rounds: int) -> list[Array]:
    """Return a key for each round, from the three numbers along the last axis of `seed`."""
    total = np.zeros(seed.shape[:-1], np.uint64)
    keys = []
    for index in range(rounds + 3):
        total = _mix_bits(total + seed[..., index % 3] + np.uint64(0x9E3779B97F4A7C15))
        keys.append(total)
    return keys[3:]


@kernel("RandomIndexShuffle")
def _index_shuffle(node: Node, device: Device) -> KernelFunction:
    rounds, dtype = node.attrs["rounds"], node.outputs[0].dtype.numpy

    def run(index: Any, seed: Any, largest: Any) -> Any:
        if not seed.shape or seed.shape[-1] != 3:
            raise errors.InvalidArgumentError(
                f"seed must have shape [..., 3], got {list(seed.shape)}"
            )
        try:
            shape = np.broadcast_shapes(index.shape, seed.shape[:-1], largest.shape)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"index, seed and max_index of shapes {list(index.shape)}, {list(seed.shape)} and "
                f"{list(largest.shape)} do not broadcast"
            ) from None
        if np.any(index < 0) or np.any(index > largest):
            raise errors.InvalidArgumentError("index must be in [0, max_index]")
        keys = [
            np.broadcast_to(key, shape).ravel() for key in _round_keys(_words(seed), 3 * rounds)
        ]
        last = np.broadcast_to(_words(largest), shape).ravel()
        index_words = np.broadcast_to(_words(index), shape).ravel()
        return _finish(_cycle_walk(index_words, keys, last).astype(dtype).reshape(shape))

    return run


def _words(value: Any) -> Array:
    return np.asarray(value).astype(np.uint64)


def _cycle_walk(array: Array, keys: list[Array], last: Array) -> Array:
    """Return a permutation of [0, last], by cycle walking within the next power of 4."""
    half = np.ones_like(last)
    for bits in range(1, 32):
        half += last >> np.uint64(2 * bits) > 0
    result = _permute(array, keys, half)
    overflow = np.flatnonzero(result > last)
    while overflow.size:
        keys_there = [key[overflow] for key in keys]
        result[overflow] = _permute(result[overflow], keys_there, half[overflow])
        overflow = overflow[result[overflow] > last[overflow]]
    return result
