"""Validation of arguments that become tensors, shared by public functions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import format_dims


def to_list(values: Any, label: str) -> list[Any]:
    """Return the items of a list or another iterable.

    Raises: InvalidTypeError: `values` cannot be iterated, or is a string, a mapping or a tensor.
    """
    invalid = isinstance(values, str | bytes | Mapping | Output) or not isinstance(values, Iterable)
    if invalid:
        raise errors.InvalidTypeError(f"{label} must be a list, got {values!r}")
    return list(values)


def to_sequence(values: Any, label: str) -> list[Any]:
    """Return the items of a list or tuple; reject other iterables.

    Raises: InvalidTypeError: `values` is neither a list nor a tuple.
    """
    if not isinstance(values, list | tuple):
        raise errors.InvalidTypeError(f"{label} must be a list or a tuple, got {values!r}")
    return list(values)


def scalar(
    value: Any, dtype: DType, label: str, minimum: int | None = None, auto: int | None = None
) -> Output:
    """Convert an argument to a tensor of shape ().

    Args:
      value: a tensor, or a value that can be converted to one.
      minimum: the minimum, which is checked if the value is a constant.
      auto: a special value below `minimum` that is also allowed, such as AUTOTUNE.
    Raises: InvalidTypeError: the element type is not `dtype`; InvalidArgumentError: the shape is
      not (), or the value is below `minimum`.
    """
    try:
        tensor = convert_to_tensor(value, dtype)
    except (errors.InvalidTypeError, errors.InvalidArgumentError) as cause:
        kind = type(cause)
        raise kind(f"{label} must be {dtype.name}, shape (): {cause.message}") from cause
    if tensor.dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"{label} must be a scalar, got shape {format_dims(tensor.dims)}"
        )
    static_value = None if minimum is None else constant_int_or_none(value, tensor)
    if (
        static_value is not None
        and minimum is not None
        and static_value < minimum
        and static_value != auto
    ):
        allowed = f"{minimum}" if auto is None else f"{minimum}, or {auto} for AUTOTUNE"
        raise errors.InvalidArgumentError(f"{label} must be at least {allowed}, got {static_value}")
    return tensor


def constant_int_or_none(value: Any, tensor: Output) -> int | None:
    """Return the value of an argument that became a new constant; None if it was a tensor."""
    if isinstance(value, Output) or tensor.node.role is not Role.CONSTANT:
        return None
    return int(tensor.node.attrs["value"])


def encode_paths(value: Any) -> Any:
    """Return a path, or a list of paths, in a form that can be converted to a string tensor.

    File names need not be UTF-8: Python represents other bytes by surrogates, which are decoded to
    bytes here. Anything that is not a path is returned unchanged.
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape") if _escape(value) else value
    return [encode_paths(item) for item in value] if isinstance(value, list | tuple) else value


def _escape(path: str) -> bool:
    """Return True if a path has surrogates and each of them represents a byte."""
    codes = [ord(char) for char in path if "\ud800" <= char <= "\udfff"]
    return bool(codes) and all(0xDC80 <= code <= 0xDCFF for code in codes)
