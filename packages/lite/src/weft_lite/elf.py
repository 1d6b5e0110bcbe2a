"""Reader of 64-bit ELF object files: defined and undefined symbols, and sizes."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SYMTAB, _NOBITS, _ALLOCATED, _UNDEFINED, _LOCAL = 2, 8, 2, 0, 0


class Object(NamedTuple):
    """Symbols and size of an object file.

    Attributes:
      defined: names of symbols that other files may use.
      undefined: names of symbols that other files must define.
      size: number of bytes that are loaded.
    """

    defined: set[str]
    undefined: set[str]
    size: int


def read_object(data: bytes) -> Object:
    """Read the symbols and the size of an object file.

    Args:
      data: the content of the file.
    Raises: ValueError: it is not a little-endian 64-bit ELF file.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is not a little-endian 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    size = 0
    for _, kind, flags, _, offset, length, link, *_ in sections:
        if flags & _ALLOCATED and kind != _NOBITS:
            size += length
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for index in range(offset + _SYMBOL.size, offset + length, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, index)
            if info >> 4 != _LOCAL:
                end = data.index(b"\0", names + name)
                text = data[names + name : end].decode()
                (undefined if section == _UNDEFINED else defined).add(text)
    return Object(defined, undefined, size)


__all__ = ["Object", "read_object"]
