"""A cache of FileWriters, one per directory."""

from __future__ import annotations

__all__ = ["FileWriterCache"]

import threading
from typing import ClassVar

from weft_graph.ir.default_graph import get_default_graph
from weft_io.files.systems import PathLike, as_path
from weft_io.summary.writer import FileWriter


class FileWriterCache:
    """A cache of FileWriters, one per directory, so that hooks share event files.

    Examples:
      >>> writer = wf.summary.FileWriterCache.get("./shared")
      >>> wf.summary.FileWriterCache.get("./shared") is writer
      True
      >>> wf.summary.FileWriterCache.clear()
    """

    _writers: ClassVar[dict[str, FileWriter]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    @staticmethod
    def get(logdir: PathLike) -> FileWriter:
        """Return the writer of a directory; a new one begins with the default graph.

        Args:
          logdir: the directory.
        Raises: OpError: a new file cannot be created.
        """
        key = as_path(logdir)
        with FileWriterCache._lock:
            writer = FileWriterCache._writers.get(key)
            if writer is None or not writer.event_writer.ours:
                writer = FileWriter(key, graph=get_default_graph())
                FileWriterCache._writers[key] = writer
            return writer

    @staticmethod
    def clear() -> None:
        """Close and remove all writers."""
        with FileWriterCache._lock:
            writers = list(FileWriterCache._writers.values())
            FileWriterCache._writers.clear()
        for writer in writers:
            writer.close()
