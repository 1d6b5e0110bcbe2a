"""Binary layout for the writer and the reader: segment header, alignment, attribute kinds."""

from __future__ import annotations

import enum
import struct
import zlib
from typing import Final

from weft_tensor import errors

VERSION: Final = 2
"""The written version of the schema, and the newest readable one.

Version 2 added the contexts of control flow; graphs without them are readable by version 1.
"""

ALIGNMENT: Final = 64
INLINE_LIMIT: Final = 64 << 10
"""Larger data, in bytes, is stored in the blobs."""
INLINE_TOTAL: Final = 64 << 20
"""When the inline data has this many bytes, all further data is stored in the blobs."""

MAGIC: Final = b"weftgrph"
HEADER_SIZE: Final = 64
_LAYOUT = 1
_HEADER = struct.Struct("<8sIIQQI24x")
_CRC = struct.Struct("<I")


class Kind(enum.IntEnum):
    """Kinds of attribute values; see `graph.fbs`."""

    TYPE = 0
    INT = 1
    FLOAT = 2
    BOOL = 3
    STRING = 4
    BYTES = 5
    SHAPE = 6
    TENSOR = 7
    FUNC = 8
    LIST = 9
    LOOSE_SHAPE = 10


def aligned(size: int) -> int:
    """Return `size` rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def pack_header(metadata: int, blobs: int, crc: int) -> bytes:
    """Return the header of a segment from the sizes of its metadata and blobs."""
    head = _HEADER.pack(MAGIC, _LAYOUT, HEADER_SIZE, metadata, blobs, crc)
    return head + _CRC.pack(zlib.crc32(head))


def unpack_header(header: bytes, position: int) -> tuple[int, int, int]:
    """Return the sizes of metadata and blobs and the CRC of the metadata.

    Raises:
      DataLossError: it is not a header, or it is damaged.
      UnimplementedError: a newer version wrote it.
    """
    head, crc = header[:-4], _CRC.unpack(header[-4:])[0]
    magic, layout, size, metadata, blobs, metadata_crc = _HEADER.unpack(head)
    if magic != MAGIC:
        raise errors.DataLossError(
            f"byte {position}: a graph must begin with {MAGIC!r}, got {magic!r}"
        )
    if crc != zlib.crc32(head):
        raise errors.DataLossError(f"byte {position}: the checksum of the header is wrong")
    if layout != _LAYOUT or size != HEADER_SIZE:
        raise errors.UnimplementedError(
            f"byte {position}: layout {layout} is not known; a newer weft wrote the file"
        )
    if blobs % ALIGNMENT:
        raise errors.DataLossError(f"byte {position}: {blobs} bytes of blobs are not aligned")
    return metadata, blobs, metadata_crc


class SourceCode:
    """Placeholder for the code object that created a node in another process."""

    __slots__ = ("co_filename", "co_qualname")

    def __init__(self, filename: str, qualname: str) -> None:
        self.co_filename = filename
        self.co_qualname = qualname
