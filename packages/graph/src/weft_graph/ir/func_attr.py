"""The value of an attribute of type "func"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class NameAttrs:
    """A function of the graph's library with the attributes that instantiate it.

    Attributes:
      name: the function's name.
      attrs: attribute values by name.
    """

    __slots__ = ("attrs", "name")

    def __init__(self, name: str, attrs: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.attrs = dict(attrs or {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NameAttrs):
            return NotImplemented
        return self.name == other.name and self.attrs == other.attrs

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.attrs))))

    def __repr__(self) -> str:
        return f"NameAttrs({self.name!r}, {self.attrs!r})"


def as_name_attrs(value: Any) -> NameAttrs:
    """Convert a NameAttrs, a function's name or a function object with a `name` to NameAttrs.

    Raises: TypeError: the value is not one of these.
    """
    if isinstance(value, NameAttrs):
        return value
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{value!r} is not the name of a function")
    return NameAttrs(name)
