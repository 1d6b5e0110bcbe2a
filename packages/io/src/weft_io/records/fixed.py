"""Files of fixed-length records, with optional header and footer."""

from __future__ import annotations

from weft_io.records.streams import PIECE, Stream, open_stream, read_exactly
from weft_tensor import errors


class FixedLengthSource:
    """The records of one file.

    Args:
      path: local, or a URL that fsspec knows.
      record_bytes: length of a record.
      header_bytes, footer_bytes: number of bytes to skip at the start and end of the file.
      hop_bytes: distance between the starts of records; 0 for `record_bytes`.
      compression: "", "ZLIB" or "GZIP".
      offset: start of the first record to read, in the decompressed bytes; 0 for the first in the
        file.
    Attributes:
      offset: offset of the first record that `read_chunk` has not returned.
    Raises: NotFoundError, PermissionDeniedError, ...; DataLossError: the file is shorter than the
      header.
    """

    def __init__(
        self,
        path: str,
        record_bytes: int,
        header_bytes: int = 0,
        footer_bytes: int = 0,
        hop_bytes: int = 0,
        compression: str = "",
        offset: int = 0,
    ) -> None:
        self.path = path
        self._record = record_bytes
        self._footer = footer_bytes
        self._hop = hop_bytes or record_bytes
        self.offset = max(offset, header_bytes)
        self._stream: Stream = open_stream(path, compression, self.offset)
        self._data = b""
        self._skip = 0  # bytes between records that were not read yet
        self._has_ended = False

    def read_chunk(self) -> list[bytes]:
        """Return the records of the next piece of the file; an empty list at its end.

        Raises: DataLossError: the file ends within a record, for records without gaps and overlaps;
          the next call returns an empty list.
        """
        while not self._has_ended:
            missing = self._skip + self._record + self._footer - len(self._data)
            piece = self._read(missing)
            if not piece:
                self._has_ended = True
                self._check_end()
                break
            skipped = min(self._skip, len(piece))
            self._skip -= skipped
            self._data += piece[skipped:] if skipped else piece
            records = self._split()
            if records:
                return records
        return []

    def _read(self, missing: int) -> bytes:
        try:
            if missing > PIECE:
                return read_exactly(self._stream, missing)
            return self._stream.read(PIECE)
        except errors.DataLossError:  # of the compressed stream, which ends here
            self._has_ended = True
            raise

    def _split(self) -> list[bytes]:
        data, record = self._data, self._record
        last = len(data) - record - self._footer
        starts = range(0, last + 1, self._hop)
        records = [data[index : index + record] for index in starts]
        following = len(starts) * self._hop
        self.offset += following
        self._data = data[following:]
        self._skip += max(0, following - len(data))
        return records

    def _check_end(self) -> None:
        num_remaining = len(self._data) - self._footer
        if self._hop == self._record and num_remaining:
            raise errors.DataLossError(
                f"{self.path} must consist of records of {self._record} bytes before a footer of "
                f"{self._footer}, got {len(self._data)} bytes at offset {self.offset}",
                details={"file": self.path, "offset": self.offset},
            )

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        self._stream.close()
