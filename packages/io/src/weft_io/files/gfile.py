"""Files and directories, local or at any URL that fsspec knows: `tf.io.gfile`.

A path is a string, bytes or a `PathLike`; with a scheme (`s3://`, `memory://`) it goes through
fsspec, which requires that scheme's package. Failures are the errors of `weft_tensor.errors`.
"""

from __future__ import annotations

__all__ = [
    "GFile",
    "copy",
    "exists",
    "get_registered_schemes",
    "glob",
    "isdir",
    "join",
    "listdir",
    "makedirs",
    "mkdir",
    "remove",
    "rename",
    "rmtree",
    "stat",
    "walk",
]

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

from weft_io.files.systems import (
    FileStatistics,
    PathLike,
    as_path,
    expand,
    join as _join,
    locate,
)
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

_CHUNK: Final = 1 << 20

# ------------------------------------------------------------------------------ questions


def stat(path: PathLike) -> FileStatistics:
    """Return the length, modification time and kind of a file.

    Args:
      path: local, or a URL that fsspec knows.
    Returns: a tuple of `length` in bytes, `mtime_nsec`, nanoseconds since 1970, and `is_directory`.
    Raises: NotFoundError: the file does not exist.

    Examples:
      >>> with wf.io.gfile.GFile("abc", "w") as file:
      ...     file.write("abc")
      >>> wf.io.gfile.stat("abc").length
      3
    """
    name = as_path(path)
    fs, inner = locate(name)
    with convert_os_errors("checking", name):
        return fs.stat(inner)


def exists(path: PathLike) -> bool:
    """Return True if a file or directory of that name exists.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: PermissionDeniedError, ...: its existence cannot be determined.

    Examples:
      >>> wf.io.gfile.exists("nowhere")
      False
    """
    return _try_stat(as_path(path)) is not None


def isdir(path: PathLike) -> bool:
    """Return True if the path is a directory; False if it does not exist.

    Args:
      path: local, or a URL that fsspec knows.

    Examples:
      >>> wf.io.gfile.mkdir("directory")
      >>> wf.io.gfile.isdir("directory")
      True
    """
    stat = _try_stat(as_path(path))
    return stat is not None and stat.is_directory


def _try_stat(name: str) -> FileStatistics | None:
    if not name:
        return None
    fs, inner = locate(name)
    with convert_os_errors("checking", name):
        try:
            return fs.stat(inner)
        except (FileNotFoundError, NotADirectoryError):
            return None


def listdir(path: PathLike) -> list[str]:
    """Return the names in a directory, sorted.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: NotFoundError: the directory does not exist.

    Examples:
      >>> wf.io.gfile.makedirs("inside/b")
      >>> wf.io.gfile.makedirs("inside/a")
      >>> wf.io.gfile.listdir("inside")
      ['a', 'b']
    """
    return [name for name, _ in _entries(as_path(path))]


def _entries(name: str) -> list[tuple[str, bool]]:
    fs, inner = locate(name)
    with convert_os_errors("listing", name):
        if not fs.stat(inner).is_directory:
            raise FileNotFoundError(f"{name} is not a directory")
        return sorted(fs.list(inner))


def glob(pattern: PathLike | Iterable[PathLike]) -> list[str]:
    r"""Return the sorted paths that match one of several patterns.

    Args:
      pattern: in any part of the path, `*` matches any characters except "/", `?` one character,
        `[a-z]` one of a set, `[^a]` one outside a set, and `\*` the character itself.
    Raises:
      InvalidArgumentError: a set or an escape is incomplete.

    Examples:
      >>> for name in ("log-1", "log-2", "log-x"):
      ...     wf.io.gfile.mkdir(name)
      >>> wf.io.gfile.glob("log-[0-9]")
      ['log-1', 'log-2']
    """
    patterns = [pattern] if isinstance(pattern, str | bytes | os.PathLike) else pattern
    names: list[str] = []
    for item in patterns:
        name = as_path(item)
        with convert_os_errors("searching", name):
            names += expand(name)
    return names


def walk(
    top: PathLike,
    topdown: bool = True,
    onerror: Callable[[errors.OpError], Any] | None = None,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield every directory under `top`, itself included: (path, directories, files).

    Args:
      topdown: yield a directory before its contents; otherwise after them.
      onerror: called with the error if a directory cannot be listed; ignored by default.

    Examples:
      >>> wf.io.gfile.makedirs("walked/inner")
      >>> for path, directories, files in wf.io.gfile.walk("walked", topdown=False):
      ...     print(path, directories, files)
      walked/inner [] []
      walked ['inner'] []
    """
    name = as_path(top)
    try:
        entries = _entries(name)
    except errors.OpError as error:
        if onerror is not None:
            onerror(error)
        return
    directories = [entry for entry, kind in entries if kind]
    entry_of_directory = (name, directories, [entry for entry, kind in entries if not kind])
    if topdown:
        yield entry_of_directory
    for entry in directories:
        yield from walk(_join(name, entry), topdown, onerror)
    if not topdown:
        yield entry_of_directory


def join(path: PathLike, *paths: PathLike) -> str:
    """Join parts of a path or URL; an absolute part replaces the previous ones.

    Args:
      path: the first part.
      paths: the further parts.

    Examples:
      >>> wf.io.gfile.join("memory://bucket", "data", "part-0")
      'memory://bucket/data/part-0'
    """
    result = as_path(path)
    for part in map(as_path, paths):
        result = part if part.startswith("/") or "://" in part else _join(result, part)
    return result


# ---------------------------------------------------------------------------- changes


def mkdir(path: PathLike) -> None:
    """Create a directory if it does not exist.

    Args:
      path: local, or a URL that fsspec knows.
    Raises:
      NotFoundError: the parent directory does not exist.
      FailedPreconditionError: a file of that name exists.

    Examples:
      >>> wf.io.gfile.mkdir("made")
      >>> wf.io.gfile.isdir("made")
      True
    """
    _make_directory(as_path(path), parents=False)


def makedirs(path: PathLike) -> None:
    """Create a directory and its parents; existing ones are left unchanged.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: FailedPreconditionError: the path, or a parent, is a file.

    Examples:
      >>> wf.io.gfile.makedirs("made/both")
      >>> wf.io.gfile.isdir("made/both")
      True
    """
    _make_directory(as_path(path), parents=True)


def _make_directory(name: str, parents: bool) -> None:
    stat = _try_stat(name)
    if stat is not None and stat.is_directory:
        return
    fs, inner = locate(name)
    with convert_os_errors("creating the directory", name):
        if stat is not None:
            raise NotADirectoryError(f"{name} is a file")
        fs.make_directory(inner, parents)


def remove(path: PathLike) -> None:
    """Remove a file.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: NotFoundError: the file does not exist; FailedPreconditionError: the path is a
      directory.

    Examples:
      >>> with wf.io.gfile.GFile("brief", "w") as file:
      ...     file.write("text")
      >>> wf.io.gfile.remove("brief")
      >>> wf.io.gfile.exists("brief")
      False
    """
    name = as_path(path)
    fs, inner = locate(name)
    with convert_os_errors("removing", name):
        fs.remove(inner)


def rmtree(path: PathLike) -> None:
    """Remove a directory with its contents, or a file.

    Args:
      path: local, or a URL that fsspec knows.
    Raises: NotFoundError: the path does not exist.

    Examples:
      >>> wf.io.gfile.makedirs("whole/tree")
      >>> wf.io.gfile.rmtree("whole")
      >>> wf.io.gfile.exists("whole")
      False
    """
    name = as_path(path)
    fs, inner = locate(name)
    with convert_os_errors("removing", name):
        fs.remove_tree(inner)


def rename(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Move a file or directory; a move of a file between file systems copies it.

    Args:
      src, dst: local paths, or URLs that fsspec knows.
      overwrite: replace an existing file.
    Raises: NotFoundError; AlreadyExistsError: the target exists, and `overwrite` is false;
      FailedPreconditionError: one is a file and the other an existing directory;
      UnimplementedError: directories cannot be moved to another file system.

    Examples:
      >>> wf.io.gfile.mkdir("before")
      >>> wf.io.gfile.rename("before", "after")
      >>> wf.io.gfile.exists("before"), wf.io.gfile.exists("after")
      (False, True)
    """
    source, target = as_path(src), as_path(dst)
    result = stat(source)
    _check_can_write(target, overwrite)
    (fs, inner), (target_fs, target_path) = locate(source), locate(target)
    if fs == target_fs:
        with convert_os_errors("renaming", source):
            fs.rename(inner, target_path)
        return
    if result.is_directory:
        raise errors.UnimplementedError(
            f"a directory can be moved only within one file system, got {source} and {target}"
        )
    copy(source, target, overwrite)
    remove(source)


def copy(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Copy a file, also between file systems.

    Args:
      src, dst: local paths, or URLs that fsspec knows.
      overwrite: replace an existing file.
    Raises: NotFoundError; AlreadyExistsError: the target exists, and `overwrite` is false;
      FailedPreconditionError: one of the paths is a directory.

    Examples:
      >>> with wf.io.gfile.GFile("original", "w") as file:
      ...     file.write("text")
      >>> wf.io.gfile.copy("original", "memory://copies/one")
      >>> wf.io.gfile.GFile("memory://copies/one").read()
      'text'
    """
    source, target = as_path(src), as_path(dst)
    result = stat(source)
    _check_can_write(target, overwrite)
    with convert_os_errors("copying", source):
        if result.is_directory:
            raise IsADirectoryError(f"{source} is a directory")
    (fs, inner), (target_fs, target_path) = locate(source), locate(target)
    with convert_os_errors(f"copying {source} to", target):
        if fs == target_fs:
            fs.copy(inner, target_path)
            return
        with fs.open(inner, "rb") as reading, target_fs.open(target_path, "wb") as writing:
            shutil.copyfileobj(reading, writing, _CHUNK)


def _check_can_write(target: str, overwrite: bool) -> None:
    if not overwrite and exists(target):
        raise errors.AlreadyExistsError(
            f"{target} exists; pass overwrite=True to replace it", details={"file": target}
        )


# ------------------------------------------------------------------------------ files


class GFile:
    """An open file, local or at a URL.

    It is opened at the first use, so `read` fails if the file does not exist. Positions
    count bytes, also in text mode.

    Args:
      name: path.
      mode: "r", "w", "a", "r+", "w+" or "a+", for UTF-8 text; with an additional "b" for bytes.
    Raises: InvalidArgumentError: the mode is unknown.

    Examples:
      >>> with wf.gfile.GFile("note.txt", "w") as file:
      ...     _ = file.write("hello")
      >>> with wf.gfile.GFile("note.txt") as file:
      ...     file.read()
      'hello'
    """

    def __init__(self, name: PathLike, mode: str = "r") -> None:
        plain = mode.replace("b", "")
        if plain not in ("r", "w", "a", "r+", "w+", "a+") or mode.count("b") > 1:
            raise errors.InvalidArgumentError(
                f"mode must be 'r', 'w', 'a', 'r+', 'w+' or 'a+', with 'b' for bytes, got {mode!r}"
            )
        self._path = as_path(name)
        self._name = name
        self._mode = mode
        self._binary = "b" in mode
        self._plain = plain
        self._file: BinaryIO | None = None
        self._used = False

    @property
    def name(self) -> Any:
        """The path passed to the constructor."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode passed to the constructor."""
        return self._mode

    def _open(self, doing: str = "opening") -> BinaryIO:
        if self._file is None:
            fs, inner = locate(self._path)
            mode = self._plain[0] + "b" + self._plain[1:]
            with convert_os_errors(doing, self._path):
                self._file = fs.open(inner, mode)
            self._used = True
        return self._file

    def _readable(self) -> BinaryIO:
        if self._plain in ("w", "a"):
            raise errors.PermissionDeniedError(
                f"{self._path} is open with mode {self._mode!r}, which does not allow reading"
            )
        return self._open("reading")

    def size(self) -> int:
        """Return the size of the file in bytes, without unflushed data."""
        return stat(self._path).length

    def read(self, n: int = -1) -> Any:
        """Return the next `n` bytes, or the rest of the file, as text or bytes.

        In text mode the last character is read completely.

        Raises: NotFoundError, ...; InvalidArgumentError: in text mode, the bytes are not UTF-8.
        """
        file = self._readable()
        with convert_os_errors("reading", self._path):
            data = file.read() if n is None or n < 0 else self._read_some(file, n)
        return self._decode(data, file)

    def _read_some(self, file: BinaryIO, n: int) -> bytes:
        data = file.read(n)
        if self._binary or not data:
            return data
        missing_bytes = _missing_bytes(data)
        return data + file.read(missing_bytes) if missing_bytes else data

    def _decode(self, data: bytes, file: BinaryIO) -> Any:
        if self._binary:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as cause:
            offset = file.tell() - len(data) + cause.start
            raise errors.InvalidArgumentError(
                f"{self._path} is not UTF-8 text at offset {offset}: {cause.reason}; use a mode "
                "with 'b' to read bytes",
                details={"file": self._path, "offset": offset},
            ) from cause

    def readline(self) -> Any:
        """Return the next line with its line end; empty at the end of the file."""
        file = self._readable()
        with convert_os_errors("reading", self._path):
            data = file.readline()
        return self._decode(data, file)

    def readlines(self) -> list[Any]:
        """Return the remaining lines, with their line ends."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def next(self) -> Any:
        """Return the next line; raises StopIteration after the last."""
        return self.__next__()

    def write(self, file_content: str | bytes) -> None:
        """Append text, encoded as UTF-8, or bytes.

        Raises: PermissionDeniedError: the file is not open for writing; ResourceExhaustedError: the
          disk is full.
        """
        if self._plain == "r":
            raise errors.PermissionDeniedError(
                f"{self._path} is open with mode {self._mode!r}, which does not allow writing"
            )
        if not isinstance(file_content, str | bytes | bytearray | memoryview):
            raise TypeError(f"write() requires text or bytes, got {type(file_content).__name__}")
        data = file_content.encode() if isinstance(file_content, str) else file_content
        file = self._open("writing")
        with convert_os_errors("writing", self._path):
            file.write(data)

    def tell(self) -> int:
        """Return the position in bytes."""
        with convert_os_errors("reading", self._path):
            return self._open().tell()

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Set the position in bytes.

        Args:
          offset: relative to `whence`.
          whence: 0 for the start, 1 for the current position, 2 for the end.
          position: the deprecated name of `offset` from the start.
        Raises: InvalidArgumentError: the position is before the start, or `whence` is unknown.
        """
        if position is not None:
            offset, whence = position, 0
        if offset is None:
            raise TypeError("seek() requires an offset")
        file = self._open()
        with convert_os_errors("seeking in", self._path):
            try:
                file.seek(offset, whence)
            except ValueError as cause:
                raise errors.InvalidArgumentError(
                    f"seeking in {self._path} failed: {cause}"
                ) from cause

    def seekable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Flush written data to the file system."""
        if self._file is not None:
            with convert_os_errors("writing", self._path):
                self._file.flush()

    def close(self) -> None:
        """Flush and close the file; if it was opened for writing, it exists afterwards."""
        if not self._used and self._plain[0] != "r":
            self._open("writing")
        file, self._file = self._file, None
        if file is not None:
            with convert_os_errors("closing", self._path):
                file.close()

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path!r}, mode {self._mode!r}>"


def _missing_bytes(data: bytes) -> int:
    """Return the number of bytes missing from the last character of UTF-8 text."""
    for i in range(1, min(4, len(data)) + 1):
        byte = data[-i]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return max(0, length - i)
    return 0


def get_registered_schemes() -> list[str]:
    """Return the supported URL schemes of files; "" is for local paths.

    Some schemes require an additional package.

    Examples:
      >>> {"", "file", "memory"} <= set(wf.io.gfile.get_registered_schemes())
      True
    """
    from fsspec import available_protocols

    return sorted({"", "file", *available_protocols()})
