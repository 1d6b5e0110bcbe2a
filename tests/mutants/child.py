"""A pytest process that is limited in processor time, and the meaning of how it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PASSED, FAILED, NO_TESTS = 0, 1, 5
"""Exit statuses of pytest; 2, 3 and 4 are interruptions, internal errors and usage errors."""

_IDLE_FACTOR = 10
"""How much longer than its processor time a process may take, on a busy machine or asleep."""

_STARTED = re.compile(
    r"^(\S+\.py::.+?) (?:(FAILED|ERROR)\b|[A-Z]{5,}|\+{5}|Fatal Python|$)", re.MULTILINE
)
_NOT_COLLECTED = re.compile(r"^ERROR (\S+\.py)(?: - .*)?$", re.MULTILINE)
_DURATION = re.compile(r"^([\d.]+)s (?:setup|call|teardown) ", re.MULTILINE)
_TIMED_OUT = re.compile(r"\+{5} Timeout \+{5}|Failed: Timeout \(")


@dataclass(frozen=True)
class Result:
    """The end of a pytest process.

    Attributes:
      status: its exit status, negative after a signal; None if its limit stopped it.
      output: what it printed, with a line for each test.
    """

    status: int | None
    output: str

    @property
    def seconds(self) -> float:
        """The elapsed time of the tests, as far as pytest was asked for it by `--durations`."""
        return sum(map(float, _DURATION.findall(self.output)))

    @property
    def is_clean(self) -> bool:
        """True if no test failed, or none was selected."""
        return self.status in (PASSED, NO_TESTS)

    @property
    def has_timed_out(self) -> bool:
        """True if one test took longer than a test may."""
        return self.status == FAILED and _TIMED_OUT.search(self.output) is not None

    @property
    def failed(self) -> str | None:
        """The test, or the file that could not be collected, that failed last."""
        items = list(_STARTED.finditer(self.output))
        if items and (items[-1][2] or self.has_timed_out):
            return items[-1][1]
        files = _NOT_COLLECTED.findall(self.output)
        return files[-1] if files else None

    @property
    def running(self) -> str | None:
        """The test that began last."""
        items = list(_STARTED.finditer(self.output))
        return items[-1][1] if items else None


def run(command: Sequence[str], folder: Path, env: dict[str, str], seconds: float) -> Result:
    """Run a command, and end all processes that it started.

    Args:
      seconds: processor time of all its processes after which it is stopped.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output = _communicate(process, seconds)
    finally:
        _end_session(process)
    status = None if output is None else process.returncode
    return Result(status, output or "")


def _communicate(process: subprocess.Popen[str], seconds: float) -> str | None:
    """Return the output of a process, None if it used up its processor time."""
    end = time.monotonic() + _IDLE_FACTOR * seconds
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=0.5)[0]
        if time.monotonic() > end or _processor_seconds(process.pid) > seconds:
            return None


def _processor_seconds(session: int) -> float:
    """Return the processor time of a session's processes and of their ended children."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _end_session(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started, such as servers of tests."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
