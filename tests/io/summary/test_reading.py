"""Event files read back: damaged, cut short, and growing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from weft_io import summary
from weft_io.records.tfrecord import frame
from weft_io.summary.reading import summary_iterator
from weft_tensor import errors


def record(event: summary.Event) -> bytes:
    data = event.SerializeToString()
    before, after = frame(data)
    return before + data + after


EVENTS = [summary.Event(wall_time=1.0, step=i, file_version="x" * i) for i in range(4)]
RECORDS = [record(event) for event in EVENTS]
WHOLE = b"".join(RECORDS)
STARTS = [sum(map(len, RECORDS[:i])) for i in range(5)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events") / "events.out.tfevents"


def read(path: Path, data: bytes) -> tuple[list[summary.Event], errors.DataLossError | None]:
    path.write_bytes(data)
    found = []
    try:
        for event in summary_iterator(path):
            found.append(event)
    except errors.DataLossError as error:
        return found, error
    return found, None


def test_a_whole_file(path: Path) -> None:
    assert read(path, WHOLE) == (EVENTS, None)
    assert read(path, b"") == ([], None)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_damaged_byte(path: Path, place: int, change: int) -> None:
    data = bytearray(WHOLE)
    data[place] ^= change
    found, error = read(path, bytes(data))
    hit = max(i for i in range(4) if STARTS[i] <= place)
    assert found == EVENTS[:hit]
    assert error is not None and str(path) in str(error) and str(STARTS[hit]) in str(error)


@given(st.integers(0, len(WHOLE)))
def test_a_file_that_is_cut_short(path: Path, size: int) -> None:
    found, error = read(path, WHOLE[:size])
    whole = max(i for i in range(5) if STARTS[i] <= size)
    assert found == EVENTS[:whole]
    assert (error is None) == (size in STARTS)


def test_a_file_that_grows(path: Path) -> None:
    path.write_bytes(RECORDS[0])
    iterator = summary_iterator(path)
    assert list(iterator) == EVENTS[:1]
    assert list(iterator) == []
    with path.open("ab") as file:
        file.write(RECORDS[1] + RECORDS[2][:-3])
    assert next(iterator) == EVENTS[1]
    for _ in range(2):
        with pytest.raises(errors.DataLossError, match=f"at {STARTS[2]} of"):
            next(iterator)
    with path.open("ab") as file:
        file.write(RECORDS[2][-3:] + RECORDS[3])
    assert list(iterator) == EVENTS[2:]


def test_records_that_are_no_events(path: Path) -> None:
    before, after = frame(b"\xff\xff")
    found, error = read(path, RECORDS[0] + before + b"\xff\xff" + after)
    assert found == EVENTS[:1]
    assert error is not None and f"at {STARTS[1]} of" in str(error) and "not an Event" in str(error)


def test_a_length_that_no_file_has(path: Path) -> None:
    huge = (1 << 62).to_bytes(8, "little")
    head = huge + frame(huge)[1]
    _, error = read(path, head + b"x" * 100)
    assert error is not None and str(1 << 62) in str(error)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nowhere"):
        summary_iterator(tmp_path / "nowhere")


def test_urls() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    with summary.FileWriter("memory://weft-events/run", flush_secs=1e9) as writer:
        for step in range(3):
            writer.add_event(summary.Event(step=step, file_version="v"))
            writer.flush()
            (name,) = memory.ls("/weft-events/run", detail=False)
            found = list(summary_iterator(f"memory:/{name}"))
            assert [event.step for event in found[1:]] == list(range(step + 1))
        path = writer.event_writer.path
        assert name == path
    memory.rm("/weft-events", recursive=True)
