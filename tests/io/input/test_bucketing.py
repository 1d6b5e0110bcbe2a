"""Batches of similar examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import placeholder
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import not_equal
from weft_graph.ops.sequence import range as range_
from weft_graph.variables import reference as variables
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import start_queue_runners
from weft_io.input.bucketing import bucket, bucket_by_sequence_length
from weft_io.input.pipeline import slice_input_producer
from weft_tensor import dtypes, errors


def run(build: Callable[[], Any]) -> list[Any]:
    """Return all elements until the end."""
    with Graph().as_default() as graph, Session(graph=graph) as session:
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
    return found


def numbers(values: Any) -> Any:
    return slice_input_producer([np.asarray(values, np.int32)], 1, shuffle=False)[0]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_is_of_one_bucket(threads: int) -> None:
    def build() -> Any:
        n = numbers(np.arange(40))
        which, parts = bucket(
            [n, cast(n, dtypes.float32)],
            n % 3,
            4,
            3,
            threads,
            allow_smaller_final_batch=True,
        )
        assert which.shape.as_list() == []
        return which, parts

    found = run(build)
    seen: list[int] = []
    for which, (batch, floats) in found:
        assert set((batch % 3).tolist()) == {int(which)}
        assert floats.tolist() == batch.tolist() and len(batch) <= 4
        seen += batch.tolist()
    assert sorted(seen) == list(range(40))


def test_what_does_not_fill_a_batch_is_dropped() -> None:
    def build() -> Any:
        n = numbers(np.arange(11))
        _, batch = bucket([n], n % 2, 2, 2)
        assert batch.shape.as_list() == [2]
        return batch

    found = [batch.tolist() for batch in run(build)]
    assert sorted(found) == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10]]


def test_sizes_may_differ_between_buckets() -> None:
    def build() -> Any:
        n = numbers(np.arange(12))
        return bucket({"n": n}, n % 2, [2, 3], 2, bucket_capacities=[4, 5])

    for which, batch in run(build):
        assert len(batch["n"]) == (2, 3)[which]


def test_some_examples_may_be_left_out() -> None:
    def build() -> Any:
        n = numbers(np.arange(12))
        return bucket([n], n % 2, 2, 2, keep_input=not_equal(n % 3, 0))

    found = run(build)
    seen = sorted(int(n) for _, batch in found for n in batch)
    assert seen == [1, 2, 4, 5, 7, 8, 10, 11]


def test_sequences_of_about_the_same_length() -> None:
    lengths = [1, 9, 2, 3, 8, 4, 5, 3, 1, 7, 9, 2]

    def build() -> Any:
        n = numbers(lengths)
        return bucket_by_sequence_length(
            n, [range_(n), n], 2, [3, 6], dynamic_pad=True, allow_smaller_final_batch=True
        )

    found = run(build)
    seen: list[int] = []
    for got, (rows, n) in found:
        assert got.tolist() == n.tolist()
        assert len({(length >= 3) + (length >= 6) for length in got.tolist()}) == 1
        assert rows.shape == (len(got), max(got))
        for row, length in zip(rows, got, strict=True):
            assert row.tolist() == [*range(length), *[0] * (max(got) - length)]
        seen += got.tolist()
    assert sorted(seen) == sorted(lengths)


def test_dicts_and_int64_lengths() -> None:
    def build() -> Any:
        n = cast(numbers([1, 4, 2, 5]), dtypes.int64)
        return bucket_by_sequence_length(n, {"n": n * 10}, 2, [3])

    found = {tuple(got.tolist()): batch["n"].tolist() for got, batch in run(build)}
    assert found == {(1, 2): [10, 20], (4, 5): [40, 50]}


def test_sparse_examples() -> None:
    def build() -> Any:
        n = numbers(np.arange(8))
        tensor = SparseTensor([[0], [2]], range_(2) + n, [3])
        return bucket([tensor, n], n % 2, 2, 2)

    for which, (tensor, n) in run(build):
        assert set((n % 2).tolist()) == {int(which)}
        assert tensor.dense_shape.tolist() == [2, 3]
        assert tensor.values.tolist() == [n[0], n[0] + 1, n[1], n[1] + 1]


def test_a_bucket_that_is_not_there_is_an_error() -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        n = numbers([0, 5])
        bucket([n], n, 1, 2)
        session.run(variables.local_variables_initializer())
        coord = Coordinator()
        start_queue_runners(session, coord)
        assert coord.wait_for_stop(30)
        with pytest.raises(errors.InvalidArgumentError, match=r"which_bucket must be in \[0, 2\)"):
            coord.join()


def test_wrong_arguments() -> None:
    with Graph().as_default():
        n = placeholder(dtypes.int32, [])
        with pytest.raises(ValueError, match="at least 1"):
            bucket([n], n, 2, 0)
        with pytest.raises(ValueError, match="must have num_buckets"):
            bucket([n], n, [2], 2)
        with pytest.raises(ValueError, match="bucket_capacities"):
            bucket([n], n, 2, 2, bucket_capacities=[1])
        with pytest.raises(ValueError, match="at least one tensor"):
            bucket([], n, 2, 2)
        with pytest.raises(ValueError, match="increasing"):
            bucket_by_sequence_length(n, [n], 2, [3, 3])
        with pytest.raises(ValueError, match="must not be empty"):
            bucket_by_sequence_length(n, [n], 2, [])
