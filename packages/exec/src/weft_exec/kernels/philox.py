"""Specification and implementation of the random streams.

A stream is Philox4x64-10 as `numpy.random.Philox` has it. Its key is (seed, seed2) of the op, as
unsigned 64-bit numbers; for an op without seeds, 128 bits of the system's entropy, drawn once per
session and op. In the e-th step that uses it (counted from 0 since the container was created) the
op reads the 64-bit words w[0], w[1], ... of `Philox(key, counter=(0, 0, e, t)).random_raw()`.
NumPy increments the counter before each block, so w[4j .. 4j+3] is the block of the counter
(j + 1, 0, e, t). The tag t is 0 outside of loops, i in iteration i of a loop, and in a loop within
a loop t' · 0x9E3779B97F4A7C15 + i mod 2⁶⁴, where t' is the tag around; see
`weft_exec.kernels.random_counters`. A stateless op has the key `seed` and e = t = 0.

n numbers are made from words as follows:

- Halves h[i] are the 32-bit halves of the words, the low one first.
- Uniform float32: (h[i] >> 8) · 2⁻²⁴. float16: (h[i] >> 21) · 2⁻¹¹. bfloat16: (h[i] >> 24) · 2⁻⁸.
  Uniform float64: (w[i] >> 11) · 2⁻⁵³. All are exact, so they are the same bits on every device.
- Integers in [a, b): a + w[i] mod (b - a). The excess probability of a value is below
  (b - a) · 2⁻⁶⁴.
- Permutations: the order that sorts w[0 .. n-1].
- Normal: the Box-Muller transform. With m = ceil(n / 2), and u[i] uniform float64 for float64 and
  uniform float32 for the rest: r = sqrt(-2 ln(1 - u[i])), τ = tan(π (u[m+i] - ½)); then number i
  is r (1 - τ²) / (1 + τ²), which is -r cos 2πu[m+i], and number m+i is 2 r τ / (1 + τ²). Equal up
  to the rounding of ln and tan.
- Truncated normal: normals; then, as long as some exceed 2 in absolute value, these are replaced,
  in order, by the same number of normals made from the next words.
- Gamma and Poisson numbers are those of `numpy.random.Generator` over the stream; equal for one
  version of NumPy only.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from weft_exec.kernels.random_counters import current, next_counter
from weft_exec.kernels.sorted_rows import search
from weft_exec.resources.resources import Resource
from weft_tensor import dtypes, errors

Array = np.ndarray[Any, Any]
Words = Callable[[int], Any]
Fill = Callable[[Words, Any, Any], None]
"""`fill(words, result, xp)`: fills a new array of the module `xp` with numbers made from words."""

_MASK = 2**64 - 1
_FLOAT16 = dtypes.float16.numpy
_BFLOAT16 = dtypes.bfloat16.numpy
_FLOAT64 = dtypes.float64.numpy
_CHUNK = 1 << 16


class RandomStream(Resource):
    """The stream of one random op in one session.

    Attributes:
      key: the Philox key: two 64-bit numbers.
      count: the number of steps that have used the stream.
    """

    kind = "random stream"

    def __init__(self, name: str, key: tuple[int, int]) -> None:
        super().__init__(name)
        self.key = (key[0] & _MASK, key[1] & _MASK)
        self.count = 0
        self._lock = threading.Lock()
        self._bits = np.random.Philox(key=np.array(self.key, np.uint64))
        self._state = self._bits.state

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(words, *args)` for the next execution; `words(n)` returns n words."""
        with self._lock:
            self._start()
            return function(self._bits.random_raw, *args)

    def sample(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(generator, *args)` for the next execution, with NumPy's Generator."""
        with self._lock:
            self._start()
            return function(np.random.Generator(self._bits), *args)

    def resume(self, key: tuple[int, int], count: int) -> None:
        """Continue a stream that has this key and that `count` steps have used."""
        with self._lock:
            self.key = (key[0] & _MASK, key[1] & _MASK)
            self.count = count

    def next_counter(self) -> tuple[int, int]:
        """Begin the next execution; return its number e and tag t."""
        with self._lock:
            return next_counter(self)

    def next_state(self) -> tuple[int, ...]:
        """Begin the next execution; return its counter and key, six numbers."""
        with self._lock:
            number, tag = next_counter(self)
            return 0, 0, number & _MASK, tag, *self.key

    def is_begun(self) -> bool:
        """Return True if the current step of this thread has used the stream."""
        return self in (current.executions or ())

    def return_unused(self, number: int) -> None:
        """Undo an execution that has drawn no numbers, unless others have followed it."""
        with self._lock:
            if self.count == number + 1:
                self.count = number
                if current.executions is not None:
                    current.executions.pop(self, None)

    def _start(self) -> None:
        number, tag = next_counter(self)
        state: Any = self._state
        state["state"]["counter"][:] = (0, 0, number & _MASK, tag)
        state["state"]["key"][:] = self.key
        # NumPy buffers the four words of a block. Position 4 marks them as used, so that the next
        # word comes from the new counter.
        state["buffer_pos"] = 4
        state["has_uint32"] = 0
        self._bits.state = state


def random_key() -> tuple[int, int]:
    """Return a random key from the system's entropy."""
    bits = int.from_bytes(os.urandom(16), "little")
    return bits & _MASK, bits >> 64


def stateless_key(seed: Any) -> tuple[int, int]:
    """Return the key of the stream of a stateless op.

    Raises: InvalidArgumentError: `seed` does not have shape [2].
    """
    if seed.shape != (2,):
        raise errors.InvalidArgumentError(f"seed must have shape [2], got {list(seed.shape)}")
    first, second = seed.tolist()
    return first & _MASK, second & _MASK


def stateless_words(seed: Any) -> Words:
    """Return the words of the stream of a stateless op.

    Raises: InvalidArgumentError: `seed` does not have shape [2].
    """
    return np.random.Philox(key=np.array(stateless_key(seed), np.uint64)).random_raw


# --------------------------------------------------------------------------- numbers
# All except those by inversion use the array module, since GPUs generate words themselves.


def _halves(words: Words, count: int) -> Any:
    raw = words((count + 1) // 2)
    if not np.little_endian:
        raw = raw.astype("<u8")
    return raw.view("<u4")[:count]


def fill_uniform(words: Words, result: Any, xp: Any) -> None:
    """Fill a floating-point array in C order with uniform numbers in [0, 1)."""
    flat = result.reshape(-1)
    dtype = result.dtype
    if dtype == _FLOAT64:
        bits = words(flat.size)
        bits >>= np.uint64(11)
        flat[...] = bits
        flat *= 2.0**-53
        return
    num_bits = {_FLOAT16: 11, _BFLOAT16: 8}.get(dtype, 24)
    bits = _halves(words, flat.size)
    bits >>= np.uint32(32 - num_bits)
    flat[...] = bits
    flat *= dtype.type(2.0**-num_bits)


def fill_normal(words: Words, result: Any, xp: Any) -> None:
    """Fill a floating-point array in C order with standard normal numbers."""
    size = result.size
    wide: Any = np.float64 if result.dtype == _FLOAT64 else np.float32
    half = (size + 1) // 2
    uniform = xp.empty(2 * half, wide)
    fill_uniform(words, uniform, xp)
    radii, angles = uniform[:half], uniform[half:]
    chunk = _CHUNK if xp is np else max(half, 1)  # fits a CPU's cache
    for start in range(0, half, chunk):
        part = slice(start, min(start + chunk, half))
        _polar(xp, radii[part], angles[part])
    flat = result.reshape(-1)
    flat[:half] = radii
    flat[half:] = angles[: size - half]


def _polar(xp: Any, radii: Any, angles: Any) -> None:
    """Transform two vectors of uniform numbers to normal numbers in place (Box-Muller)."""
    kind = radii.dtype.type
    # Uniform numbers may be 0 but not 1, so the logarithm of 1 - u is finite.
    xp.subtract(kind(1), radii, out=radii)
    xp.log(radii, out=radii)
    radii *= kind(-2)
    xp.sqrt(radii, out=radii)
    angles -= kind(0.5)
    angles *= kind(math.pi)
    # Half-angle formulas: one tangent replaces a sine and a cosine.
    xp.tan(angles, out=angles)
    squares = angles * angles
    one_minus = kind(1) - squares
    squares += kind(1)
    radii /= squares
    angles *= kind(2)
    angles *= radii
    radii *= one_minus


def fill_truncated_normal(words: Words, result: Any, xp: Any) -> None:
    """Fill a floating-point array in C order with standard normal numbers within [-2, 2]."""
    fill_normal(words, result, xp)
    flat = result.reshape(-1)
    rejected = xp.nonzero(xp.absolute(flat) > 2)[0]
    while rejected.size:
        fresh = xp.empty(rejected.size, result.dtype)
        fill_normal(words, fresh, xp)
        flat[rejected] = fresh
        rejected = rejected[xp.absolute(fresh) > 2]


def fill_integers(words: Words, result: Any, low: int, high: int) -> None:
    """Fill an int32 or int64 array in C order with uniform integers in [low, high)."""
    draws = words(result.size)
    draws %= np.uint64(high - low)
    draws += np.uint64(low & _MASK)
    result.reshape(-1)[...] = draws.view(np.int64)


def permutation(words: Words, count: int, xp: Any) -> Any:
    """Return the numbers 0 .. count-1 in random order."""
    return xp.argsort(words(count))


_CLASSES = 1 << 16
"""Number of probabilities that are processed together."""


def draw_classes(words: Words, logits: Array, result: Array) -> None:
    """Draw classes with the probabilities softmax(logits), row by row, by inversion."""
    # Inversion takes one random number for each draw; the Gumbel trick would take one for each
    # class.
    uniform = np.empty(result.shape, np.float64)
    fill_uniform(words, uniform, np)
    step = max(1, _CLASSES // max(1, logits.shape[1]))
    for start in range(0, len(logits) if result.size else 0, step):
        rows = slice(start, start + step)
        wide = logits[rows].astype(np.float64)
        sums = np.cumsum(np.exp(wide - wide.max(1, keepdims=True)), axis=1)
        result[rows] = search(sums, uniform[rows] * sums[:, -1:], right=True)
