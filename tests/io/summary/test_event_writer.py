"""The thread that writes: waiting, failing disks, and processes that end, fork or are stopped."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.waiting import new_threads

from weft_io import summary
from weft_io.summary import event_file
from weft_io.summary.event_writer import EventFileWriter
from weft_io.summary.reading import summary_iterator
from weft_tensor import errors

Events = Callable[[Path], list[Any]]
LIMIT = 60  # seconds for what happens at once


def event(step: int) -> summary.Event:
    return summary.Event(wall_time=1.0, step=step)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Disk:
    """Stands before the local files: writes wait or fail when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.error: BaseException | None = None
        write = event_file._LocalFile.write

        def slow(file: Any, data: bytes) -> None:
            self.waiting.set()
            assert self.open.wait(LIMIT)
            if self.error is not None:
                raise self.error
            write(file, data)

        monkeypatch.setattr(event_file._LocalFile, "write", slow)

    def fail(self) -> None:
        self.error = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_flush_waits_for_the_disk(tmp_path: Path, events: Events) -> None:
    writer = EventFileWriter(tmp_path, flush_secs=1e9)
    for step in range(100):
        writer.add_event(event(step))
    writer.flush()
    assert [e.step for e in events(tmp_path)] == list(range(100))
    writer.close()


def test_adding_waits_for_room(tmp_path: Path, disk: Disk, events: Events) -> None:
    disk.open.clear()
    writer = EventFileWriter(tmp_path, max_queue=2)
    assert disk.waiting.wait(LIMIT)  # it writes the version
    added = []

    def add() -> None:
        for step in range(3):
            writer.add_event(event(step))
            added.append(step)

    thread = threading.Thread(target=add)
    thread.start()
    until(lambda: len(added) == 2)
    assert not threading.Event().wait(0.05) and len(added) == 2
    disk.open.set()
    thread.join(LIMIT)
    writer.close()
    assert added == [0, 1, 2]
    assert [e.step for e in events(tmp_path)] == [0, 1, 2]


def test_what_was_added_reaches_the_disk_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = []
    flush = event_file._LocalFile.flush

    def note(file: Any) -> None:
        flush(file)
        flushes.append(Path(file.path).stat().st_size)

    monkeypatch.setattr(event_file._LocalFile, "flush", note)
    writer = EventFileWriter(tmp_path, flush_secs=0.2)
    until(lambda: len(flushes) == 1)
    writer.add_event(event(1))
    until(lambda: len(flushes) == 2)
    assert flushes[1] > flushes[0]
    writer.close()


def test_many_threads(tmp_path: Path, events: Events) -> None:
    writer = EventFileWriter(tmp_path, max_queue=3)

    def add(first: int) -> None:
        for step in range(first, first + 200):
            writer.add_event(event(step))

    threads = [threading.Thread(target=add, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    writer.close()
    found = [e.step for e in events(tmp_path)]
    for i in range(4):
        mine = [step for step in found if step // 1000 == i]
        assert mine == list(range(1000 * i, 1000 * i + 200))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_queue": "a"}, "max_queue must be an integer, got 'a'"),
        ({"flush_secs": "a"}, "flush_secs must be at least 0 seconds, got 'a'"),
        ({"flush_secs": -1}, "flush_secs must be at least 0 seconds, got -1"),
        ({"filename_suffix": 3}, "filename_suffix must be text, got 3"),
    ],
)
def test_bad_options(tmp_path: Path, options: Any, text: str) -> None:
    with pytest.raises(errors.InvalidTypeError, match=text):
        EventFileWriter(tmp_path, **options)
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------- failing disks


def test_a_full_disk_is_told_at_the_next_call_and_from_then_on(tmp_path: Path, disk: Disk) -> None:
    writer = EventFileWriter(tmp_path)
    writer.flush()
    disk.fail()
    writer.add_event(event(1))
    for call in (writer.flush, lambda: writer.add_event(event(2)), writer.flush):
        match = rf"{tmp_path}.*No space left.*to go on in a new file, close\(\) and reopen\(\)"
        with pytest.raises(errors.ResourceExhaustedError, match=match):
            call()
    writer.close()  # everybody knows
    disk.error = None
    writer.reopen()
    writer.add_event(event(3))
    writer.close()
    _, second = sorted(tmp_path.iterdir())
    assert [e.step for e in summary_iterator(second)] == [0, 3]


def test_a_full_disk_that_closing_finds(tmp_path: Path, disk: Disk) -> None:
    writer = EventFileWriter(tmp_path)
    writer.flush()
    disk.fail()
    writer.add_event(event(1))
    with pytest.raises(errors.ResourceExhaustedError):
        writer.close()
    assert writer.closed
    writer.close()
    writer.add_event(event(2))  # it is closed


def test_who_waits_for_room_is_told(tmp_path: Path, disk: Disk) -> None:
    disk.open.clear()
    writer = EventFileWriter(tmp_path, max_queue=1)
    assert disk.waiting.wait(LIMIT)
    writer.add_event(event(1))
    told = []

    def add() -> None:
        try:
            writer.add_event(event(2))
        except errors.ResourceExhaustedError as error:
            told.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    disk.fail()
    disk.open.set()
    thread.join(LIMIT)
    assert len(told) == 1
    writer.close()


def test_what_stores_raise_is_told_too(tmp_path: Path, disk: Disk) -> None:
    writer = EventFileWriter(tmp_path)
    writer.flush()
    disk.error = RuntimeError("the store is away")
    writer.add_event(event(1))
    with pytest.raises(errors.UnknownError, match="the store is away") as caught:
        writer.flush()
    assert str(tmp_path) in str(caught.value)
    writer.close()


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
def test_a_file_that_somebody_removed(tmp_path: Path) -> None:
    writer = EventFileWriter(tmp_path)
    writer.flush()
    Path(writer.path).unlink()
    with pytest.raises(errors.NotFoundError, match="was removed"):
        writer.flush()
    writer.close()


# ------------------------------------------------------------------------- programs that end


def program(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    head = f"""
import os, sys, time
from weft_io import summary
from weft_io.summary.event_writer import EventFileWriter
from weft_tensor import errors
def event(step): return summary.Event(wall_time=1.0, step=step)
writer = EventFileWriter({str(tmp_path)!r}, flush_secs=1e9)
"""
    return subprocess.run(
        [sys.executable, "-c", head + text], capture_output=True, text=True, timeout=LIMIT
    )


def test_a_dropped_writer_is_closed(tmp_path: Path, events: Events) -> None:
    threads = new_threads()
    writer = EventFileWriter(tmp_path, flush_secs=1e9)
    (thread,) = threads()
    writer.add_event(event(5))
    del writer
    gc.collect()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert [e.step for e in events(tmp_path)] == [5]


def test_a_dropped_writer_whose_events_are_lost(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    threads = new_threads()
    writer = EventFileWriter(tmp_path)
    writer.flush()
    (thread,) = threads()
    disk.fail()
    writer.add_event(event(5))
    del writer
    gc.collect()
    thread.join(LIMIT)
    assert "events were lost" in caplog.text and "No space left" in caplog.text


def test_a_program_that_does_not_close(tmp_path: Path, events: Events) -> None:
    done = program(tmp_path, "for i in range(50): writer.add_event(event(i))")
    assert (done.returncode, done.stderr) == (0, "")
    assert [e.step for e in events(tmp_path)] == list(range(50))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits there")
def test_a_program_that_does_not_close_and_a_full_disk(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        """
import resource
writer.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))
writer.add_event(event(1))
""",
    )
    assert done.returncode == 0
    assert "events were lost" in done.stderr and "File too large" in done.stderr


@pytest.mark.skipif(not hasattr(sys.modules["os"], "fork"), reason="there are no forks there")
def test_a_fork_leaves_the_file_to_its_process(tmp_path: Path) -> None:
    done = program(
        tmp_path,
        """
for i in range(5): writer.add_event(event(i))
child = os.fork()
if child == 0:
    for call in (writer.flush, lambda: writer.add_event(event(9))):
        try:
            call()
        except errors.FailedPreconditionError as error:
            assert "belongs to process" in str(error)
        else:
            sys.exit("the child wrote")
    writer.close()
    writer.reopen()
    writer.add_event(event(7))
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
writer.add_event(event(5))
""",
    )
    assert done.returncode == 0, done.stderr
    found = sorted([e.step for e in summary_iterator(file)] for file in tmp_path.iterdir())
    assert found == [[0, 0, 1, 2, 3, 4, 5], [0, 7]]


def test_closing_goes_on_after_an_interrupt(
    tmp_path: Path, disk: Disk, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.open.clear()
    writer = EventFileWriter(tmp_path)
    writer.add_event(event(1))
    changed = writer._worker._changed
    wait = changed.wait

    def interrupted(timeout: float | None = None) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait(timeout)

    monkeypatch.setattr(changed, "wait", interrupted)
    for call in (writer.flush, writer.close):
        with pytest.raises(KeyboardInterrupt):
            call()
    monkeypatch.setattr(changed, "wait", wait)
    disk.open.set()
    writer.close()
    assert [e.step for e in events(tmp_path)] == [1]
