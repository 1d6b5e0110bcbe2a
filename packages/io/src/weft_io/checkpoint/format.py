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
        """The box."""

    @property
    def shard(self) -> int:
        """The number of its file."""

    @property
    def begin(self) -> int:
        """The first byte."""

    @property
    def end(self) -> int:
        """The byte behind the last."""


class StoredTensor(Protocol):
    """One tensor of a checkpoint."""

    @property
    def dtype(self) -> Any:
        """Its element type, a `DType`; or something with a `name` for a type that weft lacks."""

    @property
    def shape(self) -> Shape:
        """The shape of the whole."""

    @property
    def parts(self) -> Sequence[StoredPart]:
        """The boxes that it is stored in."""


class CheckpointIndex(Protocol):
    """The table of contents of a checkpoint."""

    @property
    def format(self) -> str:
        """The name of its format."""

    @property
    def save(self) -> str:
        """An identifier of the save that wrote it, unique among those of one prefix."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Its tensors by name."""

    @property
    def file_count(self) -> int:
        """The number of its files with data."""


class Checked(NamedTuple):
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
    """A checkpoint format. Its index file makes a checkpoint complete.

    `index` is a result of `parse`.
    """

    def recognizes(self, data: bytes) -> bool:
        """Return True if the bytes of an index, which may be damaged, are of this format."""

    def parse(self, data: bytes, path: str) -> CheckpointIndex:
        """Parse the index in a file's bytes, which are untrusted.

        Args:
          path: the file, for messages.
        Raises:
          DataLossError: the bytes are damaged or inconsistent.
          UnimplementedError: a later version wrote it.
        """

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """Return the files with data that an index names, after the prefix. Raises: as `parse`."""

    def read(
        self, prefix: str, index: Any, expected: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Read and verify boxes of tensors.

        Args:
          expected: names in the index, and boxes within the tensors.
          empty: `empty(shape, numpy dtype)`, the allocator.
        Raises:
          NotFoundError: a file is missing, or a slice that a box needs.
          UnimplementedError: weft lacks the type of a tensor.
          DataLossError: a file is damaged; tensor, file and place are named.
        """

    def checks(self, prefix: str, index: Any) -> Iterator[Checked]:
        """Read everything, part by part, and compare the checksums."""
