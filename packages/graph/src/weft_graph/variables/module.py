"""The base class of objects with variables, from which programs derive their own."""

from __future__ import annotations

__all__ = ["Module"]

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.variables.base import Variable
from weft_tensor import errors

_F = TypeVar("_F", bound=Callable[..., Any])


class Module:
    """The base class of objects that have variables and other modules as attributes.

    Lists, tuples and dictionaries of these are searched too.

    Args:
      name: name of the name scope; derived from the class name by default.
    Raises: InvalidArgumentError: `name` is not an identifier.

    Examples:
      >>> class Affine(wf.Module):
      ...     def __init__(self, width, name=None):
      ...         super().__init__(name)
      ...         with self.name_scope:
      ...             self.w = wf.Variable(wf.ones([width, 1]), name="w")
      ...             self.b = wf.Variable(0.0, name="b")
      ...
      ...     def __call__(self, x):
      ...         return wf.matmul(x, self.w) + self.b
      >>> affine = Affine(2)
      >>> [variable.name for variable in affine.trainable_variables]
      ['affine/b:0', 'affine/w:0']
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()
        if not name.isidentifier():
            raise errors.InvalidArgumentError(
                f"the name of a module must be an identifier, got {name!r}"
            )
        self._name = name
        graph = get_default_graph()
        with graph.name_scope(name) as scope:
            self._scope = scope

    @property
    def name(self) -> str:
        """The name passed to the constructor."""
        return self._name

    @property
    def name_scope(self) -> AbstractContextManager[Any]:
        """The name scope, to be entered by `with`; entering it again reuses the same scope."""
        return get_default_graph().name_scope(self._scope)

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables reachable from the attributes, in the order of attribute names."""
        return tuple(member for member in self._walk_attributes() if isinstance(member, Variable))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The trainable variables."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are not trainable."""
        return tuple(variable for variable in self.variables if not variable.trainable)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """All modules reachable from the attributes, except itself."""
        return tuple(member for member in self._walk_attributes() if isinstance(member, Module))

    @classmethod
    def with_name_scope(cls, method: _F) -> _F:
        """Decorator that runs a method inside the name scope of its module.

        Args:
          method: method of a module.
        """

        @functools.wraps(method)
        def call_in_scope(self: Module, *args: Any, **kwargs: Any) -> Any:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return call_in_scope  # type: ignore[return-value]  # wraps keeps what callers see

    def _walk_attributes(self) -> Iterator[Any]:
        """Yield variables and modules without duplicates: direct ones first, then nested ones."""
        visited: set[int] = {id(self)}
        waiting: list[Any] = [vars(self)]
        while waiting:
            members: list[Any] = []
            for value in _iterate_leaves(waiting.pop(0)):
                if id(value) not in visited:
                    visited.add(id(value))
                    members.append(value)
            yield from members
            waiting += [vars(value) for value in members if isinstance(value, Module)]


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Variable | Module):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _iterate_leaves(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_leaves(item)
