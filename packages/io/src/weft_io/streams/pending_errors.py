"""Errors in the buffers of a pipeline: each is raised in place of its element."""

from __future__ import annotations

from typing import Any, Final

from weft_io.streams.stream import fields
from weft_tensor import errors

_MARK: Final = "error"
"""A text that marks an error; it cannot be a component, because strings are bytes."""


def encode_failure(error: BaseException | None) -> list[Any]:
    """Convert an error to a part of a saved state."""
    code = error.code if isinstance(error, errors.OpError) else errors.UNKNOWN
    return [_MARK, code, getattr(error, "message", None) or str(error)]


def failure_of(state: Any) -> errors.OpError | None:
    """Return the error in a part of a saved state; None for an element."""
    if not isinstance(state, list) or not state or not isinstance(state[0], str):
        return None
    mark, code, message = fields(state, str, int, str)
    if mark != _MARK:
        raise errors.InvalidArgumentError(f"the state must have an error here, got {state!r}")
    op_error: errors.OpError = errors.from_code(code)(message)
    return op_error
