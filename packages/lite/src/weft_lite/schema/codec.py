"""Encoding of the tables of `tables.py` to the bytes of a file, and decoding.

    header     64 bytes: "weftlite", u32 layout = 1, u32 header size, u64 bytes of metadata, u64
               offset and u64 bytes of weights, u32 CRC-32 of the metadata, u32 CRC-32 of the
               weights, zeros, and in the last 4 bytes the CRC-32 of the 60 before
    metadata   the flatbuffer of a Model, then zeros up to a multiple of 64
    weights    the values of constants, each at a multiple of 64

All numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final, NamedTuple

import flatbuffers

from weft_lite.schema.fields import SCALARS, Field, fields_of, slots_of
from weft_lite.schema.tables import Model

MAGIC: Final = b"weftlite"
IDENTIFIER: Final = b"WFTL"
HEADER: Final = struct.Struct("<8sIIQQQII12x")
ALIGNMENT: Final = 64


class File(NamedTuple):
    """The parts of a file."""

    model: Model
    weights: bytes


def encode(model: Model, weights: bytes) -> bytes:
    """Return the bytes of a file.

    Args:
      model: a `tables.Model`, whose offsets of constants are relative to `weights`.
      weights: the section of weights.
    """
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(_write(builder, model), file_identifier=IDENTIFIER)
    metadata = bytes(builder.Output())
    start = aligned(HEADER.size + 4 + len(metadata))
    header = HEADER.pack(
        MAGIC, 1, HEADER.size + 4, len(metadata), start, len(weights),
        zlib.crc32(metadata), zlib.crc32(weights),
    )  # fmt: skip
    header += struct.pack("<I", zlib.crc32(header))
    return b"".join([header, metadata.ljust(start - len(header), b"\0"), weights])


def aligned(offset: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def decode(data: bytes | bytearray | memoryview) -> File:
    """Decode a file that the runtime has verified or that this program has just written."""
    _, _, size, length, start, count, _, _ = HEADER.unpack_from(data)
    metadata = bytes(data[size : size + length])
    (root,) = struct.unpack_from("<I", metadata)
    return File(_read(Model, metadata, root), bytes(data[start : start + count]))


# ------------------------------------------------------------------------------ writing


def _write(builder: Any, table: Any) -> int:
    """Write a table to a builder; return its offset."""
    fields = slots_of(type(table))
    offsets = {
        slot: _write_value(builder, field, getattr(table, field.name))
        for slot, field in fields
        if not field.scalar and getattr(table, field.name) not in (None, [], "", b"")
    }
    builder.StartObject(fields[-1][0] + 1)
    for slot, field in fields:
        value = getattr(table, field.name)
        if field.scalar:
            _write_scalar(builder, slot, field.kind, value)
        elif slot in offsets:
            if isinstance(field.kind, tuple):
                builder.PrependUint8Slot(slot - 1, 1 + field.kind.index(type(value)), 0)
            builder.PrependUOffsetTRelativeSlot(slot, offsets[slot], 0)
    return int(builder.EndObject())


def _write_scalar(builder: Any, slot: int, kind: str, value: Any) -> None:
    """Write a scalar field unless it has its default value."""
    prepend = {
        "ubyte": builder.PrependUint8Slot,
        "ushort": builder.PrependUint16Slot,
        "int": builder.PrependInt32Slot,
        "uint": builder.PrependUint32Slot,
        "ulong": builder.PrependUint64Slot,
        "float": builder.PrependFloat32Slot,
    }
    prepend[kind](slot, value, 0)


def _write_value(builder: Any, field: Field, value: Any) -> int:
    """Write the value of a field that is stored outside the table; return its offset."""
    if field.several:
        return _write_list(builder, field.kind, value)
    if field.kind is str:
        return int(builder.CreateString(value))
    if field.kind is bytes:
        return int(builder.CreateByteVector(value))
    return _write(builder, value)


def _write_list(builder: Any, kind: Any, values: list[Any]) -> int:
    """Write a vector; return its offset."""
    if isinstance(kind, str):
        packed = struct.pack(f"<{len(values)}{SCALARS[kind]}", *values)
        size = struct.calcsize(SCALARS[kind])
        builder.StartVector(size, len(values), size)
        builder.head = builder.Head() - len(packed)
        builder.Bytes[builder.Head() : builder.Head() + len(packed)] = packed
        return int(builder.EndVector())
    item = Field("", kind, False)
    offsets = [_write_value(builder, item, value) for value in values]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


# ------------------------------------------------------------------------------ reading


def _read(table: type, data: bytes, start: int) -> Any:
    """Read a table."""
    vtable = start - struct.unpack_from("<i", data, start)[0]
    (size,) = struct.unpack_from("<H", data, vtable)
    values: dict[str, Any] = {}
    for slot, field in slots_of(table):
        position = _field_position(data, vtable, size, slot)
        if not position:
            continue
        kind = field.kind
        if isinstance(kind, tuple):
            kind = kind[data[start + _field_position(data, vtable, size, slot - 1)] - 1]
        values[field.name] = _read_value(
            Field(field.name, kind, field.several), data, start + position
        )
    return table(**values)


def _field_position(data: bytes, vtable: int, size: int, slot: int) -> int:
    """Return the position of a field within a table, or 0 if the field is absent."""
    entry = 4 + 2 * slot
    return int(struct.unpack_from("<H", data, vtable + entry)[0]) if entry < size else 0


def _read_value(field: Field, data: bytes, position: int) -> Any:
    """Read the value of a field."""
    if field.scalar:
        return struct.unpack_from("<" + SCALARS[field.kind], data, position)[0]
    start = position + struct.unpack_from("<I", data, position)[0]
    if field.several:
        return _read_list(field.kind, data, start)
    if field.kind is str or field.kind is bytes:
        (count,) = struct.unpack_from("<I", data, start)
        text = data[start + 4 : start + 4 + count]
        return text.decode() if field.kind is str else text
    return _read(field.kind, data, start)


def _read_list(kind: Any, data: bytes, start: int) -> list[Any]:
    """Read a vector."""
    (count,) = struct.unpack_from("<I", data, start)
    if isinstance(kind, str):
        return list(struct.unpack_from(f"<{count}{SCALARS[kind]}", data, start + 4))
    item = Field("", kind, False)
    return [_read_value(item, data, start + 4 + 4 * i) for i in range(count)]


__all__ = ["ALIGNMENT", "File", "aligned", "decode", "encode", "fields_of"]
