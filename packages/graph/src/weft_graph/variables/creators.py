"""Variable creators, and the choice of the kind of variable."""

from __future__ import annotations

__all__ = [
    "disable_resource_variables",
    "enable_resource_variables",
    "resource_variables_enabled",
    "variable_creator_scope",
]

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.variables.base import Variable, makers
from weft_graph.variables.reference import RefVariable
from weft_graph.variables.resource import ResourceVariable
from weft_graph.variables.scope import get_variable_scope

_use_resource_by_default = False


def enable_resource_variables() -> None:
    """Create resource variables unless `use_resource` is passed.

    Examples:
      >>> wf.enable_resource_variables()
      >>> wf.resource_variables_enabled()
      True
      >>> wf.disable_resource_variables()
    """
    global _use_resource_by_default
    _use_resource_by_default = True


def disable_resource_variables() -> None:
    """Create reference variables unless `use_resource` is passed; this is the default.

    Examples:
      >>> wf.disable_resource_variables()
      >>> wf.Variable(0.0).op.type
      'VariableV2'
    """
    global _use_resource_by_default
    _use_resource_by_default = False


def resource_variables_enabled() -> bool:
    """Return True if variables are resource variables unless `use_resource` is passed.

    Examples:
      >>> wf.resource_variables_enabled()
      False
    """
    return _use_resource_by_default


Creator = Callable[..., Any]


@contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
    """Create the default graph's variables by `variable_creator(next_creator, **kwargs)`.

    Args:
      variable_creator: function that may call `next_creator(**kwargs)`, the next outer creator or
        the default one.

    Examples:
      >>> def frozen(next_creator, **kwargs):
      ...     return next_creator(**{**kwargs, "trainable": False})
      >>> with wf.variable_creator_scope(frozen):
      ...     w = wf.Variable(0.0)
      >>> wf.trainable_variables()
      []
    """
    creators = get_default_graph().scopes.variable_creators
    creators.append(variable_creator)
    try:
        yield
    finally:
        creators.remove(variable_creator)


variable_creator_scope_v1 = variable_creator_scope


def default_variable_creator(next_creator: Creator | None = None, **kwargs: Any) -> Variable:
    """Create the variable itself, after all creators.

    Inside a loop or a branch, it is created outside, where its initializer can run.
    """
    use_resource = kwargs.pop("use_resource", None)
    if use_resource is None:
        use_resource = _scope_use_resource()
    with get_default_graph().scopes.leave_contexts():
        return ResourceVariable(**kwargs) if use_resource else RefVariable(**kwargs)


def _scope_use_resource() -> bool:
    scope_setting = get_variable_scope().use_resource
    return _use_resource_by_default if scope_setting is None else scope_setting


def _chain_creators(outer: Creator, inner: Creator) -> Creator:
    def create(**kwargs: Any) -> Any:
        return outer(inner, **kwargs)

    return create


def _call_creators(**kwargs: Any) -> Any:
    """Return a variable from the innermost creator, which may call outer ones."""
    creator: Creator = default_variable_creator
    for outer in get_default_graph().scopes.variable_creators:
        creator = _chain_creators(outer, creator)
    return creator(**kwargs)


makers.register("any", _call_creators)
