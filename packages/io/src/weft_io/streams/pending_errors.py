"""Errors in buffers of a pipeline: each is raised when its element would be returned."""

from __future__ import annotations

from typing import Any, Final

from weft_io.streams.stream import fields
from weft_tensor import errors

_MARK: Final = "error"
"""Text, which no component of an element is: strings are bytes."""


def saved_failure(error: BaseException | None) -> list[Any]:
    """Return an error as a part of a state."""
    code = error.code if isinstance(error, errors.OpError) else errors.UNKNOWN
    return [_MARK, code, getattr(error, "message", None) or str(error)]


def failure_of(state: Any) -> errors.OpError | None:
    """Return the error that a part of a state holds; None if it holds something else."""
    if not isinstance(state, list) or not state or not isinstance(state[0], str):
        return None
    mark, code, message = fields(state, str, int, str)
    if mark != _MARK:
        raise errors.InvalidArgumentError(f"the state must have an error here, got {state!r}")
    op_error: errors.OpError = errors.from_code(code)(message)
    return op_error
