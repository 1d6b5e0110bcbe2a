"""The deprecated `tf.gfile` functions, aliases of `tf.io.gfile` functions."""

from __future__ import annotations

__all__ = [
    "Copy",
    "DeleteRecursively",
    "Exists",
    "FastGFile",
    "GFile",
    "Glob",
    "IsDirectory",
    "ListDirectory",
    "MakeDirs",
    "MkDir",
    "Open",
    "Remove",
    "Rename",
    "Stat",
    "Walk",
]

from collections.abc import Iterable, Iterator

from weft_io.files import gfile
from weft_io.files.gfile import GFile
from weft_io.files.systems import FileStatistics, PathLike


class FastGFile(GFile):
    """The deprecated alias of GFile.

    Args:
      name: path.
      mode: as for `GFile`.
    Raises: InvalidArgumentError: the mode is unknown.

    Examples:
      >>> with wf.gfile.FastGFile("bytes", "wb") as file:
      ...     file.write(b"abc")
      >>> wf.gfile.FastGFile("bytes", "rb").read(2)
      b'ab'
    """


Open = GFile


def Copy(oldpath: PathLike, newpath: PathLike, overwrite: bool = False) -> None:  # noqa: N802
    """Copy a file, also between file systems.

    Args:
      oldpath: the file, a path or a URL that fsspec knows.
      newpath: path of the copy, not of a directory.
      overwrite: replace an existing file.
    Raises:
      NotFoundError: the file, or the directory for the copy, does not exist.
      AlreadyExistsError: the target exists, and `overwrite` is false.
      FailedPreconditionError: one of the paths is a directory.

    Examples:
      >>> with wf.gfile.GFile("from.txt", "w") as file:
      ...     file.write("text")
      >>> wf.gfile.Copy("from.txt", "to.txt")
      >>> wf.gfile.GFile("to.txt").read()
      'text'
    """
    gfile.copy(oldpath, newpath, overwrite)


def DeleteRecursively(dirname: PathLike) -> None:  # noqa: N802
    """Remove a directory with its contents, or a file.

    Args:
      dirname: a path, or a URL that fsspec knows.
    Raises: NotFoundError: the path does not exist.

    Examples:
      >>> wf.gfile.MakeDirs("tree/branch")
      >>> wf.gfile.DeleteRecursively("tree")
      >>> wf.gfile.Exists("tree")
      False
    """
    gfile.rmtree(dirname)


def Exists(filename: PathLike) -> bool:  # noqa: N802
    """Return True if a file or directory of that name exists.

    Args:
      filename: a path, or a URL that fsspec knows.

    Examples:
      >>> wf.gfile.Exists("nowhere")
      False
    """
    return gfile.exists(filename)


def Glob(filename: PathLike | Iterable[PathLike]) -> list[str]:  # noqa: N802
    """Return the paths that match one of several patterns; see `glob`.

    Args:
      filename: a pattern, or several.

    Examples:
      >>> wf.gfile.Glob("nothing*")
      []
    """
    return gfile.glob(filename)


def IsDirectory(dirname: PathLike) -> bool:  # noqa: N802
    """Return True if the path is a directory.

    Args:
      dirname: a path, or a URL that fsspec knows.

    Examples:
      >>> wf.gfile.IsDirectory("nowhere")
      False
    """
    return gfile.isdir(dirname)


def ListDirectory(dirname: PathLike) -> list[str]:  # noqa: N802
    """Return the names in a directory, sorted; see `listdir`.

    Args:
      dirname: a path, or a URL that fsspec knows.

    Examples:
      >>> wf.gfile.MakeDirs("c/d")
      >>> wf.gfile.ListDirectory("c")
      ['d']
    """
    return gfile.listdir(dirname)


def MakeDirs(dirname: PathLike) -> None:  # noqa: N802
    """Create a directory and its parents; see `makedirs`.

    Args:
      dirname: a path, or a URL that fsspec knows.

    Examples:
      >>> wf.gfile.MakeDirs("a/b")
      >>> wf.gfile.IsDirectory("a/b")
      True
    """
    gfile.makedirs(dirname)


def MkDir(dirname: PathLike) -> None:  # noqa: N802
    """Create a directory if it does not exist.

    Args:
      dirname: a path, or a URL that fsspec knows.
    Raises:
      NotFoundError: the parent directory does not exist; `MakeDirs` creates it, too.
      FailedPreconditionError: a file of that name exists.

    Examples:
      >>> wf.gfile.MkDir("logs")
      >>> wf.gfile.IsDirectory("logs")
      True
    """
    gfile.mkdir(dirname)


def Remove(filename: PathLike) -> None:  # noqa: N802
    """Remove a file.

    Args:
      filename: a path, or a URL that fsspec knows.
    Raises:
      NotFoundError: the file does not exist.
      FailedPreconditionError: the path is a directory; use `DeleteRecursively`.

    Examples:
      >>> with wf.gfile.GFile("old.txt", "w") as file:
      ...     file.write("text")
      >>> wf.gfile.Remove("old.txt")
      >>> wf.gfile.Exists("old.txt")
      False
    """
    gfile.remove(filename)


def Rename(oldname: PathLike, newname: PathLike, overwrite: bool = False) -> None:  # noqa: N802
    """Move a file or directory; a move of a file between file systems copies it.

    Args:
      oldname: a path, or a URL that fsspec knows.
      newname: its new path.
      overwrite: replace an existing file.
    Raises:
      NotFoundError: the file or directory does not exist.
      AlreadyExistsError: the target exists, and `overwrite` is false.
      FailedPreconditionError: one is a file and the other an existing directory.
      UnimplementedError: directories cannot be moved to another file system.

    Examples:
      >>> with wf.gfile.GFile("draft.txt", "w") as file:
      ...     file.write("text")
      >>> wf.gfile.Rename("draft.txt", "final.txt")
      >>> wf.gfile.Exists("draft.txt"), wf.gfile.Exists("final.txt")
      (False, True)
    """
    gfile.rename(oldname, newname, overwrite)


def Stat(filename: PathLike) -> FileStatistics:  # noqa: N802
    """Return the length and modification time of a file, and whether it is a directory.

    Args:
      filename: a path, or a URL that fsspec knows.
    Returns: a tuple of `length` in bytes, `mtime_nsec`, nanoseconds since 1970, and `is_directory`.
    Raises: NotFoundError: the path does not exist.

    Examples:
      >>> with wf.gfile.GFile("five.txt", "w") as file:
      ...     file.write("12345")
      >>> found = wf.gfile.Stat("five.txt")
      >>> found.length, found.is_directory
      (5, False)
    """
    return gfile.stat(filename)


def Walk(  # noqa: N802
    top: PathLike, in_order: bool = True
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield every directory under `top`, itself included; nothing if it does not exist.

    Args:
      top: a path, or a URL that fsspec knows.
      in_order: yield a directory before its contents; otherwise after them.
    Yields: (path, directories in it, files in it).

    Examples:
      >>> wf.gfile.MakeDirs("top/inner")
      >>> for path, directories, files in wf.gfile.Walk("top"):
      ...     print(path, directories, files)
      top ['inner'] []
      top/inner [] []
    """
    return gfile.walk(top, in_order)
