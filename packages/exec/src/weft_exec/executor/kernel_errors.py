"""What a kernel raised, as an OpError that says where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.node import Node

_BAD_INPUT = (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError)


def describe(value: Any) -> str:
    """`float32[2,3]` for an array or scalar, the class name for anything else."""
    if isinstance(getattr(value, "dtype", None), np.dtype) and hasattr(value, "shape"):
        name = "string" if value.dtype.hasobject else value.dtype.name
        return f"{name}[{','.join(map(str, value.shape))}]"
    return type(value).__name__


def located(error: BaseException, node: Node, device: str, inputs: Iterable[Any]) -> errors.OpError:
    """`error` with op, node, device, inputs and the user's line filled in.

    Exceptions of NumPy and Python become InvalidArgumentError, MemoryError becomes
    ResourceExhaustedError, anything else InternalError.
    """
    if isinstance(error, errors.OpError):
        found = error
    elif isinstance(error, MemoryError):
        found = errors.ResourceExhaustedError(f"out of memory: {error}")
    elif isinstance(error, _BAD_INPUT):
        found = errors.InvalidArgumentError(str(error))
    else:
        found = errors.InternalError(f"the kernel raised {type(error).__name__}: {error}")
    if found is not error:
        found.__cause__ = error
    return found.with_context(
        op=node.type,
        node=node.name,
        device=device,
        line=node.line or None,
        inputs=[describe(value) for value in inputs],
    )


def raise_located(found: errors.OpError) -> NoReturn:
    """Raise what `located` gave, with its cause.

    No frame that the traceback holds may hold the error, or what the kernel was given would live
    until the next collection of cycles.
    """
    try:
        raise found from found.__cause__
    finally:
        del found
