"""Producers of epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

from weft_exec.session.session import Session
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ops.array import placeholder
from weft_graph.variables import reference as variables
from weft_io.coordination.coordinator import Coordinator
from weft_io.coordination.queue_runner import start_queue_runners
from weft_io.input.pipeline import (
    input_producer,
    limit_epochs,
    match_filenames_once,
    range_input_producer,
    slice_input_producer,
    string_input_producer,
)
from weft_tensor import dtypes, errors


@contextmanager
def running(graph: Graph) -> Iterator[Any]:
    with Session(graph=graph) as session:
        session.run(variables.local_variables_initializer())
        coord = Coordinator()
        start_queue_runners(session, coord)
        yield session
        coord.request_stop()
        coord.join(stop_grace_period_secs=30)


def produced(build: Callable[[], Any], seed: int | None = None) -> list[Any]:
    """Return all elements until the end."""
    with Graph().as_default() as graph:
        graph.seed = seed
        fetches = build()
        found = []
        with running(graph) as session, pytest.raises(errors.OutOfRangeError):
            for _ in rounds():
                found.append(session.run(fetches))
    return found


def test_epochs_are_counted() -> None:
    with Graph().as_default() as graph, Session(graph=graph) as session:
        tensor = convert_to_tensor([1, 2])
        assert limit_epochs(tensor) is tensor
        limited = limit_epochs(tensor, 2)
        (epochs,) = graph.get_collection(GraphKeys.LOCAL_VARIABLES)
        assert epochs.name == "limit_epochs/epochs:0" and limited.op.name == "limit_epochs"
        with pytest.raises(errors.FailedPreconditionError, match="epochs"):
            session.run(limited)
        session.run(variables.local_variables_initializer())
        assert [session.run(limited).tolist() for _ in range(2)] == [[1, 2]] * 2
        with pytest.raises(errors.OutOfRangeError, match="Reached limit of 2"):
            session.run(limited)
        with pytest.raises(ValueError, match="must be > 0 not 0"):
            limit_epochs(tensor, 0)


def test_files_are_looked_up_once(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.csv"):
        (tmp_path / name).write_text("")
    with Graph().as_default() as graph, Session(graph=graph) as session:
        names = match_filenames_once(str(tmp_path / "*.txt"))
        assert graph.get_collection(GraphKeys.LOCAL_VARIABLES) == [names]
        session.run(variables.local_variables_initializer())
        (tmp_path / "d.txt").write_text("")
        found = session.run(names).tolist()
    assert [Path(name.decode()).name for name in found] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("capacity", [1, 3, 32])
def test_rows_come_in_order_or_shuffled(capacity: int) -> None:
    table = np.arange(8).reshape(4, 2)

    def build(shuffle: bool) -> Any:
        producer = input_producer(table, None, 2, shuffle, seed=5, capacity=capacity)
        assert producer.shapes[0].as_list() == [2]
        return producer.dequeue()

    plain = produced(lambda: build(False))
    assert [row.tolist() for row in plain] == table.tolist() * 2
    mixed = [row.tolist() for row in produced(lambda: build(True), seed=1)]
    for epoch in (mixed[:4], mixed[4:]):
        assert sorted(epoch) == table.tolist()
    assert mixed != table.tolist() * 2
    assert mixed == [row.tolist() for row in produced(lambda: build(True), seed=1)]


def test_without_a_limit_it_goes_on() -> None:
    with Graph().as_default() as graph:
        take = range_input_producer(3, shuffle=False).dequeue()
        with running(graph) as session:
            assert [session.run(take) for _ in range(10)] == [i % 3 for i in range(10)]


def test_strings() -> None:
    found = produced(lambda: string_input_producer(["a", "b"], 1, False).dequeue())
    assert found == [b"a", b"b"]
    with Graph().as_default(), pytest.raises(ValueError, match="non-null input tensor"):
        string_input_producer([])


def test_no_strings_are_an_error_when_it_runs() -> None:
    with Graph().as_default() as graph:
        names = placeholder(dtypes.string, [None])
        queue = string_input_producer(names, 1)
        (runner,) = graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        with Session(graph=graph) as session:
            session.run(variables.local_variables_initializer())
            with pytest.raises(errors.InvalidArgumentError, match="non-null input tensor"):
                session.run(runner.enqueue_ops[0], {names: np.zeros(0, object)})
            session.run(runner.enqueue_ops[0], {names: ["x"]})
            assert session.run(queue.dequeue()) == b"x"


def test_slices_stay_together() -> None:
    numbers, letters = np.arange(5), ["a", "b", "c", "d", "e"]
    found = produced(lambda: slice_input_producer([numbers, letters], 2, seed=1), seed=2)
    assert len(found) == 10
    assert all(letter == b"abcde"[number : number + 1] for number, letter in found)
    assert sorted(int(number) for number, _ in found[:5]) == list(range(5))
    with Graph().as_default(), pytest.raises(ValueError, match="at least one tensor"):
        slice_input_producer([])


def test_shapes_must_be_known() -> None:
    with Graph().as_default():
        unknown = placeholder(dtypes.float32, [None, None])
        with pytest.raises(ValueError, match="fully defined shape or `element_shape`"):
            input_producer(unknown)
        assert input_producer(unknown, [3]).shapes[0].as_list() == [3]
        with pytest.raises(ValueError, match="compatible"):
            input_producer(placeholder(dtypes.float32, [None, 2]), [3])


def test_the_queue_is_summarized_and_named() -> None:
    with Graph().as_default() as graph:
        queue = string_input_producer(["a"], capacity=8, name="files", shared_name="s")
        (summary,) = graph.get_collection(GraphKeys.SUMMARIES)
        assert summary.op.name == "files/fraction_of_8_full"
        assert queue.name == "files" and queue.queue_ref.op.get_attr("shared_name") == b"s"


def test_an_operation_may_cancel_for_it() -> None:
    with Graph().as_default() as graph:
        marker = convert_to_tensor(1).op
        string_input_producer(["a"], cancel_op=marker)
        (runner,) = graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        assert runner.cancel_op is marker


TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: string_input_producer(3), TYPE, "string_tensor must be a tensor .*got 3"),
        (lambda: string_input_producer(None), TYPE, "string_tensor must be .*got None"),
        (lambda: string_input_producer("a"), TYPE, "string_tensor must be .*got 'a'"),
        (lambda: string_input_producer(["a"], "x"), TYPE, "num_epochs must be an integer, got"),  # type: ignore[arg-type]
        (lambda: string_input_producer(["a"], 2**70), VALUE, "num_epochs must be at most"),
        (lambda: string_input_producer(["a"], seed="x"), TYPE, "seed must be an integer"),  # type: ignore[arg-type]
        (lambda: string_input_producer(["a"], name=3), TYPE, "name must be text or None, got 3"),  # type: ignore[arg-type]
        (lambda: string_input_producer(["a"], cancel_op=3), TYPE, "cancel_op must be an operation"),
        (lambda: input_producer([1], summary_name=3), TYPE, "summary_name must be text, got 3"),  # type: ignore[arg-type]
        (lambda: range_input_producer(1.5), TYPE, "limit must be an integer, .*got 1.5"),
        (lambda: slice_input_producer(3), TYPE, "tensor_list must be a list, got 3"),  # type: ignore[arg-type]
        (lambda: slice_input_producer(None), TYPE, "tensor_list must be a list, got None"),  # type: ignore[arg-type]
        (lambda: slice_input_producer([3]), VALUE, "must have rank at least 1"),
        (lambda: slice_input_producer([[1], [1, 2]]), VALUE, r"of the same size, got \[1, 2\]"),
        (lambda: limit_epochs(1, "x"), TYPE, "num_epochs must be an integer, got 'x'"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_the_wrong_kind(call: Any, error: Any, text: str) -> None:
    with Graph().as_default(), pytest.raises(error, match=text):
        call()
