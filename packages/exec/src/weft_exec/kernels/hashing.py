"""String hashes that are the same in every process: FarmHash, SipHash and MurmurHash."""

from __future__ import annotations

from itertools import pairwise

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F


def fingerprint64(text: bytes) -> int:
    """Compute FarmHash's Fingerprint64, an unsigned 64-bit number."""
    size = len(text)
    if size <= 16:
        return _hash_up_to_16(text, size)
    if size <= 32:
        return _hash_up_to_32(text, size)
    if size <= 64:
        return _hash_up_to_64(text, size)
    return _long(text, size)


def _word(text: bytes, index: int) -> int:
    return int.from_bytes(text[index : index + 8], "little")


def _rotate(value: int, count: int) -> int:
    value &= _MASK
    return ((value >> count) | (value << (64 - count))) & _MASK


def _shift_mix(value: int) -> int:
    value &= _MASK
    return value ^ (value >> 47)


def _mix(u: int, v: int, mul: int) -> int:
    """Mix two words into one."""
    a = _shift_mix((u ^ v) * mul)
    b = _shift_mix((v ^ a) * mul)
    return (b * mul) & _MASK


def _hash_up_to_16(text: bytes, size: int) -> int:
    mul = _K2 + size * 2
    if size >= 8:
        a = (_word(text, 0) + _K2) & _MASK
        b = _word(text, size - 8)
        c = (_rotate(b, 37) * mul + a) & _MASK
        d = ((_rotate(a, 25) + b) * mul) & _MASK
        return _mix(c, d, mul)
    if size >= 4:
        first = int.from_bytes(text[:4], "little")
        last = int.from_bytes(text[-4:], "little")
        return _mix(size + (first << 3), last, mul)
    if size:
        y = text[0] + (text[size >> 1] << 8)
        z = size + (text[-1] << 2)
        return (_shift_mix(y * _K2 ^ z * _K0) * _K2) & _MASK
    return _K2


def _hash_up_to_32(text: bytes, size: int) -> int:
    mul = _K2 + size * 2
    a = _word(text, 0) * _K1
    b = _word(text, 8)
    c = _word(text, size - 8) * mul
    d = _word(text, size - 16) * _K2
    u = (_rotate(a + b, 43) + _rotate(c, 30) + d) & _MASK
    v = (a + _rotate(b + _K2, 18) + c) & _MASK
    return _mix(u, v, mul)


def _hash_up_to_64(text: bytes, size: int) -> int:
    mul = _K2 + size * 2
    a = _word(text, 0) * _K2
    b = _word(text, 8)
    c = _word(text, size - 8) * mul
    d = _word(text, size - 16) * _K2
    y = (_rotate(a + b, 43) + _rotate(c, 30) + d) & _MASK
    z = _mix(y, (a + _rotate(b + _K2, 18) + c) & _MASK, mul)
    e = _word(text, 16) * mul
    f = _word(text, 24)
    g = (y + _word(text, size - 32)) * mul
    h = (z + _word(text, size - 24)) * mul
    u = (_rotate(e + f, 43) + _rotate(g, 30) + h) & _MASK
    v = (e + _rotate(f + a, 18) + g) & _MASK
    return _mix(u, v, mul)


def _weak(text: bytes, index: int, a: int, b: int) -> tuple[int, int]:
    """Hash 32 bytes to two words."""
    w, x, y, z = (_word(text, index + i) for i in (0, 8, 16, 24))
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    b += _rotate(a, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def _long(text: bytes, size: int) -> int:
    seed = 81
    x = (seed * _K2 + _word(text, 0)) & _MASK
    y = (seed * _K1 + 113) & _MASK
    z = (_shift_mix(y * _K2 + 113) * _K2) & _MASK
    v = w = (0, 0)
    end = (size - 1) // 64 * 64
    for index in range(0, end, 64):
        x, y, z, v, w = _block(text, index, (x, y, z), v, w, (_K1, 1))
    mul = _K1 + ((z & 0xFF) << 1)
    last = end + ((size - 1) & 63) - 63
    first = w[0] + ((size - 1) & 63)
    v = ((v[0] + first) & _MASK, v[1])
    w = ((first + v[0]) & _MASK, w[1])
    x, y, z, v, w = _block(text, last, (x, y, z), v, w, (mul, 9))
    high = (_mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z) & _MASK
    low = (_mix(v[1], w[1], mul) + x) & _MASK
    return _mix(high, low, mul)


def _block(
    text: bytes,
    index: int,
    state: tuple[int, int, int],
    v: tuple[int, int],
    w: tuple[int, int],
    factors: tuple[int, int],
) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:
    """Add 64 bytes to the state of a hash."""
    x, y, z = state
    mul, nine = factors
    x = _rotate(x + y + v[0] + _word(text, index + 8), 37) * mul
    y = _rotate(y + v[1] + _word(text, index + 48), 42) * mul
    x = (x ^ (w[1] * nine)) & _MASK
    y = (y + v[0] * nine + _word(text, index + 40)) & _MASK
    z = (_rotate(z + w[0], 33) * mul) & _MASK
    v = _weak(text, index, v[1] * mul, x + w[0])
    w = _weak(text, index + 32, z + w[1], y + _word(text, index + 16))
    return z, y, x, v, w


_MURMUR = 0xC6A4A7935BD1E995
_MURMUR_SEED = 0xDECAFCAFFE


def murmur64(text: bytes) -> int:
    """Compute MurmurHash64A with TensorFlow's seed, an unsigned 64-bit number."""
    size = len(text)
    full_bytes = size - size % 8
    h = _MURMUR_SEED ^ (size * _MURMUR & _MASK)
    for index in range(0, full_bytes, 8):
        k = _shift_mix(_word(text, index) * _MURMUR) * _MURMUR & _MASK
        h = (h ^ k) * _MURMUR & _MASK
    if size > full_bytes:
        h = (h ^ int.from_bytes(text[full_bytes:], "little")) * _MURMUR & _MASK
    return _shift_mix(_shift_mix(h) * _MURMUR)


def siphash(text: bytes, key: tuple[int, int]) -> int:
    """Compute SipHash-2-4 with a key of two words, an unsigned 64-bit number."""
    k0, k1 = key[0] & _MASK, key[1] & _MASK
    state = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    size = len(text)
    ends = range(0, size - size % 8 + 1, 8)
    words = [_word(text, begin) for begin, _ in pairwise(ends)]
    tail = int.from_bytes(text[size - size % 8 :], "little") | (size & 0xFF) << 56
    for word in (*words, tail):
        state[3] ^= word
        _sip_rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    _sip_rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sip_rounds(state: list[int], count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a = (a + b) & _MASK
        b = _rotate(b, 51) ^ a
        a = _rotate(a, 32)
        c = (c + d) & _MASK
        d = _rotate(d, 48) ^ c
        a = (a + d) & _MASK
        d = _rotate(d, 43) ^ a
        c = (c + b) & _MASK
        b = _rotate(b, 47) ^ c
        c = _rotate(c, 32)
    state[:] = a, b, c, d
