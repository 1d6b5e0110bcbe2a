"""Functions of matrices that take a LinearOperator, too: they call its method."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def is_operator(value: Any) -> bool:
    """Whether something is a LinearOperator, of which this layer knows nothing else."""
    return getattr(type(value), "_acts_as_matrices", False) is True


def or_method(method: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function of a matrix take a LinearOperator, whose method of that name is called."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        first = next(iter(signature(function).parameters))

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            operator = args[0] if args else kwargs.get(first)
            if is_operator(operator):
                named = {k: v for k, v in kwargs.items() if v is not None and k != first}
                result: R = getattr(operator, method)(*args[1:], **named)
                return result
            return function(*args, **kwargs)

        return called

    return decorate
