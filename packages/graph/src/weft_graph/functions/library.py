"""The library of a graph: its functions by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.functions.function import Function


class Library(dict[str, Any]):
    """Functions by name.

    An entry is a `Function`, or what was read from a file: a `FunctionDef`, which is checked and
    becomes a `Function` when it is asked for. `items` and `values` give entries as they are.

    Attributes:
      traces: what Python functions were built for in the graph, and the bodies.
      lowered: what stands for functional conditionals and loops of imported graphs.
    """

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self.traces: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
        self.lowered: dict[Any, Function] = {}
        self._reading: list[str] = []
        self._reserved: list[str] = []

    def __getitem__(self, name: str) -> Function:
        """The function of that name.

        Raises:
          NotFoundError: there is none.
          InvalidArgumentError: its definition comes from a file and is no valid function.
        """
        entry = super().get(name)
        if entry is None:
            raise errors.NotFoundError(self._missing(name))
        if not hasattr(entry, "node_def"):
            return entry  # type: ignore[no-any-return]
        return self._read(name, entry)

    def get(self, name: str, default: Any = None) -> Any:
        """The function of that name, or `default`."""
        return self[name] if name in self else default  # noqa: SIM401 - entries are read here

    def _read(self, name: str, definition: Any) -> Function:
        from weft_graph.messages.function_reader import function_from_def

        if name in self._reading:
            raise errors.InternalError(f"the function {name!r} is being read already")
        self._reading.append(name)
        try:
            function = function_from_def(definition, self)
        finally:
            self._reading.pop()
        self[name] = function
        return function

    def is_reading(self, name: str) -> bool:
        """Whether the function is being read, so that only its definition is there."""
        return name in self._reading

    def entry(self, name: str) -> Any:
        """The entry as it is, or None."""
        return super().get(name)

    def copy(self) -> Library:
        """A library with the same entries."""
        return Library(self)

    def unused_name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it."""
        name, number = wanted, 0
        while name in self or name in self._reserved:
            number += 1
            name = f"{wanted}_{number}"
        return name

    @contextmanager
    def reserved(self, wanted: str) -> Iterator[str]:
        """A name for a function that is being built, which no other gets meanwhile."""
        name = self.unused_name(wanted)
        self._reserved.append(name)
        try:
            yield name
        finally:
            self._reserved.remove(name)

    # ------------------------------------------------------------------ adding

    def add(self, function: Function) -> None:
        """Add a function, and those that it calls.

        Raises: AlreadyExistsError: there is another one of that name.
        """
        for each in (function, *function.callees()):
            present = self.entry(each.name)
            if present is not each:
                if present is not None and not _equal(present, each):
                    raise _taken(each.name)
                if present is None:
                    self[each.name] = each

    @contextmanager
    def joining(self, library: Any) -> Iterator[None]:
        """Add the entries of a `FunctionDefLibrary`; take them back if the block fails.

        Raises: AlreadyExistsError: there is another function of one of the names.
        """
        before = dict(self)
        try:
            self._join(_definitions(library))
            yield
        except BaseException:  # because whatever failed, the graph must be as before
            self.clear()
            self.update(before)
            raise

    def _join(self, definitions: Mapping[str, Any]) -> None:
        for name, definition in definitions.items():
            present = self.entry(name)
            if present is None:
                self[name] = definition
            elif not _equal(present, definition):
                raise _taken(name)

    def _missing(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self, n=3)
        hint = f"; near misses: {', '.join(near)}" if near else ""
        return f"the graph has no function named {name!r}{hint}"


GRADIENT: Final = "_gradient"
"""Attribute of a definition: the name of the function that computes the gradient."""


def _definitions(library: Any) -> dict[str, Any]:
    """The functions of a `FunctionDefLibrary` by name, their gradients among the attributes."""
    found: dict[str, Any] = {}
    for definition in library.function:
        name = definition.signature.name
        if not name:
            raise errors.InvalidArgumentError("a function of the library has no name")
        if name in found:
            raise errors.InvalidArgumentError(f"the function {name!r} is defined twice")
        copy = found[name] = type(definition)()
        copy.CopyFrom(definition)
    for each in library.gradient:
        name = each.function_name
        if name not in found:
            raise errors.InvalidArgumentError(
                f"the library has a gradient of {name!r}, which it does not define"
            )
        given = found[name].attr[GRADIENT]
        if given.s and given.s != each.gradient_func.encode():
            raise errors.InvalidArgumentError(f"the function {name!r} has two gradients")
        given.s = each.gradient_func.encode()
    return found


def gradient_name(definition: Any) -> str:
    """The name of the function that computes the gradient, or ""."""
    return definition.attr[GRADIENT].s.decode() if GRADIENT in definition.attr else ""


def definition_of(entry: Any) -> Any:
    """The `FunctionDef` of an entry of a library.

    Raises: UnimplementedError: it has none.
    """
    if hasattr(entry, "node_def"):
        return entry
    if not hasattr(entry, "definition"):
        raise errors.UnimplementedError(f"{entry!r} is no function and has no durable form")
    return entry.definition


def _equal(a: Any, b: Any) -> bool:
    return bool(definition_of(a) == definition_of(b))


def _taken(name: str) -> errors.AlreadyExistsError:
    return errors.AlreadyExistsError(f"the graph has another function named {name!r} already")
