"""Merging of bundles, and the temporary prefixes under which savers write the parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

from weft_io.bundle.atomic_replacement import NewBundle, read_bundle_index
from weft_io.bundle.index import BundleIndex, merge_indexes, shard_path
from weft_io.checkpoint.index import index_path
from weft_io.files import paths, systems
from weft_io.files.storage import SAVING
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

_TEMPORARY_PATH: Final = re.compile(r"(?P<base>.+)_temp_[0-9a-f]{32}", re.DOTALL)
_PART: Final = re.compile(r"part-\d{5}-of-\d{5}\.(index|data-\d{5}-of-\d{5})")
_PART_PREFIX: Final = re.compile(r"_temp_[0-9a-f]{32}/part-\d{5}-of-\d{5}$")
_STEP: Final = re.compile(r"-\d+$")


def temporary_suffix() -> str:
    """Return a suffix that turns a checkpoint's path into the temporary prefix of its parts."""
    return f"_temp_{uuid4().hex}/part"


def is_part(prefix: str) -> bool:
    """Return True if a path is a temporary prefix of a part, written by weft or TensorFlow."""
    return _PART_PREFIX.search(prefix) is not None


def merge_bundles(
    prefixes: Sequence[str],
    destination: str,
    delete_old_dirs: bool = True,
    allow_missing_files: bool = False,
) -> None:
    """Merge bundles into one by renaming their files; the originals no longer exist.

    Args:
      prefixes: prefixes of the bundles, in one file system with `destination`.
      destination: prefix of the new one.
      delete_old_dirs: remove the directories of the old ones, if they are empty afterwards.
      allow_missing_files: skip bundles that do not exist.
    Raises:
      NotFoundError: a bundle does not exist.
      InvalidArgumentError: two of them have the same tensor, or the same slice of one.
      DataLossError: an index is damaged.
    """
    result: list[tuple[str, BundleIndex]] = []
    for prefix in prefixes:
        try:
            result.append((prefix, read_bundle_index(prefix)))
        except errors.NotFoundError:
            if not allow_missing_files:
                raise
    index, sources = merge_indexes(index_path(destination), [index for _, index in result])
    directory, base = paths.split_prefix(destination)
    with (
        convert_os_errors("merging bundles into", destination),
        NewBundle(destination, len(sources)) as new,
    ):
        for number, (shard, shard_number) in enumerate(sources):
            prefix, old = result[shard]
            new.take(number, shard_path(prefix, shard_number, old.shards))
        new.finish(index.tensors, index.big_endian)
        for prefix, old in result:
            if paths.absolute(old.path) != paths.absolute(index.path):
                _remove(prefix, old)
        if delete_old_dirs:
            _remove_empty({paths.split_prefix(prefix)[0] for prefix in prefixes} - {directory})
            _remove_abandoned(directory, base)


def _remove(prefix: str, index: BundleIndex) -> None:
    storage = paths.storage_of(paths.split_prefix(prefix)[0])
    storage.remove(index.path)
    for number in range(index.shards):
        storage.remove(shard_path(prefix, number, index.shards))


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        system, inner = systems.locate(directory)
        try:
            names = system.list(inner)
        except FileNotFoundError:  # stores of objects have no directories
            continue
        if not names:
            system.remove_tree(inner)


def _remove_abandoned(directory: str, base: str) -> None:
    """Remove the temporary places of killed savers of this checkpoint, of any step."""
    system, inner = systems.locate(directory)
    stem = _STEP.sub("", base)
    for name, is_directory in system.list(inner):
        match = _TEMPORARY_PATH.fullmatch(name)
        if match is None or not is_directory or _STEP.sub("", match["base"]) != stem:
            continue
        path = systems.locate(paths.join(directory, name))[1]
        if all(_PART.fullmatch(name) or SAVING.match(name) for name, _ in system.list(path)):
            system.remove_tree(path)
