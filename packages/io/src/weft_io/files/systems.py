"""The interface of file systems, for local paths and for URLs through fsspec."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat as modes
from collections.abc import Iterable
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, cast

from weft_exec.resources.file_access import check_path, open_checked
from weft_tensor import errors

PathLike = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_SCHEME: Final = re.compile(r"^(?:[a-zA-Z][\w+.-]*::)*(?P<scheme>[a-zA-Z][\w+.-]*)://")


class FileStatistics(NamedTuple):
    """The result of `stat`.

    Attributes:
      length: bytes.
      mtime_nsec: time of the last change, in nanoseconds since 1970; 0 if a store does not report
        it.
      is_directory: True if it is a directory.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


class FileSystem(Protocol):
    """The interface of file systems. Methods raise OSError; paths are results of `locate`."""

    def open(self, path: str, mode: str) -> BinaryIO:
        """Open a file; `mode` is binary."""
        ...

    def stat(self, path: str) -> FileStatistics:
        """Return size, modification time and kind of a file."""
        ...

    def list(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a directory, unordered, and whether each is a directory."""
        ...

    def make_directory(self, path: str, parents: bool) -> None:
        """Create a directory; with `parents` also its parents, and it may exist already."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a file, or a directory with its contents."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory, replacing the target."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy a file, replacing the target."""
        ...

    def link(self, source: str, target: str) -> None:
        """Link a file to a new name; copy it if links are not supported."""
        ...


class LocalFileSystem:
    """The file system of paths without a scheme and of `file://`."""

    def open(self, path: str, mode: str) -> BinaryIO:
        """Open a file, buffered."""
        return cast(BinaryIO, open(path, mode, opener=open_checked))

    def stat(self, path: str) -> FileStatistics:
        """Return size, modification time and kind, following symbolic links."""
        result = os.stat(path)
        return FileStatistics(result.st_size, result.st_mtime_ns, modes.S_ISDIR(result.st_mode))

    def list(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a directory, and whether they are directories."""
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir()) for entry in entries]

    def make_directory(self, path: str, parents: bool) -> None:
        """Create a directory."""
        if parents:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a file or a tree; links in the tree are removed, not followed."""
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        """Move within the file system; copy and remove if the target is on another file system."""
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.move(source, target)

    def copy(self, source: str, target: str) -> None:
        """Copy a file."""
        shutil.copyfile(source, target)

    def link(self, source: str, target: str) -> None:
        """Create a hard link, or a copy if the file system does not support links."""
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EMLINK):
                raise
            shutil.copyfile(source, target)


class FsspecFileSystem:
    """A file system of fsspec.

    Args:
      fs: an `fsspec.AbstractFileSystem`.
    """

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FsspecFileSystem) and bool(self._fs == other._fs)

    def __hash__(self) -> int:
        return hash(self._fs)

    def open(self, path: str, mode: str) -> BinaryIO:
        """Open a file."""
        if "r" in mode and self._fs.isdir(path):
            raise IsADirectoryError(f"{path} is a directory")
        return cast(BinaryIO, self._fs.open(path, mode))

    def stat(self, path: str) -> FileStatistics:
        """Return size, modification time (if the store reports it) and kind."""
        info = self._fs.info(path)
        directory = info.get("type") == "directory"
        return FileStatistics(int(info.get("size") or 0), self._change(path, info), directory)

    def _change(self, path: str, info: dict[str, Any]) -> int:
        if info.get("type") == "directory":
            return 0
        try:
            return int(self._fs.modified(path).timestamp() * 1e9)
        except (NotImplementedError, FileNotFoundError):  # not every store keeps the time
            return 0

    def list(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a directory, and whether they are directories."""
        self._fs.invalidate_cache(path)  # others write there too
        ls = self._fs.ls(path, detail=True)
        rstrip = path.rstrip("/")
        pairs = [(entry["name"].rstrip("/"), entry["type"] == "directory") for entry in ls]
        return [(name.rpartition("/")[2], kind) for name, kind in pairs if name != rstrip]

    def make_directory(self, path: str, parents: bool) -> None:
        """Create a directory; do nothing in object stores."""
        if parents:
            self._fs.makedirs(path, exist_ok=True)
        else:
            self._fs.mkdir(path, create_parents=False)

    def remove(self, path: str) -> None:
        """Remove a file."""
        if self._fs.isdir(path):
            raise IsADirectoryError(f"{path} is a directory")
        self._fs.rm_file(path)

    def remove_tree(self, path: str) -> None:
        """Remove a file or a tree."""
        self._fs.rm(path, recursive=True)

    def rename(self, source: str, target: str) -> None:
        """Move a file or a tree."""
        self._fs.mv(source, target, recursive=self._fs.isdir(source))

    def copy(self, source: str, target: str) -> None:
        """Copy a file inside the store."""
        self._fs.cp_file(source, target)

    def link(self, source: str, target: str) -> None:
        """Copy the file, because stores do not support links."""
        self.copy(source, target)


LOCAL: Final = LocalFileSystem()


def as_path(path: PathLike) -> str:
    """Return a path as text; names that are not UTF-8 are preserved by surrogates.

    Raises:
      InvalidTypeError: it is not a path.
      InvalidArgumentError: it contains a zero byte.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise errors.InvalidTypeError(f"a path must be str, bytes or PathLike, got {path!r}")
    text = os.fsdecode(path)
    if "\0" in text:
        raise errors.InvalidArgumentError(f"a path must not contain a zero byte, got {text!r}")
    return text


def is_url(path: str) -> bool:
    """Return True if a path is handled by fsspec."""
    match = _SCHEME.match(path)
    return match is not None and not path.startswith("file://")


def locate(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a path, and the path within it.

    Raises: UnimplementedError: no installed package supports the URL's scheme.
    """
    check_path(path)
    if not is_url(path):
        return LOCAL, path.removeprefix("file://")
    from fsspec.core import url_to_fs

    try:
        fs, inner = url_to_fs(path)
    except (ValueError, ImportError) as cause:
        match = _SCHEME.match(path)
        assert match is not None
        raise errors.UnimplementedError(
            f"File system scheme {match['scheme']!r} not implemented (file: {path!r}): {cause}"
        ) from cause
    return FsspecFileSystem(fs), inner


def join(directory: str, name: str) -> str:
    """Join a directory, as a URL or a path, and a name."""
    if not directory:
        return name
    return directory + name if directory.endswith("/") else f"{directory}/{name}"


# --------------------------------------------------------------------------- patterns

_SPECIAL: Final = re.compile(r"[*?\[\\]")


def has_pattern(path: str) -> bool:
    """Return True if a path contains wildcards."""
    return _SPECIAL.search(path) is not None


def translate(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression for one part of a path.

    Args:
      pattern: `*` matches any characters, `?` one character, `[a-z]` one of a set, `[^a]` or `[!a]`
        one outside a set, `\*` the character itself; none of them matches "/".
    Raises:
      InvalidArgumentError: a set or an escape is incomplete.
    """
    parts = [""]  # between asterisks
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == "*":
            parts.append("")
        elif char == "?":
            parts[-1] += "."
        elif char == "[":
            text, index = _set(pattern, index)
            parts[-1] += text
        elif char == "\\":
            if index == len(pattern):
                raise errors.InvalidArgumentError(
                    f"the pattern {pattern!r} ends with an unfinished escape"
                )
            parts[-1] += re.escape(pattern[index])
            index += 1
        else:
            parts[-1] += re.escape(char)
    return re.compile(_join(parts), re.DOTALL)


def _join(parts: list[str]) -> str:
    """Join the parts of a pattern, with any text between them.

    The first match of each part is final; there is no backtracking. Many asterisks
    therefore take no longer than one.
    """
    first, *remaining = parts
    if not remaining:
        return first
    return (
        first
        + "".join([f"(?>.*?{part})" for part in remaining[:-1] if part])
        + ".*"
        + remaining[-1]
    )


def _set(pattern: str, index: int) -> tuple[str, int]:
    negative = pattern[index : index + 1] in ("^", "!")
    start = index + negative
    end = pattern.find("]", start + 1)  # a leading "]" is literal
    if end < 0:
        raise errors.InvalidArgumentError(
            f"the pattern {pattern!r} has a '[' without a matching ']'"
        )
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", pattern[start:end])
    try:
        text = f"[{'^' if negative else ''}{inner}]"
        re.compile(text)
    except re.error as cause:
        raise errors.InvalidArgumentError(
            f"the pattern {pattern!r} has the malformed set [{inner}]: {cause}"
        ) from cause
    return text, end + 1


def expand(pattern: str) -> list[str]:
    """Return the sorted files and directories that match a pattern."""
    match = _SCHEME.match(pattern)
    root = match[0] if match else ""
    if os.name == "nt" and not root:
        pattern = pattern.replace("\\", "/")
    parts = pattern[len(root) :].split("/")
    result = [root]
    for i, part in enumerate(parts):
        if not part:
            result = [f"{base}/" if i == 0 or base[-1] != "/" else base for base in result]
        elif has_pattern(part):
            last = i == len(parts) - 1
            result = [
                join(base, name) for base in result for name in _filter_entries(base, part, last)
            ]
        else:
            result = [join(base, part) for base in result]
    if not has_pattern(parts[-1]):
        result = [path for path in result if _exists(path)]
    return sorted(result)


def _filter_entries(directory: str, pattern: str, last: bool) -> Iterable[str]:
    fs, inner = locate(directory or ".")
    expression = translate(pattern)
    try:
        entries = fs.list(inner)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name, kind in entries if (last or kind) and expression.fullmatch(name)]


def _exists(path: str) -> bool:
    fs, inner = locate(path)
    try:
        fs.stat(inner)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
