"""Conversion of file errors, local or of remote stores, to an `OpError` with the file name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft_tensor import errors

_NUMBERS: Final[dict[type[errors.OpError], tuple[str, ...]]] = {
    errors.InvalidArgumentError: (
        *("EINVAL", "ENAMETOOLONG", "E2BIG", "EDESTADDRREQ", "EDOM", "EFAULT", "EILSEQ", "ELOOP"),
        *("ENOPROTOOPT", "ENOTSOCK", "ENOTTY", "EPROTOTYPE", "ESPIPE"),
    ),
    errors.DeadlineExceededError: ("ETIMEDOUT",),
    errors.NotFoundError: ("ENODEV", "ENOENT", "ENXIO", "ESRCH"),
    errors.AlreadyExistsError: ("EEXIST", "EADDRNOTAVAIL", "EALREADY"),
    errors.PermissionDeniedError: ("EPERM", "EACCES", "EROFS"),
    errors.FailedPreconditionError: (
        *("ENOTEMPTY", "EISDIR", "ENOTDIR", "EADDRINUSE", "EBADF", "EBUSY", "ECHILD", "EISCONN"),
        *("ENOTBLK", "ENOTCONN", "ETXTBSY"),
    ),
    errors.ResourceExhaustedError: (
        *("ENOSPC", "EDQUOT", "EFBIG", "EMFILE", "EMLINK", "ENFILE", "ENOBUFS", "ENODATA"),
        *("ENOMEM", "EUSERS"),
    ),
    errors.OutOfRangeError: ("EOVERFLOW", "ERANGE"),
    errors.UnimplementedError: (
        *("ENOSYS", "ENOTSUP", "EOPNOTSUPP", "EAFNOSUPPORT", "EPFNOSUPPORT", "EPROTONOSUPPORT"),
        *("ESOCKTNOSUPPORT", "EXDEV"),
    ),
    errors.UnavailableError: (
        *("EAGAIN", "ECONNREFUSED", "ECONNABORTED", "ECONNRESET", "EINTR", "EHOSTDOWN"),
        *("EHOSTUNREACH", "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOLCK", "ENOLINK", "ENONET"),
        *("EPIPE", "ESHUTDOWN"),
    ),
    errors.AbortedError: ("EDEADLK", "ESTALE"),
    errors.CancelledError: ("ECANCELED",),
    errors.DataLossError: ("EIO",),
}
"""Error classes by POSIX error number, as in TensorFlow except:

- EFBIG is not OutOfRangeError, because that would silently end a loop over data.
- EPIPE and ESHUTDOWN are UnavailableError, like all lost connections.
- EIO and ELOOP, which TensorFlow does not map, are DataLossError and InvalidArgumentError.
"""

_BY_NUMBER: Final = {
    getattr(errno, name): kind
    for kind, names in _NUMBERS.items()
    for name in names
    if hasattr(errno, name)  # some systems lack some
}

_BY_CLASS: Final[tuple[tuple[type[OSError], type[errors.OpError]], ...]] = (
    (FileNotFoundError, errors.NotFoundError),
    (FileExistsError, errors.AlreadyExistsError),
    (PermissionError, errors.PermissionDeniedError),
    (IsADirectoryError, errors.FailedPreconditionError),
    (NotADirectoryError, errors.FailedPreconditionError),
    (TimeoutError, errors.DeadlineExceededError),
    (ConnectionError, errors.UnavailableError),
)
"""Error classes by exception class, for errors without a number: remote stores raise
FileNotFoundError(path)."""


def error_class(error: OSError) -> type[errors.OpError]:
    """Return weft's error class that corresponds to an OSError."""
    cls = _BY_NUMBER.get(error.errno or 0)
    if cls is None:
        cls = next(
            (weft_class for builtin, weft_class in _BY_CLASS if isinstance(error, builtin)), None
        )
    return cls or errors.UnknownError


@contextmanager
def convert_os_errors(doing: str, path: str) -> Iterator[None]:
    """Convert an error of a file system to an OpError.

    Args:
      doing: "reading", the start of the message.
      path: the file concerned.
    Raises: NotFoundError, AlreadyExistsError, PermissionDeniedError, FailedPreconditionError (is or
      is not a directory), ResourceExhaustedError (a full disk), DeadlineExceededError,
      UnavailableError (no connection), ...; UnknownError for the rest.
    """
    try:
        yield
    except OSError as error:
        raise error_class(error)(
            f"{doing} {path} failed: {_reason(error, path)}", details={"file": path}
        ) from error


def _reason(error: OSError, path: str) -> str:
    """Return the reason, and the file name if the error concerns another file."""
    reason = error.strerror or f"{type(error).__name__}: {error}"
    name = error.filename
    if not isinstance(name, str | bytes) or not name or os.fsdecode(name) == path:
        return reason
    return f"{reason} ({os.fsdecode(name)})"
