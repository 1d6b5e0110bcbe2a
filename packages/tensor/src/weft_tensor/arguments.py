"""Checks of arguments that public functions share."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Final

import numpy as np

from weft_tensor import errors

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def unknown_argument(label: str, name: str, names: Iterable[str]) -> errors.InvalidTypeError:
    """Return the error for an unknown argument, with similar names as suggestions."""
    import difflib  # slow to load

    similar = difflib.get_close_matches(name, list(names), n=3)
    hint = f"; near misses: {', '.join(similar)}" if similar else ""
    return errors.InvalidTypeError(f"{label} has no argument {name!r}{hint}")


def check_integer(
    value: Any, label: str, minimum: int = -INT64_MAX - 1, limit: int = INT64_MAX
) -> int:
    """Return a Python or NumPy integer as `int`.

    Raises: InvalidTypeError: `value` is not an integer, or is a bool; InvalidArgumentError: it is
      not in [least, most].
    """
    try:
        integral = operator.index(value)
    except TypeError as cause:
        raise errors.InvalidTypeError(f"{label} must be an integer, got {value!r}") from cause
    if isinstance(value, bool):
        raise errors.InvalidTypeError(f"{label} must be an integer, got {value!r}")
    if integral < minimum:
        raise errors.InvalidArgumentError(f"{label} must be at least {minimum}, got {integral}")
    if integral > limit:
        raise errors.InvalidArgumentError(f"{label} must be at most {limit}, got {integral}")
    return integral


def check_whole_number(
    value: Any, label: str, minimum: int = -INT64_MAX - 1, limit: int = INT64_MAX
) -> int:
    """Return an integer, or a float without a fraction, as `int`: programs divide sizes.

    Raises: as `check_integer`.
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return check_integer(value, label, minimum, limit)


def check_number(
    value: Any, label: str, minimum: float = -math.inf, limit: float = math.inf
) -> float:
    """Return a real number as `float`.

    Raises: InvalidTypeError: `value` is not a number, or is a bool; InvalidArgumentError: it is
      NaN, or not in [least, most].
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise errors.InvalidTypeError(f"{label} must be a number, got {value!r}")
    converted = float(value)
    if not converted >= minimum:
        raise errors.InvalidArgumentError(f"{label} must be a number >= {minimum}, got {value!r}")
    if not converted <= limit:
        raise errors.InvalidArgumentError(f"{label} must be a number <= {limit}, got {value!r}")
    return converted


def check_text(value: Any, label: str) -> str:
    """Return `value`, which must be a `str`. Raises: InvalidTypeError: it is not."""
    if not isinstance(value, str):
        raise errors.InvalidTypeError(f"{label} must be text, got {value!r}")
    return value


def check_optional_function(value: Any, label: str) -> Callable[..., Any] | None:
    """Return `value`, which must be callable or None. Raises: InvalidTypeError: it is neither."""
    if value is not None and not callable(value):
        raise errors.InvalidTypeError(f"{label} must be a function or None, got {value!r}")
    function: Callable[..., Any] | None = value
    return function


def check_function(value: Any, label: str, count: int | None = None) -> Callable[..., Any]:
    """Return `value`, which must be callable with `count` positional arguments.

    The number is not checked for built-in functions without a signature.

    Raises: InvalidTypeError: it is not callable, or requires another number of arguments.
    """
    if not callable(value):
        raise errors.InvalidTypeError(f"`{label}` must be callable, got {value!r}")
    function: Callable[..., Any] = value
    if count is None:
        return function
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of built-in functions that do not say
        return function
    try:
        signature.bind(*[None] * count)
    except TypeError as cause:
        raise errors.InvalidTypeError(
            f"`{label}` must take {count} positional argument{'' if count == 1 else 's'}, "
            f"got {value!r}: {cause}"
        ) from cause
    return function
