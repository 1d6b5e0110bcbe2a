"""Reading weft's own format: safetensors shards beside an index in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.format import Checked
from weft_io.checkpoint.index import Index, Part, shard_suffixes
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.shards import ShardReader, opened
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.os_errors import reported


class WeftFormat:
    """The format that a `Saver` writes by default."""

    def recognizes(self, data: bytes) -> bool:
        """Whether the bytes begin as such an index; a bundle's begins with a zero."""
        return b"weft-checkpoint" in data[:40] and not data.startswith(b"\0")

    def parse(self, data: bytes, path: str) -> Index:
        """The index in a file's bytes."""
        return Index.from_bytes(data, path)

    def file_suffixes(self, data: bytes, path: str) -> set[str]:
        """The shards, without looking at the tensors."""
        return shard_suffixes(data, path)

    def read(
        self, prefix: str, index: Index, wanted: Sequence[tuple[str, Region]], empty: Empty
    ) -> list[Array]:
        """Boxes of tensors; each stored part is read once, whoever needs it."""
        needs: dict[int, dict[Part, list[int]]] = {}
        for i, (name, box) in enumerate(wanted):
            parts = index.tensors[name].parts
            for part in parts:
                if len(parts) == 1 or part.region.overlap(box) is not None:
                    needs.setdefault(part.shard, {}).setdefault(part, []).append(i)
        results: list[Any] = [None] * len(wanted)
        boxes = [box for _, box in wanted]
        for number, of_shard in sorted(needs.items()):
            names = list(dict.fromkeys(wanted[users[0]][0] for users in of_shard.values()))
            with (
                reported("reading", prefix),
                opened(prefix, index.shards[number], names) as shard,
            ):
                for part, users in of_shard.items():
                    name = wanted[users[0]][0]
                    targets = _Targets(results, users, boxes, index.tensors[name].dtype, empty)
                    targets.fill(shard, name, part)
        return [
            empty(box.shape, index.tensors[name].dtype.numpy) if result is None else result
            for result, (name, box) in zip(results, wanted, strict=True)
        ]

    def checks(self, prefix: str, index: Index) -> Iterator[Checked]:
        """Read everything, shard by shard, and compare the checksums."""
        for number, shard in enumerate(index.shards):
            left = [
                (name, entry.dtype, part)
                for name, entry in index.tensors.items()
                for part in entry.parts
                if part.shard == number
            ]
            left.sort(key=lambda need: -need[2].begin)
            names = list(dict.fromkeys([name for name, _, _ in reversed(left)]))
            try:
                with (
                    reported("reading", prefix),
                    opened(prefix, shard, names) as reader,
                ):
                    while left:
                        name, dtype, part = left.pop()
                        size, error = part.end - part.begin, None
                        try:
                            reader.read(name, dtype, part, np.empty)
                        except errors.DataLossError as cause:
                            error = cause
                        yield Checked(name, size, error)
            except errors.OpError as error:  # nothing more of this file can be read
                for name, _, part in reversed(left):
                    yield Checked(name, part.end - part.begin, error)
                if not names:
                    yield Checked("", 0, error)


class _Targets:
    """The boxes of one tensor that a stored part has something of: the part is read once."""

    def __init__(
        self,
        results: list[Any],
        users: Sequence[int],
        boxes: Sequence[Region],
        dtype: DType,
        empty: Empty,
    ) -> None:
        self._results = results
        self._users = users
        self._boxes = boxes
        self._dtype = dtype
        self._empty = empty

    def fill(self, shard: ShardReader, name: str, part: Part) -> None:
        """Read the part, in place where that is possible, and copy it to the other boxes."""
        first, *others = self._users
        value = shard.read(name, self._dtype, part, self._place(first, part))
        if part.region == self._boxes[first]:
            self._results[first] = value
        else:
            self._copy(first, part, value)
        for user in others:
            self._copy(user, part, value)

    def _place(self, user: int, part: Part) -> Empty:
        box = self._boxes[user]
        if part.region == box:
            return self._empty
        if part.region.overlap(box) != part.region or self._dtype.numpy.hasobject:
            return np.empty
        inside = self._target(user)[part.region.slices(box.start)]
        return (lambda shape, dtype: inside) if inside.flags.c_contiguous else np.empty

    def _target(self, user: int) -> Any:
        if self._results[user] is None:
            self._results[user] = self._empty(self._boxes[user].shape, self._dtype.numpy)
        return self._results[user]

    def _copy(self, user: int, part: Part, value: Any) -> None:
        shared = part.region.overlap(self._boxes[user])
        target = self._target(user)
        if shared is None or np.may_share_memory(value, target):
            return
        target[shared.slices(self._boxes[user].start)] = value[shared.slices(part.region.start)]
