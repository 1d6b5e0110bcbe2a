"""Envelope of serialized states: a magic number, a version, a length, the content, a checksum."""

from __future__ import annotations

import struct

from google_crc32c import value as crc32c

from weft_tensor import errors


class Seal:
    """The envelope of a kind of state.

    Args:
      label: its name in messages, such as "a reader's state".
      magic: the first 8 bytes.
      version: 4 bytes.
      length: format of the length, as for `struct`: "I" or "Q".

    The content is followed by 4 bytes, the CRC-32C of everything before. Integers are
        little-endian.
    """

    def __init__(self, label: str, magic: bytes, version: int, length: str) -> None:
        self._label = label
        self._magic = magic
        self._version = version
        self._head = struct.Struct(f"<8sI{length}")

    @property
    def start(self) -> int:
        """The offset of the content."""
        return self._head.size

    def close(self, content: bytes) -> bytes:
        """Wrap content in the envelope."""
        data = self._head.pack(self._magic, self._version, len(content)) + content
        checksum: int = crc32c(data)
        return data + checksum.to_bytes(4, "little")

    def check(self, data: bytes) -> None:
        """Verify the envelope.

        Raises: InvalidArgumentError: the bytes are not such a state, or of another version;
          DataLossError: they are damaged.
        """
        if data[:8] != self._magic:
            raise errors.InvalidArgumentError(
                f"{self._label} must begin with {self._magic!r}, got {data[:8]!r}"
            )
        if len(data) < self.start + 4:
            raise self.damaged_error(f"has {len(data)} bytes, fewer than its header")
        _, version, length = self._head.unpack_from(data)
        if version != self._version:
            raise errors.InvalidArgumentError(
                f"{self._label} must have version {self._version}, got {version}"
            )
        if len(data) != self.start + length + 4:
            raise self.damaged_error(f"must have {self.start + length + 4} bytes, got {len(data)}")
        stored, result = int.from_bytes(data[-4:], "little"), crc32c(data[:-4])
        if result != stored:
            raise self.damaged_error(
                f"has the checksum {result:#010x} instead of the stored {stored:#010x}"
            )

    def damaged_error(self, label: str) -> errors.DataLossError:
        """Return the error for a damaged state."""
        return errors.DataLossError(f"{self._label} is damaged: it {label}")
