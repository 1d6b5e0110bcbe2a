"""Reader of ELF files: symbols, sizes of sections, and loaded segments."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple


class _Layout(NamedTuple):
    """Positions and structures of the 32-bit or the 64-bit form."""

    tables: str
    header_tables: int
    counts: int
    section: struct.Struct
    symbol: struct.Struct
    segment: struct.Struct


_LAYOUTS: Final = {
    1: _Layout("<II", 28, 42, struct.Struct("<10I"), struct.Struct("<IIIBBH"),
               struct.Struct("<8I")),
    2: _Layout("<QQ", 32, 54, struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"),
               struct.Struct("<IIQQQQQQ")),
}  # fmt: skip
_SYMTAB, _NOBITS, _ALLOCATED, _WRITABLE, _UNDEFINED, _LOCAL, _LOAD = 2, 8, 2, 1, 0, 0, 1


class Object(NamedTuple):
    """Symbols and sizes of an object file, a program or a library.

    Attributes:
      defined: names of symbols that other files may use.
      undefined: names of symbols that other files must define.
      size: number of bytes of the file that are loaded: code, constants and initial values.
      writable: number of bytes of memory that the program may write to.
    """

    defined: set[str]
    undefined: set[str]
    size: int
    writable: int


class Segment(NamedTuple):
    """A loaded part of a program or library.

    Attributes:
      offset: position in the file, in bytes.
      address: address, relative to the start of a library.
      alignment: alignment of the address, in bytes.
    """

    offset: int
    address: int
    alignment: int


def read_object(data: bytes) -> Object:
    """Read the symbols and the sizes of an ELF file.

    Args:
      data: the content of the file.
    Raises: ValueError: it is not a little-endian ELF file.
    """
    layout = _layout_of(data)
    defined: set[str] = set()
    undefined: set[str] = set()
    size = writable = 0
    _, start = struct.unpack_from(layout.tables, data, layout.header_tables)
    (count,) = struct.unpack_from("<H", data, layout.counts + 6)
    sections = [
        layout.section.unpack_from(data, start + i * layout.section.size) for i in range(count)
    ]
    for _, kind, flags, _, offset, length, link, *_ in sections:
        if flags & _ALLOCATED:
            size += length if kind != _NOBITS else 0
            writable += length if flags & _WRITABLE else 0
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for position in range(offset + layout.symbol.size, offset + length, layout.symbol.size):
            name, info, section = _symbol(data, layout, position)
            if info >> 4 != _LOCAL:
                end = data.index(b"\0", names + name)
                text = data[names + name : end].decode()
                (undefined if section == _UNDEFINED else defined).add(text)
    return Object(defined, undefined, size, writable)


def read_segments(data: bytes) -> list[Segment]:
    """Read the loaded segments of a program or library.

    Args:
      data: the content of the file.
    Raises: ValueError: it is not a little-endian ELF file.
    """
    layout = _layout_of(data)
    start, _ = struct.unpack_from(layout.tables, data, layout.header_tables)
    (count,) = struct.unpack_from("<H", data, layout.counts + 2)
    rows = [layout.segment.unpack_from(data, start + i * layout.segment.size) for i in range(count)]
    address = 2 if layout is _LAYOUTS[1] else 3
    return [Segment(row[address - 1], row[address], row[7]) for row in rows if row[0] == _LOAD]


def _layout_of(data: bytes) -> _Layout:
    if data[:4] != b"\x7fELF" or data[4] not in _LAYOUTS or data[5] != 1:
        raise ValueError("this is not a little-endian ELF file")
    return _LAYOUTS[data[4]]


def _symbol(data: bytes, layout: _Layout, position: int) -> tuple[int, int, int]:
    """Return the position of a symbol's name, its info byte, and its section."""
    row = layout.symbol.unpack_from(data, position)
    if layout is _LAYOUTS[1]:
        return row[0], row[3], row[5]
    return row[0], row[1], row[3]


__all__ = ["Object", "Segment", "read_object", "read_segments"]
