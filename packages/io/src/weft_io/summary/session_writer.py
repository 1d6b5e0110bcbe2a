"""Event files shared by the writers of one session and directory."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from weft_io.files.systems import PathLike, as_path
from weft_io.summary.event_writer import EventFileWriter

if TYPE_CHECKING:
    from weft_graph import proto


class _SharedState:
    """An event file and the number of its users."""

    def __init__(self, writer: EventFileWriter) -> None:
        self.writer = writer
        self.users = 0


_of_sessions: weakref.WeakKeyDictionary[Any, dict[str, _SharedState]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class SessionEventWriter:
    """One user's writer to the event file shared by a session and a directory.

    Args:
      session: the session.
      logdir, max_queue, flush_secs, filename_suffix: as for `EventFileWriter`; the options of the
        first user apply.
    """

    def __init__(
        self,
        session: Any,
        logdir: PathLike,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:
        self._session = session
        self._options = (as_path(logdir), max_queue, flush_secs, filename_suffix)
        self._closed = True
        self.reopen()

    @property
    def closed(self) -> bool:
        """True if this user closed the writer and did not reopen it."""
        return self._closed

    @property
    def ours(self) -> bool:
        """True if this process writes the file."""
        return self._shared.writer.ours

    def get_logdir(self) -> str:
        """Return the directory."""
        return self._options[0]

    def add_event(self, event: proto.Event) -> None:
        """Append an event; do nothing if the writer is closed."""
        self.add_serialized(event.SerializeToString())

    def add_serialized(self, event: bytes) -> None:
        """Append a serialized `Event`; do nothing if the writer is closed."""
        if not self._closed:
            self._shared.writer.add_serialized(event)

    def flush(self) -> None:
        """Wait until all added events are on the disk."""
        if not self._closed:
            self._shared.writer.flush()

    def close(self) -> None:
        """Write all added events; the last user closes the file."""
        if self._closed:
            return
        self._closed = True
        with _lock:
            self._shared.users -= 1
            last = self._shared.users == 0
        if last:
            self._shared.writer.close()
        elif self.ours:
            self._shared.writer.flush()

    def reopen(self) -> None:
        """Resume writing after `close`: in the file of other open writers, or in a new one."""
        if not self._closed:
            return
        with _lock:
            shared = _of_sessions.setdefault(self._session, {})
            entry = shared.get(self.get_logdir())
            if entry is None or not entry.users or not entry.writer.ours:
                entry = shared[self.get_logdir()] = _SharedState(EventFileWriter(*self._options))
            entry.users += 1
            self._shared = entry
        self._closed = False
