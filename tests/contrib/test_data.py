"""`contrib.data`: the transformations that `data` has as arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft as wf

data = wf.contrib.data


def _elements(dataset: Any) -> list[Any]:
    following = dataset.make_one_shot_iterator().get_next()
    found = []
    with wf.Session() as session:
        for _ in range(100):
            try:
                found.append(np.asarray(session.run(following)).tolist())
            except wf.errors.OutOfRangeError:
                return found
    raise AssertionError("the dataset does not end")


def test_smaller_batches_are_dropped() -> None:
    with wf.Graph().as_default():
        batches = data.Dataset.range(5).apply(data.batch_and_drop_remainder(2))
        assert batches.make_one_shot_iterator().get_next().shape.as_list() == [2]
        assert _elements(batches) == [[0, 1], [2, 3]]


def test_padded_batches_are_dropped() -> None:
    with wf.Graph().as_default():
        rows = data.Dataset.range(1, 4).map(lambda n: wf.fill([n], n))
        batches = rows.apply(data.padded_batch_and_drop_remainder(2, [4], np.int64(-1)))
        assert _elements(batches) == [[[1, -1, -1, -1], [2, 2, -1, -1]]]


def test_interleaving_in_any_order_loses_nothing() -> None:
    with wf.Graph().as_default():
        apart = data.sloppy_interleave(lambda n: data.Dataset.range(n * 3, n * 3 + 3), 2)
        assert sorted(_elements(data.Dataset.range(4).apply(apart))) == list(range(12))
