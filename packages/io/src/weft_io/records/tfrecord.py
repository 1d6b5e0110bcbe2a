"""TFRecord files: each record after its length, both with a masked CRC-32C.

    uint64 length | uint32 masked CRC of the length | bytes data | uint32 masked CRC of the data

all little-endian, one record behind the other; the whole file may be compressed.
"""

from __future__ import annotations

__all__ = ["TFRecordWriter"]

import struct
from typing import Any, BinaryIO, Final

from google_crc32c import value as crc32c

from weft_io.files.systems import PathLike, as_path, locate
from weft_io.records.options import TFRecordOptions
from weft_io.records.streams import PIECE, open_stream, read_exactly
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

_HEADER: Final = struct.Struct("<QI")
_MASK: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF
_MAX_CACHED_LENGTHS: Final = 1024
OVERHEAD: Final = 16
"""Number of bytes of a record in addition to its data."""


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C, which differs from the CRC of data that contains its own CRC."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & _U32


def frame(record: bytes) -> tuple[bytes, bytes]:
    """Return the bytes that precede and follow a record in a file."""
    length = len(record).to_bytes(8, "little")
    return (
        length + masked_crc(length).to_bytes(4, "little"),
        masked_crc(record).to_bytes(4, "little"),
    )


class TFRecordSource:
    """The records of one file, each verified.

    Args:
      path: local, or a URL that fsspec supports.
      compression: "", "ZLIB" or "GZIP".
      offset: offset of the first record to read, in the decompressed bytes.
    Attributes:
      offset: offset of the first record that `read_chunk` has not returned.
    Raises: NotFoundError, PermissionDeniedError, ...
    """

    def __init__(self, path: str, compression: str = "", offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._stream = open_stream(path, compression, offset)
        self._remaining = b""  # bytes read but not returned, starting at a record
        self._error: errors.DataLossError | None = None
        self._has_ended = False
        self._lengths: dict[bytes, int] = {}  # verified lengths by header

    def read_chunk(self) -> list[bytes]:
        """Return the records of the next piece of the file; an empty list at its end.

        Raises: DataLossError: a record is damaged, or the file ends within one. The next call
          continues after it; if a length is damaged, it returns an empty list, because the next
          record cannot be found.
        """
        records: list[bytes] = []
        while not records:
            error, self._error = self._error, None
            if error is not None:
                raise error
            if self._has_ended:
                break
            try:
                self._read(records)
            except errors.DataLossError:  # of the compressed stream, which ends here
                self._has_ended = True
                raise
        return records

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        self._stream.close()

    def _read(self, records: list[bytes]) -> None:
        """Append the records of the next piece of the file, or record an error or the end."""
        remaining = self._remaining
        missing = self._num_missing_bytes(remaining)
        if missing <= 0:
            if self._error is None:
                self._split(remaining, 0, records)
            return
        if missing > PIECE:
            self._read_large(remaining, missing, records)
            return
        piece = self._stream.read(PIECE)
        if not piece:
            self._end_early()
        elif len(remaining) < 12 or len(piece) < missing:
            self._split(remaining + piece, 0, records)
        else:  # joining one record costs less than joining the whole piece to the rest
            self._split(remaining + piece[:missing], 0, records)
            if self._error is None:
                self._split(piece, missing, records)
            else:
                self._remaining = piece[missing:]

    def _read_large(self, remaining: bytes, missing: int, records: list[bytes]) -> None:
        """Read the record that begins with `remaining` without copying all of it."""
        data = read_exactly(self._stream, missing)
        if len(data) < missing:
            self._remaining = remaining + data
            self._end_early()
            return
        record = b"".join([memoryview(remaining)[12:], memoryview(data)[:-4]])
        stored = int.from_bytes(data[-4:], "little")
        if masked_crc(record) == stored:
            records.append(record)
        else:
            self._error = self._damaged_error(self.offset, record, stored)
        self._remaining = b""
        self.offset += len(record) + OVERHEAD

    def _num_missing_bytes(self, remaining: bytes) -> int:
        """Return the number of missing bytes of the first record, or of its header."""
        if len(remaining) < 12:
            return 12 - len(remaining)
        length = self._length(remaining[:12], self.offset)
        if length < 0:
            return 0
        missing = length + OVERHEAD - len(remaining)
        num_remaining = self._stream.remaining() if missing > 0 else None
        if num_remaining is not None and missing > num_remaining:
            self._end_early(f"its length is {length}, ")
            return 0
        return missing

    def _split(self, data: bytes, position: int, records: list[bytes]) -> None:
        """Append the complete records in `data` from `position` on, and keep the rest."""
        start, size = position, len(data)
        lengths = self._lengths
        while True:
            header = data[position : position + 12]
            length = lengths.get(header, -1)
            if length < 0:
                if len(header) < 12:
                    break
                length = self._length(header, self.offset + position - start)
                if length < 0:
                    break
            stop = position + 12 + length
            if stop + 4 > size:
                break
            record = data[position + 12 : stop]
            crc = crc32c(record)
            stored = int.from_bytes(data[stop : stop + 4], "little")
            if ((crc >> 15 | crc << 17) + _MASK) & _U32 != stored:
                self._error = self._damaged_error(self.offset + position - start, record, stored)
                position = stop + 4
                break
            records.append(record)
            position = stop + 4
        self._remaining = data[position:]
        self.offset += position - start

    def _length(self, header: bytes, offset: int) -> int:
        """Return the length in a header; -1 if the header is damaged, which is recorded."""
        length, stored = _HEADER.unpack(header)
        expected = masked_crc(header[:8])
        if stored == expected:
            if len(self._lengths) >= _MAX_CACHED_LENGTHS:
                self._lengths.clear()
            self._lengths[header] = length
            return int(length)
        self._has_ended = True
        self._error = self._loss(
            offset,
            f"the checksum of the length {length} must be {expected:#010x}, got {stored:#010x}",
        )
        return -1

    def _end_early(self, reason: str = "") -> None:
        """Record the end of the file, and an error if it is within a record."""
        self._has_ended = True
        num_remaining = len(self._remaining) + (self._stream.remaining() or 0)
        if num_remaining and self._error is None:
            self._error = self._loss(
                self.offset,
                f"the file ends within it: {reason}{num_remaining} bytes are left",
                "truncated",
            )

    def _damaged_error(self, offset: int, record: bytes, stored: int) -> errors.DataLossError:
        expected = masked_crc(record)
        return self._loss(
            offset,
            f"the checksum of its {len(record)} bytes must be {expected:#010x}, got {stored:#010x}",
        )

    def _loss(
        self, offset: int, reason: str, description: str = "corrupted"
    ) -> errors.DataLossError:
        return errors.DataLossError(
            f"{description} record at {offset} of {self.path}: {reason}",
            details={"file": self.path, "offset": offset},
        )


def _to_bytes(record: Any) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, bytearray | memoryview):
        return bytes(record)
    if not isinstance(record, str):
        raise errors.InvalidTypeError(
            f"a record must be bytes, bytearray, memoryview or str, got {record!r}"
        )
    try:
        return record.encode()
    except UnicodeEncodeError as cause:
        raise errors.InvalidArgumentError(
            f"a record of text must be encodable as UTF-8, got {record!r}"
        ) from cause


class TFRecordWriter:
    """Writes a TFRecord file.

    Args:
      path: local, or a URL that fsspec knows; replaced if it exists.
      options: TFRecordOptions, or a compression ("GZIP").
    Raises: NotFoundError: the directory does not exist; PermissionDeniedError; ...

    Examples:
      >>> with wf.python_io.TFRecordWriter("record.tfrecord") as writer:
      ...     writer.write(b"first")
      >>> list(wf.python_io.tf_record_iterator("record.tfrecord"))
      [b'first']
    """

    def __init__(self, path: PathLike, options: Any = None) -> None:
        self._path = as_path(path)
        self._options = TFRecordOptions.of(options)
        self._deflate = self._options.compressor()
        fs, inner = locate(self._path)
        with convert_os_errors("writing", self._path):
            self._file: BinaryIO | None = fs.open(inner, "wb")

    def write(self, record: bytes | bytearray | memoryview | str) -> None:
        """Append a record.

        Args:
          record: bytes, or text, which is stored as UTF-8.
        Raises: InvalidTypeError: `record` is neither; FailedPreconditionError: the writer is
          closed;
          ResourceExhaustedError: the disk is full.
        """
        data = _to_bytes(record)
        header, footer = frame(data)
        for part in (header, data, footer):
            self._append(part)

    def _append(self, data: bytes) -> None:
        file = self._open_file()
        if self._deflate is not None:
            data = self._deflate.compress(data)
        with convert_os_errors("writing", self._path):
            file.write(data)

    def _open_file(self) -> BinaryIO:
        if self._file is None:
            raise errors.FailedPreconditionError(f"the writer of {self._path} is closed")
        return self._file

    def flush(self) -> None:
        """Flush buffered data to the file system, so that readers see complete records."""
        file = self._open_file()
        with convert_os_errors("writing", self._path):
            if self._deflate is not None:
                file.write(self._deflate.flush(self._options.flush_mode))
            file.flush()

    def close(self) -> None:
        """Flush and close; do nothing if it is closed."""
        file, self._file = self._file, None
        if file is None:
            return
        with convert_os_errors("writing", self._path):
            try:
                if self._deflate is not None:
                    file.write(self._deflate.flush())
            finally:
                file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()
