"""What a format of checkpoints must offer, so that readers and savers can use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.regions import Region, Shape
from weft_tensor import errors


class StoredPart(Protocol):
    """A stored box of a tensor: where its bytes are."""

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
    """A stored part of a tensor that was read to compare its checksum.

    Attributes:
      tensor: its name; "" for a file without tensors.
      size: in bytes.
      error: what is missing or damaged; None where all is well.
    """

    tensor: str
    size: int
    error: errors.OpError | None


class CheckpointFormat(Protocol):
    """A format of checkpoints. All have an index, whose file makes a checkpoint.

    `index` is what `parse` returned.
    """

    def recognizes(self, data: bytes) -> bool:
        """Whether an index in these bytes, which may be damaged, is of this format."""

    def parse(self, data: bytes, path: str) -> CheckpointIndex:
        """The index in a file's bytes, which may come from a stranger.

        Args:
          path: the file, for messages.
        Raises:
          DataLossError: the bytes are damaged, or contradict themselves.
          UnimplementedError: a later version wrote it.
        """

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """The files with data that an index names, after the prefix. Raises: as `parse`."""

    def read(
        self, prefix: str, index: Any, wanted: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Boxes of tensors, all of them verified.

        Args:
          wanted: names, which the index has, and boxes within the tensors.
          empty: `empty(shape, numpy dtype)`, where the memory comes from.
        Raises:
          NotFoundError: a file is missing, or slices are that a box needs.
          UnimplementedError: weft lacks the type of a tensor.
          DataLossError: a file is damaged; tensor, file and place are named.
        """

    def checks(self, prefix: str, index: Any) -> Iterator[Checked]:
        """Read everything, part by part, and compare the checksums."""
