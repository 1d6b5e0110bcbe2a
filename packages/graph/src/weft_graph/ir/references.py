"""Hashable keys for tensors and variables that do not rely on `==`."""

from __future__ import annotations

from typing import Any


class Reference:
    """A hashable wrapper of an object, compared by the object's identity.

    Args:
      wrapped: the object.
    """

    __slots__ = ("_wrapped",)

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Return the object."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"
