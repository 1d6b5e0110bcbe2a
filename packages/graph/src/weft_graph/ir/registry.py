"""Registries that other packages extend: ops, gradients, kernels, commands.

A registry is a table with two lazy sources. The modules of its own package are imported at the
first miss. The entry points of a group, modules or whole packages, are imported at the next miss.
Unused registries therefore cost nothing at import, and a package that only declares an entry point
is loaded when one of its entries is looked up.

A registry's lock guards single insertions into its table. No lock is held during imports;
`lazy_modules` explains why, and how concurrent imports behave.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from weft_graph.ir.lazy_modules import EntryPointModules, PackageModules
from weft_tensor import errors

V = TypeVar("V")


class Registry(Generic[V]):
    """A named table from string keys to values, filled on demand.

    Args:
      kind: kind of the entries in messages ("op", "gradient").
      package: one or several packages whose modules register entries when imported.
      group: entry-point group whose modules register when imported, or None.
    """

    def __init__(
        self,
        kind: str,
        package: str | Sequence[str] | None = None,
        group: str | None = None,
    ) -> None:
        self.kind = kind
        self._table: dict[str, V] = {}
        packages = (package,) if isinstance(package, str) else tuple(package or ())
        self._package_modules = PackageModules(*packages) if packages else None
        self._group = group
        self._entry_points = EntryPointModules(group) if group is not None else None
        self._lock = threading.RLock()

    def register(self, key: str, value: V) -> None:
        """Add one entry.

        Raises: AlreadyExistsError: the key is taken.
        """
        with self._lock:
            if key in self._table:
                raise errors.AlreadyRegisteredError(
                    f"the {self.kind} {key!r} is already registered"
                )
            self._table[key] = value

    def get(self, key: str) -> V | None:
        """Return the entry of `key`, or None if no source has it.

        Raises: InternalError: entry points are broken; raised once, after all others were loaded.
        """
        value = self._table.get(key)
        if value is None:
            self._load(key)
            value = self._table.get(key)
        return value

    def loaded(self, key: str) -> V | None:
        """Return the entry of `key` if it is registered, without loading anything."""
        return self._table.get(key)

    @property
    def registered(self) -> list[str]:
        """The keys that are registered so far, sorted; loads nothing."""
        return sorted(self._table)

    def lookup(self, key: str) -> V:
        """Return the entry of `key`.

        Raises: NotFoundError: no source has it; the message lists similar keys.
        """
        value = self.get(key)
        if value is None:
            raise errors.NotFoundError(self._missing_key_message(key))
        return value

    @property
    def may_have_entries(self) -> bool:
        """Return True if entries exist or entry points may register some; loads nothing."""
        return bool(self._table) or (
            self._entry_points is not None and self._entry_points.has_entries
        )

    @property
    def has_bytecode(self) -> bool:
        """Return True if the modules of entry points are already compiled to bytecode."""
        return self._entry_points is None or self._entry_points.has_bytecode

    def keys(self) -> list[str]:
        """Return all keys of all sources, sorted."""
        self._load(None)
        return sorted(self._table)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def load_near(self, modules: Sequence[str]) -> None:
        """Import single modules and the registrations of other packages, but no further modules.

        It is for keys that are known to be in one of these; `get` searches all sources.

        Args:
          modules: full names of modules; unknown ones are ignored.
        """
        if self._package_modules is not None:
            self._package_modules.load_modules(modules)
        if self._entry_points is not None:
            self._entry_points.load_plain()

    def _load(self, key: str | None) -> None:
        """Import the remaining sources in order until one has registered `key`."""
        if self._package_modules is not None and not self._package_modules.is_complete:
            self._package_modules.load()
            if not self._package_modules.is_complete:  # a module of it is looking something up
                return
        if self._entry_points is not None and (key is None or key not in self._table):
            self._entry_points.load()

    @property
    def broken(self) -> str:
        """Return the end of a message about a missing key: entry points that failed to import."""
        failures = self._entry_points.failures if self._entry_points is not None else ""
        return f"; these entry points could not be imported: {failures}" if failures else ""

    def _missing_key_message(self, key: str) -> str:
        import difflib

        close_matches = difflib.get_close_matches(key, self._table, n=3)
        hint = f"; similar names: {', '.join(close_matches)}" if close_matches else ""
        group = f" and no package in the entry-point group {self._group!r}" if self._group else ""
        return f"no {self.kind} named {key!r} is registered by weft{group}{hint}{self.broken}"
