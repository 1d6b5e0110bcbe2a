"""Mapping from the nodes of an optimized step to the user's nodes that they compute."""

from __future__ import annotations


class Origins:
    """Names of the nodes that passes have added on behalf of others, or put in place of others."""

    __slots__ = ("_derived", "_replaced")

    def __init__(self) -> None:
        self._derived: dict[str, str] = {}
        self._replaced: dict[str, dict[str, None]] = {}

    def note_derived(self, name: str, origin: str) -> None:
        """Record that a node was added on behalf of another node."""
        if name != origin:  # else it is a copy
            self._derived[name] = origin

    def note_replaced(self, name: str, old: str) -> None:
        """Record that a node replaces another node."""
        if name != old:
            self._replaced.setdefault(name, {})[old] = None

    def of(self, name: str) -> tuple[str, ...]:
        """Return the names of the nodes of the user's graph that a node computes."""
        result: dict[str, None] = {}
        visited: set[str] = set()
        stack = [name]
        while stack:
            node = stack.pop()
            if node in visited:
                continue
            visited.add(node)
            if node in self._derived:
                stack.append(self._derived[node])
            else:
                result[node] = None
            stack += reversed(self._replaced.get(node, {}))
        return tuple(result)
