"""The `tf.gfile` functions: deprecated names of those of `tf.io.gfile`."""

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
    """A GFile by its deprecated name.

    Args:
      name: path.
      mode: as for `GFile`.
    Raises: InvalidArgumentError: another mode.

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
      newpath: where to; a file, not a directory.
      overwrite: replace a file that is there.
    Raises:
      NotFoundError: there is no such file, or no directory for the copy.
      AlreadyExistsError: the target exists, and `overwrite` is false.
      FailedPreconditionError: one of them is a directory.

    Examples:
      >>> with wf.gfile.GFile("from.txt", "w") as file:
      ...     file.write("text")
      >>> wf.gfile.Copy("from.txt", "to.txt")
      >>> wf.gfile.GFile("to.txt").read()
      'text'
    """
    gfile.copy(oldpath, newpath, overwrite)


def DeleteRecursively(dirname: PathLike) -> None:  # noqa: N802
    """Remove a directory with all that is in it, or a file.

    Args:
      dirname: a path, or a URL that fsspec knows.
    Raises: NotFoundError: there is none.

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
      NotFoundError: the directory above does not exist; `MakeDirs` makes it as well.
      FailedPreconditionError: there is a file of that name.

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
      NotFoundError: there is none.
      FailedPreconditionError: it is a directory, which `DeleteRecursively` removes.

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
      overwrite: replace a file that is there.
    Raises:
      NotFoundError: there is no such file or directory.
      AlreadyExistsError: the target exists, and `overwrite` is false.
      FailedPreconditionError: one is a file and the other an existing directory.
      UnimplementedError: a directory would go to another file system.

    Examples:
      >>> with wf.gfile.GFile("draft.txt", "w") as file:
      ...     file.write("text")
      >>> wf.gfile.Rename("draft.txt", "final.txt")
      >>> wf.gfile.Exists("draft.txt"), wf.gfile.Exists("final.txt")
      (False, True)
    """
    gfile.rename(oldname, newname, overwrite)


def Stat(filename: PathLike) -> FileStatistics:  # noqa: N802
    """Return length, time of the last change, and whether it is a directory.

    Args:
      filename: a path, or a URL that fsspec knows.
    Returns: a tuple of `length` in bytes, `mtime_nsec`, nanoseconds since 1970, and `is_directory`.
    Raises: NotFoundError: there is none.

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
      in_order: yield a directory before its contents; else after.
    Yields: (path, directories in it, files in it).

    Examples:
      >>> wf.gfile.MakeDirs("top/inner")
      >>> for path, directories, files in wf.gfile.Walk("top"):
      ...     print(path, directories, files)
      top ['inner'] []
      top/inner [] []
    """
    return gfile.walk(top, in_order)
