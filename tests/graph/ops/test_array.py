"""Array functions: API, compositions, static shapes and refusals, beyond the conformance table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.arrays import fed, table
from weft_testing.evaluate import evaluate

from weft_graph import Graph
from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops import (
    array,
    broadcasting,
    gather,
    identity,
    join,
    masks,
    padding,
    permutation,
    search,
    shapes,
    space_to_batch,
    sparse,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dimension, TensorShape


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with Graph().as_default():
        yield


# ----------------------------------------------------------------------------- placeholders


def test_a_placeholder_as_in_figure_1() -> None:
    x = array.placeholder(name="x")
    assert x.node.name == "x" and x.dtype is dtypes.float32 and x.dims is None


def test_a_placeholder_must_be_fed() -> None:
    x = array.placeholder(dtypes.int32, (None, 2), name="ids")
    with pytest.raises(errors.InvalidArgumentError, match=r"'ids' of dtype int32 .* \[\?,2\]"):
        evaluate(x + 1)
    np.testing.assert_array_equal(evaluate(x + 1, {x: [[1, 2]]}), [[2, 3]])


def test_a_default_must_fit() -> None:
    x = array.placeholder_with_default([1.0, 2.0], [None])
    assert x.dims == (None,)
    assert evaluate(x).tolist() == [1, 2]
    with pytest.raises(errors.InvalidArgumentError, match=r"fit shape \[3\], got shape \[2\]"):
        array.placeholder_with_default([1.0, 2.0], [3])


# ----------------------------------------------------------------------- zeros, ones, fills


@pytest.mark.parametrize("shape", [(), 3, [2, 3], TensorShape([2]), [Dimension(2), 3], (0, 4)])
def test_zeros_and_ones(shape: Any) -> None:
    dims = tuple(TensorShape(shape).as_list())
    zeros, ones = array.zeros(shape), array.ones(shape, dtypes.int64)
    assert zeros.dims == dims and zeros.node.type == "Const"
    np.testing.assert_array_equal(evaluate(zeros), np.zeros(dims))
    np.testing.assert_array_equal(evaluate(ones), np.ones(dims, np.int64))


def test_one_value_fills_a_shape_without_elements() -> None:
    empty = constant(7, shape=[3, 0])
    assert empty.dims == (3, 0) and evaluate(empty).dtype == np.int32
    with pytest.raises(errors.InvalidArgumentError, match="2 elements does not match"):
        constant([1, 2], shape=[0])


def test_large_zeros_are_a_fill() -> None:
    zeros = array.zeros([100, 200], dtypes.bool_)
    assert zeros.node.type == "Fill" and zeros.dims == (100, 200)
    assert not evaluate(zeros).any()


def test_zeros_of_dynamic_shapes() -> None:
    x = fed(None, 3)
    for shape in (shapes.shape(x), [shapes.shape(x)[0], 3]):
        zeros = array.zeros(shape)
        assert zeros.dims == (None, 3)
        assert evaluate(zeros, {x: table(2, 3)}).shape == (2, 3)


def test_zeros_of_strings_are_empty() -> None:
    assert evaluate(array.zeros([2], dtypes.string)).tolist() == [b"", b""]


def test_likes() -> None:
    x = fed(None, 3)
    assert array.zeros_like(x).node.type == "ZerosLike"
    assert array.ones_like(x, dtypes.int32).dtype is dtypes.int32
    assert array.zeros_like(constant([1.0])).node.type == "Const"
    assert array.zeros_like(constant([1.0]), optimize=False).node.type == "ZerosLike"
    assert evaluate(array.ones_like(x, dtypes.int32), {x: table(2, 3)}).tolist() == [[1] * 3] * 2


def test_fill_refuses_negative_sizes() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="at least 0"):
        array.fill([2, -1], 1.0)
    n = fed(1, dtype=dtypes.int32)
    with pytest.raises(errors.InvalidArgumentError, match="at least 0"):
        evaluate(array.fill(n, 1.0), {n: [-1]})


# ------------------------------------------------------------------------------- shapes


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("reshape", lambda: shapes.reshape(fed(2, 3), [4]), r"\[2,3\] has 6 elements.*requires 4"),
    ("reshape -1", lambda: shapes.reshape(fed(2, 3), [4, -1]), "a multiple of 4"),
    ("two -1", lambda: shapes.reshape(fed(2, 3), [-1, -1]), "only one size"),
    ("size -2", lambda: shapes.reshape(fed(2, 3), [-2]), "at least -1"),
    ("shape rank", lambda: shapes.reshape(fed(2, 3), [[6]]), "must be a vector"),
    ("expand", lambda: shapes.expand_dims(fed(2), 2), r"\[-2, 2\) for rank 2, got 2"),
    ("squeeze", lambda: shapes.squeeze(fed(2, 1), [0]), "axis 0 must have size 1"),
    ("concat axis", lambda: join.concat([fed(2), fed(2)], 1), r"\[-1, 1\) for rank 1"),
    ("concat size", lambda: join.concat([fed(2, 3), fed(2, 4)], 0), "axis 1 .* 3 and 4"),
    ("concat rank", lambda: join.concat([fed(2), fed(2, 4)], 0), "equal ranks"),
    ("concat scalars", lambda: join.concat([fed(), fed()], 0), "rank 0"),
    ("split", lambda: join.split(fed(2, 5), 2, 1), "multiple of 2"),
    ("split sizes", lambda: join.split(fed(6), [2, 3]), "add up to 6"),
    ("split -1s", lambda: join.split(fed(6), [-1, -1]), "one may be -1"),
    ("split axis", lambda: join.split(fed(6), 2, 1), r"\[-1, 1\)"),
    ("stack", lambda: join.stack([fed(2), fed(3)]), r"\[2\] and \[3\]"),
    ("stack axis", lambda: join.stack([fed(2), fed(2)], 2), r"\[-2, 2\)"),
    ("unstack", lambda: join.unstack(fed(3), 2), "must be the size 3"),
    ("unstack unknown", lambda: join.unstack(fed(None)), "pass num"),
    ("tile", lambda: join.tile(fed(2), [1, 1]), "one entry per axis"),
    ("tile negative", lambda: join.tile(fed(2), [-1]), "at least 0"),
    ("transpose", lambda: permutation.transpose(fed(2, 3), [0, 0]), r"permutation .* got \[0, 0\]"),
    ("transpose rank", lambda: permutation.transpose(fed(2, 3), [0]), "one entry per axis"),
    ("matrix", lambda: permutation.matrix_transpose(fed(2)), "at least 2"),
    ("pad", lambda: padding.pad(fed(2), [[1, 1], [1, 1]]), r"must have shape \[1,2\]"),
    ("pad negative", lambda: padding.pad(fed(2), [[-1, 1]]), "at least 0"),
    ("pad mode", lambda: padding.pad(fed(2), [[1, 1]], "edge"), "CONSTANT, REFLECT or SYMMETRIC"),
    ("reflect", lambda: padding.pad(fed(2), [[2, 0]], "reflect"), "at most 1"),
    ("reverse", lambda: permutation.reverse(fed(2), [1]), r"\[-1, 1\)"),
    ("reverse twice", lambda: permutation.reverse(fed(2), [0, -1]), "occurs twice"),
    ("roll", lambda: permutation.roll(fed(2), 1, 1), r"\[-1, 1\)"),
    ("gather axis", lambda: gather.gather(fed(2), [0], axis=1), r"\[-1, 1\)"),
    ("gather", lambda: gather.gather(fed(2, 3), [0, 2]), r"indices\[1\] = 2 is not in \[0, 2\)"),
    ("gather below", lambda: gather.gather(fed(2, 3), -1), r"indices = -1 is not in \[0, 2\)"),
    ("gather_nd", lambda: gather.gather_nd(fed(2), [[0, 1]]), "more axes"),
    ("scatter_nd", lambda: gather.scatter_nd([[0]], fed(1, 2), [4]), r"shape \[1\]"),
    ("broadcast", lambda: broadcasting.broadcast_to(fed(2), [3]), "cannot be broadcast"),
    ("broadcast rank", lambda: broadcasting.broadcast_to(fed(2, 2), [2]), "lower rank"),
    ("one_hot", lambda: gather.one_hot([0], -1), "at least 0"),
    ("top_k", lambda: search.top_k(fed(2), 3), "at most the last size"),
    ("searchsorted", lambda: search.searchsorted([1], [1], side="up"), "'left' or 'right'"),
    ("partition", lambda: gather.dynamic_partition(fed(2), [0, 1, 0], 2), "must start with"),
    (
        "space_to_batch",
        lambda: space_to_batch.space_to_batch_nd(fed(1, 3, 1), [2], [[0, 0]]),
        "of 2, got 3",
    ),
    (
        "batch_to_space",
        lambda: space_to_batch.batch_to_space_nd(fed(3, 2, 1), [2], [[0, 0]]),
        "of 2",
    ),
    ("space_to_depth", lambda: space_to_batch.space_to_depth(fed(1, 3, 2, 1), 2), "multiples of 2"),
    ("depth_to_space", lambda: space_to_batch.depth_to_space(fed(1, 2, 2, 3), 2), "multiples of 4"),
    ("ensure_shape", lambda: identity.ensure_shape(fed(2), [3]), r"\[2\] and \[3\]"),
    ("mask", lambda: masks.boolean_mask(fed(2), [True] * 3), r"axes from 0 on of shape \[2\]"),
    ("mask rank", lambda: masks.boolean_mask(fed(2), True), "at least 1"),
    ("where", lambda: masks.where(constant([True]), x=fed(1)), "both x and y"),
]


@pytest.mark.parametrize(
    ("build", "message"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_mistakes_are_refused_when_built(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        build()


LATE: list[tuple[str, Callable[[Output], Any], Any, str]] = [
    ("reshape", lambda x: shapes.reshape(x, [4]), table(2, 3), "requires 4"),
    ("reshape empty", lambda x: shapes.reshape(x, [0, -1]), table(3), "no size in place of -1"),
    ("expand", lambda x: shapes.expand_dims(x, 3), table(2), r"got 3"),
    ("squeeze", lambda x: shapes.squeeze(x, [0]), table(2), "size 1"),
    ("concat", lambda x: join.concat([x, table(2)], 0), table(2, 1), "concatenated"),
    ("split", lambda x: join.split(x, 2)[0], table(3), "multiple of 2"),
    ("split sizes", lambda x: join.split(x, [1, 1])[0], table(3), "add up to 3"),
    ("stack", lambda x: join.stack([x, table(2)]), table(3), "the same shape"),
    ("unstack", lambda x: join.unstack(x, 2)[0], table(3), "got 2"),
    ("tile", lambda x: join.tile(x, [2]), table(2, 2), "2 entries"),
    ("transpose", lambda x: permutation.transpose(x, [1, 0]), table(2), "permutation"),
    ("pad", lambda x: padding.pad(x, [[1, 1]]), table(2, 2), r"\[2,2\]"),
    ("mirror", lambda x: padding.pad(x, [[2, 1]], "SYMMETRIC"), table(1), "at most 1"),
    ("reverse", lambda x: permutation.reverse(x, [1]), table(2), r"\[-1, 1\)"),
    ("gather", lambda x: gather.gather(x, [5]), table(2), r"indices\[0\] = 5 is not in \[0, 2\)"),
    ("gather one", lambda x: gather.gather(x, 5), table(2), r"indices = 5 is not in \[0, 2\)"),
    ("gather_nd", lambda x: gather.gather_nd(x, [[0, 7]]), table(2, 3), r"\[\.\.\., 1\]\[0\] = 7"),
    ("partition", lambda x: gather.dynamic_partition(x, [0, 9], 2)[0], table(2), r"\[1\] = 9"),
    ("broadcast", lambda x: broadcasting.broadcast_to(x, [3]), table(2), "cannot be broadcast"),
    ("top_k", lambda x: search.top_k(x, 3).values, table(2), r"got 3"),
    (
        "ensure_shape",
        lambda x: identity.ensure_shape(x, [None, 2]),
        table(2),
        r"\[\?,2\], got \[2\]",
    ),
    ("unique", lambda x: search.unique(x).y, table(2, 2), "must be a vector"),
    ("roll", lambda x: permutation.roll(x, 1, 1), table(2), r"\[-1, 1\)"),
    (
        "blocks",
        lambda x: space_to_batch.space_to_batch_nd(x, [2], [[0, 0]]),
        table(1, 3),
        "of 2, got 3",
    ),
    ("depth", lambda x: space_to_batch.depth_to_space(x, 2), table(1, 2, 2, 3), "multiple of 4"),
    ("numerics", lambda x: identity.check_numerics(x, "bad"), np.array([1, np.nan]), "bad.*NaN"),
    ("numerics inf", lambda x: identity.check_numerics(x, "bad"), np.array([1, -np.inf]), "Inf"),
]


@pytest.mark.parametrize(
    ("build", "value", "message"), [row[1:] for row in LATE], ids=[row[0] for row in LATE]
)
def test_mistakes_are_refused_when_run(
    build: Callable[[Output], Any], value: Any, message: str
) -> None:
    x = array.placeholder(dtypes.float32)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        evaluate(build(x), {x: value})


def test_large_finite_numbers_pass() -> None:
    x = constant([3e38, 3e38])
    assert evaluate(identity.check_numerics(x, "fine")).tolist() == evaluate(x).tolist()


def test_former_argument_names() -> None:
    assert shapes.expand_dims(fed(2), dim=0).dims == (1, 2)
    assert shapes.squeeze(fed(1, 2), squeeze_dims=[0]).dims == (2,)
    with pytest.raises(errors.InvalidArgumentError, match="deprecated name"):
        shapes.expand_dims(fed(2), 0, dim=0)


# ---------------------------------------------------------------------------- compositions


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: Any) -> None:
    vectors = [np.arange(2.0), np.arange(3.0), np.arange(4.0)]
    for count in (1, 2, 3):
        got = evaluate(masks.meshgrid(*vectors[:count], indexing=indexing))
        wanted = np.meshgrid(*vectors[:count], indexing=indexing)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("repeats", "axis"), [(2, None), (3, 0), ([1, 0, 2], 1), ([2, 1], 0), (2, -1)]
)
def test_repeat(repeats: Any, axis: int | None) -> None:
    x = table(2, 3)
    got = evaluate(masks.repeat(x, repeats, axis))
    np.testing.assert_array_equal(got, np.repeat(x, repeats, axis))


def test_where() -> None:
    assert evaluate(masks.where([True, False, True])).tolist() == [[0], [2]]
    assert evaluate(masks.where([True, False], [1, 2], [3, 4])).tolist() == [1, 4]


def test_searchsorted_of_any_rank() -> None:
    rows = np.array([1, 3, 5, 7])
    assert evaluate(search.searchsorted(rows, [0, 3, 9])).tolist() == [0, 1, 4]
    assert evaluate(search.searchsorted(rows, [3], side="right")).tolist() == [2]
    deep = np.tile(rows, (2, 3, 1))
    found = search.searchsorted(deep, deep, out_type=dtypes.int64)
    assert found.dims == (2, 3, 4) and evaluate(found)[1, 2].tolist() == [0, 1, 2, 3]


def test_named_results() -> None:
    assert isinstance(search.unique([1, 1]), search.Unique)
    y, idx, count = search.unique_with_counts([5, 6, 5])
    assert evaluate([y, idx, count])[2].tolist() == [2, 1]
    assert evaluate(search.setdiff1d([1, 2, 3], [2]).idx).tolist() == [0, 2]
    assert evaluate(search.top_k([3, 9, 5], 2).indices).tolist() == [1, 2]
    assert evaluate(search.in_top_k([[0.1, 0.9]], [1], 1)).tolist() == [True]


# ---------------------------------------------------------------------------------- sparse


def test_sparse_to_dense() -> None:
    tensor = sparse.SparseTensor([[0, 1], [1, 0]], [5, 6], [2, 3])
    assert evaluate(sparse.sparse_tensor_to_dense(tensor)).tolist() == [[0, 5, 0], [6, 0, 0]]
    assert shapes.shape(tensor).dtype is dtypes.int32
    with pytest.raises(errors.InvalidArgumentError, match="out of order"):
        evaluate(sparse.sparse_to_dense([[1], [0]], [3], [5, 6]))
    with pytest.raises(errors.InvalidArgumentError, match="repeated"):
        evaluate(sparse.sparse_to_dense([[1], [1]], [3], [5, 6]))


def test_sparse_placeholders() -> None:
    x = sparse.sparse_placeholder(dtypes.float32, name="x")
    assert x.values.node.name == "x/values" and x.indices.dims == (None, None)
    y = sparse.sparse_placeholder(dtypes.float32, [3, 4])
    assert y.dims == (3, 4) and y.dense_shape.node.type == "Const"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("have", "wanted", "result"),
    [
        ((0, 4), [-1, 0], (4, 0)),
        ((0, 4), [0, -1], (0, 4)),
        ((0, 4), [-1, 0, 2], (2, 0, 2)),
        ((2, 0, 3), [0, -1], (0, 6)),
        ((0,), [-1, 0], (1, 0)),
        ((0, 4), [-1, 3], (0, 3)),
    ],
)
def test_a_free_size_beside_none(
    have: tuple[int, ...], wanted: list[int], result: tuple[int, ...], known: bool
) -> None:
    x = array.placeholder(dtypes.float32, have if known else None)
    y = shapes.reshape(x, wanted)
    assert not known or y.dims == result
    assert evaluate(y, {x: np.zeros(have, np.float32)}).shape == result


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.int8])
def test_repeats_of_any_integers(dtype: Any) -> None:
    repeats = constant([2, 0, 1], dtype)
    assert evaluate(masks.repeat([5, 6, 7], repeats)).tolist() == [5, 5, 7]
    with pytest.raises(TypeError, match="repeats must be integers"):
        masks.repeat([5], constant([1.0]))
