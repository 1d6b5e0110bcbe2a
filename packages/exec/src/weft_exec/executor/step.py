"""The ready queue of one step (paper, section 3.1): a plain object fed with events.

It knows nothing of threads, kernels or values.  An entry is ready when all entries it waits for
have finished; ready entries are handed out in the order of construction, but heavy ones after the
others, which take next to no time and may make another heavy one ready to run beside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from weft_exec.executor.entries import Entry
from weft_tensor import errors


class StepMachine:
    """Pending counts, ready entries, and slots to forget.

    Attributes:
      running: entries handed out and not finished.
      heavy_ready: how many of the ready entries are heavy.
      error: the first failure; from then on nothing becomes ready.
    """

    __slots__ = (
        "_entries",
        "_left",
        "_pending",
        "_ready",
        "_uses",
        "error",
        "heavy_ready",
        "running",
    )

    def __init__(self, entries: Sequence[Entry], shared_uses: Mapping[int, int]) -> None:
        self._entries = entries
        self._pending = [entry.pending for entry in entries]
        self._uses = dict(shared_uses)
        self._ready = [(entry.heavy, entry.index) for entry in entries if not entry.pending]
        heapq.heapify(self._ready)
        self._left = len(entries)
        self.heavy_ready = sum(heavy for heavy, _ in self._ready)
        self.running: set[int] = set()
        self.error: errors.OpError | None = None

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing more will."""
        return not self.running and (self.error is not None or not self._left)

    def take(self) -> Entry | None:
        """Hand out the first ready entry, or None."""
        if not self._ready or self.error is not None:
            return None
        _, index = heapq.heappop(self._ready)
        self.running.add(index)
        entry = self._entries[index]
        self.heavy_ready -= entry.heavy
        return entry

    def finished(self, entry: Entry) -> list[int]:
        """Note that a running entry has finished.

        Returns: slots that no entry needs any more.
        Raises: InternalError: it was not running.
        """
        self._stop(entry)
        self._left -= 1
        for successor in entry.successors:
            self._pending[successor] -= 1
            if not self._pending[successor]:
                heavy = self._entries[successor].heavy
                heapq.heappush(self._ready, (heavy, successor))
                self.heavy_ready += heavy
        dead: list[int] = []
        uses = self._uses
        for slot in entry.shared:
            uses[slot] -= 1
            if not uses[slot]:
                dead.append(slot)
        return dead

    def failed(self, entry: Entry, error: errors.OpError) -> bool:
        """Note that a running entry has failed; returns whether it is the first failure."""
        self._stop(entry)
        return self.abort(error)

    def abort(self, error: errors.OpError) -> bool:
        """Let nothing more start; returns whether this is the first failure."""
        if self.error is not None:
            return False
        self.error = error
        return True

    def check(self) -> None:
        """Recompute what must hold.

        Raises: InternalError: an entry is counted wrongly.
        """
        for _, index in self._ready:
            if self._pending[index] or index in self.running:
                raise errors.InternalError(f"entry {index} is ready and should not be")
        if self.heavy_ready != sum(heavy for heavy, _ in self._ready):
            raise errors.InternalError("the ready heavy entries are counted wrongly")
        if any(count < 0 for count in self._pending) or any(n < 0 for n in self._uses.values()):
            raise errors.InternalError("a count of the step fell below zero")

    def _stop(self, entry: Entry) -> None:
        if entry.index not in self.running:
            raise errors.InternalError(f"entry {entry.index} finished without running")
        self.running.remove(entry.index)
