"""Modules that are imported on demand because they register something.

No lock is held while a module is imported. Threads that need the same modules each run the imports:
Python executes a module once, and its import lock makes the other threads wait for the result. A
lock of weft around an import would deadlock, because the module that another thread is importing
may need that lock to register. Python's import locks alone cannot: a thread waits for a module only
while it imports another that depends on it, and the import graph has no cycles. If user code
adds a cycle, Python detects it and returns a partly executed module.

A source is complete when all of its modules have been executed to their ends. Until then, every
lookup that misses tries again, so that a partly executed module is not mistaken for a missing
entry.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from weft_graph.ir.interrupts import defer_interrupts
from weft_tensor import errors

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class LazyModules(ABC):
    """A set of modules that register something when they are imported.

    Attributes:
      is_complete: True once all modules have been executed.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._thread = threading.local()

    def load(self) -> None:
        """Import all modules; return immediately in a thread that is already importing them.

        Ctrl-C is deferred during this time, because a partly executed module would register twice.

        Raises: Exception: any exception of a module.
        """
        if self.is_complete or getattr(self._thread, "is_loading", False):
            return
        self._thread.is_loading = True
        try:
            with defer_interrupts():
                self._import_all()
        finally:
            self._thread.is_loading = False

    @abstractmethod
    def _import_all(self) -> None:
        """Import the modules, and set `is_complete` if all were executed to their ends."""


class PackageModules(LazyModules):
    """All modules of some packages.

    Args:
      packages: their full names.
    """

    def __init__(self, *packages: str) -> None:
        super().__init__()
        self._packages = packages
        self._single: set[str] = set()
        self._failures: dict[str, Exception] = {}

    def load_modules(self, names: Sequence[str]) -> None:
        """Import single modules; unknown names are ignored."""
        missing = [] if self.is_complete else [name for name in names if name not in self._single]
        if not missing:
            return
        with defer_interrupts():
            for name in missing:
                if not _exists(name) or not is_executing(self._import(name)):
                    self._single.add(name)

    def _import_all(self) -> None:
        complete = True
        for name in self._packages:
            package = self._import(name)
            modules = [package, *map(self._import, _submodules(package))]
            complete = complete and not any(map(is_executing, modules))
        self.is_complete = self.is_complete or complete

    def _import(self, name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except errors.AlreadyExistsError as error:
            # An earlier attempt may have failed after the module registered something. Executed
            # again, the module is refused; the first error is the one that helps.
            raise self._failures.get(name, error) from None
        except Exception as error:  # because whatever a module raised explains later refusals
            self._failures[name] = error
            raise


class EntryPointModules(LazyModules):
    """The modules that other distributions name in an entry-point group.

    An entry point names a module, or a package with all its modules. If one cannot be imported, the
    others still are.

    Args:
      group: the group's name.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group
        self._failures: dict[EntryPoint, str] = {}
        self._imported: set[EntryPoint] = set()
        self._families: set[EntryPoint] = set()

    @property
    def failures(self) -> str:
        """The entry points that could not be imported, with their errors."""
        return "; ".join(self._failures.values())

    @property
    def has_entries(self) -> bool:
        """True if a distribution names a module in the group; nothing is imported to see it."""
        return bool(self._entries)

    @property
    def has_bytecode(self) -> bool:
        """True if all modules of the group have cached bytecode; does not import them."""
        specs = [find_spec(entry.module) for entry in self._entries]
        origins = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
        return all([Path(cache_from_source(origin)).exists() for origin in origins])

    def load_plain(self) -> None:
        """Import the entry points, except the modules of packages that have one per op family.

        Such a package sets `BY_FAMILY = True`; a lookup then imports single modules of it.

        Raises: InternalError: some cannot be imported; raised after importing the others.
        """
        unloaded = (
            []
            if self.is_complete
            else [e for e in self._pending_entries() if e not in self._families]
        )
        if unloaded:
            with defer_interrupts():
                self._import_entries(unloaded, self._import_plain)

    def _import_all(self) -> None:
        self._import_entries(self._pending_entries(), self._import_with_modules)

    def _import_entries(
        self, entries: Iterable[EntryPoint], import_entry: Callable[[EntryPoint], bool]
    ) -> None:
        first: Exception | None = None
        for entry in entries:
            try:
                if import_entry(entry):
                    self._imported.add(entry)
            except Exception as error:  # because one package's mistake must not hide the others
                self._failures.setdefault(entry, f"{entry.name} = {entry.value} ({error!r})")
                first = first or error
        self.is_complete = self.is_complete or not self._pending_entries()
        if first is not None:
            raise errors.InternalError(
                f"entry points of group {self._group} cannot be imported: {self.failures}"
            ) from first

    def _import_plain(self, entry: EntryPoint) -> bool:
        """Import an entry point for `load_plain`; return True if it was fully executed."""
        if getattr(entry.load(), "BY_FAMILY", False):
            self._families.add(entry)
            return False
        return self._import_with_modules(entry)

    def _import_with_modules(self, entry: EntryPoint) -> bool:
        """Import an entry point with all its modules; return True if they were fully executed."""
        module = entry.load()
        if is_executing(module):  # in this thread, by a caller; its submodules may need its names
            return False
        submodules = [importlib.import_module(name) for name in _submodules(module)]
        return not any(map(is_executing, submodules))

    def _pending_entries(self) -> list[EntryPoint]:
        """Return the entry points that are neither imported nor broken."""
        handled = self._imported | self._failures.keys()
        return [entry for entry in self._entries if entry not in handled]

    @cached_property
    def _entries(self) -> list[EntryPoint]:
        from importlib.metadata import entry_points

        return sorted(entry_points(group=self._group), key=lambda entry: entry.name)


def is_executing(module: ModuleType) -> bool:
    """Return True if a module has not been executed to its end.

    After an import, there are two cases: this thread is importing the module further up its stack,
    or Python returned the module early to avoid a deadlock.
    """
    # Python keeps no public record of it; its own import statement asks this attribute.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _submodules(package: ModuleType) -> list[str]:
    """Return the full names of a package's modules, sorted; a plain module has none."""
    path = getattr(package, "__path__", ())
    return [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(path)]


def _exists(name: str) -> bool:
    """Return True if a module exists; its parent packages are imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(f"{error.name}."):
            return False
        raise
