"""What an operating system or a remote store refuses, as an OpError that names the file."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft_tensor import errors

_BY_NUMBER: Final[dict[int, type[errors.OpError]]] = {
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EDQUOT: errors.ResourceExhaustedError,
    errno.EFBIG: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
    errno.ENFILE: errors.ResourceExhaustedError,
    errno.ENOMEM: errors.ResourceExhaustedError,
    errno.ENOTEMPTY: errors.FailedPreconditionError,
    errno.EXDEV: errors.FailedPreconditionError,
    errno.EBUSY: errors.UnavailableError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.EINVAL: errors.InvalidArgumentError,
    errno.ELOOP: errors.InvalidArgumentError,
    errno.EIO: errors.DataLossError,
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


@contextmanager
def reported(doing: str, path: str) -> Iterator[None]:
    """Turn what a file system refuses into an OpError.

    Args:
      doing: "reading", the start of the message.
      path: the file that it is about.
    Raises: NotFoundError, AlreadyExistsError, PermissionDeniedError, FailedPreconditionError (a
      directory, or none), ResourceExhaustedError (a full disk), ...; UnknownError for the rest.
    """
    try:
        yield
    except OSError as cause:
        raise _translated(doing, path, cause) from cause


def _translated(doing: str, path: str, cause: OSError) -> errors.OpError:
    kind = _BY_NUMBER.get(cause.errno or 0)
    if kind is None:
        kind = next((ours for theirs, ours in _BY_CLASS if isinstance(cause, theirs)), None)
    # Stores raise FileNotFoundError(path): the name of the class says more.
    reason = cause.strerror or f"{type(cause).__name__}: {cause}"
    return (kind or errors.UnknownError)(f"{doing} {path} failed: {reason}", details={"file": path})
