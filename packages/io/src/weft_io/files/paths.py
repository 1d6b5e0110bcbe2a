"""Paths of checkpoints, and the storage that a path belongs to."""

from __future__ import annotations

import os

from weft_exec.resources.file_access import check_path
from weft_io.files import systems
from weft_io.files.local_storage import LOCAL
from weft_io.files.storage import Bytes, Storage

# --------------------------------------------------------------------------- files


def exists(path: str) -> bool:
    """Return True if a file of that name exists."""
    return storage_of(path).exists(path)


def read_bytes(path: str) -> bytes:
    """Return the contents of a file."""
    return storage_of(path).read(path)


def write_atomically(path: str, *parts: Bytes) -> None:
    """Replace a file atomically: after a crash it is completely old or completely new.

    Args:
      parts: the contents, one after the other.
    """
    storage_of(path).write_atomically(path, *parts)


# --------------------------------------------------------------------------- paths


def as_path(path: systems.PathLike) -> str:
    """Convert a path in any form that users may pass to text, without `file://`."""
    return systems.as_path(path).removeprefix("file://")


def storage_of(path: str) -> Storage:
    """Return the storage that a path belongs to.

    Raises: UnimplementedError: no installed package supports the URL's scheme.
    """
    check_path(path)
    if not systems.is_url(path):
        return LOCAL
    from weft_io.files.remote_storage import RemoteStorage

    return RemoteStorage(path)


def split_prefix(path: str) -> tuple[str, str]:
    """Split a path into directory ("." if it has none) and last part."""
    if systems.is_url(path):
        directory, _, base = path.rpartition("/")
        return (directory + "/" if directory.endswith("/") else directory), base
    directory, base = os.path.split(path)
    return directory or ".", base


def base_name(path: str) -> str:
    """Return the last part of a path."""
    return split_prefix(path)[1]


def join(directory: str, path: str) -> str:
    """Join a directory and a path; an absolute path or URL is returned unchanged."""
    if is_absolute(path):
        return path
    url = systems.is_url(directory)
    return systems.join(directory, path) if url else os.path.join(directory, path)


def is_absolute(path: str) -> bool:
    """Return True if a path is independent of the working directory, such as a URL."""
    return systems.is_url(path) or os.path.isabs(path)


def absolute(path: str) -> str:
    """Return the absolute form of a path, with any trailing slash."""
    return path if systems.is_url(path) else os.path.abspath(path) + _last_slash(path)


def relative(path: str, directory: str) -> str:
    """Return a path relative to a directory; a URL outside it is returned unchanged."""
    if systems.is_url(path) or systems.is_url(directory):
        return path.removeprefix(systems.join(directory, ""))
    return os.path.relpath(path, directory) + _last_slash(path)


def _last_slash(path: str) -> str:
    """Return the trailing slash of a prefix without a base name, or ""."""
    return "/" if path.endswith("/") and path.strip("/") else ""
