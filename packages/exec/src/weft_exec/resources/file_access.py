"""File access of steps: unrestricted, or limited to some roots for untrusted sessions.

Kernels of sessions of other processes run under `restrict_files`. Code that opens a file calls
`check_path` first, and opens local files with `open_checked`, because links may change in between.
Code that opens files later on another thread passes `file_roots()` to `restrict_files` there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from weft_tensor import errors

_here: Final = threading.local()


class FileRoots:
    """Directories and URL prefixes below which files are accessible.

    Args:
      roots: paths, which are resolved now, and URLs such as "s3://bucket/runs".
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._urls = tuple(root.rstrip("/") for root in roots if _is_url(root))
        paths = [root.removeprefix("file://") for root in roots if not _is_url(root)]
        self._paths = tuple(os.path.realpath(path) for path in paths)

    def check(self, path: str) -> None:
        """Raise unless a path is inside the roots, with symbolic links and ".." resolved.

        Raises: PermissionDeniedError: the message lists the roots.
        """
        if not (self._has_url(path) if _is_url(path) else self._has(path.removeprefix("file://"))):
            allowed = ", ".join([*self._paths, *self._urls]) or "none"
            raise errors.PermissionDeniedError(
                f"{path!r} is outside of the directories that sessions of other processes may "
                f"access: {allowed}. To allow it, start the server with other roots (weft server "
                "--root, or WEFT_FILE_ROOTS)"
            )

    def check_open(self, path: str, file: int) -> None:
        """Raise unless an open file is inside the roots.

        On systems that do not report the location of an open file, nothing is checked.
        """
        try:
            real = os.readlink(f"/proc/self/fd/{file}")
        except OSError:
            return
        if not self._has(real):
            raise errors.PermissionDeniedError(
                f"{path!r} resolved to {real!r} when opened, which is outside of the "
                "directories that sessions of other processes may access"
            )

    def _has(self, path: str) -> bool:
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(root) for root in self._paths)

    def _has_url(self, path: str) -> bool:
        if "::" in path or "\\" in path or ".." in path.split("/"):
            return False
        return any(path == root or path.startswith(root + "/") for root in self._urls)


def _is_url(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def file_roots() -> FileRoots | None:
    """Return the roots that restrict this thread; None if all files are accessible."""
    return getattr(_here, "roots", None)


@contextmanager
def restrict_files(roots: FileRoots | None) -> Iterator[None]:
    """Restrict the current thread to roots inside the block."""
    outer_roots = file_roots()
    _here.roots = roots
    try:
        yield
    finally:
        _here.roots = outer_roots


def check_path(path: str) -> None:
    """Raise if this thread may not access a path.

    Raises: PermissionDeniedError: see `FileRoots.check`.
    """
    roots = file_roots()
    if roots is not None:
        roots.check(path)


def open_checked(path: str, flags: int) -> int:
    """Open a local file like `os.open` and check it again; for the parameter `opener` of `open`.

    Raises: PermissionDeniedError: a link was changed since the path was checked. The file is left
    unchanged.
    """
    roots = file_roots()
    if roots is None:
        return os.open(path, flags, 0o666)
    file = os.open(path, flags & ~os.O_TRUNC, 0o666)
    try:
        roots.check_open(path, file)
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:  # because the file must be closed after any failure
        os.close(file)
        raise
    return file
