"""Checksums of stored bytes, written as text with their kind: "xxh3:0123456789abcdef".

New checkpoints use 64-bit XXH3, which runs at memory speed, so that checksums add almost nothing to
the time of a save even on a single core. CRC-32 is in the standard library and six times slower.
Checkpoints with CRC-32 remain readable, and the small index files keep it.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, Protocol

Data = bytes | bytearray | memoryview

KIND: Final = "xxh3"
"""The kind used in new checkpoints."""

_TEXT: Final = re.compile(r"crc32:[0-9a-f]{8}|xxh3:[0-9a-f]{16}")


class Digest(Protocol):
    """A checksum under construction."""

    def update(self, data: Data) -> None:
        """Add bytes; releases the GIL for large inputs."""
        ...

    def text(self) -> str:
        """Return the checksum of the added bytes."""
        ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: Data) -> None:
        self._value = zlib.crc32(data, self._value)

    def text(self) -> str:
        return f"crc32:{self._value:08x}"


class _Xxh3:
    def __init__(self) -> None:
        import xxhash

        self._state: Any = xxhash.xxh3_64()

    def update(self, data: Data) -> None:
        self._state.update(data)

    def text(self) -> str:
        return f"xxh3:{self._state.hexdigest()}"


_KINDS: Final[dict[str, type[Digest]]] = {"crc32": _Crc32, "xxh3": _Xxh3}


def digest(kind: str = KIND) -> Digest:
    """Return a new checksum of a kind that `is_checksum` knows."""
    return _KINDS[kind]()


def new_digest_like(text: str) -> Digest:
    """Return a new checksum of the same kind as one in text form."""
    return digest(text.partition(":")[0])


def checksum(data: Data, kind: str = KIND) -> str:
    """Return the checksum of bytes, as text."""
    result = digest(kind)
    result.update(data)
    return result.text()


def is_checksum(text: str) -> bool:
    """Return True if a text has the form of a checksum of a known kind."""
    return _TEXT.fullmatch(text) is not None
