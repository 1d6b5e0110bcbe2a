"""Matrix functions that also accept a LinearOperator, by calling its method."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import BoundArguments, signature
from typing import Any, ParamSpec, TypeVar

from weft_tensor import errors

P = ParamSpec("P")
R = TypeVar("R")


def is_operator(value: Any) -> bool:
    """Return True if a value is a LinearOperator, without importing the class."""
    return getattr(type(value), "_acts_as_matrices", False) is True


def or_method(method: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: for a LinearOperator, call its method instead of the matrix function."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        first = next(iter(signature(function).parameters))

        @wraps(function)
        def apply_operator(*args: P.args, **kwargs: P.kwargs) -> R:
            if is_operator(args[0] if args else kwargs.get(first)):
                result: R = _call_method(method, signature(function).bind(*args, **kwargs))
                return result
            return function(*args, **kwargs)

        return apply_operator

    return decorate


def _call_method(method: str, bound: BoundArguments) -> Any:
    operator, *_ = bound.arguments.values()
    parameters, arguments = signature(getattr(operator, method)).parameters, {}
    for name, value in list(bound.arguments.items())[1:]:
        if name in parameters:
            arguments[name] = value
        elif name == "adjoint":
            operator = operator.adjoint() if value else operator
        elif name != "name" and value != bound.signature.parameters[name].default:
            raise errors.InvalidArgumentError(
                f"{method} of a LinearOperator does not take {name}, got {value!r}"
            )
    return getattr(operator, method)(**{k: v for k, v in arguments.items() if v is not None})
