"""Positions in datasets: elements of any form in their states, and when they are restored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph import Graph
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ops.array import placeholder, zeros
from weft_graph.ops.casting import cast
from weft_graph.ops.control import py_func
from weft_graph.ops.shapes import reshape
from weft_graph.ops.string_conversion import as_string
from weft_io.data.dataset import Dataset
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.iterator import Iterator
from weft_io.saving.saver import Saver
from weft_tensor import dtypes, errors

R = Dataset.range


class Reader:
    """A graph with an iterator, and a session that has not initialized it."""

    def __init__(self, make: Callable[[], Dataset]) -> None:
        with Graph().as_default() as graph:
            self.iterator = make().make_initializable_iterator()
            self.element = self.iterator.get_next()
            saveable = make_saveable_from_iterator(self.iterator)
            self._state = saveable.specs[0].tensor
            self._given = placeholder(dtypes.string, ())
            self._restore = saveable.restore([self._given], None)
        self.session = Session(graph=graph)

    def begin(self) -> Reader:
        self.session.run(self.iterator.initializer)
        return self

    def state(self) -> bytes:
        found: bytes = self.session.run(self._state)
        return found

    def restored(self, state: bytes) -> Reader:
        self.session.run(self._restore, {self._given: state})
        return self

    def take(self, most: int = 1000) -> list[Any]:
        found: list[Any] = []
        while len(found) < most:
            try:
                found.append(_plain(self.session.run(self.element)))
            except errors.OutOfRangeError:
                break
            except errors.InvalidArgumentError as error:
                assert "three" in error.message
                found.append(errors.InvalidArgumentError)
        return found

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.session.close()


def _plain(value: Any) -> Any:
    """Something that `==` compares, with the types in it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list | SparseTensorValue):
        return [_plain(each) for each in value]
    array = np.asarray(value)
    return array.dtype.name, array.tolist()


# ------------------------------------------------------------------------ forms of elements


def _picky(x: Any) -> Any:
    if x == 3:
        raise ValueError("three")
    return x


FORMS: dict[str, Callable[[Any], Any]] = {
    "one": lambda i: i,
    "two": lambda i: (i, cast(i, dtypes.bfloat16)),
    "three": lambda i: (i, i, i),
    "three arrays": lambda i: (zeros([2]), zeros([0, 3], dtypes.string), zeros([1], dtypes.uint8)),
    "three strings": lambda i: (as_string(i), "error", as_string(i)),
    "nested": lambda i: {"a": (i, {"b": zeros([3], dtypes.float16)}), "c": as_string(i)},
    "sparse": lambda i: (SparseTensor([[i]], [i], [10]), i),
    "failing": lambda i: (reshape(py_func(_picky, [i], dtypes.int64), []), "error", "x"),
}
"""Functions of a number; each name says what its elements are."""

KEEPING: dict[str, Callable[[Dataset], Dataset]] = {
    "prefetch": lambda d: d.prefetch(2),
    "parallel map": lambda d: d.map(_same, 3).prefetch(1),
    "shuffle, cache": lambda d: d.shuffle(3, seed=1).cache().repeat(2),
    "interleave": lambda d: d.interleave(lambda *e: Dataset.from_tensors(_same(*e)).repeat(2), 2),
    "parallel interleave": lambda d: d.interleave(
        lambda *e: Dataset.from_tensors(_same(*e)).repeat(2), 2, 2, 2
    ),
}
DENSE: dict[str, Callable[[Dataset], Dataset]] = {
    "batches": lambda d: d.batch(2).prefetch(2),
    "padded batches": lambda d: d.padded_batch(2, d.output_shapes).prefetch(2),
    "unbatch": lambda d: d.batch(3).unbatch().prefetch(1),
}
"""Transformations whose state holds elements."""


def _same(*element: Any) -> Any:
    return element[0] if len(element) == 1 else element


@pytest.mark.parametrize("form", sorted(FORMS))
def test_elements_of_every_form_are_in_states(form: str) -> None:
    with Parts() as parts:
        for name, change in {**KEEPING, **({} if form == "sparse" else DENSE)}.items():
            with parts.part(name):
                check_every_position(lambda change=change: change(R(6).map(FORMS[form])))


def check_every_position(make: Callable[[], Dataset]) -> None:
    with Reader(make) as one, Reader(make) as other:
        one.begin()
        other.begin()
        states, taken = [one.state()], one.take(1)
        while len(taken) == len(states):
            states.append(one.state())
            taken += one.take(1)
        assert len(states) > 3
        for at, state in enumerate(states):
            assert other.restored(state).take() == taken[at:], at


def test_the_state_of_elements_of_other_types_is_refused() -> None:
    with Reader(lambda: R(9).prefetch(2)) as one:
        one.begin().take(1)
        state = one.state()
    for make in (
        lambda: R(9).map(lambda i: cast(i, dtypes.int32)).prefetch(2),
        lambda: R(9).map(lambda i: (i, i)).prefetch(2),
    ):
        with Reader(make) as other:
            other.begin()
            with pytest.raises(
                errors.InvalidArgumentError, match="its elements are int64, those of the iterator"
            ):
                other.restored(state)


# ------------------------------------------------------------------------- before a dataset


def test_a_state_waits_for_the_initializer() -> None:
    """As in training loops, which restore first and then initialize everything else."""
    with Reader(lambda: R(9).prefetch(2)) as one, Reader(lambda: R(9).prefetch(2)) as other:
        one.begin().take(4)
        other.restored(one.state())
        with pytest.raises(errors.FailedPreconditionError, match="then goes on from the state"):
            other.session.run(other.element)
        waiting = other.state()
        assert other.begin().take(2) == one.take(2)
        assert other.begin().take(1) == [("int64", 0)]  # once only
        assert other.restored(waiting).take(1) == [("int64", 4)]


def test_a_state_that_does_not_fit_is_told_by_the_initializer() -> None:
    with Reader(lambda: R(9).take(3)) as one, Reader(lambda: R(9).skip(3)) as other:
        other.restored(one.begin().state())
        for _ in range(2):
            with pytest.raises(errors.InvalidArgumentError, match="Take, but this one has Skip"):
                other.begin()


def test_what_has_not_begun_is_at_its_beginning() -> None:
    with Reader(lambda: R(3)) as one, Reader(lambda: R(3)) as other:
        state = one.state()
        other.begin().take(2)
        assert other.restored(state).take(1) == [("int64", 0)]
        with pytest.raises(errors.FailedPreconditionError, match="not been initialized"):
            one.restored(state).session.run(one.element)


def test_a_state_belongs_to_what_one_initializer_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Between training and validation data, which take turns in one iterator."""
    with Graph().as_default() as graph:
        iterator = Iterator.from_structure(dtypes.int64, ())
        following = iterator.get_next()
        train = iterator.make_initializer(R(10, 20))
        check = iterator.make_initializer(R(50, 60))
        saveable = make_saveable_from_iterator(iterator)
        state = saveable.specs[0].tensor
        given = placeholder(dtypes.string, ())
        restore = saveable.restore([given], None)
    with Session(graph=graph) as session:
        session.run(train)
        session.run([following])
        saved = session.run(state)
    for first, wanted in ((train, 11), (check, 50)):
        with Session(graph=graph) as session:
            session.run(restore, {given: saved})
            with caplog.at_level(logging.WARNING, "weft"):
                session.run(first)
            assert session.run(following) == wanted
    (warning,) = caplog.messages
    assert "belongs to the initializer 'MakeIterator', but 'MakeIterator_1' ran" in warning


# ------------------------------------------------------------------- several, and handles


def test_several_iterators_behind_a_handle(tmp_path: Path) -> None:
    with Graph().as_default() as graph:
        handle = placeholder(dtypes.string, ())
        either = Iterator.from_string_handle(handle, dtypes.int64, ())
        following = either.get_next()
        first = R(9).prefetch(1).make_initializable_iterator()
        second = R(50, 60).make_one_shot_iterator()
        handles = [first.string_handle(), second.string_handle()]
        for each in (first, second):
            graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, make_saveable_from_iterator(each))
        with pytest.raises(errors.InvalidArgumentError, match="the iterators that it may refer"):
            make_saveable_from_iterator(either)
        saver = Saver()

    def take(session: Session, which: int) -> int:
        return int(session.run(following, {handle: session.run(handles[which])}))

    with Session(graph=graph) as session:
        session.run(first.initializer)
        assert [take(session, 0), take(session, 0), take(session, 1)] == [0, 1, 50]
        path = saver.save(session, str(tmp_path / "model"))
    with Session(graph=graph) as session:
        saver.restore(session, path)
        assert take(session, 1) == 51
        session.run(first.initializer)
        assert [take(session, 0), take(session, 1)] == [2, 52]
