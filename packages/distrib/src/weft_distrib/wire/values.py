"""Description and layout of values in messages; see `weft_distrib.wire`."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_distrib.wire.memory import BlockMap, SharedValue
from weft_exec.devices.device import LARGE_BYTES
from weft_exec.resources.rendezvous import DEAD
from weft_tensor import dtypes, errors
from weft_tensor.allocator import cpu_allocator

INLINE_BYTES: Final = 1 << 14
"""Maximum size in bytes of a value in the head of a message; larger ones follow the head."""

_MAX_INLINE_BYTES = 1 << 20
"""Maximum total size in bytes of the values in the head of a message; further ones follow it."""

_DEAD_FLAG, _INLINE_FLAG, _SHARED_FLAG = 1, 2, 4
_BLOCK = struct.Struct("<Q")
_DESCRIPTION = struct.Struct("<BBBxxxxxQ")
_MAX_RANK = 32
_MAX_VALUES = (1 << 16) - 1

_UINT8: Final = dtypes.uint8.as_datatype_enum

_codes: dict[np.dtype[Any], int] = {}


class Pieces:
    """Bytes in several pieces, which the receiver gets as one array of uint8.

    Args:
      buffers: the pieces in order; they are not copied.
    """

    __slots__ = ("buffers", "nbytes")

    def __init__(self, buffers: Sequence[bytes | memoryview]) -> None:
        views = [memoryview(buffer) for buffer in buffers]
        self.buffers = [view for view in views if view.nbytes]
        self.nbytes = sum(view.nbytes for view in self.buffers)

    def joined(self) -> np.ndarray:
        """Return a copy of all bytes in one piece."""
        return np.frombuffer(b"".join(self.buffers), np.uint8)


class ValueLayout(NamedTuple):
    """The layout of the values of a message.

    Attributes:
      head: the descriptions of the values, and the bytes of small ones.
      bulk: the bytes of large values in order; each keeps its array alive.
      nbytes: the size of all values.
      shared: the size of the values in shared memory.
      copied: the size of the values in `bulk` that are copies.
    """

    head: bytes
    bulk: list[memoryview]
    nbytes: int = 0
    shared: int = 0
    copied: int = 0


def pack(values: Sequence[Any]) -> ValueLayout:
    """Compute the layout of values, without copying large ones.

    Args:
      values: arrays, NumPy scalars, bytes, `Pieces`, `DEAD`, or results of `Pool.put`.
    Raises:
      InvalidArgumentError: a value, such as a handle, cannot be sent to another process; or there
        are too many values or dimensions.
    """
    if len(values) > _MAX_VALUES:
        raise errors.InvalidArgumentError(
            f"a message must have at most {_MAX_VALUES} values, got {len(values)}"
        )
    descriptions: list[bytes] = []
    inline: list[Any] = []
    bulk: list[memoryview] = []
    inline_budget = _MAX_INLINE_BYTES
    nbytes = shared = copied = 0
    for value in values:
        if value is DEAD:
            descriptions.append(_DESCRIPTION.pack(0, 0, _DEAD_FLAG, 0))
            continue
        if isinstance(value, SharedValue):
            descriptions.append(_encode_header(value))
            shared += value.nbytes
            continue
        if isinstance(value, Pieces):
            descriptions.append(_DESCRIPTION.pack(_UINT8, 1, 0, value.nbytes))
            descriptions.append(struct.pack("<q", value.nbytes))
            bulk += value.buffers
            nbytes += value.nbytes
            continue
        array = _as_array(value)
        if array.ndim > _MAX_RANK:
            raise errors.InvalidArgumentError(
                f"a value of rank {array.ndim} cannot be sent: the maximum rank is {_MAX_RANK}"
            )
        code, data = _contents(array)
        small = data.nbytes <= min(INLINE_BYTES, inline_budget)
        inline_budget -= data.nbytes if small else 0
        flags = _INLINE_FLAG if small else 0
        descriptions.append(_DESCRIPTION.pack(code, array.ndim, flags, data.nbytes))
        if array.ndim:
            descriptions.append(struct.pack(f"<{array.ndim}q", *array.shape))
        (inline if small else bulk).append(data)
        nbytes += data.nbytes
        if not (small or (array.flags.c_contiguous and not array.dtype.hasobject)):
            copied += data.nbytes
    head = b"".join([*descriptions, *inline])
    return ValueLayout(head, bulk, nbytes + shared, shared, copied)


def _encode_header(value: SharedValue) -> bytes:
    rank = len(value.shape)
    description = _DESCRIPTION.pack(_code_of(value.dtype), rank, _SHARED_FLAG, value.nbytes)
    return description + struct.pack(f"<{rank}q", *value.shape) + _BLOCK.pack(value.block)


def _code_of(dtype: np.dtype[Any]) -> int:
    code = _codes.get(dtype)
    if code is None:
        code = _codes[dtype] = dtypes.as_dtype(dtype).as_datatype_enum
    return code


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, bytes):
        return np.array(value, object)
    raise errors.InvalidArgumentError(f"{value!r} cannot be sent to another process")


def _contents(array: np.ndarray) -> tuple[int, memoryview]:
    if array.dtype.kind == "O":
        return dtypes.string.as_datatype_enum, memoryview(_pack_strings(array))
    return _code_of(array.dtype), _bytes_of(np.ascontiguousarray(array))


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data.cast("B")


def _pack_strings(array: np.ndarray) -> bytes:
    items = array.ravel().tolist()
    for item in items:
        if not isinstance(item, bytes):
            raise errors.InvalidArgumentError(f"{item!r} cannot be sent to another process")
    offsets = np.cumsum([0, *map(len, items)], dtype="<u8")
    return offsets.tobytes() + b"".join(items)


class Slot:
    """An incoming value, whose bytes may not have arrived yet.

    Attributes:
      buffer: the destination of its bytes; empty if there are none.
      inline: True if its bytes are in the head.
    """

    __slots__ = ("_array", "_shape", "_text", "buffer", "inline")

    def __init__(
        self,
        code: int,
        shape: tuple[int, ...],
        flags: int,
        nbytes: int,
        shared: np.ndarray | None = None,
    ) -> None:
        self.inline = bool(flags & _INLINE_FLAG)
        self._array: np.ndarray | None = None
        self._shape = shape
        self._text = False
        self.buffer = memoryview(b"")
        if flags & _DEAD_FLAG:
            return
        self._text = code == dtypes.string.as_datatype_enum
        if self._text:
            if shared is not None:
                raise errors.DataLossError("strings cannot be sent in shared memory")
            self._array = np.empty(nbytes, np.uint8)
        else:
            self._array = _array_for(shape, _dtype(code), nbytes, shared)
        if nbytes and shared is None:
            self.buffer = _bytes_of(self._array)

    def take(self) -> Any:
        """Return the complete value in the form that kernels use."""
        array = self._array
        if array is None:
            return DEAD
        if self._text:
            return _strings(array, self._shape)
        return array if array.ndim else array[()]


def _array_for(
    shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int, shared: np.ndarray | None
) -> np.ndarray:
    """Return an array for the bytes of a value, or one over shared memory."""
    if math.prod(shape) * dtype.itemsize != nbytes:
        raise errors.DataLossError(
            f"a value of {nbytes} bytes cannot have the type {dtype} and the shape {shape}"
        )
    try:
        if shared is not None:
            return shared.view(dtype).reshape(shape)
        # From the pool, since the pages of a new array cost more than to fill it.
        large = nbytes > LARGE_BYTES
        return cpu_allocator().empty(shape, dtype) if large else np.empty(shape, dtype)
    except ValueError as error:  # some sizes are vast, and another is 0
        raise errors.DataLossError(f"a value has the invalid shape {shape}: {error}") from error


def _dtype(code: int) -> np.dtype[Any]:
    try:
        dtype = dtypes.as_dtype(code)
    except (TypeError, errors.OpError) as error:
        raise errors.DataLossError(f"unknown element type {code}") from error
    if dtype is not dtype.base_dtype or dtype in (dtypes.resource, dtypes.variant):
        raise errors.DataLossError(f"values of type {dtype.name} cannot be sent to another process")
    return np.dtype(dtype.as_numpy_dtype)


def _strings(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    start = 8 * (count + 1)
    if start > data.size:
        raise errors.DataLossError(f"{data.size} bytes are too few for {count} strings")
    offsets = data[:start].view("<u8")
    text_bytes = data[start:].tobytes()
    if offsets[0] != 0 or offsets[-1] != len(text_bytes) or np.any(offsets[1:] < offsets[:-1]):
        raise errors.DataLossError(
            f"the offsets of {count} strings do not match {len(text_bytes)} bytes of text"
        )
    ends = offsets.tolist()
    result = np.empty(count, object)
    result[:] = [text_bytes[a:b] for a, b in itertools.pairwise(ends)]
    return result.reshape(shape)


def describe(
    head: memoryview, count: int, limit: int, mapped: BlockMap | None = None
) -> tuple[list[Slot], int, int]:
    """Parse the descriptions of values in a head; return also the sizes of both.

    Args:
      limit: the maximum total size in bytes.
      mapped: the shared memory of the other end, or None.
    Raises:
      DataLossError: a description is truncated or inconsistent.
      ResourceExhaustedError: the values exceed `limit`.
    """
    slots: list[Slot] = []
    position = total = 0
    for _ in range(count):
        if len(head) - position < _DESCRIPTION.size:
            raise errors.DataLossError("the description of a value is truncated")
        code, rank, flags, nbytes = _DESCRIPTION.unpack_from(head, position)
        position += _DESCRIPTION.size
        if rank > _MAX_RANK or len(head) - position < 8 * rank:
            raise errors.DataLossError(f"the sizes of a value of rank {rank} are truncated")
        shape = struct.unpack_from(f"<{rank}q", head, position)
        position += 8 * rank
        total += nbytes
        if total > limit:
            raise errors.ResourceExhaustedError(
                f"values of {total} bytes and more are larger than the limit of {limit} bytes"
            )
        if any(size < 0 for size in shape):
            raise errors.DataLossError(f"a value has the invalid shape {shape}")
        shared = None
        if flags & _SHARED_FLAG:
            if mapped is None or len(head) - position < _BLOCK.size:
                raise errors.DataLossError(
                    "a value is in shared memory, but the connection has none"
                )
            shared = mapped.lease(_BLOCK.unpack_from(head, position)[0], nbytes)
            position += _BLOCK.size
        slots.append(Slot(code, shape, flags, nbytes, shared))
    return slots, position, total
