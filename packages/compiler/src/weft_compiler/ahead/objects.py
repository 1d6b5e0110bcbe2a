"""Undefined symbols of object files."""

from __future__ import annotations

import re
import struct
from typing import Final

from weft_tensor import errors

_SYMBOLS, _UNDEFINED = 2, 0

_MEMORY: Final = frozenset(("memcpy", "memmove", "memset"))
_HELPERS: Final = re.compile(r"__aeabi_\w+|__(u?div|u?mod|mul|ash[lr]|lshr|fix|float)\w*[dst]i\w*")
"""Runtime helpers of C compilers for 64-bit integers and float64 on 32-bit processors."""


def undefined_symbols(image: bytes) -> list[str]:
    """Return the undefined symbols of an object, sorted.

    Raises: InternalError: it is neither ELF nor WebAssembly.
    """
    if image[:4] == b"\x7fELF":
        return sorted(_elf_symbols(image))
    if image[:4] == b"\0asm":
        return sorted(_wasm_symbols(image))
    raise errors.InternalError(
        f"the object file must be ELF or WebAssembly, but it begins with {image[:4]!r}"
    )


def require_allowed(names: list[str], target: str) -> None:
    """Raise if an object needs symbols other than memory functions and compiler helpers.

    Raises: InternalError: it does.
    """
    undefined = [name for name in names if name not in _MEMORY and not _HELPERS.fullmatch(name)]
    if undefined:
        raise errors.InternalError(
            f"code for {target} needs undefined symbols: {', '.join(undefined)}"
        )


def _elf_symbols(image: bytes) -> set[str]:
    wide = image[4] == 2
    section = struct.Struct("<IIQQQQIIQQ" if wide else "<IIIIIIIIII")
    start = struct.unpack_from("<Q" if wide else "<I", image, 40 if wide else 32)[0]
    count = struct.unpack_from("<H", image, 60 if wide else 48)[0]
    sections = [section.unpack_from(image, start + index * section.size) for index in range(count)]
    symbol = struct.Struct("<IBBHQQ" if wide else "<IIIBBH")
    symbols = set()
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _SYMBOLS:
            continue
        names = sections[link][4]
        for index in range(offset + symbol.size, offset + length, symbol.size):
            fields = symbol.unpack_from(image, index)
            if (fields[3] if wide else fields[5]) == _UNDEFINED:
                begin = names + fields[0]
                symbols.add(image[begin : image.index(b"\0", begin)].decode())
    return symbols


def _wasm_symbols(image: bytes) -> set[str]:
    """Return the imported functions of a WebAssembly object.

    Memory and table are always imported.
    """
    position = 8
    while position < len(image):
        kind = image[position]
        size, position = _read_leb128(image, position + 1)
        if kind == 2:
            return set(_imports(image, position))
        position += size
    return set()


def _imports(image: bytes, index: int) -> list[str]:
    results = []
    count, index = _read_leb128(image, index)
    for _ in range(count):
        texts = []
        for _ in range(2):
            size, index = _read_leb128(image, index)
            texts.append(image[index : index + size].decode())
            index += size
        kind, index = image[index], index + 1
        if kind == 0:  # a function: the index of its type
            results.append(texts[1])
            _, index = _read_leb128(image, index)
        elif kind == 3:  # a global: its type and mutability
            index += 2
        else:  # a table or a memory: limits, preceded by the type for a table
            index += kind == 1
            flags, index = image[index], index + 1
            for _ in range(1 + (flags & 1)):
                _, index = _read_leb128(image, index)
    return results


def _read_leb128(image: bytes, index: int) -> tuple[int, int]:
    """Read a LEB128 number; return it and the position after it."""
    value = shift = 0
    while True:
        byte = image[index]
        value |= (byte & 127) << shift
        index, shift = index + 1, shift + 7
        if byte < 128:
            return value, index
