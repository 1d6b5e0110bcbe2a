"""Ragged tensors: construction, static shapes and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts
from weft_testing.ragged import fetched, nested, ragged

import weft as wf
from weft_tensor import errors

ROWS = [[3, 1, 4], [], [5]]
DEEP = [[[1, 2], [3]], [], [[4, 5, 6]]]
T = wf.RaggedTensor
VALUES = [3, 1, 4, 5]
FACTORIES = {
    "from_row_splits": [0, 3, 3, 4],
    "from_row_lengths": [3, 0, 1],
    "from_row_starts": [0, 3, 3],
    "from_row_limits": [3, 3, 4],
    "from_value_rowids": [0, 0, 0, 2],
}


@pytest.mark.parametrize("kind", ["lists", "int32", "int64", "fed"])
def test_all_factories_make_the_same_rows(kind: str) -> None:
    made, feed = [], {}
    for factory, partition in FACTORIES.items():
        given: Any = partition
        if kind == "fed":
            given = wf.placeholder(wf.int64)
            feed[given] = partition
        elif kind != "lists":
            given = np.array(partition, kind)
        made.append(getattr(T, factory)(VALUES, given))
        wanted = "int32" if kind == "int32" else "int64"
        assert made[-1].row_splits.dtype.name == wanted, factory
    assert fetched(*made, feed=feed) == [ROWS] * len(made)


def test_nested_factories_and_rows_of_one_length() -> None:
    outer, inner = [0, 2, 2, 3], [0, 2, 3, 6]
    flat = [1, 2, 3, 4, 5, 6]
    uniform = T.from_uniform_row_length(flat, 2)
    assert fetched(
        T.from_nested_row_splits(flat, [outer, inner]),
        T.from_nested_row_lengths(flat, [[2, 0, 1], [2, 1, 3]]),
        T.from_nested_value_rowids(flat, [[0, 0, 2], [0, 0, 1, 2, 2, 2]], [3, 3]),
        uniform,
        uniform[:, 1],
        T.from_uniform_row_length(wf.zeros([0]), 0, nrows=2),
        T.from_value_rowids(flat, [0, 0, 1, 1, 1, 1], nrows=4),
    ) == [
        DEEP,
        DEEP,
        DEEP,
        [[1, 2], [3, 4], [5, 6]],
        [2, 4, 6],
        [[], []],
        [[1, 2], [3, 4, 5, 6], [], []],
    ]
    assert uniform.shape.as_list() == [3, 2]


MALFORMED: dict[str, list[Any]] = {
    "from_row_splits": [[], [1, 4], [0, 3, 2, 4], [0, 3], [0, 5]],
    "from_row_lengths": [[5, -1], [3], [4, 1]],
    "from_row_starts": [[1, 3], [0, 3, 2], [0, 5], []],
    "from_row_limits": [[3, 2, 4], [-1, 4], [3], [5], []],
    "from_value_rowids": [[0, 0, 1], [1, 0, 1, 2], [-1, 0, 0, 0]],
    "from_uniform_row_length": [3, -1, 0],
}


def test_malformed_partitions_are_named_errors_at_once_or_in_the_run() -> None:
    with Parts() as parts:
        for factory, cases in MALFORMED.items():
            make = getattr(T, factory)
            for case in cases:
                with parts.part(f"{factory} {case}"), pytest.raises(errors.InvalidArgumentError):
                    make(VALUES, case)
                with parts.part(f"{factory} {case}, fed"):
                    given = wf.placeholder(wf.int64, [] if isinstance(case, int) else [None])
                    made = make(VALUES, given)
                    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
                        session.run(made, {given: case})
        for bad in ([0.5, 4.0], ["a"], [[0, 4]]):
            with (
                parts.part(repr(bad)),
                pytest.raises((errors.InvalidTypeError, errors.InvalidArgumentError)),
            ):
                T.from_row_splits(VALUES, bad)


def test_what_is_known_before_a_run() -> None:
    x, deep = ragged(ROWS), ragged(DEEP, 3)
    assert x.shape.as_list() == [3, None]
    assert deep.shape.as_list() == [3, None, None]
    assert (x.ragged_rank, deep.ragged_rank) == (1, 2)
    assert x.dtype is wf.int32
    assert (x + 1).shape.as_list() == [3, None]
    assert wf.reduce_sum(x, 1).shape.as_list() == [3]
    assert wf.expand_dims(x, 1).shape.as_list() == [3, 1, None]
    assert wf.RaggedTensorSpec([None, None], wf.int32).is_compatible_with(x)
    assert not wf.RaggedTensorSpec([None, None], wf.float32).is_compatible_with(x)
    assert not wf.RaggedTensorSpec([2, None], wf.int32).is_compatible_with(x)
    pairs = wf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)
    assert pairs.shape.as_list() == [2, None, 2]
    assert x.to_list() == ROWS


def test_rows_and_their_places() -> None:
    x, deep = ragged(ROWS), ragged(DEEP, 3)
    assert fetched(
        x.nrows(),
        x.row_lengths(),
        x.row_starts(),
        x.row_limits(),
        x.value_rowids(),
        x.bounding_shape(),
        deep.bounding_shape(),
        deep.row_lengths(axis=2),
        list(deep.nested_row_lengths()),
        deep.merge_dims(0, 1),
        deep.merge_dims(1, 2),
        deep.merge_dims(0, 2),
    ) == [
        3,
        [3, 0, 1],
        [0, 3, 3],
        [3, 3, 4],
        [0, 0, 0, 2],
        [3, 3],
        [3, 2, 3],
        [[2, 1], [], [3]],
        [[2, 0, 1], [2, 1, 3]],
        [[1, 2], [3], [4, 5, 6]],
        [[1, 2, 3], [], [4, 5, 6]],
        [1, 2, 3, 4, 5, 6],
    ]


def test_dense_and_sparse_forms_and_back() -> None:
    x = ragged(ROWS)
    dense = x.to_tensor(-1)
    assert fetched(
        dense,
        x.to_tensor(shape=[2, None]),
        x.to_tensor(7, shape=[4, 2]),
        T.from_tensor(dense, padding=-1),
        T.from_tensor(dense, lengths=[3, 0, 1]),
        T.from_sparse(x.to_sparse()),
        wf.sparse.to_dense(x.to_sparse()),
        T.from_tensor([[[1, 2], [3, 0]], [[0, 0], [4, 0]]], ragged_rank=2, padding=0),
        T.from_tensor([[[1, 2], [3, 0]], [[5, 0], [4, 0]]], lengths=([1, 2], [2, 1, 1])),
    ) == [
        [[3, 1, 4], [-1, -1, -1], [5, -1, -1]],
        [[3, 1, 4], [0, 0, 0]],
        [[3, 1], [7, 7], [5, 7], [7, 7]],
        ROWS,
        ROWS,
        ROWS,
        [[3, 1, 4], [0, 0, 0], [5, 0, 0]],
        [[[1, 2], [3]], [[], [4]]],
        [[[1, 2]], [[5], [4]]],
    ]
    gap = wf.SparseTensor([[0, 1]], [1], [2, 2])
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="from the left"):
        session.run(T.from_sparse(gap))


def _sliced(rows: Any, key: tuple[Any, ...]) -> Any:
    """Nested lists, sliced as Python slices them."""
    first, *rest = key
    if isinstance(first, int):
        return _sliced(rows[first], tuple(rest)) if rest else rows[first]
    picked = rows[first]
    return [_sliced(row, tuple(rest)) for row in picked] if rest else picked


def test_brackets_slice_rows_as_python_slices_lists() -> None:
    rng = np.random.default_rng(0)
    bounds = [None, -3, -1, 0, 1, 2]
    keys, made, wanted = [], [], []

    def some() -> slice:
        step = rng.choice([None, 1, 2, -1, -2])
        return slice(rng.choice(bounds), rng.choice(bounds), step)

    for _ in range(25):
        rows = nested(rng, 3, 3)
        keys.append((some(), some(), some())[: int(rng.integers(1, 4))])
        if rng.integers(0, 3) == 0:
            keys[-1] = (int(rng.integers(-3, 3)), *keys[-1][1:])
        made.append(ragged(rows, 3)[keys[-1]])
        wanted.append(_sliced(rows, keys[-1]))
    for key, found, want in zip(keys, fetched(*made), wanted, strict=True):
        assert found == want, key


def test_brackets_add_axes_and_refuse_what_rows_may_not_have() -> None:
    x = ragged(ROWS)
    assert fetched(x[None], x[:, None], x[..., None], x[..., :1]) == [
        [ROWS],
        [[row] for row in ROWS],
        [[[n] for n in row] for row in ROWS],
        [[3], [], [5]],
    ]
    with pytest.raises(errors.InvalidArgumentError, match="inner ragged axis"):
        x[:, 0]
    with pytest.raises(errors.InvalidTypeError):
        x[1.5]
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError):
        session.run(x[wf.placeholder_with_default(5, [])])


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([[1, 2], 3], {}),
        ([[1], [[2]]], {}),
        ([[1], [2]], {"ragged_rank": 2}),
        ([[1, 2], [3]], {"ragged_rank": 0}),
        ([[1, 2]], {"inner_shape": (3,)}),
        (1, {"ragged_rank": 1}),
    ],
)
def test_constants_of_uneven_depth_are_refused(rows: Any, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        wf.ragged.constant(rows, **options)
