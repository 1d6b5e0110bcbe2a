"""Assembly of boxes of tensors from stored parts; each part is read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from weft_io.checkpoint.encoding import Array, Empty
from weft_io.checkpoint.format import StoredPart, StoredTensor
from weft_io.checkpoint.regions import Region
from weft_tensor.dtypes import DType
from weft_tensor.os_errors import convert_os_errors


class OpenShard(Protocol):
    """An open file of a checkpoint."""

    def read(self, name: str, dtype: DType, part: Any, empty: Empty) -> Array:
        """Read and verify a stored part, into memory from `empty`."""


OpenFile = Callable[[int, Sequence[str]], AbstractContextManager[OpenShard]]
"""A function that opens a data file by its number, to read certain tensors."""


def assemble_boxes(
    prefix: str,
    tensors: Mapping[str, StoredTensor],
    expected: Sequence[tuple[str, Region]],
    open_file: OpenFile,
    empty: Empty,
) -> list[Array]:
    """Read boxes of tensors; see `CheckpointFormat.read` for arguments, results and errors."""
    parts_by_shard: dict[int, dict[tuple[str, StoredPart], list[int]]] = {}
    for i, (name, box) in enumerate(expected):
        parts = tensors[name].parts
        for part in parts:
            if len(parts) == 1 or part.region.overlap(box) is not None:
                parts_by_shard.setdefault(part.shard, {}).setdefault((name, part), []).append(i)
    results: list[Any] = [None] * len(expected)
    boxes = [box for _, box in expected]
    for shard_index, shard_parts in sorted(parts_by_shard.items()):
        names = list(dict.fromkeys(name for name, _ in shard_parts))
        with convert_os_errors("reading", prefix), open_file(shard_index, names) as shard:
            for (name, part), users in sorted(
                shard_parts.items(), key=lambda request: request[0][1].begin
            ):
                _Targets(results, users, boxes, tensors[name].dtype, empty).fill(shard, name, part)
    return [
        empty(box.shape, tensors[name].dtype.numpy) if result is None else result
        for result, (name, box) in zip(results, expected, strict=True)
    ]


class _Targets:
    """The boxes of one tensor that overlap a stored part."""

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

    def fill(self, shard: OpenShard, name: str, part: StoredPart) -> None:
        """Read the part, in place if possible, and copy it to all boxes."""
        first, *other_users = self._users
        value = shard.read(name, self._dtype, part, self._choose_buffer(first, part))
        if part.region == self._boxes[first]:
            self._results[first] = value
        else:
            self._copy(first, part, value)
        for user in other_users:
            self._copy(user, part, value)

    def _choose_buffer(self, user: int, part: StoredPart) -> Empty:
        box = self._boxes[user]
        if part.region == box:
            return self._empty
        if part.region.overlap(box) != part.region or self._dtype.numpy.hasobject:
            return np.empty
        target_view = self._target(user)[part.region.slices(box.start)]
        return (lambda shape, dtype: target_view) if target_view.flags.c_contiguous else np.empty

    def _target(self, user: int) -> Any:
        if self._results[user] is None:
            self._results[user] = self._empty(self._boxes[user].shape, self._dtype.numpy)
        return self._results[user]

    def _copy(self, user: int, part: StoredPart, value: Any) -> None:
        shared = part.region.overlap(self._boxes[user])
        target = self._target(user)
        if shared is None or np.may_share_memory(value, target):
            return
        target[shared.slices(self._boxes[user].start)] = value[shared.slices(part.region.start)]
