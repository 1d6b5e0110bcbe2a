"""Iterators: their state, shuffles, reading ahead, files, caches, generators, errors."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from weft_testing.waiting import new_threads, wait_until

from weft_exec.session.session import Session
from weft_graph import Graph, proto
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import not_equal
from weft_graph.ops.control import Assert, py_func
from weft_io.data import grouping, interleaving, transformations
from weft_io.data.dataset import Dataset
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.files_datasets import (
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
)
from weft_io.records.tfrecord import TFRecordWriter
from weft_io.saving.saver import Saver
from weft_tensor import dtypes, errors

R = Dataset.range


class Reader:
    """One session on one iterator."""

    def __init__(self, make: Callable[[], Dataset], options: Any = None) -> None:
        self.graph = Graph()
        with self.graph.as_default():
            self.iterator = make().make_initializable_iterator()
            self.following = self.iterator.get_next()
            self.saveable = make_saveable_from_iterator(self.iterator)
            self.saver = Saver([self.saveable])
            self.state = self.saveable.specs[0].tensor
            self.wanted = _placeholder()
            self.put_back = self.saveable.restore([self.wanted], None)
        self.session = Session(graph=self.graph)
        self.session.run(self.iterator.initializer)

    def take(self, most: int = 1000) -> list[Any]:
        found = []
        while len(found) < most:
            try:
                value = self.session.run(self.following)
            except errors.OutOfRangeError:
                break
            found.append(value.tolist() if hasattr(value, "tolist") else value)
        return found

    def restored(self, state: bytes) -> Reader:
        self.session.run(self.put_back, {self.wanted: state})
        return self

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.session.close()


def _placeholder() -> Any:
    from weft_graph.ops.array import placeholder

    return placeholder(dtypes.string, ())


# ------------------------------------------------------------------------------- state

STEPS: dict[str, Callable[[Dataset, int], Dataset]] = {
    "map": lambda d, n: d.map(lambda x: x * 2 + n),
    "parallel map": lambda d, n: d.map(lambda x: x + n, n + 1),
    "filter": lambda d, n: d.filter(lambda x: x > n),
    "take": lambda d, n: d.take(n * 3),
    "skip": lambda d, n: d.skip(n),
    "shard": lambda d, n: d.shard(n + 1, n),
    "repeat": lambda d, n: d.repeat(n),
    "cache": lambda d, n: d.cache().repeat(2),
    "prefetch": lambda d, n: d.prefetch(n),
    "concatenate": lambda d, n: d.concatenate(R(n)),
    "rebatch": lambda d, n: d.batch(n + 1).unbatch(),
    "shuffle": lambda d, n: d.shuffle(n + 2, seed=n),
    "shuffled epochs": lambda d, n: d.shuffle(n + 2, n + 5).repeat(2),
    "same epochs": lambda d, n: d.shuffle(9, n + 1, reshuffle_each_iteration=False).repeat(2),
    "flat_map": lambda d, n: d.flat_map(lambda x: Dataset.from_tensors(x).repeat(n)),
    "interleave": lambda d, n: d.interleave(lambda x: R(x, x + 3), n + 1, 2),
    "parallel interleave": lambda d, n: d.interleave(lambda x: R(x, x + 3), n + 1, 2, 2),
    "zip": lambda d, n: Dataset.zip((d, R(50))).map(lambda a, b: a + b),
    "window": lambda d, n: d.window(n + 1, 1, 2).flat_map(lambda w: w.batch(9)).unbatch(),
    "windows ahead": lambda d, n: d.window(3).prefetch(n).flat_map(lambda w: w),
    "batches of windows": lambda d, n: (
        d.window(2).batch(2).prefetch(n).unbatch().flat_map(lambda w: w)
    ),
    "scan": lambda d, n: d.scan(np.int64(n), lambda s, x: (s + x, s)),
    "take while": lambda d, n: d.take_while(lambda x: x < n + 3),
    "unique": lambda d, n: d.map(lambda x: x // 2).apply(transformations.unique()),
    "good ones": lambda d, n: d.map(_picky).apply(transformations.ignore_errors()),
    "counted": lambda d, n: (
        d.concatenate(R(99)).take(9).apply(transformations.assert_cardinality(9))
    ),
    "groups": lambda d, n: d.apply(
        grouping.group_by_window(lambda x: x % 2, lambda key, w: w.batch(9), n + 1)
    ).unbatch(),
    "reduced groups": lambda d, n: d.apply(
        grouping.group_by_reducer(
            lambda x: x % 3,
            grouping.Reducer(lambda key: np.int64(n), lambda s, x: s + x, lambda s: s),
        )
    ),
    "chosen": lambda d, n: interleaving.choose_from_datasets(
        [R(10, 15), d], R(20).map(lambda x: x % 2)
    ),
    "drawn": lambda d, n: interleaving.sample_from_datasets([d, R(5)], [0.5, 0.5], seed=n + 1),
    "resampled": lambda d, n: d.apply(
        interleaving.rejection_resample(lambda x: x % 2, [0.5, 0.5], seed=n + 1)
    ).map(lambda kind, x: x),
}


def _picky(x: Any) -> Any:
    with get_default_graph().control_dependencies([Assert(not_equal(x % 4, 1), ["picky"])]):
        return x * 2


PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), max_size=4)


def composed(program: list[tuple[str, int]]) -> Dataset:
    dataset = R(6)
    for name, n in program:
        dataset = STEPS[name](dataset, n)
    return dataset.take(40)


def check_at(program: list[tuple[str, int]], at: int) -> None:
    with Reader(lambda: composed(program)) as one, Reader(lambda: composed(program)) as other:
        one.take(at)
        state = one.session.run(one.state)
        assert other.restored(state).take() == one.take()


@given(PROGRAMS, st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_a_restored_iterator_goes_on_with_what_was_not_used(
    program: list[tuple[str, int]], at: int
) -> None:
    check_at(program, at)


def test_a_shuffle_without_a_seed_keeps_its_order_while_it_goes_on() -> None:
    """Its seeds belong to its pass; between two passes there is no state to save."""

    def dataset() -> Dataset:
        return R(6).shuffle(9, reshuffle_each_iteration=False).repeat(2)

    for at in range(6):
        with Reader(dataset) as one, Reader(dataset) as other:
            one.take(at)
            state = one.session.run(one.state)
            assert other.restored(state).take() == one.take()


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_transformation_is_restored(name: str) -> None:
    for at in (0, 1, 3, 7):
        check_at([(name, 2)], at)


@pytest.mark.long
@given(PROGRAMS)
@settings(max_examples=300, deadline=None)
def test_every_position_is_restored(program: list[tuple[str, int]]) -> None:
    for at in range(42):
        check_at(program, at)


LENGTHS = st.integers(1, 5)


@given(LENGTHS, LENGTHS, LENGTHS, st.integers(0, 24), st.integers(0, 12), st.sampled_from([1, 3]))
@settings(max_examples=40, deadline=None)
def test_cycles_may_have_another_length_after_a_restart(
    first: int, second: int, third: int, at: int, then: int, calls: int
) -> None:
    def make(cycle: int, calls: int | None) -> Callable[[], Dataset]:
        return lambda: R(6).interleave(lambda x: R(10 * x, 10 * x + x), cycle, 2, calls)

    with (
        Reader(make(first, calls)) as one,
        Reader(make(second, 4 - calls)) as two,
        Reader(make(third, calls)) as three,
    ):
        used = one.take(at)
        used += two.restored(one.session.run(one.state)).take(then)
        used += three.restored(two.session.run(two.state)).take()
    assert sorted(used) == [10 * x + i for x in range(6) for i in range(x)]


@pytest.mark.parametrize(("before", "after"), [(4, 0), (0, 4), (1, 7), (9, 1)])
def test_what_was_read_ahead_survives_in_a_buffer_of_another_size(before: int, after: int) -> None:
    with (
        Reader(lambda: R(20).prefetch(before)) as one,
        Reader(lambda: R(20).prefetch(after)) as other,
    ):
        used = one.take(5)
        assert used + other.restored(one.session.run(one.state)).take() == list(range(20))


def test_a_saver_saves_the_place_in_an_epoch(tmp_path: Path) -> None:
    def make() -> Dataset:
        return R(20).shuffle(7).repeat(2).map(lambda x: x + 1, 3).prefetch(4)

    with Reader(make) as one, Reader(make) as other:
        used = one.take(13)
        path = one.saver.save(one.session, str(tmp_path / "model"))
        other.saver.restore(other.session, path)
        rest = other.take()
    assert sorted(used + rest) == sorted([*range(1, 21)] * 2)


def test_saveables_of_the_collection_are_saved(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        iterator = R(9).make_one_shot_iterator()
        following = iterator.get_next()
        graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, make_saveable_from_iterator(iterator))
        saver = Saver()
        with Session(graph=graph) as session:
            session.run(following)
            path = saver.save(session, str(tmp_path / "model"))
        with Session(graph=graph) as session:
            saver.restore(session, path)
            assert session.run(following) == 1


def test_the_state_of_another_pipeline_is_refused() -> None:
    with Reader(lambda: R(9).take(3)) as one, Reader(lambda: R(9).skip(3)) as other:
        state = one.session.run(one.state)
        with pytest.raises(errors.InvalidArgumentError, match="Take, but this one has Skip"):
            other.restored(state)
        assert other.take(1) == [3]
        with pytest.raises(errors.DataLossError, match="damaged"):
            one.restored(state[:-1] + b"?")
    with Graph().as_default(), pytest.raises(errors.InvalidTypeError):
        make_saveable_from_iterator(R(3))


# ---------------------------------------------------------------------------- shuffles


@pytest.mark.parametrize("again", [True, False])
def test_later_epochs_of_a_restored_shuffle_are_those_that_would_have_come(again: bool) -> None:
    def make() -> Dataset:
        return R(20).shuffle(20, reshuffle_each_iteration=again).repeat(5)

    with Reader(make) as one, Reader(make) as other:
        one.take(50)
        other.restored(one.session.run(one.state))
        rest = one.take()
        assert len(rest) == 50 and other.take() == rest


@given(st.integers(0, 30), st.integers(1, 40), st.integers(0, 2**31 - 1))
@settings(max_examples=20, deadline=None)
def test_a_shuffle_gives_every_element_once(count: int, size: int, seed: int) -> None:
    with Reader(lambda: R(count).shuffle(size, seed)) as reader:
        found = reader.take()
    assert sorted(found) == [*range(count)]
    assert all(value < place + size for place, value in enumerate(found))


def test_seeds_decide_the_order() -> None:
    def order(seed: Any, again: bool = True) -> list[Any]:
        with Reader(lambda: R(50).shuffle(50, seed, again).repeat(2)) as reader:
            return reader.take()

    assert order(3) == order(3) != order(4)
    assert order(None) != order(None)
    assert order(3)[:50] != order(3)[50:]
    assert order(3, False)[:50] == order(3, False)[50:]


def test_every_first_element_is_as_likely() -> None:
    counts = np.zeros(4)
    with Reader(lambda: R(4).shuffle(4, 1).repeat(500)) as reader:
        found = np.array(reader.take(2000)).reshape(500, 4)
    for first in found[:, 0]:
        counts[first] += 1
    assert (np.sort(found, axis=1) == np.arange(4)).all()
    assert (abs(counts - 125) < 45).all()


# ----------------------------------------------------------------------- reading ahead


@pytest.fixture
def threads() -> Callable[[], int]:
    """Return the number of live prefetch threads that started in the test."""
    begun = new_threads()
    return lambda: sum(thread.name == "weft: prefetch" for thread in begun())


def test_threads_end_with_their_iterators(threads: Callable[[], int]) -> None:
    with Reader(lambda: R(1000).prefetch(2)) as reader:
        reader.take(1)
        assert threads() == 1
        reader.session.run(reader.iterator.initializer)
        reader.take(1)
        assert threads() == 1
    wait_until(lambda: threads() == 0)
    reader = Reader(lambda: R(9).interleave(lambda x: R(90), 3, 1, 3).prefetch(1))
    reader.take(5)
    assert threads() == 4
    reader.session.close()
    wait_until(lambda: threads() == 0)


def test_a_buffer_may_find_its_size_itself() -> None:
    with Reader(lambda: R(300).prefetch(-1)) as reader:
        assert reader.take() == [*range(300)]


def test_a_stream_that_nobody_holds_ends_its_thread(threads: Callable[[], int]) -> None:
    from weft_io.streams.prefetching import PrefetchSource
    from weft_io.streams.sources import RangeSource
    from weft_io.streams.stream import Root

    stream = PrefetchSource(RangeSource(0, 1000, 1, np.dtype(np.int64)), 1).iterate(Root())
    stream.get()
    assert threads() == 1
    del stream
    gc.collect()
    wait_until(lambda: threads() == 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: R(9).repeat().map(lambda x: x * 2).prefetch(2),
        lambda: R(9).repeat().interleave(lambda x: R(9).map(lambda y: y + x), 2, 1, 2).prefetch(2),
    ],
)
def test_a_session_that_nobody_holds_ends_its_threads(
    make: Any, threads: Callable[[], int]
) -> None:
    """The functions of a pipeline lead to the session's resources, and these to the iterator."""
    reader = Reader(make)
    reader.take(3)
    assert threads() > 0
    del reader
    gc.collect()
    wait_until(lambda: threads() == 0)


def test_a_step_that_waits_holds_no_thread_and_can_be_cancelled() -> None:
    gate = threading.Event()

    def slow() -> Any:
        yield 1
        gate.wait()
        yield 2

    with Reader(lambda: Dataset.from_generator(slow, dtypes.int64, ()).prefetch(1)) as reader:
        assert reader.take(1) == [1]
        with pytest.raises(errors.DeadlineExceededError):
            reader.session.run(reader.following, options=proto.RunOptions(timeout_in_ms=20))
        gate.set()
        assert reader.take() == [2]


def test_closing_a_session_ends_those_who_wait(threads: Callable[[], int]) -> None:
    gate = threading.Event()
    told: list[Any] = []

    def slow() -> Any:
        gate.wait()
        yield 1

    reader = Reader(lambda: Dataset.from_generator(slow, dtypes.int64, ()).prefetch(1))

    def run() -> None:
        try:
            reader.session.run(reader.following)
        except errors.OpError as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: threads() == 1)
    closing = threading.Thread(target=reader.session.close)
    closing.start()
    thread.join(30)
    gate.set()
    closing.join(30)
    assert isinstance(told[0], errors.CancelledError)
    wait_until(lambda: threads() == 0)


# ------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("calls", [None, 3])
def test_after_an_error_the_pipeline_goes_on(ahead: int, calls: int | None) -> None:
    def picky(x: Any) -> Any:
        if x == 2:
            raise ValueError("no twos")
        return x

    def make() -> Dataset:
        return R(5).map(lambda x: py_func(picky, [x], dtypes.int64), calls).prefetch(ahead)

    with Reader(make) as reader:
        assert reader.take(2) == [0, 1]
        with pytest.raises(errors.InvalidArgumentError, match="no twos") as caught:
            reader.take(1)
        assert caught.value.line and "test_iterators.py" in caught.value.line
        state = reader.session.run(reader.state)
        assert reader.take() == [3, 4]
        assert reader.take() == []
        assert reader.restored(state).take() == [3, 4]


def test_failed_batches_are_left_out() -> None:
    with Reader(
        lambda: (
            R(9)
            .map(lambda x: py_func(lambda v: np.int64(6 // int(v - 4)), [x], dtypes.int64))
            .batch(3)
        )
    ) as reader:
        assert reader.take(1) == [[-2, -2, -3]]
        with pytest.raises(errors.OpError, match="ZeroDivisionError"):
            reader.take(1)
        assert reader.take() == [[6, 3, 2], [1]]


# ------------------------------------------------------------------------------- files


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = []
    for i in range(3):
        path = tmp_path / f"part-{i}.tfrecord"
        with TFRecordWriter(str(path)) as writer:
            for j in range(i * 40):
                writer.write(b"%d-%d " % (i, j) * 700)
        found.append(str(path))
    return found


def records() -> list[bytes]:
    return [b"%d-%d " % (i, j) * 700 for i in range(3) for j in range(i * 40)]


def test_records_and_their_place(paths: list[str]) -> None:
    with (
        Reader(lambda: TFRecordDataset(paths)) as one,
        Reader(lambda: TFRecordDataset(paths)) as other,
    ):
        assert one.take() == records()
        for at in (0, 1, 39, 40, 41, 77, 100, 119, 120):
            one.session.run(one.iterator.initializer)
            one.take(at)
            assert other.restored(one.session.run(one.state)).take() == records()[at:]


def test_files_named_by_datasets_and_in_parallel(paths: list[str]) -> None:
    with Reader(lambda: TFRecordDataset(Dataset.from_tensor_slices(paths))) as reader:
        assert reader.take() == records()
    with Reader(lambda: TFRecordDataset(paths, num_parallel_reads=3)) as reader:
        assert sorted(reader.take()) == sorted(records())


def test_names_of_files(paths: list[str]) -> None:
    pattern = str(Path(paths[0]).parent / "part-*")
    with Reader(lambda: Dataset.list_files(pattern, shuffle=False)) as reader:
        assert [name.decode() for name in reader.take()] == paths
    with Reader(lambda: Dataset.list_files(pattern, seed=1)) as reader:
        assert sorted(name.decode() for name in reader.take()) == paths
    with pytest.raises(errors.InvalidArgumentError, match="No files matched"):
        Reader(lambda: Dataset.list_files(pattern + "none"))


def test_lines_and_fixed_lengths(tmp_path: Path) -> None:
    text, fixed = tmp_path / "a.txt", tmp_path / "b.bin"
    text.write_bytes(b"one\ntwo\r\n\nfour")
    fixed.write_bytes(b"HEabcdefF")
    with Reader(lambda: TextLineDataset([str(text)] * 2)) as reader:
        assert reader.take() == [b"one", b"two", b"", b"four"] * 2
    with Reader(lambda: FixedLengthRecordDataset(str(fixed), 3, 2, 1)) as reader:
        assert reader.take() == [b"abc", b"def"]


def test_files_of_lines_and_fixed_lengths_in_parallel(tmp_path: Path) -> None:
    names = []
    for each in "ab":
        (tmp_path / each).write_text("".join(f"{each}{i}\n" for i in range(3)))
        names.append(str(tmp_path / each))
    want = [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    with Reader(lambda: TextLineDataset(names, num_parallel_reads=2)) as reader:
        assert reader.take() == want
    with Reader(lambda: FixedLengthRecordDataset(names, 3, num_parallel_reads=2)) as reader:
        assert reader.take() == [line + b"\n" for line in want]
    with pytest.raises(errors.InvalidArgumentError, match="num_parallel_reads must be at least 1"):
        TextLineDataset(names, num_parallel_reads=0)


def test_the_string_of_an_iterator_is_there_before_it_is_asked_for() -> None:
    with Graph().as_default() as graph:
        iterator = Dataset.range(3).make_initializable_iterator()
        graph.finalize()
        assert iterator.string_handle() is iterator.string_handle()


def test_missing_and_damaged_files_do_not_end_it(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    data = bytearray(Path(paths[1]).read_bytes())
    data[20] ^= 1
    damaged.write_bytes(bytes(data))
    with Reader(lambda: TFRecordDataset([str(tmp_path / "none"), str(damaged)])) as reader:
        with pytest.raises(errors.NotFoundError, match="none"):
            reader.take(1)
        with pytest.raises(errors.DataLossError, match="at 0 of"):
            reader.take()
        assert reader.take() == records()[1:40]


# ------------------------------------------------------------------------------ caches


def test_a_cache_asks_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(int(x))
        return x

    def make(name: str) -> Dataset:
        mapped = R(4).map(lambda x: py_func(counted, [x], dtypes.int64))
        return mapped.cache(name).repeat(3)

    for name in ("", str(tmp_path / "kept")):
        calls.clear()
        with Reader(lambda name=name: make(name)) as reader:  # type: ignore[misc]
            assert reader.take() == [0, 1, 2, 3] * 3
        assert calls == [0, 1, 2, 3]
    with Reader(lambda: make(str(tmp_path / "kept"))) as reader:
        assert reader.take(6) == [0, 1, 2, 3, 0, 1]
        state = reader.session.run(reader.state)
        reader.take()
        assert reader.restored(state).take() == [2, 3, 0, 1, 2, 3]
    assert calls == [0, 1, 2, 3]


def test_a_cache_file_appears_as_a_whole(tmp_path: Path) -> None:
    with Reader(lambda: R(4).cache(str(tmp_path / "kept"))) as reader:
        reader.take(3)
        state = reader.session.run(reader.state)
        assert not (tmp_path / "kept.cache").exists()
    assert not list(tmp_path.iterdir())
    with Reader(lambda: R(4).cache(str(tmp_path / "kept"))) as reader:
        assert reader.restored(state).take() == [3]
        assert not list(tmp_path.iterdir())


def test_a_pass_with_an_error_is_not_kept(tmp_path: Path) -> None:
    fails = [True]

    def sometimes(x: Any) -> Any:
        if fails[0] and x == 2:
            raise ValueError("not now")
        return x

    def make() -> Dataset:
        mapped = R(4).map(lambda x: py_func(sometimes, [x], dtypes.int64))
        return mapped.cache(str(tmp_path / "kept"))

    with Reader(make) as reader:
        assert reader.take(2) == [0, 1]
        with pytest.raises(errors.InvalidArgumentError, match="not now"):
            reader.take(1)
        assert reader.take() == [3]
        assert not list(tmp_path.iterdir())
        fails[0] = False
        for _ in range(2):
            reader.session.run(reader.iterator.initializer)
            assert reader.take() == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.cache"]


def test_a_cache_file_of_another_dataset_is_refused(tmp_path: Path) -> None:
    name = str(tmp_path / "kept")
    with Reader(lambda: R(4).cache(name)) as reader:
        reader.take()
    others: list[Any] = [
        lambda: R(4).map(lambda x: cast(x, dtypes.float32)),
        lambda: R(8).batch(2),
        lambda: Dataset.zip((R(4), R(4))),
    ]
    for other in others:
        wanted = r"(?s)elements of another dataset: they are int64 \(\), but .* are required"
        with pytest.raises(errors.InvalidArgumentError, match=wanted):
            Reader(lambda other=other: other().cache(name))  # type: ignore[misc]
    with TFRecordWriter(str(tmp_path / "records.cache")) as writer:
        writer.write(b"a record of something else")
    with pytest.raises(errors.InvalidArgumentError, match="is not the cache of a dataset"):
        Reader(lambda: R(4).cache(str(tmp_path / "records")))


def test_a_cache_file_that_was_cut_is_found_out(tmp_path: Path) -> None:
    kept = tmp_path / "kept.cache"
    with Reader(lambda: R(4).cache(str(tmp_path / "kept"))) as reader:
        reader.take()
    whole = kept.read_bytes()
    borders = [0]
    while borders[-1] < len(whole):
        borders.append(borders[-1] + 16 + int.from_bytes(whole[borders[-1] :][:8], "little"))
    records = [whole[a:b] for a, b in itertools.pairwise(borders)]
    assert len(records) == 6  # the form, four elements, the end
    for damaged in [
        *(b"".join(records[:count]) for count in range(6)),
        b"".join([*records[:2], *records[3:]]),
        whole + records[1],
    ]:
        kept.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match=r"the cache .*kept\.cache"):
            Reader(lambda: R(4).cache(str(tmp_path / "kept"))).take()


# -------------------------------------------------------------------------- generators


def test_generators() -> None:
    def pairs(n: Any) -> Any:
        for i in range(n):
            yield i, {"text": "x" * i}

    form = (dtypes.int32, {"text": dtypes.string})
    with Graph().as_default() as graph:
        dataset = Dataset.from_generator(pairs, form, ((), {"text": ()}), args=[3])
        following = dataset.make_one_shot_iterator().get_next()
        with Session(graph=graph) as session:
            assert [session.run(following)[1]["text"] for _ in range(3)] == [b"", b"x", b"xx"]
            with pytest.raises(errors.OutOfRangeError, match="End of sequence"):
                session.run(following)


def test_what_generators_do_wrong_is_told() -> None:
    def bad() -> Any:
        yield 1
        yield "text"
        yield [1, 2]
        yield 2
        raise KeyError("mine")

    with Reader(lambda: Dataset.from_generator(bad, dtypes.int64, ())) as reader:
        assert reader.take(1) == [1]
        with pytest.raises(errors.OpError, match="expected type was int64"):
            reader.take(1)
        with pytest.raises(errors.InvalidArgumentError, match="shape"):
            reader.take(1)
        assert reader.take(1) == [2]
        with pytest.raises(errors.UnknownError, match="KeyError: 'mine'"):
            reader.take(1)


# ------------------------------------------------------------------------------ memory


@pytest.mark.long
def test_memory_stays_as_it_is_over_a_million_elements() -> None:
    def make() -> Dataset:
        return R(10**9).shuffle(100).map(lambda x: x + 1).batch(100).prefetch(2)

    with Reader(make) as reader:
        step = reader.session.make_callable(reader.following)
        for _ in range(100):
            step()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            step()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert after - before < 200_000


def test_the_methods_as_functions() -> None:
    from weft_io.data import iterator as functions

    with Graph().as_default() as graph, Session(graph=graph) as session:
        dataset = R(3).map(lambda x: {"x": x})
        once = functions.make_one_shot_iterator(dataset)
        again = functions.make_initializable_iterator(dataset, shared_name="again")
        session.run(again.initializer)
        assert session.run([once.get_next(), again.get_next()]) == [{"x": 0}, {"x": 0}]
        for source in (dataset, once, again):
            assert functions.get_output_types(source) == {"x": dtypes.int64}
            assert functions.get_output_shapes(source)["x"].as_list() == []
            assert functions.get_output_classes(source) == source.output_classes
        assert again._iterator_resource.op.get_attr("shared_name") == b"again"


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


def _wrong_iterators() -> list[tuple[Callable[[], Any], Any, str]]:
    from weft_io.data import iterator as functions

    some = functions.Iterator.from_structure
    from_handle = functions.Iterator.from_string_handle
    fixed = FixedLengthRecordDataset
    return [
        (
            lambda: some(dtypes.int64).make_initializer(None),
            TYPE,
            "a Dataset is required, got None",
        ),
        (
            lambda: some(dtypes.int64).make_initializer([1]),
            TYPE,
            r"a Dataset is required, got \[1\]",
        ),
        (lambda: functions.make_one_shot_iterator(None), TYPE, "a Dataset is required, got None"),
        (lambda: functions.make_initializable_iterator(3), TYPE, "a Dataset is required, got 3"),
        (lambda: functions.get_output_types(3), TYPE, "a Dataset is required, got 3"),
        (lambda: functions.get_output_shapes(None), TYPE, "a Dataset is required, got None"),
        (lambda: functions.get_output_classes(None), TYPE, "a Dataset is required, got None"),
        (lambda: from_handle(["a", "b"], dtypes.int64), VALUE, "string_handle must be a scalar"),
        (lambda: TFRecordDataset([["a"]]), VALUE, r"filenames must have rank 0 or 1, got shape"),
        (lambda: TFRecordDataset("a", ["", "GZIP"]), VALUE, "compression_type must be a scalar"),
        (lambda: TFRecordDataset("a", "ZIP"), VALUE, "must be '', 'ZLIB' or 'GZIP', got 'ZIP'"),
        (lambda: TFRecordDataset("a", "", [1]), VALUE, "buffer_size must be a scalar"),
        (lambda: TFRecordDataset("a", "", -1), VALUE, "buffer_size must be at least 0, got -1"),
        (lambda: TFRecordDataset("a", "", 1, [2]), VALUE, "num_parallel_reads must be a scalar"),
        (lambda: TFRecordDataset("a", "", 1, 0), VALUE, "num_parallel_reads must be at least 1"),
        (lambda: TextLineDataset("a", ["b"]), VALUE, "compression_type must be a scalar"),
        (lambda: fixed("a", [1]), VALUE, "record_bytes must be a scalar"),
        (lambda: fixed("a", 0), VALUE, "record_bytes must be at least 1, got 0"),
        (lambda: fixed("a", None), TYPE, "record_bytes must be int64, .*got None"),
        (lambda: fixed("a", 2, [1]), VALUE, "header_bytes must be a scalar"),
        (lambda: fixed("a", 2, 0, -1), VALUE, "footer_bytes must be at least 0, got -1"),
        (
            lambda: Dataset.from_generator(3, dtypes.int64),
            TYPE,
            "`generator` must be callable, got 3",
        ),  # type: ignore[arg-type]
        (
            lambda: Dataset.from_generator(lambda x: [3], dtypes.int64),
            TYPE,
            "`generator` must take 0 positional arguments",
        ),
        (
            lambda: Dataset.from_generator(lambda: [3], dtypes.int64, args=3),
            TYPE,
            "args must be a list, got 3",
        ),
    ]


@pytest.mark.parametrize(("call", "error", "text"), _wrong_iterators())
def test_wrong_arguments(call: Callable[[], Any], error: Any, text: str) -> None:
    with Graph().as_default(), pytest.raises(error, match=text):
        call()


def _fails(items: Any) -> str:
    """Return the step's error for a generator that returns no iterable, or raises."""
    with Graph().as_default() as graph, Session(graph=graph) as session:
        following = Dataset.from_generator(items, dtypes.int64).make_one_shot_iterator().get_next()
        with pytest.raises(errors.InvalidArgumentError) as raised:
            session.run(following)
        return raised.value.message


def test_what_a_generator_does_wrong_is_said_without_the_lines_of_weft() -> None:
    assert _fails(lambda: 3) == "`generator` must return an iterable, got 3"

    def ill() -> Any:
        raise ValueError("of mine")

    message = _fails(ill)
    assert "of mine" in message and "in ill" in message and "generators.py" not in message


def test_names_of_files_that_are_no_utf8(tmp_path: Path) -> None:
    path = str(tmp_path / "caf\udce9")
    try:
        with TFRecordWriter(path) as writer:
            writer.write(b"a")
    except (OSError, errors.OpError):
        pytest.skip("the file system has no such names")
    reader = Reader(lambda: TFRecordDataset([path]).cache(path + ".cache"))
    assert reader.take() == [b"a"]
    assert any(name.startswith("caf\udce9.cache") for name in os.listdir(tmp_path))
    assert Reader(lambda: Dataset.list_files(path)).take() == [os.fsencode(path)]
