"""Caches: what the first whole pass gave, for later ones."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any

from weft_io.data import state as form
from weft_io.data.streams import (
    Element,
    Root,
    Source,
    Stream,
    count_in,
    element_of,
    fields,
    resume,
    saved,
)
from weft_io.gfile import exists, remove, rename
from weft_io.records.tfrecord import TFRecordSource, TFRecordWriter
from weft_tensor import errors


class MemoryCacheSource(Source):
    """A dataset whose elements stay in memory once a pass has come to its end."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def iterate(self, root: Root) -> Stream:
        """Over them: from memory if they are there."""
        return _MemoryCacheStream(self, root)

    def input(self, root: Root) -> Stream:
        """Over the dataset itself."""
        return self._inner.iterate(root)


class _MemoryCacheStream(Stream):
    kind = "Cache"

    def __init__(self, source: MemoryCacheSource, root: Root) -> None:
        self._source = source
        self._root = root
        self._elements: list[Element] = root.kept(source) or []
        self._next = 0
        self._input: Stream | None = None
        if root.kept(source) is None:
            self._input = source.input(root)

    def get(self) -> Element | None:
        if self._input is None:
            if self._next >= len(self._elements):
                return None
            self._next += 1
            return self._elements[self._next - 1]
        element = self._input.get()
        if element is None:
            self._finish()
            return None
        self._elements.append(element)
        return element

    def _finish(self) -> None:
        assert self._input is not None
        self._input.close()
        self._input = None
        self._next = len(self._elements)
        self._root.keep(self._source, self._elements)

    def save(self) -> Any:
        inner = None if self._input is None else saved(self._input)
        return [self._next, [list(element) for element in self._elements], inner]

    def restore(self, state: Any) -> None:
        place, elements, inner = fields(state, int, list, None)
        self._elements = [element_of(element) for element in elements]
        self._next = count_in(place, len(self._elements), "the next of the cache")
        if inner is not None:
            self._input = self._input or self._source.input(self._root)
            resume(self._input, inner)
        elif self._input is not None or self._root.kept(self._source) is None:
            self._input = None
            self._root.keep(self._source, self._elements)

    def close(self) -> None:
        if self._input is not None:
            self._input.close()


class FileCacheSource(Source):
    """A dataset whose elements are in a file once a pass has come to its end.

    The file, `<path>.cache`, is a TFRecord file of elements in the form of `state.py`. It appears
    as a whole, when the last element is in it.

    Args:
      path: the beginning of its name.
    """

    def __init__(self, inner: Source, path: str) -> None:
        self._inner = inner
        self.path = path + ".cache"

    def iterate(self, root: Root) -> Stream:
        """Over them: from the file if it is there."""
        return _FileCacheStream(self, root)

    def input(self, root: Root) -> Stream:
        """Over the dataset itself."""
        return self._inner.iterate(root)


class _FileCacheStream(Stream):
    kind = "FileCache"

    def __init__(self, source: FileCacheSource, root: Root) -> None:
        self._source = source
        self._root = root
        self._stream: _Reading | _Writing = (
            _Reading(source.path)
            if exists(source.path)
            else _Writing(source.input(root), source.path)
        )

    def get(self) -> Element | None:
        return self._stream.get()

    def save(self) -> Any:
        return [isinstance(self._stream, _Writing), self._stream.save()]

    def restore(self, state: Any) -> None:
        """Go on writing what was written, or reading, whatever is there now."""
        writing, inner = fields(state, bool, None)
        self._stream.close()
        source = self._source
        self._stream = (
            _Writing(source.input(self._root), source.path) if writing else _Reading(source.path)
        )
        self._stream.restore(inner)

    def close(self) -> None:
        self._stream.close()


class _Reading:
    def __init__(self, path: str) -> None:
        self._file = TFRecordSource(path)
        self._records: list[bytes] = []
        self._next = 0
        self._number = 0

    def get(self) -> Element | None:
        if self._next >= len(self._records):
            self._records = self._file.read_chunk()
            self._next = 0
            if not self._records:
                return None
        self._next += 1
        self._number += 1
        return element_of(form.decode(self._records[self._next - 1]))

    def save(self) -> Any:
        return [self._number]

    def restore(self, state: Any) -> None:
        (number,) = fields(state, int)
        left = count_in(number, 1 << 62, "the number of elements")
        while left:
            self._records = self._file.read_chunk()
            if not self._records:
                break
            self._next = min(left, len(self._records))
            left -= self._next
        self._number = number

    def close(self) -> None:
        self._file.close()


class _Writing:
    """Writes what it passes on. Restored it lacks what came before, and so it does not."""

    def __init__(self, inner: Stream, path: str) -> None:
        self._input = inner
        self._path = path
        self._part = f"{path}.part-{os.getpid()}-{secrets.token_hex(4)}"
        self._writer: TFRecordWriter | None = None
        self._writes = True
        self._ended = False

    def get(self) -> Element | None:
        if self._ended:
            return None
        element = self._input.get()
        if element is None:
            self._ended = True
            self._finish()
        elif self._writes:
            self._open().write(form.encode(element))
        return element

    def _open(self) -> TFRecordWriter:
        if self._writer is None:
            self._writer = TFRecordWriter(self._part)
        return self._writer

    def _finish(self) -> None:
        if self._writes:
            self._open().close()
            self._writes = False
            rename(self._part, self._path, overwrite=True)

    def save(self) -> Any:
        return [self._ended, saved(self._input)]

    def restore(self, state: Any) -> None:
        self._ended, inner = fields(state, bool, None)
        self._writes = False
        resume(self._input, inner)

    def close(self) -> None:
        self._input.close()
        if self._writes and self._writer is not None:
            self._writer.close()
            with contextlib.suppress(errors.NotFoundError):
                remove(self._part)
        self._writes = False
