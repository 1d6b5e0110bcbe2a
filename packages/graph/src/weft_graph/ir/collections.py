"""Collections: lists of anything that a graph keeps by name."""

from __future__ import annotations

import re
from typing import Any


class Collections:
    """The part of a graph that keeps collections."""

    def __init__(self) -> None:
        self._collections: dict[Any, list[Any]] = {}

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Append `value` to the collection."""
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Append `value` to each of the collections, without duplicate keys."""
        names = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        for name in names:
            self.add_to_collection(name, value)

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Return a copy of the collection; with `scope`, the items whose name matches the regex."""
        items = self._collections.get(name, [])
        if scope is None:
            return list(items)
        pattern = re.compile(scope)
        return [i for i in items if hasattr(i, "name") and pattern.match(i.name)]

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Return the collection itself: changes to the list change the graph."""
        return self._collections.setdefault(name, [])

    @property
    def collections(self) -> list[Any]:
        """The names of the collections."""
        return list(self._collections)

    def get_all_collection_keys(self) -> list[Any]:
        """Return the names of the collections that are not empty."""
        return [key for key, items in self._collections.items() if items]

    def clear_collection(self, name: Any) -> None:
        """Empty the collection."""
        self._collections.pop(name, None)
