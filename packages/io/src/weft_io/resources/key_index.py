"""Vectorized indexes from keys to row numbers."""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import numpy as np

from weft_io.resources.values import Array
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_EMPTY: Final = -1
_REMOVED: Final = -2
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_SMALLEST: Final = 16


class KeyIndex(Protocol):
    """Index of keys with rows 0 to n - 1; the first axis of a key array counts keys."""

    def __len__(self) -> int:
        """Return the number of keys."""
        ...

    def find(self, keys: Array) -> Array:
        """Return the row of each key, or -1 if it is missing: int64."""
        ...

    def add(self, keys: Array) -> Array:
        """Return the row of each key; missing keys are added in the next rows."""
        ...

    def remove(self, keys: Array) -> tuple[Array, Array]:
        """Remove existing keys; the last rows move to the freed positions.

        Returns: the freed rows below the new number of keys, and the rows that moved there.
        """
        ...


def index_for(dtype: DType, width: int) -> KeyIndex:
    """Return an empty index.

    Args:
      dtype: element type of the keys.
      width: number of elements of a key.
    Raises: UnimplementedError: the type cannot be a key.
    """
    if dtype is dtypes.string:
        return _TextIndex(width)
    return _NumberIndex(dtype, width)


# ---------------------------------------------------------------------------- numbers


def _word_function(dtype: DType) -> Callable[[Array], Array]:
    """Return a function from elements to 64-bit words that are equal for equal elements."""
    if dtype.is_integer or dtype is dtypes.bool_:
        return lambda keys: keys.astype(np.int64 if dtype.numpy.kind != "u" else np.uint64).view(
            np.uint64
        )
    if dtype.is_floating:
        # Zero is added so that -0.0, which equals 0.0, has the same bits.
        return lambda keys: (keys.astype(np.float64) + 0.0).view(np.uint64)
    raise errors.UnimplementedError(f"a table's keys cannot be of type {dtype.name}")


class _NumberIndex:
    """Open-addressing hash table of NumPy arrays that processes all keys together.

    `_slots` has the row of the key in each slot. A key is in the first slot, from its hash on, that
    no other key occupies.
    """

    def __init__(self, dtype: DType, width: int) -> None:
        self._words = _word_function(dtype)
        self._width = width
        self._count = 0
        self._removed = 0
        self._keys: Array = np.zeros((1, width), np.uint64)
        # A secret salt prevents attackers from choosing keys that all collide.
        self._salt = np.uint64(secrets.randbits(64))
        self._resize(_SMALLEST)

    def __len__(self) -> int:
        return self._count

    def _resize(self, capacity: int) -> None:
        self._slots: Array = np.full(capacity, _EMPTY, np.int64)
        self._mask = capacity - 1
        self._shift = np.uint64(64 - capacity.bit_length() + 1)
        self._removed = 0
        if self._count:
            self._claim(self._keys[: self._count], 0)

    def _positions(self, keys: Array) -> Array:
        mixed = keys[:, 0] ^ self._salt
        for i in range(1, self._width):
            mixed = (mixed ^ (mixed >> _HALF)) * _MIX ^ keys[:, i]
        mixed = (mixed ^ (mixed >> _HALF)) * _MIX
        array: Array = (mixed >> self._shift).astype(np.int64)
        return array

    def _equal_keys(self, rows: Array, keys: Array) -> Array:
        array: Array = self._keys[rows] == keys
        return array[:, 0] if self._width == 1 else np.asarray(array.all(axis=1))

    def _locate(self, keys: Array) -> tuple[Array, Array]:
        """Return for each key the row, or -1, and the slot where the search ended."""
        positions = self._positions(keys)
        slot = self._slots[positions]
        is_found = self._equal_keys(slot, keys) & (slot >= 0)
        rows = np.where(is_found, slot, _EMPTY)
        pending = np.flatnonzero(~is_found & (slot != _EMPTY))
        while pending.size:
            positions[pending] = (positions[pending] + 1) & self._mask
            slot = self._slots[positions[pending]]
            is_found = self._equal_keys(slot, keys[pending]) & (slot >= 0)
            rows[pending[is_found]] = slot[is_found]
            pending = pending[~is_found & (slot != _EMPTY)]
        return rows, positions

    def find(self, keys: Array) -> Array:
        """Return the row of each key, or -1 if it is missing."""
        return self._locate(self._words(keys).reshape(-1, self._width))[0]

    def add(self, keys: Array) -> Array:
        """Return the row of each key."""
        words = self._words(keys).reshape(-1, self._width)
        rows = self._locate(words)[0]
        fresh = np.flatnonzero(rows < 0)
        if fresh.size:
            new = words[fresh]
            self._reserve(fresh.size)
            self._keys[self._count : self._count + fresh.size] = new
            rows[fresh] = self._claim(new, self._count)
        return rows

    def _reserve(self, num_added: int) -> None:
        total = self._count + num_added
        if total > len(self._keys):
            enlarged = np.zeros((max(total, 2 * len(self._keys)), self._width), np.uint64)
            enlarged[: self._count] = self._keys[: self._count]
            self._keys = enlarged
        if 2 * (total + self._removed) > len(self._slots):
            self._resize(1 << (2 * total).bit_length())

    def _claim(self, keys: Array, base: int) -> Array:
        """Find slots for keys without one, stored in `_keys` from row `base` on.

        Equal keys get the same row. All keys that probe a free slot write their row there; keys
        that then read another row continue probing.
        """
        positions = self._positions(keys)
        owner = np.empty(len(keys), np.int64)
        pending = np.arange(len(keys))
        while pending.size:
            expected = positions[pending]
            free = self._slots[expected] < 0
            self._slots[expected[free]] = base + pending[free]
            slot = self._slots[expected]
            matches = self._equal_keys(slot, keys[pending])
            owner[pending[matches]] = slot[matches]
            pending = pending[~matches]
            positions[pending] = (positions[pending] + 1) & self._mask
        return self._renumber(owner, positions, keys, base)

    def _renumber(self, owner: Array, array: Array, keys: Array, base: int) -> Array:
        """Close the gaps that duplicate keys left, and count the keys."""
        first = np.flatnonzero(owner == base + np.arange(len(owner)))
        self._count = base + len(first)
        if len(first) == len(owner):
            return owner
        number = np.empty(len(owner), np.int64)
        number[first] = base + np.arange(len(first))
        self._slots[array[first]] = number[first]
        self._keys[base : self._count] = keys[first]
        rows: Array = number[owner - base]
        return rows

    def remove(self, keys: Array) -> tuple[Array, Array]:
        """Remove keys; the last rows move to the freed positions."""
        rows, positions = self._locate(self._words(keys).reshape(-1, self._width))
        is_found = rows >= 0
        removed = np.zeros(self._count, bool)
        removed[rows[is_found]] = True
        num_remaining = self._count - int(removed.sum())
        holes = np.flatnonzero(removed[:num_remaining])
        movers = num_remaining + np.flatnonzero(~removed[num_remaining:])
        moved_to = self._locate(self._keys[movers])[1]
        self._slots[positions[is_found]] = _REMOVED
        self._slots[moved_to] = holes
        self._keys[holes] = self._keys[movers]
        self._removed += self._count - num_remaining
        self._count = num_remaining
        return holes, movers


# ---------------------------------------------------------------------------- strings


class _TextIndex:
    """An index of strings by a dictionary, because NumPy cannot hash strings."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: defaultdict[Any, int] = defaultdict()
        self._keys: list[Any] = []

    def __len__(self) -> int:
        return len(self._rows)

    def _items(self, keys: Array) -> Iterable[Any]:
        if self._width == 1:
            items: list[Any] = keys.reshape(-1).tolist()
            return items
        return map(tuple, keys.reshape(-1, self._width).tolist())

    def _count_items(self, keys: Array) -> int:
        return keys.size // self._width

    def find(self, keys: Array) -> Array:
        """Return the row of each key, or -1 if it is missing."""
        result = map(self._rows.get, self._items(keys), itertools.repeat(_EMPTY))
        return np.fromiter(result, np.int64, self._count_items(keys))

    def add(self, keys: Array) -> Array:
        """Return the row of each key."""
        num_before = len(self._rows)
        self._rows.default_factory = itertools.count(num_before).__next__
        result = map(self._rows.__getitem__, self._items(keys))
        rows = np.fromiter(result, np.int64, self._count_items(keys))
        self._rows.default_factory = None
        if len(self._rows) > num_before:
            self._keys += itertools.islice(self._rows, num_before, None)
        return rows

    def remove(self, keys: Array) -> tuple[Array, Array]:
        """Remove keys; the last rows move to the freed positions."""
        removed = {self._rows.pop(key) for key in self._items(keys) if key in self._rows}
        num_remaining = len(self._keys) - len(removed)
        holes = sorted(row for row in removed if row < num_remaining)
        movers = [row for row in range(num_remaining, len(self._keys)) if row not in removed]
        for hole, row in zip(holes, movers, strict=True):
            key = self._keys[hole] = self._keys[row]
            self._rows[key] = hole
        del self._keys[num_remaining:]
        return np.array(holes, np.int64), np.array(movers, np.int64)
