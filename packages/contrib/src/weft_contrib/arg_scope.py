"""Default arguments for the functions called inside a block."""

from __future__ import annotations

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "arg_scoped_arguments",
    "current_arg_scope",
    "has_arg_scope",
]

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from weft_tensor import errors
from weft_tensor.arguments import unknown_argument

Function = TypeVar("Function", bound=Callable[..., Any])
Scope = dict[str, dict[str, Any]]


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Scope] = [{}]


_scopes = _Scopes()
_arguments: dict[str, tuple[str, ...]] = {}
"""The arguments with defaults of each marked function, by its key."""


def _key(function: Any) -> str:
    return getattr(function, "_key_op", "") or f"{function.__module__}.{function.__qualname__}"


def add_arg_scope(func: Function) -> Function:
    """Mark a function, so that `arg_scope` can set its defaults.

    Args:
      func: a function that has arguments with defaults.
    Returns: a function that is called in the same way.

    Examples:
      >>> @wf.contrib.framework.add_arg_scope
      ... def scaled(x, factor=2):
      ...     return x * factor
      >>> with wf.contrib.framework.arg_scope([scaled], factor=3):
      ...     scaled(1), scaled(1, factor=4)
      (3, 4)
    """

    @functools.wraps(func)
    def call_with_defaults(*args: Any, **kwargs: Any) -> Any:
        scope_args = _scopes.stack[-1].get(key)
        if not scope_args:
            return func(*args, **kwargs)
        positional = names[: len(args)]
        defaults = {name: scope_args[name] for name in scope_args if name not in positional}
        return func(*args, **{**defaults, **kwargs})

    parameters = inspect.signature(func).parameters.values()
    names = [parameter.name for parameter in parameters]
    key = _key(func)
    vars(call_with_defaults)["_key_op"] = key
    _arguments[key] = tuple([p.name for p in parameters if p.default is not p.empty])
    return call_with_defaults  # type: ignore[return-value]  # `wraps` keeps the signature


def has_arg_scope(func: Any) -> bool:
    """Return True if `arg_scope` can set defaults of a function.

    Args:
      func: any function.
    """
    return getattr(func, "_key_op", None) in _arguments


def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """Return the arguments of a function whose defaults `arg_scope` can set.

    Args:
      func: a function marked by `add_arg_scope`.
    """
    _check(func)
    return _arguments[_key(func)]


def current_arg_scope() -> Scope:
    """Return the current defaults, by function."""
    return _scopes.stack[-1]


@contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Scope]:
    """Set defaults of functions inside a block.

    Args:
      list_ops_or_scope: functions marked by `add_arg_scope`; or the result of another `arg_scope`,
        whose defaults are restored.
      **kwargs: the defaults.
    Yields: the defaults inside the block. Raises:
      InvalidArgumentError: a function is not marked, or has no such argument.
      InvalidTypeError: the first argument is neither a list nor a scope.

    Examples:
      >>> @wf.contrib.framework.add_arg_scope
      ... def named(x, name="default"):
      ...     return name
      >>> with wf.contrib.framework.arg_scope([named], name="inside") as scope:
      ...     pass
      >>> with wf.contrib.framework.arg_scope(scope):
      ...     named(1)
      'inside'
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise errors.InvalidArgumentError(
                "arg_scope(scope) accepts no keyword arguments, got " + ", ".join(kwargs)
            )
        new_scope = {key: dict(value) for key, value in list_ops_or_scope.items()}
    else:
        new_scope = _extend_scope(list_ops_or_scope, kwargs)
    _scopes.stack.append(new_scope)
    try:
        yield new_scope
    finally:
        _scopes.stack.pop()


def _extend_scope(functions: Any, defaults: dict[str, Any]) -> Scope:
    if not isinstance(functions, Sequence) or isinstance(functions, str):
        raise errors.InvalidTypeError(
            f"arg_scope requires a list of functions or a scope, got {functions!r}"
        )
    new_scope = {key: dict(value) for key, value in _scopes.stack[-1].items()}
    for function in functions:
        _check(function)
        key = _key(function)
        parameters = inspect.signature(function).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name in defaults:
            if name not in parameters and not takes_any:
                raise unknown_argument(key, name, parameters)
        new_scope.setdefault(key, {}).update(defaults)
    return new_scope


def _check(function: Any) -> None:
    if not has_arg_scope(function):
        raise errors.InvalidArgumentError(f"{function!r} is not decorated with @add_arg_scope")
