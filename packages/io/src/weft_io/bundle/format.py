"""TensorFlow's checkpoint format behind the interface of readers and savers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft_io.bundle.index import BundleIndex, shard_path
from weft_io.bundle.reader import read_boxes
from weft_io.bundle.table import is_table
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.format import PartCheck
from weft_io.checkpoint.formats import register_format
from weft_io.checkpoint.regions import Region
from weft_tensor import errors
from weft_tensor.dtypes import DType

_HEADER_KEY = b"\0\0"
"""First bytes of a table whose first key is empty: both key lengths are 0."""


class BundleFormat:
    """The bundle format, a `CheckpointFormat`."""

    def recognizes(self, data: bytes) -> bool:
        """Return True if the bytes begin or end like a bundle's index."""
        return is_table(data) or data.startswith(_HEADER_KEY)

    def parse(self, data: bytes, path: str) -> BundleIndex:
        """Parse the bytes of an index file."""
        return BundleIndex.from_bytes(data, path)

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """Return the suffixes of the shard files."""
        total = self.parse(data, path).shards
        return {shard_path("", number, total) for number in range(total)}

    def read(
        self, prefix: str, index: BundleIndex, expected: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Read boxes of tensors."""
        return read_boxes(prefix, index, expected, empty)

    def checks(self, prefix: str, index: BundleIndex) -> Iterator[PartCheck]:
        """Read all tensors of supported types and compare the checksums."""
        for name, entry in index.tensors.items():
            if not isinstance(entry.dtype, DType) or not entry.dtype.is_numpy_compatible:
                continue  # it can be listed only
            for part in entry.parts:
                error = None
                try:
                    read_boxes(prefix, index, [(name, part.region)], np.empty)
                except errors.OpError as cause:
                    error = cause
                yield PartCheck(name, part.end - part.begin, error)


register_format(BundleIndex.format, BundleFormat())
