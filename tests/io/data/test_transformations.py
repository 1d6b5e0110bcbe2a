"""Each transformation against plain Python, alone and in compositions made by chance."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from weft_exec.session.session import Session
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import fill, placeholder
from weft_graph.ops.comparison import equal
from weft_graph.ops.control import py_func
from weft_graph.ops.division import floormod as mod
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_io.data import transformations
from weft_io.data.dataset import Dataset
from weft_io.data.iterator import Iterator
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def elements(make: Callable[[], Dataset], most: int = 10_000) -> list[Any]:
    with Graph().as_default() as graph:
        following = make().make_one_shot_iterator().get_next()
        with Session(graph=graph) as session:
            step = session.make_callable(following)
            found = []
            while len(found) < most:
                try:
                    found.append(plain(step()))
                except errors.OutOfRangeError as error:
                    assert "End of sequence" in error.message
                    break
            return found


R = Dataset.range


def test_sources() -> None:
    assert elements(lambda: Dataset.from_tensors([1, 2])) == [[1, 2]]
    assert elements(lambda: Dataset.from_tensors(([1], "a"))) == [([1], b"a")]
    assert elements(lambda: Dataset.from_tensor_slices([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert elements(lambda: R(3)) == [0, 1, 2]
    assert elements(lambda: R(2, 9, 3)) == [2, 5, 8]
    assert elements(lambda: R(5, 0, -2)) == [5, 3, 1]
    assert elements(lambda: R(5, 0)) == []


class Pair(NamedTuple):
    first: Any
    second: Any


def test_structures_are_kept() -> None:
    rows = Pair({"b": [1, 2], "a": ["x", "y"]}, (np.zeros((2, 3), np.float32),))
    first, second = elements(lambda: Dataset.from_tensor_slices(rows))
    assert first == Pair({"b": 1, "a": b"x"}, ([0.0, 0.0, 0.0],))
    assert list(first.first) == ["b", "a"] and second.first["a"] == b"y"
    with Graph().as_default():
        dataset = Dataset.from_tensor_slices(rows)
        assert dataset.output_types == Pair(
            {"b": dtypes.int32, "a": dtypes.string}, (dtypes.float32,)
        )
        assert dataset.output_shapes.second == (TensorShape([3]),)


@pytest.mark.parametrize("dtype", [*"bBhHiIlLefdFD?"])
def test_every_number_goes_through(dtype: str) -> None:
    values = np.arange(4).astype(dtype)
    assert elements(lambda: Dataset.from_tensor_slices(values).batch(3)) == [
        values[:3].tolist(),
        values[3:].tolist(),
    ]


def test_passing_on() -> None:
    assert elements(lambda: R(5).take(2)) == [0, 1]
    assert elements(lambda: R(3).take(-1)) == [0, 1, 2]
    assert elements(lambda: R(5).skip(3)) == [3, 4]
    assert elements(lambda: R(5).skip(9)) == elements(lambda: R(5).skip(-1)) == []
    assert elements(lambda: R(7).shard(3, 1)) == [1, 4]
    assert elements(lambda: R(2).repeat(3)) == [0, 1] * 3
    assert elements(lambda: R(2).repeat(), 5) == [0, 1, 0, 1, 0]
    assert elements(lambda: R(2).repeat(0)) == elements(lambda: R(0).repeat()) == []
    assert elements(lambda: R(2).concatenate(R(5, 7))) == [0, 1, 5, 6]
    assert elements(lambda: Dataset.zip((R(3), {"a": R(5, 9)}))) == [
        (0, {"a": 5}),
        (1, {"a": 6}),
        (2, {"a": 7}),
    ]
    assert elements(lambda: R(2).enumerate(7)) == [(7, 0), (8, 1)]
    assert elements(lambda: R(4).apply(lambda d: d.skip(2))) == [2, 3]
    assert elements(lambda: R(4).cache().repeat(2)) == [0, 1, 2, 3] * 2


def test_batches() -> None:
    assert elements(lambda: R(5).batch(2)) == [[0, 1], [2, 3], [4]]
    assert elements(lambda: R(5).batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]
    assert elements(lambda: R(6).batch(2).batch(2)) == [[[0, 1], [2, 3]], [[4, 5]]]
    assert elements(lambda: R(6).batch(4).unbatch()) == [*range(6)]
    words = ["a", "bc", ""]
    assert elements(lambda: Dataset.from_tensor_slices(words).batch(2)) == [[b"a", b"bc"], [b""]]
    with Graph().as_default():
        assert R(5).batch(2).output_shapes == TensorShape([None])
        assert R(5).batch(2, True).output_shapes == TensorShape([2])


def test_padded_batches() -> None:
    def grown() -> Dataset:
        return R(1, 4).map(lambda x: fill([x], x))

    assert elements(lambda: grown().padded_batch(2, [None])) == [[[1, 0], [2, 2]], [[3, 3, 3]]]
    assert elements(lambda: grown().padded_batch(3, [4], np.int64(-1))) == [
        [[1, -1, -1, -1], [2, 2, -1, -1], [3, 3, 3, -1]]
    ]
    with pytest.raises(errors.InvalidArgumentError, match="smaller size"):
        elements(lambda: grown().padded_batch(3, [2]))


def test_functions() -> None:
    assert elements(lambda: R(3).map(lambda x: (x, {"twice": x * 2}))) == [
        (0, {"twice": 0}),
        (1, {"twice": 2}),
        (2, {"twice": 4}),
    ]
    assert elements(lambda: Dataset.zip((R(3), R(3))).map(lambda a, b: a + b)) == [0, 2, 4]
    assert elements(lambda: R(6).filter(lambda x: equal(mod(x, 2), 0))) == [0, 2, 4]
    assert elements(lambda: R(4).flat_map(R)) == [0, 0, 1, 0, 1, 2]
    assert elements(lambda: Dataset.from_tensors("ab").map(lambda s: [s, s])) == [(b"ab", b"ab")]


def test_functions_within_functions() -> None:
    def nested(x: Any) -> Dataset:
        return R(x).map(lambda y: x * 10 + y).filter(lambda z: z > 10)

    assert elements(lambda: R(4).flat_map(nested)) == [20, 21, 30, 31, 32]


@pytest.mark.parametrize("calls", [1, 3, 50, AUTOTUNE])
def test_a_parallel_map_keeps_the_order(calls: int) -> None:
    assert elements(lambda: R(60).map(lambda x: x * x, num_parallel_calls=calls)) == [
        x * x for x in range(60)
    ]


def test_parallel_maps_within_parallel_maps_do_not_wait_for_each_other() -> None:
    def inner(x: Any) -> Dataset:
        return R(5).map(lambda y: x + y, num_parallel_calls=4)

    found = elements(lambda: R(20).map(lambda x: x, 4).interleave(inner, 3, 1, 3))
    assert sorted(found) == sorted(x + y for x in range(20) for y in range(5))


def interleaved(counts: list[int], cycle: int, block: int) -> list[tuple[int, int]]:
    """The order of interleaving, by its definition."""
    waiting = iter(enumerate(counts))
    places: list[Any] = [None] * cycle
    found, place, ended = [], 0, False
    while not ended or any(each is not None for each in places):
        if places[place] is None and not ended:
            following = next(waiting, None)
            ended = following is None
            if following is not None:
                i, count = following
                places[place] = iter([(i, j) for j in range(count)])
            continue
        if places[place] is not None:
            taken = list(itertools.islice(places[place], block))
            found += taken
            if len(taken) < block:
                places[place] = None
        place = (place + 1) % cycle
    return found


@given(
    st.lists(st.integers(0, 4), max_size=6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([None, 1, 3]),
)
@settings(max_examples=25, deadline=None)
def test_the_order_of_interleaving(
    counts: list[int], cycle: int, block: int, calls: int | None
) -> None:
    def make() -> Dataset:
        numbers = Dataset.from_tensor_slices(np.array(counts, np.int64)).enumerate()
        return numbers.interleave(
            lambda i, count: R(count).map(lambda j: (i, j)), cycle, block, calls
        )

    assert elements(make) == interleaved(counts, cycle, block)


# ------------------------------------------------------------------------ compositions

STEPS: dict[
    str, tuple[Callable[[Dataset, int], Dataset], Callable[[list[int], int], list[int]]]
] = {
    "map": (lambda d, n: d.map(lambda x: x * 2 + n), lambda v, n: [x * 2 + n for x in v]),
    "pmap": (lambda d, n: d.map(lambda x: x + n, n + 1), lambda v, n: [x + n for x in v]),
    "filter": (
        lambda d, n: d.filter(lambda x: mod(x, n + 2) > 0),
        lambda v, n: [x for x in v if x % (n + 2) > 0],
    ),
    "take": (lambda d, n: d.take(n * 3), lambda v, n: v[: n * 3]),
    "skip": (lambda d, n: d.skip(n), lambda v, n: v[n:]),
    "shard": (lambda d, n: d.shard(n + 1, n), lambda v, n: v[n :: n + 1]),
    "repeat": (lambda d, n: d.repeat(n), lambda v, n: v * n),
    "cache": (lambda d, n: d.cache(), lambda v, n: v),
    "prefetch": (lambda d, n: d.prefetch(n), lambda v, n: v),
    "concatenate": (lambda d, n: d.concatenate(R(n)), lambda v, n: [*v, *range(n)]),
    "rebatch": (lambda d, n: d.batch(n + 1).unbatch(), lambda v, n: v),
    "flat_map": (
        lambda d, n: d.flat_map(lambda x: Dataset.from_tensors(x).repeat(n)),
        lambda v, n: [x for x in v for _ in range(n)],
    ),
}
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), max_size=5)


def composed(program: list[tuple[str, int]]) -> Dataset:
    dataset = R(7)
    for name, n in program:
        dataset = STEPS[name][0](dataset, n)
    return dataset


@given(PROGRAMS)
@settings(max_examples=30, deadline=None)
def test_compositions(program: list[tuple[str, int]]) -> None:
    wanted = [*range(7)]
    for name, n in program:
        wanted = STEPS[name][1](wanted, n)
    assert elements(lambda: composed(program)) == wanted


# ---------------------------------------------------------------------- what is around


def test_values_from_around_are_those_of_when_it_began() -> None:
    with Graph().as_default() as graph:
        number = placeholder(dtypes.int64, ())
        iterator = R(3).map(lambda x: x + number).make_initializable_iterator()
        following = iterator.get_next()
        with Session(graph=graph) as session:
            for value in (10, 20):
                session.run(iterator.initializer, {number: value})
                assert [session.run(following) for _ in range(3)] == [value, value + 1, value + 2]


def test_resource_variables_are_read_by_each_element() -> None:
    from weft_graph.variables.resource import ResourceVariable

    with Graph().as_default() as graph:
        variable = ResourceVariable(np.int64(1))
        iterator = R(3).map(lambda x: x + variable).make_initializable_iterator()
        following = iterator.get_next()
        more = variable.assign_add(np.int64(100))
        with Session(graph=graph) as session:
            session.run(global_variables_initializer())
            session.run(iterator.initializer)
            assert session.run(following) == 1
            session.run(more.op)
            assert session.run(following) == 102


def test_a_one_shot_iterator_refuses_what_it_cannot_copy() -> None:
    with Graph().as_default():
        number = placeholder(dtypes.int64, ())
        with pytest.raises(errors.InvalidArgumentError, match="make_initializable_iterator"):
            R(number).make_one_shot_iterator()
        variable = Variable(np.int64(3))
        with pytest.raises(errors.InvalidArgumentError, match="one-shot"):
            R(3).map(lambda x: x + variable).make_one_shot_iterator()


def test_sparse_tensors_are_elements() -> None:
    def sparse(x: Any) -> SparseTensor:
        return SparseTensor([[0], [2]], fill([2], x), [5])

    with Graph().as_default() as graph:
        dataset = R(2).map(sparse).repeat(1)
        assert dataset.output_classes is SparseTensor
        following = dataset.make_one_shot_iterator().get_next()
        with Session(graph=graph) as session:
            session.run(following)
            found = session.run(following)
    assert found.values.tolist() == [1, 1] and found.indices.tolist() == [[0], [2]]


def _around(use: Callable[[Dataset, Any], Any], way: str = "flat_map") -> Callable[[], Dataset]:
    """A dataset made in a function, of one from around it and of the function's argument."""

    def make() -> Dataset:
        outer = R(6)
        made: Dataset = getattr(R(1, 4), way)(lambda i: use(outer, i))
        return made

    return make


SIX, FEW = range(6), range(1, 4)
USES: list[tuple[Callable[[], Dataset], list[Any]]] = [
    (_around(lambda d, i: d.take(i)), [n for i in FEW for n in SIX[:i]]),
    (_around(lambda d, i: d.shard(4, i)), [n for i in FEW for n in SIX[i::4]]),
    (_around(lambda d, i: d.batch(i)), [[*SIX[k : k + i]] for i in FEW for k in range(0, 6, i)]),
    (
        _around(lambda d, i: d.skip(i).map(lambda x: 10 * x + i).filter(lambda x: x < 50)),
        [10 * n + i for i in FEW for n in SIX[i:5]],
    ),
    (
        _around(lambda d, i: d.scan(i, lambda s, x: (s + x, s + x)).concatenate(d)),
        [n for i in FEW for n in [*(i + sum(SIX[: k + 1]) for k in SIX), *SIX]],
    ),
    (_around(lambda d, i: d.reduce(i, lambda s, x: s + x), "map"), [15 + i for i in FEW]),
    (
        _around(lambda d, i: d.interleave(lambda x: R(x, x + i), cycle_length=6).skip(6)),
        [n + k for i in FEW for k in range(1, i) for n in SIX],
    ),
    (_around(lambda d, i: d.padded_batch(6, []).map(lambda x: x[:i])), [[*SIX[:i]] for i in FEW]),
]


@pytest.mark.parametrize(("make", "wanted"), USES)
def test_functions_use_datasets_from_around_with_values_of_their_own(
    make: Callable[[], Dataset], wanted: list[Any]
) -> None:
    assert elements(make) == wanted


@pytest.mark.parametrize("graph_seed", [None, 0, 7])
@pytest.mark.parametrize("seed", [0, 3, 2**31 - 1])
def test_a_seed_of_shuffle_may_be_known_to_a_run_alone(seed: int, graph_seed: int | None) -> None:
    with Graph().as_default() as graph:
        graph.seed = graph_seed
        given = placeholder(dtypes.int64, [])
        iterators = [
            R(20).shuffle(20, seed=each).make_initializable_iterator() for each in (seed, given)
        ]
        steps = [iterator.get_next() for iterator in iterators]
        with Session(graph=graph) as session:
            session.run([iterator.initializer for iterator in iterators], {given: seed})
            pairs = [session.run(steps) for _ in range(20)]
    assert all(a == b for a, b in pairs)
    assert [a for a, _ in pairs] != list(range(20))


def test_rows_of_sparse_tensors() -> None:
    with Graph().as_default() as graph:
        whole = SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2])
        row = Dataset.from_sparse_tensor_slices(whole).make_one_shot_iterator().get_next()
        with Session(graph=graph) as session:
            found = [session.run(row) for _ in range(3)]
    assert [values.tolist() for _, values, _ in found] == [[5], [], [6]]
    assert [indices.tolist() for indices, _, _ in found] == [[[1]], [], [[0]]]
    assert all(shape.tolist() == [2] for _, _, shape in found)


@pytest.mark.parametrize("calls", [None, 2])
def test_a_function_of_an_element_cannot_end_the_dataset_around_it(calls: int | None) -> None:
    def stop(x: Any) -> Any:
        if x == 1:
            raise StopIteration
        return x

    def stopping(x: Any) -> Any:
        return py_func(stop, [x], dtypes.int64)

    for made in (
        lambda: R(3).apply(transformations.map_and_batch(stopping, 1, num_parallel_calls=calls)),
        lambda: R(3).scan(0, lambda state, x: (state, stopping(x))),
        lambda: R(3).filter(lambda x: stopping(x) >= 0),
        lambda: R(3).flat_map(lambda x: Dataset.from_tensors(stopping(x))),
        lambda: R(3).interleave(lambda x: Dataset.from_tensors(stopping(x)), 1),
        lambda: R(3).apply(transformations.take_while(lambda x: stopping(x) >= 0)),
    ):
        with Graph().as_default() as graph:
            following = made().make_one_shot_iterator().get_next()
            with Session(graph=graph) as session:
                assert session.run(following) == 0
                with pytest.raises(errors.InvalidArgumentError, match="an OutOfRangeError"):
                    session.run(following)
                assert session.run(following) == 2


def test_a_generator_is_let_go_at_its_end() -> None:
    held: list[Any] = []

    class Numbers:
        def __iter__(self) -> Any:
            held.append(weakref.ref(self))
            return self

        def __next__(self) -> int:
            raise StopIteration

    with Graph().as_default() as graph:
        dataset = Dataset.from_generator(Numbers, dtypes.int64)
        following = dataset.make_one_shot_iterator().get_next()
        with Session(graph=graph) as session:
            with pytest.raises(errors.OutOfRangeError):
                session.run(following)
            gc.collect()
            assert held[0]() is None


# --------------------------------------------------------------------------- iterators


def test_iterators_of_a_structure_and_of_strings() -> None:
    with Graph().as_default() as graph:
        one, two = R(2), R(5, 7).map(lambda x: x * 2)
        iterator = Iterator.from_structure(one.output_types, one.output_shapes)
        begin = [iterator.make_initializer(each) for each in (one, two)]
        handle = placeholder(dtypes.string, ())
        chosen = Iterator.from_string_handle(handle, dtypes.int64, TensorShape([])).get_next()
        name = iterator.string_handle()
        following = iterator.get_next()
        with Session(graph=graph) as session:
            with pytest.raises(errors.FailedPreconditionError, match="not been initialized"):
                session.run(following)
            session.run(begin[0])
            assert session.run(following) == 0
            session.run(begin[1])
            assert session.run(following) == 10
            assert session.run(chosen, {handle: session.run(name)}) == 12
            with pytest.raises(errors.NotFoundError):
                session.run(chosen, {handle: b"a\nb"})
        with pytest.raises(errors.InvalidTypeError, match="Expected output types"):
            iterator.make_initializer(Dataset.from_tensors(1.0))
        with pytest.raises(errors.InvalidArgumentError, match="one-shot"):
            _ = one.make_one_shot_iterator().initializer


F32 = dtypes.float32


@pytest.mark.parametrize(
    ("types", "shapes", "where"),
    [
        (dtypes.int32, None, "IteratorFromStringHandleV2"),
        ((F32, F32), None, "IteratorFromStringHandleV2"),
        (F32, TensorShape([3]), "IteratorFromStringHandleV2"),
        (F32, TensorShape([]), "IteratorFromStringHandleV2"),
        (F32, TensorShape([None, None]), "IteratorFromStringHandleV2"),
        (F32, TensorShape([2]), None),
        (F32, TensorShape([None]), None),
        (F32, None, None),
    ],
)
def test_a_handle_of_an_iterator_over_other_elements_is_refused(
    types: Any, shapes: Any, where: str | None
) -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        given = Dataset.from_tensors(np.zeros(2, np.float32)).make_one_shot_iterator()
        handle = placeholder(dtypes.string, ())
        following = Iterator.from_string_handle(handle, types, shapes).get_next()
        feeds = {handle: session.run(given.string_handle())}
        if where is None:
            assert session.run(following, feeds).shape == (2,)
            return
        with pytest.raises(
            errors.InvalidArgumentError, match=r"over elements of .* float32 \[2\]"
        ) as e:
            session.run(following, feeds)
        assert e.value.op_type == where


def test_an_element_must_fit_what_is_said_of_it() -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        numbers = Dataset.from_tensor_slices(np.zeros(5, np.float32)).batch(2)
        handle = placeholder(dtypes.string, ())
        pairs = Iterator.from_string_handle(handle, F32, TensorShape([2])).get_next()
        feeds = {handle: session.run(numbers.make_one_shot_iterator().string_handle())}
        for _ in range(2):
            assert session.run(pairs, feeds).shape == (2,)
        with pytest.raises(errors.InvalidArgumentError, match=r"must have shape \[2\], got \[1\]"):
            session.run(pairs, feeds)
        with pytest.raises(errors.OutOfRangeError):
            session.run(pairs, feeds)


def test_a_shared_iterator_has_one_kind_of_elements() -> None:
    def iterator(dtype: Any, dims: Any) -> Any:
        attrs = {"container": "", "shared_name": "one"}
        attrs |= {"output_types": [dtype], "output_shapes": [dims]}
        handle = create("IteratorV2", (), attrs).outputs[0]
        return create("IteratorToStringHandle", (handle,)).outputs[0]

    with Graph().as_default() as graph, Session(graph=graph) as session:
        first = session.run(iterator(F32, [2]))
        assert session.run(iterator(F32, [None])) == first
        for dtype, dims in ((F32, [3]), (F32, []), (dtypes.int32, [2])):
            with pytest.raises(errors.InvalidArgumentError, match="'one' has elements of float32"):
                session.run(iterator(dtype, dims))


# ------------------------------------------------------------------------------ errors


def tensor(value: int, dtype: Any = dtypes.int64) -> Any:
    return convert_to_tensor(value, dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda: R(3).batch(tensor(0)),
        lambda: R(3).shuffle(tensor(0)),
        lambda: R(3).shard(tensor(2), 2),
        lambda: R(0, 3, tensor(0)),
        lambda: R(3).prefetch(tensor(-2)),
        lambda: R(3).map(lambda x: x, num_parallel_calls=tensor(0, dtypes.int32)),
        lambda: R(3).interleave(R, tensor(0)),
        lambda: R(3).map(lambda x: fill([x], x)).batch(3),
    ],
)
def test_wrong_numbers_are_refused_when_it_begins(make: Callable[[], Dataset]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        elements(make)


def test_wrong_programs_are_refused_when_they_are_written() -> None:
    with Graph().as_default():
        with pytest.raises(errors.InvalidArgumentError):
            Dataset.from_tensor_slices(1)
        with pytest.raises(errors.InvalidArgumentError):
            Dataset.from_tensor_slices(([1, 2], [1]))
        with pytest.raises(errors.InvalidTypeError, match="Dataset"):
            R(3).flat_map(lambda x: x)
        with pytest.raises(errors.InvalidTypeError, match="boolean"):
            R(3).filter(lambda x: x)
        with pytest.raises(errors.InvalidTypeError, match="None"):
            R(3).map(lambda x: None)
        with pytest.raises(errors.InvalidTypeError, match="zip"):
            Dataset.zip([R(3), R(3)])
        with pytest.raises(errors.InvalidTypeError, match="different"):
            R(3).concatenate(Dataset.from_tensors(1.0))


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError
BIG = 2**70


def _one(shape: Any, values: Any = None) -> Dataset:
    return Dataset.from_tensors([1]).padded_batch(2, shape, values)


def _inner(*args: Any) -> Dataset:
    return R(3).interleave(lambda x: R(x), *args)


WRONG: list[tuple[Callable[[], Any], Any, str]] = [
    (lambda: Dataset(3, 4), TYPE, "variant_tensor must be a tensor, got 3"),  # type: ignore[arg-type]
    (lambda: R(3).concatenate([1, 2]), TYPE, r"requires a Dataset, got \[1, 2\]"),  # type: ignore[arg-type]
    (lambda: R(3).concatenate(None), TYPE, "requires a Dataset, got None"),  # type: ignore[arg-type]
    (lambda: R([1]), VALUE, r"stop must be a scalar, got shape \[1\]"),
    (lambda: R("x"), TYPE, "stop must be int64, .*got 'x'"),
    (lambda: R(0, 5, 0), VALUE, "step must not be 0"),
    (lambda: R(0, 5, None), TYPE, "step must be int64, .*got None"),
    (lambda: R(3).cache([]), VALUE, r"filename must be a scalar, got shape \[0\]"),
    (lambda: R(3).cache(["a", "b"]), VALUE, r"filename must be a scalar, got shape \[2\]"),
    (lambda: R(3).cache(3), TYPE, "filename must be string, "),
    (lambda: R(3).cache(None), TYPE, "filename must be string, .*got None"),
    (lambda: R(3).cache("\ud800"), VALUE, "filename must be string, .*encodable as UTF-8"),
    (lambda: R(3).shuffle(2, seed="x"), TYPE, "seed must be an integer or None, got 'x'"),
    (lambda: R(3).shuffle(2, seed=[1]), TYPE, r"seed must be an integer or None, got \[1\]"),
    (lambda: R(3).shuffle(2, seed=1.5), TYPE, "seed must be an integer or None, got 1.5"),
    (lambda: R(3).shuffle([1, 2]), VALUE, "buffer_size must be a scalar"),
    (lambda: R(3).shuffle(0), VALUE, "buffer_size must be at least 1, got 0"),
    (lambda: R(3).shuffle(BIG), VALUE, f"buffer_size must be int64, .*{BIG} does not fit"),
    (lambda: R(3).shuffle(None), TYPE, "buffer_size must be int64, .*got None"),
    (lambda: R(3).take([1, 2]), VALUE, "count must be a scalar"),
    (lambda: R(3).take(1.5), TYPE, "count must be int64, .*got 1.5"),
    (lambda: R(3).skip([1]), VALUE, "count must be a scalar"),
    (lambda: R(3).repeat([1]), VALUE, "count must be a scalar"),
    (lambda: R(3).shard([2], 0), VALUE, "num_shards must be a scalar"),
    (lambda: R(3).shard(2, [0]), VALUE, "index must be a scalar"),
    (lambda: R(3).shard(0, 0), VALUE, "num_shards must be at least 1, got 0"),
    (lambda: R(3).shard(2, -1), VALUE, "index must be at least 0, got -1"),
    (lambda: R(3).shard(2, 2), VALUE, "index must be less than num_shards = 2, got 2"),
    (lambda: R(3).prefetch([1]), VALUE, "buffer_size must be a scalar"),
    (lambda: R(3).prefetch(-7), VALUE, "buffer_size must be at least 0, or -1 for AUTOTUNE"),
    (lambda: R(3).enumerate([1]), VALUE, "start must be a scalar"),
    (lambda: R(3).batch([2]), VALUE, "batch_size must be a scalar"),
    (lambda: R(3).batch("x", True), TYPE, "batch_size must be int64, .*got 'x'"),
    (lambda: R(3).batch([2], True), VALUE, "batch_size must be a scalar"),
    (lambda: R(3).batch(-1, True), VALUE, "batch_size must be at least 1, got -1"),
    (lambda: R(3).batch(2, [True, False]), VALUE, "drop_remainder must be a scalar"),
    (lambda: R(3).batch(2, 3), TYPE, "drop_remainder must be bool, .*got 3"),
    (lambda: R(3).padded_batch(2, BIG), VALUE, f"padded_shapes must be at most .*{BIG}"),
    (lambda: _one([BIG]), VALUE, f"padded_shapes must be at most .*{BIG}"),
    (lambda: _one(convert_to_tensor("a")), VALUE, r"must be int64, shape \(rank,\), got"),
    (lambda: _one(convert_to_tensor(3)), VALUE, r"must be int64, shape \(rank,\), got"),
    (lambda: _one(convert_to_tensor([[3]])), VALUE, r"must be int64, shape \(rank,\), got"),
    (lambda: _one([3], [1, 2]), VALUE, "padding_values must be a scalar"),
    (lambda: R(3).padded_batch([2], []), VALUE, "batch_size must be a scalar"),
    (lambda: R(3).padded_batch(2, [], drop_remainder=3), TYPE, "drop_remainder must be bool"),
    (lambda: R(3).apply(None), TYPE, "`transformation_func` must be callable, got None"),  # type: ignore[arg-type]
    (lambda: R(3).map(3), TYPE, r"Dataset.map\(\)` must be callable, got 3"),  # type: ignore[arg-type]
    (lambda: R(3).map(lambda: 3), TYPE, "must take 1 positional argument, got <function"),
    (lambda: Dataset.zip((R(3), R(3))).map(lambda x: x), TYPE, "take 2 positional arguments"),
    (lambda: R(3).map(lambda x: x, [2]), VALUE, "num_parallel_calls must be a scalar"),
    (lambda: R(3).map(lambda x: x, 0), VALUE, "num_parallel_calls must be at least 1, or -1"),
    (lambda: R(3).filter(None), TYPE, r"Dataset.filter\(\)` must be callable, got None"),  # type: ignore[arg-type]
    (lambda: R(3).flat_map(None), TYPE, r"Dataset.flat_map\(\)` must be callable"),  # type: ignore[arg-type]
    (lambda: R(3).interleave(3), TYPE, r"Dataset.interleave\(\)` must be callable"),  # type: ignore[arg-type]
    (lambda: _inner([2]), VALUE, "cycle_length must be a scalar"),
    (lambda: _inner(0), VALUE, "cycle_length must be at least 1, got 0"),
    (lambda: _inner(2, 0), VALUE, "block_length must be at least 1, got 0"),
    (lambda: _inner(2, 1, [2]), VALUE, "num_parallel_calls must be a scalar"),
    (lambda: _inner(2, 1, 0), VALUE, "num_parallel_calls must be at least 1, or -1"),
    (lambda: Dataset.from_tensors(([1, 2], [1])).unbatch(), VALUE, "of the same size, got 2 and 1"),
    (lambda: R(3).unbatch(), VALUE, "unbatch requires a rank of at least 1"),
    (lambda: Dataset.from_sparse_tensor_slices([[1]]), TYPE, "a SparseTensor is required"),
    (lambda: Dataset.list_files("a", seed="x"), TYPE, "seed must be an integer or None"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_wrong_arguments(call: Callable[[], Any], error: Any, text: str) -> None:
    with Graph().as_default(), pytest.raises(error, match=text):
        call()


def test_values_that_are_fed_are_checked_when_they_are_known() -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        size = placeholder(dtypes.int64, [])
        iterator = R(3).batch(size).make_initializable_iterator()
        with pytest.raises(errors.InvalidArgumentError, match="greater than zero, got 0"):
            session.run(iterator.initializer, {size: 0})
        session.run(iterator.initializer, {size: 2})
        assert session.run(iterator.get_next()).tolist() == [0, 1]
