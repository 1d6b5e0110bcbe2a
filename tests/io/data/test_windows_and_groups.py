"""Windows, groups and states of elements, against plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph import Graph, proto
from weft_graph.functions.decorator import TensorSpec
from weft_graph.functions.type_spec import SparseTensorSpec
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import fill
from weft_graph.ops.casting import cast
from weft_graph.ops.join import concat
from weft_graph.ops.shapes import size
from weft_graph.ops.sparse import sparse_tensor_to_dense
from weft_graph.ops.string_conversion import as_string
from weft_graph.variables.resource import ResourceVariable
from weft_io.data import grouping, interleaving, structures, transformations
from weft_io.data.dataset import Dataset
from weft_io.data.optional import Optional, get_next_as_optional
from weft_io.data.options import Options, ThreadingOptions
from weft_io.data.tabular import CsvDataset
from weft_tensor import dtypes, errors

R = Dataset.range
NONE = np.zeros(0, np.int64)


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def elements(dataset: Dataset, most: int = 1000) -> list[Any]:
    following = dataset.make_one_shot_iterator().get_next()
    found: list[Any] = []
    with Session() as session:
        while len(found) < most:
            try:
                found.append(plain(session.run(following)))
            except errors.OutOfRangeError:
                break
    return found


def value(fetch: Any) -> Any:
    with Session() as session:
        return plain(session.run(fetch))


# ------------------------------------------------------------------------------- windows


def windows_of(count: int, size: int, shift: int, stride: int, drop: bool) -> list[list[int]]:
    found = []
    for start in range(0, count, shift):
        window = list(range(start, count, stride))[:size]
        if len(window) == size or not drop:
            found.append(window)
    return found


def test_windows() -> None:
    numbers = [(0, 3, 1, 1, False), *itertools.product([7], (1, 3), (2, 5), (1, 2), (False, True))]
    with Parts() as parts:
        for count, length, shift, stride, drop in numbers:
            with parts.part(f"{count} {length} {shift} {stride} {drop}"):
                made = R(count).window(length, shift, stride, drop)
                wanted = windows_of(count, length, shift, stride, drop)
                assert elements(made.flat_map(lambda w: w.batch(9))) == wanted
                assert value(transformations.cardinality(made)) == len(wanted)


def test_a_window_has_the_structure_of_the_elements() -> None:
    rows = Dataset.from_tensor_slices({"n": [1, 2, 3], "s": ["a", "b", "c"]})
    found = rows.window(2).flat_map(lambda w: Dataset.zip((w["n"], w["s"].batch(2))))
    assert elements(found) == [(1, [b"a", b"b"]), (3, [b"c"])]
    inner = R(4).window(2).map(lambda w: w.reduce(np.int64(0), lambda a, b: a + b))
    assert elements(inner) == [1, 5]


def windows_in(batches: Dataset) -> list[Any]:
    """The elements of each window in a dataset of batches of windows."""
    windows = batches.flat_map(Dataset.from_tensor_slices)
    return elements(windows.flat_map(lambda window: window.batch(9)))


class TestBatchesOfWindows:
    WINDOWS: ClassVar = [[0, 1], [2, 3], [4, 5], [6]]

    def test_they_hold_datasets(self) -> None:
        batches = R(7).window(2).batch(3)
        assert windows_in(batches) == self.WINDOWS
        sizes = batches.map(lambda batch: size(transformations.to_variant(batch)))
        assert elements(sizes) == [3, 1]
        assert value(transformations.cardinality(batches)) == 2

    def test_their_spec_has_the_shape_of_the_batch(self) -> None:
        inner = TensorSpec([], dtypes.int64)
        windows = R(7).window(2)
        assert windows.batch(3).element_spec == structures.DatasetSpec(inner, [None])
        full = windows.batch(3, drop_remainder=True)
        assert full.element_spec == structures.DatasetSpec(inner, [3])
        assert full.batch(2).element_spec == structures.DatasetSpec(inner, [None, 3])
        assert full.unbatch().element_spec == windows.element_spec
        batch = full.make_one_shot_iterator().get_next()
        assert batch.shape.as_list() == [3] and full.element_spec.is_compatible_with(batch)
        windows_of_batches = windows.batch(3).window(2).element_spec
        assert windows_of_batches == structures.DatasetSpec(structures.DatasetSpec(inner, [None]))

    def test_unbatch_takes_them_apart(self) -> None:
        windows = R(7).window(2).batch(2).unbatch()
        assert elements(windows.flat_map(lambda window: window.batch(9))) == self.WINDOWS

    def test_batches_of_batches(self) -> None:
        twice = R(7).window(2).batch(2).batch(2)
        assert windows_in(twice.flat_map(Dataset.from_tensor_slices)) == self.WINDOWS
        assert windows_in(twice.unbatch()) == self.WINDOWS

    def test_windows_of_windows(self) -> None:
        outer = R(7).window(2).window(3).flat_map(lambda windows: windows.batch(3))
        assert windows_in(outer) == self.WINDOWS

    def test_structures(self) -> None:
        pairs = R(4).map(lambda n: (n, {"a": n * 10})).window(2).batch(2)

        def apart(first: Any, second: Any) -> Dataset:
            slices = Dataset.from_tensor_slices
            return Dataset.zip((slices(first), slices(second["a"])))

        rows = pairs.flat_map(apart).flat_map(lambda *windows: Dataset.zip(windows))
        assert elements(rows) == [(0, 0), (1, 10), (2, 20), (3, 30)]

    def test_the_only_element(self) -> None:
        batch = transformations.get_single_element(R(7).window(2).batch(9))
        windows = Dataset.from_tensor_slices(batch)
        assert elements(windows.flat_map(lambda window: window.batch(9))) == self.WINDOWS

    def test_optional_batches(self) -> None:
        iterator = R(4).window(2).batch(2).make_one_shot_iterator()
        following = get_next_as_optional(iterator)
        assert value(size(transformations.to_variant(following.get_value()))) == 2

    def test_sparse_and_ragged_elements(self) -> None:
        rows = Dataset.from_tensor_slices(SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2]))
        batches = rows.window(2).batch(2).flat_map(Dataset.from_tensor_slices)
        dense = batches.flat_map(lambda window: window.map(sparse_tensor_to_dense))
        assert elements(dense) == [[0, 5], [0, 0], [6, 0]]

    def test_what_is_refused(self) -> None:
        windows = R(7).window(2)
        with pytest.raises(TypeError, match="padded_batch is not supported for datasets of"):
            windows.padded_batch(2, [])
        with pytest.raises(TypeError, match="must return a `Dataset`"):
            windows.batch(2).flat_map(lambda batch: batch)
        with pytest.raises(errors.InvalidArgumentError, match="unbatch requires a rank"):
            windows.unbatch()
        with pytest.raises(errors.UnimplementedError, match="got a Optional"):
            R(2).map(Optional.from_value).batch(2)
        with pytest.raises(TypeError, match="different types"):
            windows.concatenate(windows.batch(2))
        with pytest.raises(TypeError, match="different types"):
            windows.concatenate(R(2).map(as_string).window(2))
        with pytest.raises(TypeError, match="a Dataset is required"):
            transformations.to_variant(3)  # type: ignore[arg-type]


def test_datasets_of_files_are_elements() -> None:
    rows = R(1).map(lambda n: CsvDataset("unread.csv", [[0]]))
    assert rows.element_spec == structures.DatasetSpec((TensorSpec([], dtypes.int32),))
    assert rows.batch(2).output_classes is Dataset


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_windows_of_nothing_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be at least 1"):
        R(3).window(*numbers)


# ------------------------------------------------------------------------------- states


def test_scanning_and_reducing() -> None:
    summed = R(1, 5).scan((np.int64(0), "x"), lambda s, n: ((s[0] + n, s[1]), {"t": s[0], "n": n}))
    assert elements(summed) == [
        {"t": total, "n": n} for n, total in zip((1, 2, 3, 4), (0, 1, 3, 6), strict=True)
    ]
    longer = R(3).scan(NONE, lambda s, n: (concat([s, [n]], 0), s))
    assert longer.output_shapes.as_list() == [None]
    assert elements(longer) == [[], [0], [0, 1]]
    found = R(4).reduce((NONE, np.int64(9)), lambda s, n: (concat([s[0], [n]], 0), s[1] - n))
    assert [part.shape.as_list() for part in found] == [[None], []]
    assert value(found) == ([0, 1, 2, 3], 3)
    assert value(R(0).reduce(5, lambda s, n: s + 1)) == 5
    pairs = Dataset.from_tensor_slices(([1, 2], [3, 4]))
    assert value(pairs.reduce(0, lambda s, pair: s + pair[0] * pair[1])) == 11


def test_a_reduction_sees_variables_and_runs_each_time() -> None:
    variable = ResourceVariable(3, dtype=dtypes.int64)
    total = R(3).reduce(np.int64(0), lambda s, n: s + n * variable)
    with Session() as session:
        session.run(variable.initializer)
        assert session.run(total) == 9
        session.run(variable.assign(5))
        assert session.run(total) == 15


def test_a_reduction_without_an_end_stops_with_its_step() -> None:
    endless = R(3).repeat().reduce(np.int64(0), lambda s, n: s + n)
    with Session() as session, pytest.raises(errors.DeadlineExceededError):
        session.run(endless, options=proto.RunOptions(timeout_in_ms=50))


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "another state": (
        lambda: R(3).reduce(0, lambda s, n: n),
        TypeError,
        "structure and types of the state",
    ),
    "no pair": (lambda: R(3).scan(0, lambda s, n: s), TypeError, "a state and an element"),
    "another structure": (
        lambda: R(3).scan((0, 1), lambda s, n: (s[0], n)),
        TypeError,
        "structure and types",
    ),
    "no bool": (lambda: R(3).take_while(lambda n: n), TypeError, "scalar boolean"),
    "a float key": (
        lambda: R(3).apply(grouping.group_by_window(lambda n: 0.5, lambda k, w: w, 2)),
        TypeError,
        "`key_func` must return a single int64",
    ),
    "no dataset of a group": (
        lambda: R(3).apply(grouping.group_by_window(lambda n: n, lambda k, w: k, 2)),
        TypeError,
        "must return a `Dataset`",
    ),
    "no size of groups": (
        lambda: grouping.group_by_window(lambda n: n, lambda k, w: w),
        errors.InvalidArgumentError,
        "window_size_func",
    ),
    "no reducer": (lambda: grouping.group_by_reducer(lambda n: n, 3), TypeError, "Reducer"),  # type: ignore[arg-type]
    "boundaries": (
        lambda: grouping.bucket_by_sequence_length(size, [3], [1]),
        errors.InvalidArgumentError,
        "got 1 and 1",
    ),
    "numbers that choose": (
        lambda: interleaving.choose_from_datasets([R(3)], Dataset.from_tensors("a")),
        TypeError,
        "scalar int64",
    ),
    "datasets of other types": (
        lambda: interleaving.sample_from_datasets([R(3), Dataset.from_tensors("a")]),
        TypeError,
        "all datasets",
    ),
    "weights": (
        lambda: interleaving.sample_from_datasets([R(3)], [0.5, 0.5]),
        errors.InvalidArgumentError,
        r"must have shape \[1\]",
    ),
    "both numbers": (
        lambda: transformations.map_and_batch(abs, 3, 2, num_parallel_calls=3),
        errors.InvalidArgumentError,
        "only one of",
    ),
    "options": (
        lambda: R(3).with_options(3),  # type: ignore[arg-type]
        TypeError,
        "class Options",
    ),
    "an optional iterator": (lambda: get_next_as_optional(R(3)), TypeError, "an Iterator"),  # type: ignore[arg-type]
}


def test_wrong_programs_are_refused_when_they_are_written() -> None:
    with Parts() as parts:
        for name, (make, error, words) in WRONG.items():
            with parts.part(name), pytest.raises(error, match=words):
                make()


# ------------------------------------------------------------------------------- groups


def test_groups_by_window() -> None:
    by_key = grouping.group_by_window(
        lambda n: n % 3,
        lambda key, group: Dataset.zip((Dataset.from_tensors(key), group.batch(9))),
        window_size_func=lambda key: key + 1,
    )
    assert elements(R(7).apply(by_key)) == [
        (0, [0]), (0, [3]), (1, [1, 4]), (0, [6]), (2, [2, 5]),
    ]  # fmt: skip
    left = grouping.group_by_window(lambda n: -n, lambda key, group: group.batch(9), 5)
    assert elements(R(3).apply(left)) == [[2], [1], [0]]
    pairs = Dataset.zip((R(4), R(4).map(as_string)))
    ends = pairs.apply(
        grouping.group_by_window(lambda n, s: n // 2, lambda key, group: group.batch(2), 2)
    )
    assert elements(ends) == [([0, 1], [b"0", b"1"]), ([2, 3], [b"2", b"3"])]
    none = grouping.group_by_window(lambda n: n, lambda k, w: w, window_size_func=lambda k: k - 1)
    with pytest.raises(errors.InvalidArgumentError, match="greater than zero, but got -1"):
        elements(R(2).apply(none))


def test_groups_by_reducer() -> None:
    mean = grouping.Reducer(
        lambda key: (np.int64(0), np.int64(0)),
        lambda state, n: (state[0] + n, state[1] + 1),
        lambda total, count: total // count,
    )
    assert elements(R(10).apply(grouping.group_by_reducer(lambda n: n % 2, mean))) == [4, 5]
    assert elements(R(0).apply(grouping.group_by_reducer(lambda n: n, mean))) == []


def rows_of(*lengths: int) -> Dataset:
    numbers = np.array(lengths, np.int64)
    return Dataset.from_tensor_slices(numbers).map(lambda n: fill([n], n))


def test_buckets_by_length() -> None:
    def bucketed(dataset: Dataset, *args: Any, **options: Any) -> list[Any]:
        return elements(dataset.apply(grouping.bucket_by_sequence_length(size, *args, **options)))

    rows = rows_of(1, 4, 2, 1, 5)
    assert bucketed(rows, [3], [2, 2]) == [
        [[1, 0], [2, 2]],
        [[4, 4, 4, 4, 0], [5, 5, 5, 5, 5]],
        [[1]],
    ]
    assert bucketed(rows, [3], [2, 2], drop_remainder=True) == [
        [[1, 0], [2, 2]],
        [[4, 4, 4, 4, 0], [5, 5, 5, 5, 5]],
    ]
    short = bucketed(rows_of(1, 2), [3, 9], [1, 1, 1], pad_to_bucket_boundary=True)
    assert short == [[[1, 0]], [[2, 2]]]
    assert bucketed(rows_of(2, 2), [3], [2, 2], no_padding=True) == [[[2, 2], [2, 2]]]
    assert bucketed(rows_of(1), [3], [2, 2], padded_shapes=[3], padding_values=np.int64(7)) == [
        [[1, 7, 7]]
    ]
    with pytest.raises(errors.InvalidArgumentError, match="length < max"):
        bucketed(rows_of(9), [3], [1, 1], pad_to_bucket_boundary=True)


def test_sparse_batches() -> None:
    def batches(row_shape: Any) -> list[Any]:
        made = rows_of(1, 2, 3).apply(grouping.dense_to_sparse_batch(2, row_shape))
        return elements(made)

    assert batches([3]) == [
        ([[0, 0], [1, 0], [1, 1]], [1, 2, 2], [2, 3]),
        ([[0, 0], [0, 1], [0, 2]], [3, 3, 3], [1, 3]),
    ]
    assert batches([None])[0][2] == [2, 2]
    for shape, words in (([2], r"fit into \[2\]"), ([3, 3], "fit into")):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            batches(shape)


# ------------------------------------------------------------------------------- choices


def test_choosing() -> None:
    inner = [Dataset.from_tensors(x).repeat(2) for x in "abc"]
    numbers = Dataset.from_tensor_slices(np.array([0, 1, 1, 1, 2, 0, 2, 0], np.int64))
    chosen = interleaving.choose_from_datasets(inner, numbers)
    assert elements(chosen) == [b"a", b"b", b"b", b"c", b"a", b"c"]
    stopped = interleaving.choose_from_datasets(inner, numbers, stop_on_empty_dataset=True)
    assert elements(stopped) == [b"a", b"b", b"b"]
    with pytest.raises(errors.InvalidArgumentError, match=r"3 is not in \[0, 3\)"):
        elements(interleaving.choose_from_datasets(inner, R(3, 4)))


def test_sampling() -> None:
    inner = [Dataset.from_tensors(i).repeat() for i in range(3)]
    drawn = elements(interleaving.sample_from_datasets(inner, [0.6, 0.0, 0.2], seed=1).take(2000))
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    assert shares[1] == 0 and abs(shares[0] - 0.75) < 0.05
    moving = Dataset.from_tensor_slices(np.eye(3)[[2, 0, 1]])
    assert elements(interleaving.sample_from_datasets(inner, moving)) == [2, 0, 1]
    ended = interleaving.sample_from_datasets([R(3), R(3)], seed=2)
    assert sorted(elements(ended)) == [0, 0, 1, 1, 2, 2]
    same = [elements(interleaving.RandomDataset(seed=3).take(4)) for _ in range(2)]
    assert same[0] == same[1] and len(set(same[0])) == 4


@pytest.mark.parametrize("initial", [None, [0.9, 0.1]])
def test_resampling(initial: Any) -> None:
    given = R(2000).map(lambda n: n % 10)
    resample = interleaving.rejection_resample(
        lambda n: cast(n >= 9, dtypes.int32), [0.5, 0.5], initial, seed=5
    )
    found = elements(given.apply(resample), 5000)
    assert all(kind == (n == 9) for kind, n in found)
    share = sum(kind for kind, _ in found) / len(found)
    assert len(found) > 250 and abs(share - 0.5) < 0.1


# ------------------------------------------------------------------------------- the rest


def test_cardinalities() -> None:
    inner = R(10)
    with Parts() as parts:
        for name, dataset, count in (
            ("batch", inner.batch(3), 4),
            ("whole batches", inner.batch(3, drop_remainder=True), 3),
            ("take", inner.repeat().take(7), 7),
            ("skip", inner.skip(20), 0),
            ("shard", inner.shard(4, 1), 3),
            ("shuffle, cache, ahead", inner.shuffle(3).cache().prefetch(2).map(abs, 2), 10),
            ("repeat", inner.repeat(3), 30),
            ("for ever", inner.repeat(), -1),
            ("nothing for ever", R(0).repeat(), 0),
            ("zip", Dataset.zip((inner, inner.repeat())), 10),
            ("concatenate", inner.concatenate(R(2)), 12),
            ("concatenate without end", inner.concatenate(R(2).repeat()), -1),
            ("filter", inner.filter(lambda n: n > 1), -2),
            ("flat_map", inner.flat_map(R), -2),
            ("tensors", Dataset.from_tensors(1), 1),
        ):
            with parts.part(name):
                assert value(transformations.cardinality(dataset)) == count
    for wanted, words in ((9, "at least 10"), (11, "only 10 elements")):
        with pytest.raises(errors.FailedPreconditionError, match=words):
            elements(inner.apply(transformations.assert_cardinality(wanted)))


def test_the_only_element() -> None:
    one = Dataset.from_tensors({"a": [1, 2], "b": "x"})
    assert value(transformations.get_single_element(one)) == {"a": [1, 2], "b": b"x"}
    for count, words in ((0, "empty"), (2, "more than one")):
        with pytest.raises(errors.InvalidArgumentError, match=words):
            value(transformations.get_single_element(R(count)))


def test_optional_values() -> None:
    nothing = Optional.none_from_structure((np.int32(0), "x"))
    assert value(nothing.has_value()) is False
    with pytest.raises(errors.InvalidArgumentError, match="does not have a value"):
        value(nothing.get_value())
    following = get_next_as_optional(R(2).prefetch(1).make_one_shot_iterator())
    with Session() as session:
        found = [session.run(following.has_value()) for _ in range(4)]
    assert found == [True, True, False, False]
    kept = R(2).map(lambda n: Optional.from_value((n, "a"))).map(lambda some: some.get_value())
    assert elements(kept) == [(0, b"a"), (1, b"a")]


def test_options_are_kept_and_merged() -> None:
    options = Options()
    options.experimental_deterministic = False
    options.experimental_threading.private_threadpool_size = 3
    dataset = R(3).with_options(options).map(lambda n: n).batch(2)
    assert dataset.options() == options
    assert Dataset.zip((R(3), dataset)).options() == options
    assert elements(dataset) == [[0, 1], [2]]
    other = Options()
    other.experimental_threading = ThreadingOptions()
    other.experimental_threading.private_threadpool_size = 4
    with pytest.raises(errors.InvalidArgumentError, match="private_threadpool_size is 3 and 4"):
        dataset.with_options(other)
    with pytest.raises(AttributeError, match="no option"):
        options.experimental_determinism = True
    with pytest.raises(TypeError, match="of type bool"):
        options.experimental_slack = 3


def test_unique_elements_of_any_form() -> None:
    rows = Dataset.from_tensor_slices(([[0.0, 1], [-0.0, 1], [1, 0]], ["a", "a", "a"]))
    assert elements(rows.apply(transformations.unique())) == [
        ([0.0, 1.0], b"a"),
        ([1.0, 0.0], b"a"),
    ]


def test_counting() -> None:
    assert elements(interleaving.Counter(5, -2, dtypes.int32).take(3)) == [5, 3, 1]
    variant = transformations.to_variant(R(2))
    again = transformations.from_variant(variant, np.int64(0))
    assert elements(again.apply(transformations.prefetch_to_device("/cpu:0"))) == [0, 1]
    with pytest.raises(errors.InvalidArgumentError):
        transformations.copy_to_device("/nothing:x:y")


def test_structures_tell_what_elements_are() -> None:
    rows = Dataset.from_tensors({"n": np.float32([[1]]), "s": SparseTensor([[0]], ["a"], [3])})
    described = {"n": TensorSpec([1, 1]), "s": SparseTensorSpec([3], dtypes.string)}
    assert structures.get_structure(rows) == described
    assert structures.get_structure(rows.make_one_shot_iterator()) == described
    windows = structures.get_structure(R(3).window(2))
    assert windows == structures.DatasetSpec(TensorSpec([], dtypes.int64))
    assert windows.is_compatible_with(R(5)) and not windows.is_compatible_with(rows)
    assert not windows.is_compatible_with(windows.element_spec)
    some = structures.get_structure(R(3).map(Optional.from_value))
    assert some == structures.OptionalStructure(TensorSpec([], dtypes.int64))
    assert len({windows, some, structures.DatasetSpec(windows.element_spec)}) == 2
    assert described["s"].is_compatible_with(SparseTensor([[1]], ["b"], [3]))
    assert not described["s"].is_compatible_with(described["n"])
    nothing = Optional.none_from_structure(windows)
    assert nothing.output_classes is Dataset
    with pytest.raises(TypeError, match="Dataset or an Iterator"):
        structures.get_structure(3)
    several = structures.DatasetSpec(TensorSpec([], dtypes.int64), [None])
    assert several != windows and not several.is_compatible_with(R(5))
    assert repr(several) == "DatasetSpec(TensorSpec(shape=[], dtype=int64, name=None), [?])"


def test_elements_are_padded_to_a_number() -> None:
    pad = transformations.pad_to_cardinality
    with Graph().as_default(), Session() as session:
        values = {"x": [[1, 2], [3, 4]], "t": ["a", "b"]}
        dataset = Dataset.from_tensor_slices(values)
        full = dataset.apply(pad(3, "there")).batch(3, drop_remainder=True)
        found = session.run(full.make_one_shot_iterator().get_next())
        assert found["x"].tolist() == [[1, 2], [3, 4], [0, 0]]
        assert found["t"].tolist() == [b"a", b"b", b""]
        assert found["there"].tolist() == [True, True, False]
        same = session.run(dataset.apply(pad(2)).batch(9).make_one_shot_iterator().get_next())
        assert same["valid"].tolist() == [True, True]
        for refused in (dataset.apply(pad(1)), dataset.repeat().apply(pad(5))):
            with pytest.raises(errors.InvalidArgumentError, match="a known number of elements"):
                session.run(refused.make_one_shot_iterator().get_next())
        with pytest.raises(errors.InvalidArgumentError, match="without the key 'x'"):
            dataset.apply(pad(3, "x"))
        with pytest.raises(errors.InvalidArgumentError, match="dictionaries"):
            Dataset.range(3).apply(pad(4))
        with pytest.raises(errors.InvalidArgumentError, match="known shape"):
            dataset.batch(2).apply(pad(3))


def test_a_key_that_is_a_number_of_python() -> None:
    import weft as wf

    grouped = wf.data.Dataset.range(5).apply(
        wf.data.experimental.group_by_window(lambda x: 0, lambda key, xs: xs.batch(9), 3)
    )
    following, session = grouped.make_one_shot_iterator().get_next(), wf.Session()
    assert [session.run(following).tolist() for _ in range(2)] == [[0, 1, 2], [3, 4]]
