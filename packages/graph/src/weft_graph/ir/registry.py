"""Registries that other packages extend: ops, gradients, kernels, commands.

A registry is a table with two later sources: the modules of its own package, imported at the first
miss, and then the entry points of a group, imported at the first miss after that: a module, or a
package with all its modules.  Importing weft therefore costs nothing for tables that are not used,
and a package that only declares an entry point is found exactly when something of its is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from weft_graph.ir.interrupts import uninterrupted
from weft_tensor import errors

V = TypeVar("V")


class Registry(Generic[V]):
    """A named table from string keys to values, filled on demand.

    Args:
      kind: what is registered, for messages ("op", "gradient").
      package: package whose modules, all of them, register when imported; or several.
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
        self._packages = (package,) if isinstance(package, str) else tuple(package or ())
        self._group = group
        self._builtin_loaded = not package
        self._entry_points_loaded = group is None
        self._loading = False
        self._broken: list[str] = []
        self._asked: set[str] = set()
        self._entries: list[Any] | None = None
        self._lock = threading.RLock()

    def register(self, key: str, value: V) -> None:
        """Add one entry.

        Raises: AlreadyExistsError: the key is taken.
        """
        with self._lock:
            if key in self._table:
                raise errors.AlreadyRegisteredError(
                    f"the {self.kind} {key!r} is registered already"
                )
            self._table[key] = value

    def get(self, key: str) -> V | None:
        """The entry of `key`, or None when no source has it.

        Raises: InternalError: entry points are broken; once, after all others have been loaded.
        """
        value = self._table.get(key)
        if value is None and not (self._builtin_loaded and self._entry_points_loaded):
            value = self._load_until(key)
        return value

    def loaded(self, key: str) -> V | None:
        """The entry of `key` if it is there already, without loading anything."""
        return self._table.get(key)

    def lookup(self, key: str) -> V:
        """The entry of `key`.

        Raises: NotFoundError: no source has it; the message names near misses.
        """
        value = self.get(key)
        if value is None:
            raise errors.NotFoundError(self._missing(key))
        return value

    def keys(self) -> list[str]:
        """All keys of all sources, sorted."""
        self._load_until(None)
        return sorted(self._table)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def load_near(self, modules: Iterable[str]) -> None:
        """Import single modules, and what packages outside register, but not all the rest.

        For a key that one of these has; `get` looks everywhere.

        Args:
          modules: names; those that there are not are passed over.
        """
        with self._lock:
            if self._loading or (self._builtin_loaded and self._entry_points_loaded):
                return
            self._loading = True
            try:
                with uninterrupted():
                    for name in modules:
                        if name not in self._asked:
                            self._asked.add(name)
                            if importlib.util.find_spec(name) is not None:
                                importlib.import_module(name)
                    if not self._entry_points_loaded:
                        self._load_entry_points(families=False)
            finally:
                self._loading = False

    def _load_until(self, key: str | None) -> V | None:
        with self._lock:
            # What is being loaded may look things up in this thread; other threads wait for the
            # lock, since the flags that let them pass are set only when all is there.
            if not self._loading:
                self._loading = True
                try:
                    with uninterrupted():
                        self._load(key)
                finally:
                    self._loading = False
            return self._table.get(key) if key is not None else None

    def _load(self, key: str | None) -> None:
        if not self._builtin_loaded:
            for package in self._packages:
                _import_modules(importlib.import_module(package))
            self._builtin_loaded = True
        if not self._entry_points_loaded and (key is None or key not in self._table):
            try:
                self._load_entry_points()
            finally:
                self._entry_points_loaded = True

    def _load_entry_points(self, families: bool = True) -> None:
        """Import what entry points name.

        Args:
          families: packages too that say, by `BY_FAMILY`, that their modules are called as those
            that declare the ops: of these single modules can be imported.
        """
        first: Exception | None = None
        waiting, self._entries = self._waiting_entries(), []
        for entry in waiting:
            try:
                module = entry.load()
                if not families and getattr(module, "BY_FAMILY", False):
                    self._entries.append(entry)
                    continue
                _import_modules(module)
            except Exception as cause:  # because one package's mistake must not hide the others
                self._broken.append(f"{entry.name} = {entry.value} ({cause!r})")
                first = first or cause
        if first is not None:
            raise errors.InternalError(
                f"entry points of group {self._group} cannot be imported: {'; '.join(self._broken)}"
            ) from first

    def _waiting_entries(self) -> list[Any]:
        """The entry points that were not imported yet."""
        if self._entries is None:
            from importlib.metadata import entry_points

            assert self._group is not None
            self._entries = sorted(entry_points(group=self._group), key=lambda e: e.name)
        return self._entries

    @property
    def broken(self) -> str:
        """The end of a message about a missing key: which entry points could not be imported."""
        if not self._broken:
            return ""
        return f"; these entry points could not be imported: {'; '.join(self._broken)}"

    def _missing(self, key: str) -> str:
        import difflib

        near = difflib.get_close_matches(key, self._table, n=3)
        hint = f"; near misses: {', '.join(near)}" if near else ""
        group = f" and no package in the entry-point group {self._group!r}" if self._group else ""
        return f"no {self.kind} named {key!r} is registered by weft{group}{hint}{self.broken}"


def load_package(name: str) -> None:
    """Import a package with all its modules, which register when they are imported.

    Ctrl-C waits: modules that are half imported would register again, and be refused.
    """
    with uninterrupted():
        _import_modules(importlib.import_module(name))


def _import_modules(package: Any) -> None:
    """Import every module of a package; a plain module has none."""
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        importlib.import_module(f"{package.__name__}.{module.name}")
