"""Caches in files: the elements of the first complete pass, for later passes of any process.

The file, `<path>.cache`, is a TFRecord file; each record is a value in the form of `state.py`:

    ["weftcache", 1, [[element type, sizes], ...]]      the form of the elements
    [component, ...]                                    an element
    ...
    number of elements                                  the end

An unknown size is -1; the sizes of an unknown rank are None. The file appears under its name only
when it is complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_io.files.gfile import exists, remove, rename
from weft_io.records.tfrecord import TFRecordSource, TFRecordWriter
from weft_io.streams import state as form
from weft_io.streams.stream import (
    Element,
    Part,
    Root,
    Source,
    Stream,
    count_in,
    fields,
    restore_stream,
    save_stream,
    shape_of,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape, compatible_dims

_MAGIC: Final = "weftcache"
_VERSION: Final = 1


class FileCacheSource(Source):
    """A dataset that keeps its elements in a file after the first complete pass.

    Args:
      path: the beginning of the file's name.
      parts: the form of the elements; an existing file must have a compatible form.
    """

    def __init__(self, inner: Source, path: str, parts: Sequence[Part]) -> None:
        self._inner = inner
        self.path = path + ".cache"
        self.parts = parts

    def cardinality(self) -> int:
        """Return the number of elements."""
        return self._inner.cardinality()

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the elements, from the file if it exists."""
        return _FileCacheStream(self, root)

    def input(self, root: Root) -> Stream:
        """Return a stream of the uncached dataset."""
        return self._inner.iterate(root)


class _FileCacheStream(Stream):
    kind = "FileCache"

    def __init__(self, source: FileCacheSource, root: Root) -> None:
        self._source = source
        self._root = root
        self._stream = self._begin(writing=not exists(source.path))

    def _begin(self, writing: bool) -> _CacheReader | _CacheWriter:
        source = self._source
        if writing:
            return _CacheWriter(source.input(self._root), source.path, source.parts)
        return _CacheReader(source.path, source.parts)

    def get(self) -> Element | None:
        return self._stream.get()

    def save(self) -> Any:
        return [isinstance(self._stream, _CacheWriter), self._stream.save()]

    def restore(self, state: Any) -> None:
        """Resume writing or reading, depending on the files that exist now."""
        writing, inner = fields(state, bool, None)
        self._stream.close()
        self._stream = self._begin(writing)
        self._stream.restore(inner)

    def close(self) -> None:
        self._stream.close()


class _CacheReader:
    def __init__(self, path: str, parts: Sequence[Part]) -> None:
        self._path = path
        self._parts = parts
        self._file = TFRecordSource(path)
        self._records: list[bytes] = []
        self._next = 0
        self._number = 0
        self._has_ended = False
        try:
            self._check_head()
        except BaseException:  # because an iterator that could not begin is never closed
            self._file.close()
            raise

    def _check_head(self) -> None:
        head = self._value()
        if not isinstance(head, list) or len(head) != 3 or head[0] != _MAGIC:
            raise self._foreign("it does not begin with the mark of a cache")
        if head[1] != _VERSION:
            raise self._foreign(
                f"it has version {head[1]!r}, but this reader supports version {_VERSION}"
            )
        result = head[2]
        form = _form_of(self._parts)
        if not _compatible(result, form):
            raise errors.InvalidArgumentError(
                f"the cache {self._path} holds elements of another dataset: they are "
                f"{_describe(result)}, but {_describe(form)} are required; remove the file, or "
                "use another file name"
            )

    def get(self) -> Element | None:
        if self._has_ended:
            return None
        value = self._value()
        if type(value) is int:
            self._end(value)
            return None
        if not isinstance(value, list):
            raise self._foreign(f"it has {value!r} instead of an element")
        element = tuple(value)
        if not _fits(element, self._parts):
            raise errors.DataLossError(
                f"element {self._number} of the cache {self._path} does not have the declared "
                f"types and shapes, {_describe(_form_of(self._parts))}",
                details={"file": self._path},
            )
        self._number += 1
        return element

    def _value(self) -> Any:
        record = self._record()
        if record is None:
            raise self._damaged_error(f"ends after {self._number} elements without its end mark")
        try:
            return form.decode(record)
        except errors.InvalidArgumentError as cause:
            raise self._foreign("it has a record of another kind") from cause

    def _record(self) -> bytes | None:
        if self._next >= len(self._records):
            self._records = self._file.read_chunk()
            self._next = 0
            if not self._records:
                return None
        self._next += 1
        return self._records[self._next - 1]

    def _end(self, count: int) -> None:
        self._has_ended = True
        if count != self._number:
            raise self._damaged_error(f"has {self._number} elements, but declares {count}")
        if self._record() is not None:
            raise self._damaged_error("has more records after its end mark")

    def _damaged_error(self, description: str) -> errors.DataLossError:
        return errors.DataLossError(
            f"the cache {self._path} {description}; remove it, and the next complete pass writes "
            "it again",
            details={"file": self._path, "offset": self._file.offset},
        )

    def _foreign(self, reason: str) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(
            f"{self._path} is not the cache of a dataset: {reason}; remove it, or use another name"
        )

    def save(self) -> Any:
        return [self._number]

    def restore(self, state: Any) -> None:
        (number,) = fields(state, int)
        for _ in range(count_in(number, 1 << 62, "the number of elements")):
            if self.get() is None:
                break

    def close(self) -> None:
        self._file.close()


class _CacheWriter:
    """A stream that writes its elements to the cache, unless it was restored midway."""

    def __init__(self, inner: Stream, path: str, parts: Sequence[Part]) -> None:
        self._input = inner
        self._parts = parts
        self._path = path
        self._part = f"{path}.part-{os.getpid()}-{secrets.token_hex(4)}"
        self._writer: TFRecordWriter | None = None
        self._writes = True
        self._number = 0
        self._has_ended = False

    def get(self) -> Element | None:
        if self._has_ended:
            return None
        try:
            element = self._input.get()
        except BaseException:  # because what is missing would be missing for ever
            self._abandon_file()
            raise
        if element is None:
            self._has_ended = True
            self._finish()
        elif self._writes:
            self._open().write(form.encode(element))
            self._number += 1
        return element

    def _open(self) -> TFRecordWriter:
        if self._writer is None:
            self._writer = TFRecordWriter(self._part)
            self._writer.write(form.encode([_MAGIC, _VERSION, _form_of(self._parts)]))
        return self._writer

    def _finish(self) -> None:
        if self._writes:
            writer = self._open()
            writer.write(form.encode(self._number))
            writer.close()
            self._writes = False
            rename(self._part, self._path, overwrite=True)

    def save(self) -> Any:
        return [self._has_ended, save_stream(self._input)]

    def restore(self, state: Any) -> None:
        self._has_ended, inner = fields(state, bool, None)
        self._writes = False
        restore_stream(self._input, inner)

    def close(self) -> None:
        self._input.close()
        self._abandon_file()

    def _abandon_file(self) -> None:
        """Do not write the file in this pass."""
        if self._writes and self._writer is not None:
            self._writer.close()
            with contextlib.suppress(errors.NotFoundError):
                remove(self._part)
        self._writes = False


# -------------------------------------------------------------------------- the form of elements


def _form_of(parts: Sequence[Part]) -> list[Any]:
    return [
        [dtype.name, None if dims is None else [-1 if size is None else size for size in dims]]
        for dtype, dims in parts
    ]


def _dims_of(sizes: list[int] | None) -> tuple[int | None, ...] | None:
    return None if sizes is None else tuple(None if size < 0 else size for size in sizes)


def _compatible(result: Any, expected: list[Any]) -> bool:
    return (
        isinstance(result, list)
        and len(result) == len(expected)
        and all(map(_is_part, result))
        and all(
            name == wanted_name and compatible_dims(_dims_of(sizes), _dims_of(wanted_sizes))
            for (name, sizes), (wanted_name, wanted_sizes) in zip(result, expected, strict=True)
        )
    )


def _is_part(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return False
    sizes = value[1]
    return sizes is None or (isinstance(sizes, list) and all(type(size) is int for size in sizes))


def _describe(result: Any) -> str:
    if not isinstance(result, list) or not all(map(_is_part, result)):
        return repr(result)
    return ", ".join(f"{name} {TensorShape(_dims_of(sizes))}" for name, sizes in result) or "empty"


def _fits(element: Element, parts: Sequence[Part]) -> bool:
    return len(element) == len(parts) and all(
        isinstance(value, bytes | np.ndarray | np.generic)
        and _dtype_of(value) == part.dtype
        and compatible_dims(shape_of(value), part.dims)
        for value, part in zip(element, parts, strict=True)
    )


def _dtype_of(value: Any) -> dtypes.DType:
    return dtypes.string if isinstance(value, bytes) else dtypes.from_numpy(value.dtype)
