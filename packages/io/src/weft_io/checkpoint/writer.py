"""Crash-safe writing and removal of checkpoints.

A save first writes a journal, then the shards, under names that no other save uses. It then
replaces the index, which makes the new checkpoint valid, and finally removes the old shards. Every
file is flushed before another file refers to it. A crash at any time leaves either the old or the
new checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft_io.checkpoint import journal, regions
from weft_io.checkpoint.index import Entry, Index, Part, Shard, index_path, shard_suffix
from weft_io.checkpoint.regions import Region
from weft_io.checkpoint.save_items import Item, WholeTensors
from weft_io.checkpoint.shards import Piece, write_shard
from weft_io.files import paths
from weft_io.files.storage import new_save_id
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors


def write_checkpoint(prefix: str, items: Sequence[Item]) -> Index:
    """Save tensors under `prefix`, replacing an existing checkpoint.

    On return the checkpoint is durable: it survives a power failure. After an error or a crash the
    previous checkpoint still exists.

    Args:
      prefix: path without suffix; its directory is created if it is missing.
      items: in any order.
    Raises:
      InvalidArgumentError: a name occurs twice, or the parts of a tensor do not cover it.
      ResourceExhaustedError: the disk is full.
      PermissionDeniedError, ...: the operating system reports an error.
    """
    prefix = paths.as_path(prefix)
    directory, base = paths.split_prefix(prefix)
    plan = _Plan(items)
    save = new_save_id()
    suffixes = [shard_suffix(i, len(plan.shards), save) for i in range(len(plan.shards))]
    storage = paths.storage_of(directory)
    with convert_os_errors("saving", prefix):
        storage.make_directory(directory)
        with storage.locked(directory):
            journal.recover(directory)
        note = journal.Journal(directory, base, [base + suffix for suffix in suffixes])
        try:
            written = [
                write_shard(prefix, suffix, i, pieces)
                for i, (suffix, pieces) in enumerate(zip(suffixes, plan.shards, strict=True))
            ]
            index = plan.index(save, written)
            storage.sync_directory(directory)
            with storage.locked(directory):
                note.add(journal.list_replaced_names(directory, base) - {base + ".meta"})
                storage.write_atomically(index_path(prefix), index.to_bytes())
                note.settle({base + suffix for suffix in suffixes} | {base + ".meta"})
        except BaseException:  # because the files have to go, whatever stopped the save
            note.give_up()
            raise
    return index


def remove_checkpoint(prefix: str, further_names: Iterable[str] = ()) -> None:
    """Remove a checkpoint if it exists, index first, so that no incomplete one remains.

    Args:
      further_names: names of further files to remove.
    Raises: PermissionDeniedError, ...: the operating system reports an error.
    """
    directory, base = paths.split_prefix(prefix)
    storage = paths.storage_of(directory)
    with convert_os_errors("removing", prefix):
        if not storage.is_directory(directory):
            return
        with storage.locked(directory):
            named = journal.list_replaced_names(directory, base) | set(further_names)
            present = sorted(named & set(storage.names(directory)))
            if not present and not paths.exists(index_path(prefix)):
                return
            note = journal.Journal(directory, base, present)
            try:
                storage.remove(index_path(prefix))
                for name in further_names:
                    storage.remove(paths.join(directory, name))
                note.settle()
            except BaseException:  # because the note has to go, whatever stopped the removal
                note.give_up()
                raise


class _Plan:
    """The assignment of pieces to shards, after validation."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._wholes = WholeTensors()
        used = sorted({item.shard for item in items}) or [0]
        self.shards: list[list[Piece]] = [[] for _ in used]
        numbers = {shard: i for i, shard in enumerate(used)}
        result: dict[str, list[Region]] = {}
        for item in items:
            region = self._wholes.add(item)
            result.setdefault(item.name, []).append(region)
            piece = Piece(item.name, item.dtype, region, item.value)
            self.shards[numbers[item.shard]].append(piece)
        for name, parts in result.items():
            shape = self._wholes[name].shape
            if not regions.tiles(parts, shape):
                raise errors.InvalidArgumentError(
                    f"the parts saved as {name!r} must cover a tensor of shape {list(shape)}, each "
                    f"element once; got (start, shape): {[tuple(map(list, p)) for p in parts]}"
                )

    def index(self, save: str, written: Sequence[tuple[Shard, list[Part]]]) -> Index:
        """Return the index of the shards once they are written."""
        parts: dict[str, list[Part]] = {name: [] for name in self._wholes}
        for pieces, (_, ranges) in zip(self.shards, written, strict=True):
            for piece, part in zip(pieces, ranges, strict=True):
                parts[piece.name].append(part)
        tensors = {name: Entry(*self._wholes[name], parts[name]) for name in sorted(parts)}
        return Index(save, [shard for shard, _ in written], tensors)
