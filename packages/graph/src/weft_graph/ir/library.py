"""The library of a graph: its functions by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from weft_graph.ir.deep_stack import deeper
from weft_tensor import errors


class LibraryFunction(Protocol):
    """Interface of the functions in a library."""

    @property
    def name(self) -> str:
        """Name in the library."""
        ...

    def callees(self) -> Iterable[LibraryFunction]:
        """Return the functions that it calls, directly or not."""
        ...


class LazyFunction:
    """A function stored as a definition and parsed on first use.

    Args:
      definition: a `FunctionDef`.
      read: creates the function, for a library whose functions it may call.
    """

    __slots__ = ("definition", "read")

    def __init__(self, definition: Any, read: Callable[[Any, Library], Any]) -> None:
        self.definition = definition
        self.read = read


class Library(dict[str, Any]):
    """Functions by name.

    An entry is a function or a `LazyFunction`. The latter, for example from a file, is checked and
    converted at its first use. `items` and `values` return the entries unconverted.

    Attributes:
      traces: the bodies built for Python functions in the graph, by their arguments.
      lowered: the lowered forms of functional conditionals and loops of imported graphs.
    """

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self.traces: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
        self.lowered: dict[Any, Any] = {}
        self._reading: list[str] = []
        self._reserved: list[str] = []

    def __getitem__(self, name: str) -> Any:
        """Return the function of that name.

        Raises:
          NotFoundError: no function has this name.
          InvalidArgumentError: its definition comes from a file and is not a valid function.
        """
        entry = super().get(name)
        if entry is None:
            raise errors.NotFoundError(self._missing_function_message(name))
        return self._read(name, entry) if isinstance(entry, LazyFunction) else entry

    def get(self, name: str, default: Any = None) -> Any:
        """Return the function of that name, or `default`."""
        return self[name] if name in self else default  # noqa: SIM401 - entries are read here

    def _read(self, name: str, entry: LazyFunction) -> Any:
        if name in self._reading:
            raise errors.InternalError(f"the function {name!r} is already being parsed")
        self._reading.append(name)
        try:
            function = deeper(entry.read, entry.definition, self)
        finally:
            self._reading.pop()
        self[name] = function
        return function

    def is_reading(self, name: str) -> bool:
        """Return True if the function is being read, so that only its signature is available."""
        return name in self._reading

    def entry(self, name: str) -> Any:
        """Return the entry without parsing it, or None."""
        return super().get(name)

    def definition(self, name: str) -> Any:
        """Return the `FunctionDef` of an entry, without parsing it.

        Raises: UnimplementedError: it has none.
        """
        return _definition(name, self.entry(name))

    def copy(self) -> Library:
        """Return a library with the same entries."""
        return Library(self)

    def unused_name(self, base_name: str) -> str:
        """Return `base_name`, with a numeric suffix if it is taken."""
        name, number = base_name, 0
        while name in self or name in self._reserved:
            number += 1
            name = f"{base_name}_{number}"
        return name

    @contextmanager
    def reserve_name(self, base_name: str) -> Iterator[str]:
        """Reserve a name for a function under construction."""
        name = self.unused_name(base_name)
        self._reserved.append(name)
        try:
            yield name
        finally:
            self._reserved.remove(name)

    # ------------------------------------------------------------------ adding

    def add(self, function: LibraryFunction) -> None:
        """Add a function, and those that it calls.

        Raises: AlreadyExistsError: another function has this name.
        """
        entry = super().get
        for added in (function, *function.callees()):
            present = entry(added.name)
            if present is not added:
                if present is not None and not _equal(added.name, present, added):
                    raise _name_taken_error(added.name)
                if present is None:
                    self[added.name] = added

    @contextmanager
    def add_entries(self, entries: Mapping[str, Any]) -> Iterator[None]:
        """Add entries, and remove them again if the block fails.

        Raises: AlreadyExistsError: another function has one of the names.
        """
        saved_entries = dict(self)
        try:
            self._join(entries)
            yield
        except BaseException:  # because whatever failed, the graph must be as before
            self.clear()
            self.update(saved_entries)
            raise

    def _join(self, entries: Mapping[str, Any]) -> None:
        for name, entry in entries.items():
            present = self.entry(name)
            if present is None:
                self[name] = entry
            elif not _equal(name, present, entry):
                raise _name_taken_error(name)

    def _missing_function_message(self, name: str) -> str:
        import difflib

        close_matches = difflib.get_close_matches(name, self, n=3)
        hint = f"; similar names: {', '.join(close_matches)}" if close_matches else ""
        return f"the graph has no function named {name!r}{hint}"


def _definition(name: str, entry: Any) -> Any:
    if not hasattr(entry, "definition"):
        raise errors.UnimplementedError(f"the function {name!r} cannot be serialized")
    return entry.definition


def _equal(name: str, a: Any, b: Any) -> bool:
    return bool(_definition(name, a) == _definition(name, b))


def _name_taken_error(name: str) -> errors.AlreadyExistsError:
    return errors.AlreadyExistsError(f"the graph already has another function named {name!r}")
