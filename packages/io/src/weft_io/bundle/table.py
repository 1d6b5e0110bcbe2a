"""Sorted tables of keys and values: LevelDB's file format, as TensorFlow writes it.

    block*  the entries, sorted by key
    block   the "metaindex", which TensorFlow leaves empty
    block   the index: for each block a key that is not below its keys, and its handle
    footer  48 bytes: the handles of the metaindex and the index, zeros, a magic number

A handle is two varints, offset and size. A block consists of entries, the offsets of the restart
points (uint32 each) and their number. It is followed by a byte with its compression and a masked
CRC-32C of everything. An entry is three varints (the number of key bytes shared with the previous
key, the number of other key bytes, the size of the value), the other key bytes, and the value. A
restart point stores its complete key.

A reader reads the whole file into memory. Blocks must follow each other without gaps, so every byte
is covered by a checksum, is zero, or was checked otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NoReturn

from weft_io.bundle.checksum import crc32c, mask_crc
from weft_io.bundle.key_encoding import MalformedError, get_varint, put_varint
from weft_tensor import errors

TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
FOOTER: Final = 48
TRAILER: Final = 5

_PLAIN: Final = 0
_COMPRESSIONS: Final = {1: "snappy"}
_U32: Final = struct.Struct("<I")
_FREE: Final = 1 << 24
_RATIO: Final = 8


class BlockHandle(NamedTuple):
    """The position and size of a block in the file, without its trailer."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset after the block's trailer."""
        return self.offset + self.size + TRAILER


def is_table(data: bytes) -> bool:
    """Return True if the bytes of a file end like a table."""
    return data.endswith(TABLE_MAGIC)


# --------------------------------------------------------------------------- reading


class TableReader:
    """An untrusted table in memory.

    Args:
      data: the file.
      path: its name, for messages.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        # Keys share prefixes, so short files can contain keys of any length.
        self._budget = _FREE + _RATIO * len(data)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys and values, sorted by key; each block is verified before its first entry.

        Raises:
          DataLossError: the bytes are damaged or inconsistent.
          UnimplementedError: a block is compressed.
          ResourceExhaustedError: the keys take far more memory than the file.
        """
        try:
            yield from self._items()
        except MalformedError as cause:
            self._fail(cause.position, cause.what)

    def _items(self) -> Iterator[tuple[bytes, bytes]]:
        index = self._footer()
        start, previous_key = 0, b""
        first = True
        for limit, value in self._block(index):
            handle, position = self._read_block_handle(value, 0, len(value))
            if position != len(value) or handle.offset != start:
                self._fail(
                    start, f"the index has no block here; the next one is at {handle.offset}"
                )
            start = handle.end
            key = previous_key
            for key, item in self._block(handle):
                if not first and key <= previous_key:
                    self._fail(handle.offset, f"the key {key!r} comes after {previous_key!r}")
                first, previous_key = False, key
                yield key, item
            if limit < key:
                self._fail(handle.offset, f"the index says that no key is above {limit!r}")
        if start != self._metaindex.offset:
            self._fail(start, "the index has no block here")

    def _footer(self) -> BlockHandle:
        """Return the handle of the index block."""
        data, size = self._data, len(self._data)
        if size < FOOTER:
            self._fail(0, f"a table has at least {FOOTER} bytes, this file has {size}")
        begin, end = size - FOOTER, size - len(TABLE_MAGIC)
        if not is_table(data):
            self._fail(end, f"a table ends in {TABLE_MAGIC.hex()}, this file in {data[end:].hex()}")
        metaindex, position = self._read_block_handle(data, begin, end)
        index, position = self._read_block_handle(data, position, end)
        if data[position:end].strip(b"\0"):
            self._fail(position, "the rest of the footer must be zeros")
        if (metaindex.end, index.end) != (index.offset, begin):
            self._fail(begin, f"its last blocks, {metaindex} and {index}, do not fill the file")
        self._metaindex = metaindex
        for _ in self._block(metaindex):
            pass
        return index

    def _read_block_handle(self, data: bytes, position: int, end: int) -> tuple[BlockHandle, int]:
        offset, position = get_varint(data, position, end)
        size, position = get_varint(data, position, end)
        return BlockHandle(offset, size), position

    def _block(self, handle: BlockHandle) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys and values of a block."""
        data, (begin, size) = self._data, handle
        end = begin + size
        if handle.end > len(data) - FOOTER or size < 2 * _U32.size:
            self._fail(begin, f"a block of {size} bytes does not fit here")
        kind = data[end]
        (stored,) = _U32.unpack_from(data, end + 1)
        if mask_crc(crc32c(memoryview(data)[begin : end + 1])) != stored:
            self._fail(begin, f"the checksum of the {size + 1} bytes from here on differs")
        if kind != _PLAIN:
            name = _COMPRESSIONS.get(kind, str(kind))
            raise errors.UnimplementedError(
                f"{self._path} has a compressed block ({name}) at byte {begin}; compressed "
                "indexes are not supported (TensorFlow writes none)"
            )
        (restarts,) = _U32.unpack_from(data, end - _U32.size)
        limit = end - _U32.size * (restarts + 1)
        if limit < begin:
            self._fail(end - _U32.size, f"{restarts} restart points do not fit into the block")
        return self._entries(begin, limit)

    def _entries(self, position: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        data, key = self._data, b""
        while position < end:
            start = position
            shared, position = get_varint(data, position, end)
            num_unshared, position = get_varint(data, position, end)
            size, position = get_varint(data, position, end)
            if shared > len(key) or num_unshared + size > end - position:
                self._fail(
                    start, f"an entry of {shared} + {num_unshared} and {size} bytes does not fit"
                )
            self._budget -= shared
            if self._budget < 0:
                raise errors.ResourceExhaustedError(
                    f"{self._path}: the keys up to byte {start} need {_RATIO} times as much "
                    "memory as the file"
                )
            key = key[:shared] + data[position : position + num_unshared]
            position += num_unshared
            yield key, data[position : position + size]
            position += size

    def _fail(self, position: int, label: str) -> NoReturn:
        raise errors.DataLossError(f"{self._path} is damaged at byte {position}: {label}")


# --------------------------------------------------------------------------- writing


def table_bytes(items: Iterable[tuple[bytes, bytes]], block_size: int = 1 << 18) -> bytes:
    """Serialize sorted items as a table.

    Args:
      items: keys, ascending, and values.
      block_size: size in bytes at which a block ends; TensorFlow's by default.
    """
    result, index, block = bytearray(), _Block(1), _Block(16)
    last, handle = b"", b""
    for key, value in items:
        if handle:
            index.add(_separator_key(last, key), handle)
            handle = b""
        block.add(key, value)
        last = key
        if block.size >= block_size:
            handle = _finish(result, block)
            block = _Block(16)
    if block:
        handle = _finish(result, block)
    if handle:
        index.add(_successor_key(last), handle)
    handles = _finish(result, _Block(1)) + _finish(result, index)
    return bytes(result + handles.ljust(FOOTER - len(TABLE_MAGIC), b"\0") + TABLE_MAGIC)


def _separator_key(low: bytes, high: bytes) -> bytes:
    """Return a short key that is at least `low` and below `high`."""
    common = _common_prefix_length(low, high)
    if common < min(len(low), len(high)) and low[common] + 1 < high[common]:
        return low[:common] + bytes([low[common] + 1])
    return low


def _successor_key(key: bytes) -> bytes:
    """Return a short key that is at least `key`."""
    num_equal = len(key) - len(key.lstrip(b"\xff"))
    return key[:num_equal] + bytes([key[num_equal] + 1]) if num_equal < len(key) else key


def _finish(data: bytearray, block: _Block) -> bytes:
    """Append a block and its trailer; return its handle."""
    content = block.to_bytes() + bytes([_PLAIN])
    handle = put_varint(len(data)) + put_varint(len(content) - 1)
    data += content + _U32.pack(mask_crc(crc32c(content)))
    return handle


class _Block:
    """The entries of a block under construction."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._buffer = bytearray()
        self._restarts = [0]
        self._num_since_restart = 0
        self._last = b""

    def __bool__(self) -> bool:
        return bool(self._buffer)

    @property
    def size(self) -> int:
        return len(self._buffer) + _U32.size * (len(self._restarts) + 1)

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._num_since_restart == self._interval:
            self._restarts.append(len(self._buffer))
            self._num_since_restart = 0
        elif self._num_since_restart:
            shared = _common_prefix_length(self._last, key)
        self._num_since_restart += 1
        self._last = key
        self._buffer += put_varint(shared) + put_varint(len(key) - shared) + put_varint(len(value))
        self._buffer += key[shared:] + value

    def to_bytes(self) -> bytes:
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._buffer) + struct.pack(f"<{len(numbers)}I", *numbers)


def _common_prefix_length(a: bytes, b: bytes) -> int:
    """Return the length of the common prefix of two keys."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    return next(i for i in range(limit) if a[i] != b[i])
