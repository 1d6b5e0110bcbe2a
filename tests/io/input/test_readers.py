"""Readers in sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import Recorder, in_threads, new_threads, rounds, wait_until

from weft_exec.resources.cancellation import Cancellation
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_io.input.readers import (
    FixedLengthRecordReader,
    IdentityReader,
    ReaderBase,
    TextLineReader,
    TFRecordReader,
    WholeFileReader,
)
from weft_io.queues.queue import FIFOQueue
from weft_io.records.python_io import TFRecordOptions
from weft_io.records.tfrecord import TFRecordWriter
from weft_io.resources.queue import Queue
from weft_io.resources.reader import ReaderResource
from weft_tensor import dtypes, errors

STRING = dtypes.string


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


@pytest.fixture
def session() -> Any:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        yield session


class Input:
    """A reader that is fed by a queue of names."""

    def __init__(self, session: Any, reader: ReaderBase) -> None:
        self.session = session
        self.reader = reader
        self.queue = FIFOQueue(100, STRING, [()])
        self.names = placeholder(STRING, [None])
        self.fill = self.queue.enqueue_many([self.names])
        self.close = self.queue.close()
        self.read = reader.read(self.queue)
        self.counts = [reader.num_records_produced(), reader.num_work_units_completed()]

    def give(self, *paths: Any, close: bool = True) -> None:
        self.session.run(self.fill, {self.names: [str(path) for path in paths]})
        if close:
            self.session.run(self.close)

    def drain(self) -> list[tuple[bytes, bytes]]:
        found = []
        for _ in rounds():
            try:
                found.append(tuple(self.session.run(self.read)))
            except errors.OutOfRangeError:
                return found

    @property
    def waiting(self) -> int:
        """Return the number of the reader's pending dequeues."""
        (queue,) = self.session.resources.resources(Queue, "")
        return queue.pending()[1]


def keys(path: Path, *places: int) -> list[bytes]:
    return [f"{path}:{place}".encode() for place in places]


def failure(recorder: Recorder) -> BaseException | None:
    (told,) = recorder.told
    return told if isinstance(told, BaseException) else None


# ------------------------------------------------------------------------------- kinds


def test_lines(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"h\na\rb\r\n\nlast")
    (tmp_path / "b").write_bytes(b"only\n")
    (tmp_path / "none").write_bytes(b"")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a", tmp_path / "none", tmp_path / "b")
    found = given.drain()
    assert [value for _, value in found] == [b"h", b"a\rb", b"", b"last", b"only"]
    assert [key for key, _ in found] == [
        *keys(tmp_path / "a", 1, 2, 3, 4),
        *keys(tmp_path / "b", 1),
    ]
    assert session.run(given.counts) == [5, 3]


def test_lines_without_headers(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"h\n1\n2")
    (tmp_path / "b").write_bytes(b"h\n")
    given = Input(session, TextLineReader(skip_header_lines=1))
    given.give(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    pairs = list(zip(keys(tmp_path / "a", 2, 3), (b"1", b"2"), strict=True))
    assert given.drain() == pairs * 2


def test_fixed_length(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"HHabcdefghiF")
    given = Input(session, FixedLengthRecordReader(3, header_bytes=2, footer_bytes=1))
    given.give(tmp_path / "a")
    pairs = zip(keys(tmp_path / "a", 0, 1, 2), (b"abc", b"def", b"ghi"), strict=True)
    assert given.drain() == list(pairs)


def test_fixed_length_that_overlaps_in_a_compressed_file(session: Any, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a").write_bytes(gzip.compress(b"HHabcabdabeF"))
    given = Input(session, FixedLengthRecordReader(3, 2, 1, hop_bytes=2, encoding="GZIP"))
    given.give(tmp_path / "a")
    assert [value for _, value in given.drain()] == [b"abc", b"cab", b"bda", b"abe"]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_tfrecords(session: Any, tmp_path: Path, compression: str) -> None:
    with TFRecordWriter(tmp_path / "a", compression) as writer:
        for i in range(3):
            writer.write(b"rec%d" % i)
    given = Input(session, TFRecordReader(options=TFRecordOptions(compression)))
    given.give(tmp_path / "a")
    pairs = zip(keys(tmp_path / "a", 0, 20, 40), (b"rec0", b"rec1", b"rec2"), strict=True)
    assert given.drain() == list(pairs)


def test_whole_files_and_names(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\0b")
    name = str(tmp_path / "a").encode()
    for reader, value in ((WholeFileReader(), b"a\0b"), (IdentityReader(), name)):
        given = Input(session, reader)
        given.give(tmp_path / "a", close=False)
        assert session.run(given.read) == (name, value)
        assert session.run(given.counts) == [1, 1]


def test_read_up_to(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a", tmp_path / "a")
    many = given.reader.read_up_to(given.queue, 2)
    assert [v.dims for v in many] == [(None,), (None,)]
    found = [session.run(many[1]).tolist() for _ in range(4)]
    assert found == [[b"1", b"2"], [b"3"]] * 2
    with pytest.raises(errors.OutOfRangeError, match="is closed and has insufficient elements"):
        session.run(many)
    nothing = session.run(given.reader.read_up_to(given.queue, 0))
    assert [part.shape for part in nothing] == [(0,), (0,)]
    with pytest.raises(errors.InvalidArgumentError, match="must not be negative, got -1"):
        given.reader.read_up_to(given.queue, -1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedLengthRecordReader(0), "record_bytes must be at least 1, got 0"),
        (lambda: FixedLengthRecordReader(1, header_bytes=-1), "header_bytes must be at least 0"),
        (lambda: FixedLengthRecordReader(1, encoding="BZ2"), "encoding must be one of"),
        (lambda: TextLineReader(skip_header_lines=-1), "skip_header_lines must be at least 0"),
        (lambda: TFRecordReader(options=TFRecordOptions(7)), "compression_type must be"),
    ],
)
def test_readers_that_cannot_be(session: Any, make: Any, message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        make()


# ------------------------------------------------------------------------------ waiting


def test_who_waits_for_a_name_holds_no_thread(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    given = Input(session, TextLineReader())
    session.run(given.queue.size())
    (queue,) = session.resources.resources(Queue, "")
    session.run(given.counts)
    (reader,) = session.resources.resources(ReaderResource, "")
    begun = new_threads()
    waiters = [Recorder() for _ in range(200)]
    for each in waiters:
        reader.read(queue, 1, each)
    assert not begun()
    assert given.waiting == 1
    given.give(tmp_path / "a", close=False)
    wait_until(lambda: sum(not each.waits for each in waiters) == 3)
    assert [each.value[1] for each in waiters[:3]] == [[b"1"], [b"2"], [b"3"]]
    given.give(*[tmp_path / "a"] * 20)
    wait_until(lambda: all(not each.waits for each in waiters))
    assert sum(failure(each) is None for each in waiters) == 63
    assert all(isinstance(failure(each), errors.OutOfRangeError) for each in waiters[63:])


def test_several_steps_share_a_reader(session: Any, tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / str(i)).write_bytes(b"".join(b"%d\n" % (50 * i + n) for n in range(50)))
    given = Input(session, TextLineReader())
    run = session.make_callable(given.read[1])
    found: list[bytes] = []
    with in_threads(*[lambda: [found.append(run()) for _ in range(250)]] * 4):
        for i in range(20):
            given.give(tmp_path / str(i), close=False)
    assert sorted(map(int, found)) == list(range(1000))
    assert session.run(given.counts)[0] == 1000


def test_many_empty_files_in_a_row(session: Any, tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"x")
    given = Input(session, TextLineReader())
    given.queue = FIFOQueue(5000, STRING, [()])
    given.fill = given.queue.enqueue_many([given.names])
    given.read = given.reader.read(given.queue)
    given.give(*[tmp_path / "none"] * 3000, tmp_path / "a", close=False)
    assert session.run(given.read)[1] == b"x"
    assert session.run(given.counts) == [1, 3000]


def test_a_timeout_gives_up_the_name(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    given = Input(session, TextLineReader())
    with pytest.raises(errors.DeadlineExceededError):
        session.run(given.read, options=proto.RunOptions(timeout_in_ms=30))
    assert given.waiting == 0
    given.give(tmp_path / "a", close=False)
    assert session.run(given.read)[1] == b"1"


def test_the_next_in_line_goes_on_when_the_first_is_cancelled(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    given = Input(session, TextLineReader())
    session.run([given.queue.size(), *given.counts])
    (queue,) = session.resources.resources(Queue, "")
    (reader,) = session.resources.resources(ReaderResource, "")
    switch, first, second = Cancellation(), Recorder(), Recorder()
    reader.read(queue, 1, first, switch)
    reader.read(queue, 1, second)
    switch.cancel(errors.CancelledError("enough"))
    wait_until(lambda: not first.waits)
    assert isinstance(failure(first), errors.CancelledError)
    given.give(tmp_path / "a", close=False)
    wait_until(lambda: not second.waits)
    assert second.value[1] == [b"1"]


def test_closing_the_session_ends_the_waiting(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        session = Session(graph=graph)
        given = Input(session, TextLineReader())
        session.run(given.counts)
        caught: list[BaseException] = []

        def read() -> None:
            try:
                session.run(given.read)
            except errors.OpError as error:
                caught.append(error)

        with in_threads(read):
            wait_until(lambda: bool(session.resources.resources(Queue, "")) and given.waiting == 1)
            session.close()
    assert isinstance(caught[0], errors.CancelledError)


# ------------------------------------------------------------------------------- errors


def test_reading_goes_on_after_a_file_that_is_missing(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"fine")
    given = Input(session, WholeFileReader())
    given.give(tmp_path / "none", tmp_path / "a")
    with pytest.raises(errors.NotFoundError, match=f"{tmp_path}/none") as caught:
        session.run(given.read)
    assert caught.value.op_type == "ReaderReadV2"
    assert session.run(given.read)[1] == b"fine"


def test_reading_goes_on_after_damage(session: Any, tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a") as writer:
        for i in range(4):
            writer.write(b"rec%d" % i)
    data = bytearray((tmp_path / "a").read_bytes())
    data[20 + 13] ^= 1  # a record
    data[60] ^= 1  # a length, behind which nothing is found
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:20])
    given = Input(session, TFRecordReader())
    given.give(tmp_path / "a", tmp_path / "b")
    found: list[Any] = []
    for _ in rounds():
        try:
            found.append(session.run(given.read)[1])
        except errors.DataLossError as error:
            found.append(error.details["offset"])
        except errors.OutOfRangeError:
            break
    assert found == [b"rec0", 20, b"rec2", 60, b"rec0"]


@pytest.mark.parametrize("types", [[dtypes.int32], [STRING, STRING]])
def test_queues_that_hold_no_names(session: Any, types: list[Any]) -> None:
    reader = TextLineReader()
    queue = FIFOQueue(10, types, [()] * len(types))
    values = [1 if dtype is dtypes.int32 else "x" for dtype in types]
    session.run(queue.enqueue(values))
    with pytest.raises(errors.InvalidTypeError, match="requires a queue of one string"):
        reader.read(queue)
    with pytest.raises(errors.InvalidArgumentError, match="requires a queue of one string"):
        session.run(reader.read(queue.queue_ref))
    assert session.run(queue.size()) == 1


def test_handles_of_the_wrong_kind(session: Any) -> None:
    reader, queue = TextLineReader(), FIFOQueue(10, STRING, [()])
    wrong = ReaderBase(queue.queue_ref)
    with pytest.raises(errors.InvalidArgumentError, match="requires the handle of a reader"):
        session.run(wrong.num_records_produced())
    with pytest.raises(errors.InvalidArgumentError, match="requires the handle of a queue"):
        session.run(reader.read(reader.reader_ref))


# -------------------------------------------------------------------------------- state


def test_a_new_session_goes_on_where_the_other_was(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a") as writer:
        for i in range(100):
            writer.write(b"%d" % i)
    found: list[bytes] = []
    state = b""
    for _ in range(4):
        with Graph().as_default() as graph, Session(graph=graph) as session:
            reader = TFRecordReader()
            assert reader.supports_serialize
            given = Input(session, reader)
            kept = placeholder(STRING, [])
            restore, serialize = reader.restore_state(kept), reader.serialize_state()
            if state:
                session.run(restore, {kept: state})
            else:
                given.give(tmp_path / "a", close=False)
            found += [session.run(given.read[1]) for _ in range(25)]
            assert session.run(given.counts)[0] == len(found)
            state = session.run(serialize)
    assert found == [b"%d" % i for i in range(100)]


def test_a_state_that_is_none_changes_nothing(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a")
    session.run(given.read)
    for wrong, error in (
        (b"BOGUS", errors.InvalidArgumentError),
        (b"weftread", errors.DataLossError),
    ):
        with pytest.raises(error):
            session.run(given.reader.restore_state(wrong))
    assert session.run(given.read)[1] == b"2"


def test_the_states_of_several_readers(session: Any, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"1\n2\n3\n")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a", tmp_path / "b")
    other = TextLineReader()
    session.run([given.read, other.read(given.queue)])
    states = session.run([given.reader.serialize_state(), other.serialize_state()])
    for fed in (placeholder(STRING), placeholder(STRING, [None])):
        session.run(given.reader.restore_state(fed), {fed: states})
        assert session.run(given.counts)[0] == 2
        assert sorted(given.drain()) == [
            (keys(tmp_path / name, number)[0], b"%d" % number) for name in "ab" for number in (2, 3)
        ]
        session.run(given.reader.restore_state(fed), {fed: np.empty(0, object)})
        assert session.run(given.counts) == [0, 0]
    anything = placeholder(STRING)
    with pytest.raises(errors.InvalidArgumentError, match=r"a vector, got shape \[1,2\]"):
        session.run(given.reader.restore_state(anything), {anything: [states]})
    with pytest.raises(errors.InvalidArgumentError, match=r"a scalar or a vector, got shape"):
        given.reader.restore_state(placeholder(STRING, [None, 2]))


def test_reset(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a", tmp_path / "a")
    session.run(given.read)
    session.run(given.reader.reset())
    assert session.run(given.counts) == [0, 0]
    assert session.run(given.read) == (keys(tmp_path / "a", 1)[0], b"1")


def test_restoring_wakes_who_waits(session: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    given = Input(session, TextLineReader())
    given.give(tmp_path / "a", close=False)
    session.run(given.read)
    state = session.run(given.reader.serialize_state())
    assert session.run(given.read)[1] == b"2"
    kept = placeholder(STRING, [])
    restore = given.reader.restore_state(kept)
    read = session.make_callable(given.read[1])
    found: list[bytes] = []
    with in_threads(lambda: found.append(read())):
        wait_until(lambda: given.waiting == 1)
        session.run(restore, {kept: state})
    assert found == [b"2"]


def test_shared_readers(tmp_path: Path) -> None:
    from weft_io.ops import readers as ops

    with Graph().as_default() as graph, Session(graph=graph) as session:
        handles = [ops.text_line_reader(shared_name="one") for _ in range(2)]
        other = ops.text_line_reader(skip_header_lines=1, shared_name="one")
        (tmp_path / "a").write_bytes(b"1\n2\n")
        given = Input(session, ReaderBase(handles[0]))
        given.give(tmp_path / "a")
        session.run(given.read)
        assert session.run(ops.reader_num_records_produced(handles[1])) == 1
        with pytest.raises(errors.InvalidArgumentError, match="shared reader 'one' is a"):
            session.run(ops.reader_num_records_produced(other))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: TFRecordReader().read(["a"]), TYPE, r"string_input_producer.*got \['a'\]"),
        (lambda: TFRecordReader().read("a"), TYPE, "requires a queue of file names.*got 'a'"),
        (lambda: TFRecordReader().read(None), TYPE, "requires a queue of file names.*got None"),
        (lambda: TFRecordReader().read_up_to(["a"], 2), TYPE, "requires a queue of file names"),
        (lambda: TextLineReader(2**70), VALUE, "skip_header_lines must be at most"),
        (lambda: TextLineReader("a"), TYPE, "skip_header_lines must be an integer, got 'a'"),  # type: ignore[arg-type]
        (lambda: FixedLengthRecordReader(None), TYPE, "record_bytes must be an integer, got None"),  # type: ignore[arg-type]
        (lambda: FixedLengthRecordReader(2, "a"), TYPE, "header_bytes must be an integer"),  # type: ignore[arg-type]
        (lambda: FixedLengthRecordReader(2, hop_bytes=2**70), VALUE, "hop_bytes must be at most"),
    ],
)
def test_wrong_arguments(session: Any, call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()
