"""The fields of a table, in the order of the schema, derived from its annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Annotated, Any, NamedTuple

SCALARS = {"ubyte": "B", "ushort": "H", "int": "i", "uint": "I", "ulong": "Q", "float": "f"}
"""The scalar types of the schema, with their letters for `struct`."""


class Field(NamedTuple):
    """A field: `kind` is a scalar's name, str, bytes, a table, or a tuple of a union's tables."""

    name: str
    kind: Any
    several: bool

    @property
    def scalar(self) -> bool:
        """True for a single number, bool or enum, not a list."""
        return isinstance(self.kind, str) and not self.several


@cache
def fields_of(table: type) -> tuple[Field, ...]:
    """Return the fields of a table."""
    hints = typing.get_type_hints(table, include_extras=True)
    return tuple(_field(f.name, hints[f.name]) for f in dataclasses.fields(table))


def slots_of(table: type) -> list[tuple[int, Field]]:
    """Return the fields with their flatbuffers slots; for a union its second slot."""
    slot, result = 0, []
    for field in fields_of(table):
        slot += isinstance(field.kind, tuple)
        result.append((slot, field))
        slot += 1
    return result


def _field(name: str, hint: Any) -> Field:
    """Return a field from its annotation."""
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return Field(name, _kind(item), True)
    return Field(name, _kind(hint), False)


def _kind(hint: Any) -> Any:
    """Return the kind of a field from the type in its annotation."""
    if typing.get_origin(hint) is Annotated:
        return hint.__metadata__[0]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        tables = tuple(arg for arg in typing.get_args(hint) if arg is not type(None))
        return tables if len(tables) > 1 else tables[0]
    return hint
