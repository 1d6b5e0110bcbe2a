"""Retention of checkpoints: the last N, one per some hours, and cleanup after crashes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from weft_io.checkpoint import state
from weft_io.files import paths
from weft_tensor import errors

_FIRST_LINE: Final = b"weft retention journal 1\n"


class Retention:
    """The checkpoints that a saver knows, oldest first. It does not access files.

    Args:
      max_to_keep: number to keep; None and 0 keep all, without a list.
      keep_every_n_hours: also keep one of the older checkpoints per this number of hours,
        permanently.
      clock: function that returns seconds since the epoch.
    Attributes:
      last: (prefix, write time) of the checkpoints, oldest first.
    """

    def __init__(
        self,
        max_to_keep: int | None,
        keep_every_n_hours: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_to_keep = max_to_keep or 0
        self._seconds = keep_every_n_hours * 3600
        self._clock = clock
        self._keep_next_after = clock() + self._seconds
        self.last: list[tuple[str, float]] = []

    def record(self, prefix: str) -> list[str]:
        """Record a new checkpoint; return the prefixes of those to remove."""
        if not self._max_to_keep:
            return []
        self.last = [item for item in self.last if item[0] != prefix]
        self.last.append((prefix, self._clock()))
        number = max(0, len(self.last) - self._max_to_keep)
        removed, self.last = self.last[:number], self.last[number:]
        return [path for path, written in removed if not self._keep_for_good(written)]

    def _keep_for_good(self, written: float) -> bool:
        if not written > self._keep_next_after:
            return False
        # The next one is due an interval after this one, however long nothing was saved.
        missed = (written - self._keep_next_after) // self._seconds if self._seconds else 0
        self._keep_next_after += (missed + 1) * self._seconds
        return True

    def add_existing(self, prefixes: Iterable[str]) -> None:
        """Add existing checkpoints, oldest first."""
        for prefix in prefixes:
            if any(prefix == path for path, _ in self.last):
                continue
            for written in state.get_checkpoint_mtimes([prefix]):
                younger = [i for i, (_, time) in enumerate(self.last) if time > written]
                self.last.insert(younger[0] if younger else len(self.last), (prefix, written))

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Return the current state, for `rollback`."""
        return list(self.last), self._keep_next_after

    def rollback(self, snapshot: tuple[list[tuple[str, float]], float]) -> None:
        """Restore the state of a snapshot."""
        self.last, self._keep_next_after = snapshot


class RetentionJournal:
    """A journal of the changes that a save makes to the list of checkpoints.

    A process killed during a save may leave a complete checkpoint that is in no list. The next save
    in the directory finds it by this journal.

    Args:
      directory: the directory of the state file.
      state_file: the name of the state file.
      prefix: the checkpoint about to be written.
    Raises: OSError.
    """

    def __init__(self, directory: str, state_file: str, prefix: str) -> None:
        self._prefix = prefix
        self._saving = paths.storage_of(directory).note(directory, state_file)
        try:
            self._saving.write(_FIRST_LINE)
            self._note("adds", [prefix])
        except BaseException:  # because no file may be left behind after any failure
            self._saving.discard()
            raise

    def removes(self, prefixes: Sequence[str]) -> None:
        """Record checkpoints that are about to be dropped from the list."""
        if prefixes:
            self._note("removes", prefixes)

    def _note(self, label: str, prefixes: Sequence[str]) -> None:
        absolute = [paths.absolute(prefix) for prefix in prefixes]
        self._saving.write(json.dumps({label: absolute}).encode() + b"\n")

    def done(self) -> None:
        """End the journal: list and files are consistent again."""
        self._saving.discard()

    def abandon(self) -> None:
        """Leave the journal to the next save."""
        self._saving.abandon()

    def give_up(self) -> None:
        """End the journal after an error, unless there may be an unlisted checkpoint."""
        if state.checkpoint_exists(self._prefix):
            self.abandon()
            return
        try:
            self.done()
        except OSError:
            self.abandon()


def recover(directory: str, state_file: str) -> list[str]:
    """Finish the saves of processes that died while saving in a directory.

    It removes the checkpoints that were about to be removed.

    Returns: prefixes of the complete checkpoints that are in no list, oldest first.
    Raises: OSError.
    """
    storage = paths.storage_of(directory)
    if not storage.is_directory(directory):
        return []
    names: list[str] = []
    for abandoned in storage.find_abandoned(directory):
        if abandoned.base != state_file or not abandoned.data.startswith(_FIRST_LINE):
            continue  # another's, or one that says nothing yet, which the next save removes
        try:
            listed = _read_listed_paths(directory, state_file)
        except errors.DataLossError:  # unknown; this save replaces the damaged list
            break
        adds, removes = _read(abandoned.data)
        for path in removes:
            if path not in listed and paths.split_prefix(path)[0] == paths.absolute(directory):
                state.remove_checkpoint(path)
        names += [
            paths.join(directory, paths.base_name(path))
            for path in adds
            if path not in listed and state.checkpoint_exists(path)
        ]
        abandoned.remove()
    return names


def _read_listed_paths(directory: str, state_file: str) -> set[str]:
    message = state.get_checkpoint_state(directory, state_file)
    if message is None:
        return set()
    return {paths.absolute(path) for path in message.all_model_checkpoint_paths}


def _read(data: bytes) -> tuple[list[str], list[str]]:
    notes: dict[str, list[str]] = {"adds": [], "removes": []}
    for line in data[len(_FIRST_LINE) :].splitlines():
        try:
            item: Any = json.loads(line)
        except ValueError:  # killed while it wrote this line
            break
        for label, prefixes in item.items():
            notes[label] += prefixes
    return notes["adds"], notes["removes"]
