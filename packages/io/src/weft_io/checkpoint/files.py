"""Where checkpoints are: paths, the storage that a path is in, and errors that say which file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weft_io.checkpoint.local import LOCAL
from weft_io.checkpoint.storage import Bytes, Storage
from weft_io.files import systems
from weft_tensor import errors

_CLASSES: Final[dict[int, type[errors.OpError]]] = {
    errno.ENOSPC: errors.ResourceExhaustedError,
    errno.EDQUOT: errors.ResourceExhaustedError,
    errno.EFBIG: errors.ResourceExhaustedError,
    errno.EMFILE: errors.ResourceExhaustedError,
    errno.ENFILE: errors.ResourceExhaustedError,
    errno.ENOMEM: errors.ResourceExhaustedError,
    errno.EROFS: errors.PermissionDeniedError,
    errno.ENAMETOOLONG: errors.InvalidArgumentError,
    errno.EIO: errors.DataLossError,
}

_KINDS: Final[tuple[tuple[type[OSError], type[errors.OpError]], ...]] = (
    (FileNotFoundError, errors.NotFoundError),
    (NotADirectoryError, errors.FailedPreconditionError),
    (IsADirectoryError, errors.FailedPreconditionError),
    (PermissionError, errors.PermissionDeniedError),
    (FileExistsError, errors.AlreadyExistsError),
    (ConnectionError, errors.UnavailableError),
    (TimeoutError, errors.UnavailableError),
)


@contextmanager
def reported(doing: str) -> Iterator[None]:
    """Turn what a storage refuses into an OpError.

    Args:
      doing: "saving /tmp/model-5", the start of the message.
    Raises: ResourceExhaustedError for a full disk, NotFoundError, PermissionDeniedError, ...
    """
    try:
        yield
    except OSError as cause:
        name = cause.filename
        where = f" ({os.fsdecode(name)})" if isinstance(name, str | bytes) and name else ""
        kind = _CLASSES.get(cause.errno or 0)
        if kind is None:  # stores raise FileNotFoundError(path), without a number
            kind = next((ours for theirs, ours in _KINDS if isinstance(cause, theirs)), None)
        reason = cause.strerror or str(cause) or type(cause).__name__
        raise (kind or errors.UnknownError)(f"{doing} failed: {reason}{where}") from cause


# --------------------------------------------------------------------------- files


def exists(path: str) -> bool:
    """Whether there is a file of that name."""
    return storage_of(path).exists(path)


def read_bytes(path: str) -> bytes:
    """All of a file. Raises: OSError."""
    return storage_of(path).read(path)


def write_atomically(path: str, data: Bytes) -> None:
    """Replace a file, so that a crash leaves the old one or the new one, whole. Raises: OSError."""
    storage_of(path).write_atomically(path, data)


# --------------------------------------------------------------------------- paths


def as_path(path: systems.PathLike) -> str:
    """A path as text, without `file://`, as the user may give it."""
    return systems.as_path(path).removeprefix("file://")


def storage_of(path: str) -> Storage:
    """The storage that a path is in.

    Raises: UnimplementedError: nothing installed knows the URL's scheme.
    """
    if not systems.is_url(path):
        return LOCAL
    from weft_io.checkpoint.remote import RemoteStorage

    return RemoteStorage(path)


def split_prefix(path: str) -> tuple[str, str]:
    """Directory ("." where the path names none) and last part of a path."""
    if systems.is_url(path):
        directory, _, base = path.rpartition("/")
        return (directory + "/" if directory.endswith("/") else directory), base
    directory, base = os.path.split(path)
    return directory or ".", base


def base_name(path: str) -> str:
    """The last part of a path."""
    return split_prefix(path)[1]


def join(directory: str, path: str) -> str:
    """A path within a directory; one that is absolute, or a URL, is itself."""
    if is_absolute(path):
        return path
    url = systems.is_url(directory)
    return systems.join(directory, path) if url else os.path.join(directory, path)


def is_absolute(path: str) -> bool:
    """Whether a path means the same wherever the program runs: URLs do."""
    return systems.is_url(path) or os.path.isabs(path)


def absolute(path: str) -> str:
    """The path as one that means the same wherever the program runs."""
    return path if systems.is_url(path) else os.path.abspath(path)


def relative(path: str, directory: str) -> str:
    """The path as seen from a directory; a URL that is outside it stays itself."""
    if systems.is_url(path) or systems.is_url(directory):
        return path.removeprefix(systems.join(directory, ""))
    return os.path.relpath(path, directory)
