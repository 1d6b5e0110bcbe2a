"""Access to files next to a program's modules: `tf.resource_loader`."""

from __future__ import annotations

__all__ = [
    "get_data_files_path",
    "get_path_to_datafile",
    "get_root_dir_with_all_resources",
    "load_resource",
    "readahead_file_path",
]

import os
import sys
from types import FrameType

from weft_io.files import gfile
from weft_tensor import errors


def _caller(depth: int) -> str:
    """Return the directory of the module that called a public function of this module."""
    frame: FrameType | None = sys._getframe(depth)
    name = frame.f_globals.get("__file__") if frame is not None else None
    if not name:
        raise errors.FailedPreconditionError(
            "the caller is not in a file (an interactive session?), so it has no resources next "
            "to it"
        )
    return os.path.dirname(os.path.abspath(str(name)))


def get_data_files_path() -> str:
    """Return the directory of the module that calls this.

    Raises: FailedPreconditionError: the module has no file.

    Examples:
      >>> import os
      >>> __file__ = "program.py"
      >>> wf.resource_loader.get_data_files_path() == os.getcwd()
      True
    """
    return _caller(2)


def get_root_dir_with_all_resources() -> str:
    """Return the root directory of data files, which is the directory of the calling module.

    Raises: FailedPreconditionError: the module has no file.

    Examples:
      >>> import os
      >>> __file__ = "program.py"
      >>> wf.resource_loader.get_root_dir_with_all_resources() == os.getcwd()
      True
    """
    return _caller(2)


def get_path_to_datafile(path: str) -> str:
    """Return the path of a file next to the calling module.

    Args:
      path: relative to that module's directory.
    Raises: FailedPreconditionError: the module has no file.

    Examples:
      >>> import os
      >>> __file__ = "program.py"
      >>> path = wf.resource_loader.get_path_to_datafile("words.txt")
      >>> path == os.path.abspath("words.txt")
      True
    """
    return os.path.join(_caller(2), path)


def load_resource(path: str) -> bytes:
    """Return the contents of a file next to the calling module.

    Args:
      path: relative to that module's directory.
    Raises: FailedPreconditionError: the module has no file; NotFoundError: the file does not exist.

    Examples:
      >>> wf.Session().run(wf.write_file("data.txt", "hello"))
      >>> __file__ = "program.py"
      >>> wf.resource_loader.load_resource("data.txt")
      b'hello'
    """
    with gfile.GFile(os.path.join(_caller(2), path), "rb") as file:
        data: bytes = file.read()
    return data


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """Return `path` unchanged; the operating system reads files ahead.

    Args:
      path: path of a file.
      readahead: accepted.

    Examples:
      >>> wf.resource_loader.readahead_file_path("data.txt")
      'data.txt'
    """
    return path
