"""Feeds and fetches of the wrong kind: one table of calls and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

TYPE = errors.InvalidTypeError


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def _sparse(value: Any) -> Any:
    x = wf.sparse_placeholder(wf.float32)
    return wf.Session().run(wf.sparse_tensor_to_dense(x), {x: value})


def _slices(value: Any) -> Any:
    x = wf.IndexedSlices(wf.placeholder(wf.float32, [2]), wf.placeholder(wf.int32, [2]))
    return wf.Session().run(x.values + 1.0, {x: value})


def _handle(value: Any) -> Any:
    v = wf.Variable(1.0, use_resource=True)
    return wf.Session().run(v + 1.0, {v.handle: value})


def _run(fetches: Any, feeds: Any = None) -> Callable[[], Any]:
    return lambda: wf.Session().run(fetches, feeds)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: _sparse(([[0]], [1.0])), "is fed 3 values (indices, values, dense_shape)"),
    (lambda: _sparse(([[0]], [1.0], [2], [2])), "is fed 3 values (indices, values, dense_shape)"),
    (lambda: _sparse(3), "is fed 3 values (indices, values, dense_shape)"),
    (lambda: _slices([[1.0, 2.0]]), "is fed 2 values (values, indices)"),
    (lambda: _slices([[1.0, 2.0], [0, 1], [2]]), "is fed 2 values (values, indices)"),
    (lambda: _handle(3), "is fed 3; it must be fed a handle that a fetch returned"),
    (_run(np.ones(3)), "is not a tensor or operation of a graph"),
    (_run([np.ones(3)]), "is not a tensor or operation of a graph"),
    (lambda: wf.Session().run(wf.constant(1), 3), "feed_dict must be a mapping, got 3"),
]


def test_refused() -> None:
    for call, words in REFUSED:
        with pytest.raises(TYPE, match=re.escape(words)):
            call()


def test_taken() -> None:
    assert _sparse(([[0]], [1.0], [2])).tolist() == [1.0, 0.0]
    assert _slices(([1.0, 2.0], [0, 1])).tolist() == [2.0, 3.0]
    v = wf.Variable(1.0, use_resource=True)
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(v + 1.0, {v.handle: session.run(v.handle)}) == 2.0


@pytest.mark.parametrize("said", ["off", "now"])
def test_bytes_in_another_order_are_fed_and_assigned(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_JIT", said)
    x = wf.placeholder(wf.float32, [3])
    v = wf.Variable(np.zeros(3, np.float32))
    with wf.Session() as session:
        values = np.arange(3, dtype=np.dtype(np.float32).newbyteorder())
        session.run(v.assign(x).op, {x: values})
        found = session.run([x, v, x * 2.0 + 1.0], {x: values})
    assert [value.dtype for value in found] == [np.float32] * 3
    assert [value.tolist() for value in found] == [[0, 1, 2], [0, 1, 2], [1, 3, 5]]
