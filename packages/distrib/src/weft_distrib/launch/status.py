"""The status of a cluster's tasks as rows of a table; repeated polls determine rates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from weft_distrib.cluster.connections import Connections
from weft_distrib.cluster.reports import gather
from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.protocol import messages
from weft_distrib.protocol.service import REPORTS, ControlClient
from weft_distrib.security.credentials import Credentials
from weft_distrib.security.roles import Role
from weft_distrib.wire.handshake import ConnectionOptions

HEADER: Final = ("task", "state", "steps", "steps/s", "in", "in/s", "out", "out/s", "up")
"""The columns of `Rates.rows`."""

EVERY_SECONDS: Final = 1.0

_ASK_SECONDS = 10.0
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

Row = tuple[str, ...]


class _Observation(NamedTuple):
    time: float
    report: messages.Report


class Rates:
    """Converts reports to rows; rates are computed from the increase since the previous reports."""

    def __init__(self) -> None:
        self._last: dict[str, _Observation] = {}

    def rows(self, now: float, reports: Sequence[messages.Report]) -> list[Row]:
        """Return a row for each task, with the columns of `HEADER`.

        Args:
          now: the time in seconds, by a monotonic clock.
        """
        return [self._row(_Observation(now, report)) for report in reports]

    def _row(self, observation: _Observation) -> Row:
        report = observation.report
        name = report.task.removeprefix("/job:").replace("/replica:0/task:", ":")
        if not report.incarnation:  # it said nothing itself
            return (name, report.state, *[""] * (len(HEADER) - 2))
        last = self._last.get(report.task)
        self._last[report.task] = observation
        if (
            last is None
            or last.report.incarnation != report.incarnation
            or observation.time <= last.time
        ):
            steps = received = sent = ""
        else:
            past, seconds = last.report, observation.time - last.time
            steps = f"{(report.steps - past.steps) / seconds:.1f}"
            received = size((report.bytes_in - past.bytes_in) / seconds)
            sent = size((report.bytes_out - past.bytes_out) / seconds)
        up = duration(report.milliseconds / 1000)
        into, out = size(report.bytes_in), size(report.bytes_out)
        return (name, report.state, str(report.steps), steps, into, received, out, sent, up)


def size(count: float) -> str:
    """Format a number of bytes briefly: "1.5 MB"."""
    unit = 0
    while abs(count) >= 999.5 and unit + 1 < len(_UNITS):
        count /= 1000
        unit += 1
    digits = 0 if not unit or count >= 99.95 else 1
    return f"{count:.{digits}f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds: "1:02:03"."""
    minutes, remaining = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remaining:02}" if hours else f"{minutes}:{remaining:02}"


def reports_of(address: str) -> list[messages.Report]:
    """Return the reports of all tasks of a cluster, as collected by the task at an address.

    Raises: UnavailableError: the task does not answer.
    """
    client = ControlClient(address, "the server", _connection_options())
    try:
        reports: messages.Reports = client.call(REPORTS, messages.Empty(), _ASK_SECONDS)
    finally:
        client.close()
    return reports.tasks


def _connection_options() -> ConnectionOptions:
    return ConnectionOptions(messages.VERSION, Credentials.from_environment(), Role.CLIENT)


class Watcher:
    """Polls the tasks of a cluster on a separate thread.

    Args:
      cluster: the addresses of the tasks.
      show: receives the rows after each poll.
      interval: seconds between polls.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        show: Callable[[list[Row]], None],
        interval: float = EVERY_SECONDS,
    ) -> None:
        self._cluster, self._show, self._interval = cluster, show, interval
        self._connections = Connections(cluster, _connection_options())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="weft-status", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        rates = Rates()
        while not self._stop.is_set():
            result = gather(self._cluster.tasks(), self._connections)
            if not self._stop.is_set():
                self._show(rates.rows(time.monotonic(), result.tasks))
            self._stop.wait(self._interval)

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._thread.join()
        self._connections.close()
