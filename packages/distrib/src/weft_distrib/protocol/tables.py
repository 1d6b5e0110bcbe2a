"""Messages as flatbuffers: each dataclass is a table, and its annotations are the schema.

`encode` and `decode` handle every message. Decoded data are untrusted: each offset is checked
before it is followed, and the size of a decoded message is limited by its number of bytes.
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
from functools import cache
from typing import Any, NoReturn, TypeVar

import flatbuffers

from weft_tensor import errors

M = TypeVar("M")

_SCALARS = {bool: ("bool", "<B", 1), int: ("ulong", "<Q", 8), float: ("double", "<d", 8)}
_UNFOLDED = 4
"""Maximum number of items to decode per byte: a message may refer to a string or table several
times, but not without limit.
"""


class _Field(typing.NamedTuple):
    name: str
    kind: type  # bool, int, float, str, bytes, or a message
    is_repeated: bool


@cache
def fields_of(message: type) -> tuple[_Field, ...]:
    """Return the fields of a message in the order of the schema."""
    hints = typing.get_type_hints(message)
    return tuple(_field(f.name, hints[f.name]) for f in dataclasses.fields(message))


def _field(name: str, hint: Any) -> _Field:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):  # a table that may be missing
        hint = next(arg for arg in typing.get_args(hint) if arg is not type(None))
    if typing.get_origin(hint) is list:
        return _Field(name, typing.get_args(hint)[0], True)
    return _Field(name, hint, False)


# ------------------------------------------------------------------------------ writing


def encode(message: Any) -> bytes:
    """Encode a message.

    Raises: InvalidArgumentError: the encoded message would exceed 2 GiB.
    """
    builder = flatbuffers.Builder(256)
    try:
        builder.Finish(_write(builder, message))
    except flatbuffers.builder.BuilderSizeError as error:
        raise errors.InvalidArgumentError(
            f"a {type(message).__name__} of 2 GiB or more cannot be sent"
        ) from error
    return bytes(builder.Output())


def _write(builder: Any, message: Any) -> int:
    kind: type = type(message)
    fields = fields_of(kind)
    values = [getattr(message, field.name) for field in fields]
    offsets = [
        _write_value(builder, field, value) if _is_offset(field) and _is_said(value) else None
        for field, value in zip(fields, values, strict=True)
    ]
    builder.StartObject(len(fields))
    for slot, (field, value, offset) in enumerate(zip(fields, values, offsets, strict=True)):
        if offset is not None:
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        elif field.kind is bool and not field.is_repeated:
            builder.PrependBoolSlot(slot, value, False)
        elif field.kind is int and not field.is_repeated:
            builder.PrependUint64Slot(slot, value, 0)
        elif field.kind is float and not field.is_repeated:
            builder.PrependFloat64Slot(slot, value, 0.0)
    return int(builder.EndObject())


def _is_offset(field: _Field) -> bool:
    return field.is_repeated or field.kind not in _SCALARS


def _is_said(value: Any) -> bool:
    return value is not None and (not isinstance(value, list | str | bytes) or len(value) > 0)


def _write_value(builder: Any, field: _Field, value: Any) -> int:
    if field.is_repeated:
        return _write_list(builder, field.kind, value)
    if field.kind is str:
        return int(builder.CreateString(value))
    if field.kind is bytes:
        return int(builder.CreateByteVector(value))
    return _write(builder, value)


def _write_list(builder: Any, kind: type, values: list[Any]) -> int:
    if kind in _SCALARS:
        _, form, size = _SCALARS[kind]
        builder.StartVector(size, len(values), size)
        packed = struct.pack(f"<{len(values)}{form[1]}", *values)
        builder.head = builder.Head() - len(packed)
        builder.Bytes[builder.Head() : builder.Head() + len(packed)] = packed
        return int(builder.EndVector())
    item = _Field("", kind, False)
    offsets = [_write_value(builder, item, value) for value in values]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


# ------------------------------------------------------------------------------ reading


def decode(message: type[M], data: bytes) -> M:
    """Decode a message from untrusted bytes.

    Raises: DataLossError: an offset, length or text is invalid; the error names the message and
    position.
    """
    return typing.cast(M, _Reader(data, message.__name__).root(message))


class _Reader:
    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._budget = _UNFOLDED * len(data) + 64

    def root(self, message: type) -> Any:
        return self._table(message, self._offset(0))

    def _refuse(self, position: int, reason: str) -> NoReturn:
        raise errors.DataLossError(f"not a {self._name}: byte {position}: {reason}")

    def _scalar(self, form: str, position: int) -> Any:
        try:
            return struct.unpack_from(form, self._data, position)[0]
        except struct.error:
            self._refuse(position, f"it has only {len(self._data)} bytes")

    def _offset(self, position: int) -> int:
        """Return the target of an offset."""
        offset = self._scalar("<I", position)
        if not 0 < offset <= len(self._data) - position:
            self._refuse(position, f"the offset {offset} points outside of {len(self._data)} bytes")
        return int(position + offset)

    def _table(self, message: type, start: int) -> Any:
        vtable = start - self._scalar("<i", start)
        if not 0 <= vtable <= len(self._data) - 4:
            self._refuse(start, "its table of fields is out of bounds")
        size = self._scalar("<H", vtable)
        self._take(start, 4)
        values = []
        for slot, field in enumerate(fields_of(message)):
            entry = 4 + 2 * slot
            offset = self._scalar("<H", vtable + entry) if entry + 2 <= size else 0
            values.append(self._value(field, start + offset) if offset else _unsaid(field))
        return message(*values)

    def _value(self, field: _Field, position: int) -> Any:
        if field.is_repeated:
            return self._list(field.kind, self._offset(position))
        if field.kind in _SCALARS:
            return field.kind(self._scalar(_SCALARS[field.kind][1], position))
        start = self._offset(position)
        if field.kind is str or field.kind is bytes:
            return self._text(field.kind, start)
        return self._table(field.kind, start)

    def _text(self, kind: type, start: int) -> Any:
        count = self._scalar("<I", start)
        end = start + 4 + count
        if end > len(self._data):
            self._refuse(start, f"{count} bytes exceed the message")
        self._take(start, count)
        data = bytes(self._data[start + 4 : end])
        if kind is bytes:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            self._refuse(start, f"a string is not UTF-8: {error.reason}")

    def _list(self, kind: type, start: int) -> list[Any]:
        count = self._scalar("<I", start)
        _, form, size = _SCALARS.get(kind, ("", "<I", 4))
        if start + 4 + count * size > len(self._data):
            self._refuse(start, f"a list of {count} is longer than the message")
        self._take(start, count * size)
        if kind in _SCALARS:
            result = struct.unpack_from(f"<{count}{form[1]}", self._data, start + 4)
            return [kind(value) for value in result]
        item = _Field("", kind, False)
        return [self._value(item, start + 4 + 4 * i) for i in range(count)]

    def _take(self, position: int, count: int) -> None:
        """Count decoded items: a message may reference parts of it many times."""
        self._budget -= count
        if self._budget < 0:
            self._refuse(position, "too many fields refer to the same bytes")


def _unsaid(field: _Field) -> Any:
    """Return the default value of a field that is absent: zero or empty."""
    if field.is_repeated:
        return []
    return None if dataclasses.is_dataclass(field.kind) else field.kind()


# ------------------------------------------------------------------------------- schema


def schema(messages: typing.Sequence[type], namespace: str) -> str:
    """Return the schema of messages in the language of flatbuffers' compiler."""
    tables = ["// Generated from the messages in Python; do not edit.", f"namespace {namespace};"]
    for message in messages:
        doc = " ".join((message.__doc__ or "").split("\n\n")[0].split())
        lines = [f"  {f.name}:{_type_name(f)};" for f in fields_of(message)]
        tables.append("\n".join([f"// {doc}", f"table {message.__name__} {{", *lines, "}"]))
    return "\n\n".join(tables) + "\n"


def _type_name(field: _Field) -> str:
    if field.kind is bytes:
        name = "[ubyte]" if not field.is_repeated else "[Bytes]"
    elif field.kind is str:
        name = "string"
    else:
        name = _SCALARS[field.kind][0] if field.kind in _SCALARS else field.kind.__name__
    return f"[{name}]" if field.is_repeated and field.kind is not bytes else name
