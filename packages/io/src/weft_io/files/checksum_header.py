"""Checksums at the start of files in other formats, ignored by other readers.

In text, the checksum is a comment. In a binary message, it is the value of a singular field that is
repeated with an empty value, because parsers keep the last value. If another program reads and
rewrites the message, it therefore has no checksum, instead of a wrong one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from weft_tensor import errors


class Form(NamedTuple):
    """The position of a file's checksum, between a constant head and tail.

    Attributes:
      head, tail: constant bytes, the same in every file.
      width: number of bytes between them.
      encode: converts the CRC-32 of the bytes after the tail to those bytes.
    """

    head: bytes
    tail: bytes
    width: int
    encode: Callable[[int], bytes]

    @property
    def size(self) -> int:
        """The size of the checksum in bytes, with head and tail."""
        return len(self.head) + self.width + len(self.tail)

    def start(self, data: bytes) -> bytes:
        """Return the checksum of data, with head and tail."""
        return self.head + self.encode(zlib.crc32(data)) + self.tail

    def add_checksum(self, data: bytes) -> bytes:
        """Prepend the checksum to data."""
        return self.start(data) + data

    def begins(self, data: bytes | memoryview, path: str) -> bool:
        """Return True if data begins with a valid checksum of this form.

        Raises: DataLossError: the checksum is wrong or damaged.
        """
        first = len(self.head)
        start = bytes(data[: self.size])
        fixed, expected = start[:first] + start[first + self.width :], self.head + self.tail
        if fixed != expected:
            num_equal = sum(a == b for a, b in zip(fixed, expected, strict=False))
            if num_equal * 4 > len(fixed) * 3:  # never by chance
                raise errors.DataLossError(
                    f"{path} is damaged: it begins with {start!r} instead of a checksum between "
                    f"{self.head!r} and {self.tail!r}"
                )
            return False
        result = self.encode(zlib.crc32(memoryview(data)[self.size :]))
        stored = start[first : first + self.width]
        if stored != result:
            raise errors.DataLossError(
                f"{path} is damaged: the checksum of its {len(data) - self.size} bytes must be "
                f"{_format_digest(stored)}, got {_format_digest(result)}{self._hint()}"
            )
        return True

    def _hint(self) -> str:
        return "; if it was edited by hand, delete its first line" if self is TEXT else ""


def _format_digest(digest: bytes) -> str:
    return digest.decode() if digest.isascii() and digest.isalnum() else digest.hex()


def _format_crc(crc: int) -> bytes:
    return f"{crc:08x}".encode()


def _varint(number: int) -> bytes:
    """Return a number of 0 or more as protobuf has it."""
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


_LABEL: Final = b"crc32:"
_REMARK: Final = b" of what follows"
_TEXT_LENGTH: Final = len(_LABEL) + 8 + len(_REMARK)

TEXT: Final = Form(
    b"# " + _LABEL, _REMARK + b"; delete this line after an edit by hand\n", 8, _format_crc
)
"""A checksum in a text comment."""

META_GRAPH: Final = Form(
    # meta_info_def (1) with tensorflow_version (5) twice, of which messages are merged.
    b"\x0a" + _varint(_TEXT_LENGTH + 4) + b"\x2a" + _varint(_TEXT_LENGTH) + _LABEL,
    _REMARK + b"\x2a\x00",
    8,
    _format_crc,
)
"""A checksum at the start of a MetaGraphDef."""

SAVED_MODEL: Final = Form(
    # saved_model_schema_version (1) three times: a mark, the checksum, 0 until the message says it.
    b"\x08" + _varint(0x8000_0000_0000_0000 | int.from_bytes(b"weftcrc")) + b"\x08",
    b"\x08\x00",
    5,
    lambda crc: _varint(1 << 34 | crc),
)
"""A checksum at the start of a SavedModel; bit 32 is set, so that the varint always has 5 bytes."""

BINARY: Final = {"MetaGraphDef": META_GRAPH, "SavedModel": SAVED_MODEL}
"""The forms for binary messages, by message name; other messages have no checksum."""
