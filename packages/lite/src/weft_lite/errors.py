"""Errors that the runtime raises, a class for each canonical code.

Each class also derives from the builtin exception that a program would expect, so a device needs
no other package.
"""

from __future__ import annotations


class LiteError(Exception):
    """Something that the runtime refused; `code` is the canonical code's number."""

    code = 2


class InvalidArgumentError(LiteError, ValueError):
    """Error for a value, shape or type that does not match what the graph declares."""

    code = 3


class DeadlineExceededError(LiteError, TimeoutError):
    """An invocation met its limit of work."""

    code = 4


class ResourceExhaustedError(LiteError, MemoryError):
    """There is not enough memory, or a value is above its bound."""

    code = 8


class FailedPreconditionError(LiteError, RuntimeError):
    """Methods were called in an order that makes no sense."""

    code = 9


class ConcurrentUseError(FailedPreconditionError):
    """A call of an interpreter came from one thread while another one was in a call of it."""


class OutOfRangeError(LiteError, IndexError):
    """Error for a size or index above its limit."""

    code = 11


class UnimplementedError(LiteError, NotImplementedError):
    """The file needs a newer runtime, or an op that this one was built without."""

    code = 12


class DataLossError(LiteError, ValueError):
    """The file is damaged, or was made to do harm."""

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
