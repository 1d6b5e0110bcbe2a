"""The interface of checkpoint formats, which readers and savers use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.regions import Region, Shape
from weft_tensor import errors


class StoredPart(Protocol):
    """A stored box of a tensor, with the location of its bytes."""

    @property
    def region(self) -> Region:
        """The box within the tensor."""

    @property
    def shard(self) -> int:
        """The number of the file that stores it."""

    @property
    def begin(self) -> int:
        """The offset of its first byte."""

    @property
    def end(self) -> int:
        """The offset after its last byte."""


class StoredTensor(Protocol):
    """One tensor of a checkpoint."""

    @property
    def dtype(self) -> Any:
        """The element type, a `DType`; another object with a `name` for unsupported types."""

    @property
    def shape(self) -> Shape:
        """The shape of the whole tensor."""

    @property
    def parts(self) -> Sequence[StoredPart]:
        """The stored boxes."""


class CheckpointIndex(Protocol):
    """The table of contents of a checkpoint."""

    @property
    def format(self) -> str:
        """The name of the checkpoint's format."""

    @property
    def save(self) -> str:
        """An identifier of the save that wrote the checkpoint, unique for its prefix."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """The tensors by name."""

    @property
    def file_count(self) -> int:
        """The number of data files."""


class PartCheck(NamedTuple):
    """A stored part of a tensor whose checksum was verified.

    Attributes:
      tensor: its name; "" for a file without tensors.
      size: in bytes.
      error: the missing file or damage; None if the part is intact.
    """

    tensor: str
    size: int
    error: errors.OpError | None


class CheckpointFormat(Protocol):
    """A checkpoint format; a checkpoint is complete once its index file exists.

    `index` is a result of `parse`.
    """

    def recognizes(self, data: bytes) -> bool:
        """Return True if the bytes, which may be damaged, are an index of this format."""

    def parse(self, data: bytes, path: str) -> CheckpointIndex:
        """Parse the index in a file's bytes, which are untrusted.

        Args:
          path: the file, for messages.
        Raises:
          DataLossError: the bytes are damaged or inconsistent.
          UnimplementedError: a later version wrote it.
        """

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """Return the suffixes of the data files that an index names."""

    def read(
        self, prefix: str, index: Any, expected: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Read and verify boxes of tensors.

        Args:
          expected: names in the index, and boxes within the tensors.
          empty: `empty(shape, numpy dtype)`, the allocator.
        Raises:
          NotFoundError: a file is missing, or a slice that a box needs.
          UnimplementedError: weft does not support the type of a tensor.
          DataLossError: a file is damaged; the message names tensor, file and position.
        """

    def checks(self, prefix: str, index: Any) -> Iterator[PartCheck]:
        """Read everything and compare the checksums; yield the result of each part."""
