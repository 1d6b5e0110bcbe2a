"""Reader for weft's checkpoint format: safetensors shards with a JSON index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from weft_io.checkpoint.assembly import assemble_boxes
from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.format import PartCheck
from weft_io.checkpoint.index import Index, shard_suffixes
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.shards import ShardReader, open_shard_file
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors


class WeftFormat:
    """The format that a `Saver` writes by default."""

    def recognizes(self, data: bytes) -> bool:
        """Return True if the bytes begin like an index of this format."""
        return b"weft-checkpoint" in data[:40] and not data.startswith(b"\0")

    def parse(self, data: bytes, path: str) -> Index:
        """Parse the bytes of an index file."""
        return Index.from_bytes(data, path)

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """Return the suffixes of the shard files, without parsing the tensors."""
        return shard_suffixes(data, path)

    def read(
        self, prefix: str, index: Index, expected: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Read boxes of tensors."""

        def open_shard(number: int, names: Sequence[str]) -> AbstractContextManager[ShardReader]:
            return open_shard_file(prefix, index.shards[number], names)

        return assemble_boxes(prefix, index.tensors, expected, open_shard, empty)

    def checks(self, prefix: str, index: Index) -> Iterator[PartCheck]:
        """Read everything, shard by shard, and compare the checksums."""
        for number, shard in enumerate(index.shards):
            pending = [
                (name, entry.dtype, part)
                for name, entry in index.tensors.items()
                for part in entry.parts
                if part.shard == number
            ]
            pending.sort(key=lambda request: -request[2].begin)
            names = list(dict.fromkeys([name for name, _, _ in reversed(pending)]))
            try:
                with (
                    convert_os_errors("reading", prefix),
                    open_shard_file(prefix, shard, names) as reader,
                ):
                    while pending:
                        name, dtype, part = pending.pop()
                        size, error = part.end - part.begin, None
                        try:
                            reader.read(name, dtype, part, np.empty)
                        except errors.DataLossError as cause:
                            error = cause
                        yield PartCheck(name, size, error)
            except errors.OpError as error:  # nothing more of this file can be read
                for name, _, part in reversed(pending):
                    yield PartCheck(name, part.end - part.begin, error)
                if not names:
                    yield PartCheck("", 0, error)
