"""Batching: inputs, order and shapes of the batches, and the end of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

from weft_exec.session.session import Session
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import placeholder
from weft_graph.ops.casting import cast
from weft_graph.ops.sequence import range as range_
from weft_graph.ops.shapes import expand_dims
from weft_graph.variables import reference as variables
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import start_queue_runners
from weft_io.input import batching
from weft_io.input.pipeline import input_producer, slice_input_producer
from weft_io.resources.sparse_map import SparseMap
from weft_tensor import dtypes, errors


def run(build: Callable[[], Any], look: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return all elements until the end."""
    with Graph().as_default() as graph, Session(graph=graph) as session:
        graph.seed = 3
        fetches = build()
        session.run(variables.local_variables_initializer())
        coord = Coordinator()
        start_queue_runners(session, coord)
        found = []
        with pytest.raises(errors.OutOfRangeError):
            for _ in rounds():
                found.append(session.run(fetches))
        coord.request_stop()
        coord.join(stop_grace_period_secs=30)
        if look is not None:
            look(session)
    return found


def numbers(count: int, start: int = 0) -> Any:
    """The integers one by one."""
    return slice_input_producer([np.arange(start, start + count)], 1, shuffle=False)[0]


def chunks(count: int, size: int) -> Any:
    """The integers in pieces."""
    return input_producer(np.arange(count).reshape(-1, size), None, 1, shuffle=False).dequeue()


def lists(found: list[Any]) -> list[Any]:
    return [batch.tolist() for batch in found]


def joined(found: list[Any]) -> list[Any]:
    return np.concatenate(found).tolist()


# --------------------------------------------------------------------------- plain


def test_examples_become_batches() -> None:
    def build() -> Any:
        n = numbers(7)
        parts = batching.batch([n, cast(n, dtypes.float32) * 0.5], 3)
        assert [p.shape.as_list() for p in parts] == [[3], [3]]
        return parts

    found = run(build)
    assert lists([batch[0] for batch in found]) == [[0, 1, 2], [3, 4, 5]]
    assert found[1][1].tolist() == [1.5, 2, 2.5]


def test_what_is_left_at_the_end() -> None:
    def build() -> Any:
        part = batching.batch([numbers(7)], 3, allow_smaller_final_batch=True)
        assert part.shape.as_list() == [None]
        return part

    assert lists(run(build)) == [[0, 1, 2], [3, 4, 5], [6]]


def test_dicts_stay_dicts() -> None:
    def build() -> Any:
        n = numbers(4)
        return batching.batch({"n": n, "double": n * 2}, 2)

    found = run(build)
    assert [set(batch) for batch in found] == [{"n", "double"}] * 2
    assert found[1]["n"].tolist() == [2, 3] and found[1]["double"].tolist() == [4, 6]
    single = run(lambda: batching.batch({"n": numbers(2)}, 2))
    assert single[0]["n"].tolist() == [0, 1]


def test_several_examples_at_once() -> None:
    found = run(lambda: batching.batch([chunks(12, 3)], 4, enqueue_many=True))
    assert lists(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_sizes_may_differ_when_they_are_padded() -> None:
    def build() -> Any:
        n = numbers(4)
        padded = batching.batch([range_(n), n], 2, dynamic_pad=True)
        assert padded[0].shape.as_list() == [2, None]
        return padded[0]

    assert lists(run(build)) == [[[0], [0]], [[0, 1, 0], [0, 1, 2]]]


def test_shapes_may_be_given() -> None:
    with Graph().as_default():
        loose = placeholder(dtypes.float32)
        with pytest.raises(ValueError, match="Cannot infer Tensor's rank"):
            batching.batch([loose], 2)
        assert batching.batch([loose], 2, shapes=[[5]]).shape.as_list() == [2, 5]
        many = placeholder(dtypes.float32, [None, 3])
        assert batching.batch([many], 2, enqueue_many=True).shape.as_list() == [2, 3]


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_lose_nothing(threads: int) -> None:
    def build() -> Any:
        return batching.batch([numbers(50)], 7, threads, allow_smaller_final_batch=True)

    found = joined(run(build))
    assert sorted(found) == list(range(50))
    assert threads > 1 or found == list(range(50))


def test_sources_are_joined() -> None:
    def build() -> Any:
        sources = [[numbers(10, 100 * i)] for i in range(3)]
        return batching.batch_join(sources, 4, allow_smaller_final_batch=True)

    found = joined(run(build))
    assert sorted(found) == [100 * i + k for i in range(3) for k in range(10)]
    for i in range(3):
        mine = [number for number in found if number // 100 == i]
        assert mine == sorted(mine)


# --------------------------------------------------------------------------- shuffled


@pytest.mark.parametrize("threads", [1, 2])
def test_shuffled_batches(threads: int) -> None:
    def build() -> Any:
        return batching.shuffle_batch(
            [numbers(40)], 5, 30, 10, threads, seed=4, allow_smaller_final_batch=True
        )

    found = joined(run(build))
    assert sorted(found) == list(range(40)) and found != sorted(found)


def test_shuffled_joins() -> None:
    def build() -> Any:
        sources = [{"n": numbers(10, 100 * i)} for i in range(2)]
        return batching.shuffle_batch_join(sources, 5, 30, 10)

    found = joined([batch["n"] for batch in run(build)])
    assert sorted(found) == [100 * i + k for i in range(2) for k in range(10)]


# --------------------------------------------------------------------------- some of them


def even(n: Any) -> Any:
    from weft_graph.ops.comparison import equal

    return equal(n % 2, 0)


def test_examples_may_be_left_out() -> None:
    def build() -> Any:
        n = numbers(9)
        return batching.maybe_batch([n], even(n), 2)

    assert lists(run(build)) == [[0, 2], [4, 6]]


@pytest.mark.parametrize("vector", [False, True])
def test_some_of_several_may_be_left_out(vector: bool) -> None:
    def build() -> Any:
        n = chunks(12, 3)
        keep = even(n) if vector else even(n[0])
        return batching.maybe_batch([n], keep, 3, enqueue_many=True)

    wanted = [[0, 2, 4], [6, 8, 10]] if vector else [[0, 1, 2], [6, 7, 8]]
    assert lists(run(build)) == wanted


def test_every_kind_may_leave_some_out() -> None:
    def plain() -> Any:
        n = numbers(8)
        return batching.maybe_batch_join([[n]], even(n), 2)

    def shuffled() -> Any:
        n = numbers(8)
        return batching.maybe_shuffle_batch([n], 2, 10, 1, even(n))

    def both() -> Any:
        n = numbers(8)
        return batching.maybe_shuffle_batch_join([[n]], 2, 10, 1, even(n))

    for build in (plain, shuffled, both):
        assert sorted(joined(run(build))) == [0, 2, 4, 6]


def test_padding_goes_with_leaving_out() -> None:
    def build() -> Any:
        n = numbers(6)
        return batching.maybe_batch([range_(n)], even(n), 3, dynamic_pad=True)

    assert lists(run(build)) == [[[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 2, 3]]]


def test_keep_input_is_checked() -> None:
    with Graph().as_default():
        n = placeholder(dtypes.int64, [])
        with pytest.raises(ValueError, match="must be known at graph construction"):
            batching.maybe_batch([n], placeholder(dtypes.bool_), 2)
        with pytest.raises(ValueError, match="cannot be a vector"):
            batching.maybe_batch([n], [True, False], 2)
        with pytest.raises(ValueError, match="0 or 1 dimensions"):
            batching.maybe_batch([n], [[True]], 2, enqueue_many=True)


# --------------------------------------------------------------------------- sparse


def sparse_of(n: Any) -> SparseTensor:
    """A vector of length 6 whose first n elements are 0.5."""
    positions = range_(cast(n, dtypes.int64))
    values = cast(positions, dtypes.float32) * 0.0 + 0.5
    return SparseTensor(expand_dims(positions, 1), values, [6])


def no_sparse_tensor_is_left(session: Any) -> None:
    assert all(len(kept) == 0 for kept in session.resources.resources(SparseMap, ""))


@pytest.mark.parametrize("some", [False, True])
def test_sparse_tensors(some: bool) -> None:
    def build() -> Any:
        n = numbers(6)
        keep = even(n) if some else True
        parts = batching.maybe_batch([sparse_of(n), n], keep, 3)
        assert isinstance(parts[0], SparseTensor)
        return parts

    found = run(build, no_sparse_tensor_is_left if some else None)
    rows = [np.bincount(batch[0].indices[:, 0], minlength=3).tolist() for batch in found]
    assert rows == ([[0, 2, 4]] if some else [[0, 1, 2], [3, 4, 5]])
    assert found[0][0].dense_shape.tolist() == [3, 6]
    assert set(found[0][0].values.tolist()) == {0.5}


@pytest.mark.parametrize("keep", ["all", "vector", "scalar"])
def test_several_sparse_examples_at_once(keep: str) -> None:
    def build() -> Any:
        chunk = chunks(8, 4)
        rows = SparseTensor([[0, 0], [1, 1], [2, 0], [2, 1], [3, 1]], chunk_values(chunk), [4, 2])
        kept = {"all": True, "vector": even(chunk + 1), "scalar": even(chunk[0])}[keep]
        parts = batching.maybe_batch({"s": rows, "n": chunk}, kept, 2, enqueue_many=True)
        return parts["s"], parts["n"]

    def chunk_values(chunk: Any) -> Any:
        from weft_graph.ops.gather import gather

        return gather(chunk, [0, 1, 2, 2, 3])

    for value, rows in run(build, no_sparse_tensor_is_left):
        table = np.zeros(value.dense_shape, np.int64) - 1
        table[tuple(value.indices.T)] = value.values
        for line, n in zip(table, rows, strict=True):
            assert set(line.tolist()) - {-1} == {n}
            assert (line >= 0).sum() == (2 if n % 4 == 2 else 1)


# --------------------------------------------------------------------------- mistakes


def test_wrong_sources() -> None:
    with Graph().as_default():
        n = placeholder(dtypes.int64, [])
        x = placeholder(dtypes.float32, [])
        with pytest.raises(ValueError, match="at least one tensor"):
            batching.batch([], 2)
        with pytest.raises(ValueError, match="at least one tensor"):
            batching.batch_join([], 2)
        with pytest.raises(TypeError, match="all must be dictionaries"):
            batching.batch_join([{"a": n}, [n]], 2)
        with pytest.raises(ValueError, match="same keys"):
            batching.batch_join([{"a": n}, {"b": n}], 2)
        with pytest.raises(TypeError, match="types to be consistent"):
            batching.batch_join([[n], [x]], 2)
        with pytest.raises(ValueError, match="the same number of tensors"):
            batching.batch_join([[n], [n, n]], 2)
        with pytest.raises(ValueError, match="capacity must be greater than min_after_dequeue=3"):
            batching.shuffle_batch([n], 2, capacity=3, min_after_dequeue=3)
        with pytest.raises(ValueError, match="capacity must be greater than min_after_dequeue=0"):
            batching.batch([n], 2, capacity=0)


def test_names_and_summaries() -> None:
    with Graph().as_default() as graph:
        n = placeholder(dtypes.int64, [])
        assert batching.batch([n], 2, capacity=20, name="mine").op.name == "mine"
        batching.shuffle_batch([n], 2, 20, 5)
        names = [summary.op.name for summary in graph.get_collection(GraphKeys.SUMMARIES)]
        assert names == ["mine/fraction_of_20_full", "shuffle_batch/fraction_over_5_of_20_full"]


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda n: batching.batch(None, 2), TYPE, "tensors must be a list .*got None"),
        (lambda n: batching.batch(3, 2), TYPE, "tensors must be a list .*got 3"),
        (lambda n: batching.batch("abc", 2), TYPE, "tensors must be a list .*got 'abc'"),
        (lambda n: batching.batch({1: n, "a": n}, 2), TYPE, "keys of tensors must be text"),
        (lambda n: batching.batch([n], 2, num_threads="x"), TYPE, "num_threads must be an integer"),
        (lambda n: batching.batch([n], 2, num_threads=None), TYPE, "num_threads .*got None"),
        (lambda n: batching.batch([n], 2, num_threads=1.5), TYPE, "num_threads .*got 1.5"),
        (lambda n: batching.batch([n], 2, num_threads=0), VALUE, "num_threads must be at least 1"),
        (lambda n: batching.batch([n], 2, shapes=3), TYPE, "shapes must be a list, got 3"),
        (lambda n: batching.batch_join(3, 2), TYPE, "tensors_list must be a list, got 3"),
        (lambda n: batching.batch_join(None, 2), TYPE, "tensors_list must be a list, got None"),
        (lambda n: batching.batch_join({"a": n}, 2), TYPE, "tensors_list must be a list, got {"),
        (lambda n: batching.batch_join([[n], 3], 2), TYPE, "tensors must be a list .*got 3"),
        (lambda n: batching.shuffle_batch(None, 2, 9, 5), TYPE, "tensors must be a list"),
        (lambda n: batching.shuffle_batch([n], 2, 9, -1), VALUE, "min_after_dequeue must be at le"),
        (lambda n: batching.shuffle_batch([n], 2, 9, 5, seed="x"), TYPE, "seed must be an integer"),
        (lambda n: batching.shuffle_batch_join(3, 2, 9, 5), TYPE, "tensors_list must be a list"),
        (lambda n: batching.maybe_batch(None, True, 2), TYPE, "tensors must be a list"),
    ],
)
def test_arguments_of_the_wrong_kind(call: Any, error: Any, text: str) -> None:
    with Graph().as_default():
        n = placeholder(dtypes.int64, [])
        with pytest.raises(error, match=text):
            call(n)
