"""Errors of the runtime, one class for each canonical code.

Each class also derives from the builtin exception that a program would expect, so a device needs
no other package.
"""

from __future__ import annotations


class LiteError(Exception):
    """Base class of errors of the runtime; `code` is the number of the canonical code."""

    code = 2


class InvalidArgumentError(LiteError, ValueError):
    """Error for a value, shape or type that does not match what the graph declares."""

    code = 3


class DeadlineExceededError(LiteError, TimeoutError):
    """Error for an invocation that reached its work limit."""

    code = 4


class ResourceExhaustedError(LiteError, MemoryError):
    """Error for insufficient memory."""

    code = 8


class FailedPreconditionError(LiteError, RuntimeError):
    """Error for a call in the wrong state of the interpreter."""

    code = 9


class ConcurrentUseError(FailedPreconditionError):
    """Error for a call of an interpreter while another thread is using it."""


class OutOfRangeError(LiteError, IndexError):
    """Error for a size or index above its limit."""

    code = 11


class UnimplementedError(LiteError, NotImplementedError):
    """Error for a file that needs a newer runtime, or an op that this runtime was built without."""

    code = 12


class DataLossError(LiteError, ValueError):
    """Error for a damaged or malicious file."""

    code = 15


BY_CODE = {
    error.code: error
    for error in (
        InvalidArgumentError,
        DeadlineExceededError,
        ResourceExhaustedError,
        FailedPreconditionError,
        OutOfRangeError,
        UnimplementedError,
        DataLossError,
    )
}
