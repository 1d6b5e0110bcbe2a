"""Functions and operators of sparse tensors: nodes, static shapes and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


def run(fetches: Any, feeds: Any = None) -> Any:
    return wf.Session().run(fetches, feeds)


def example(dtype: Any = wf.float32) -> wf.SparseTensor:
    return wf.SparseTensor([[0, 1], [1, 2]], wf.constant([4, 6], dtype), [2, 3])


def unknown(indices: Any, values: Any, shape: Any) -> wf.SparseTensor:
    arrays = [np.array(indices, np.int64), np.array(values), np.array(shape, np.int64)]
    parts = [wf.placeholder_with_default(array, None) for array in arrays]
    return wf.SparseTensor(*parts)


def test_operators_with_dense_tensors() -> None:
    x, row = example(), wf.constant([1.0, 2.0, 3.0])
    found = run([x * row, row * x, x / row, -x, x * 2.0, 2.0 * x])
    expected = [[8, 18], [8, 18], [2, 2], [-4, -6], [8, 12], [8, 12]]
    assert [value.values.tolist() for value in found] == expected
    assert all(value.indices.tolist() == [[0, 1], [1, 2]] for value in found)


def test_a_variable_times_a_sparse_tensor_has_a_gradient() -> None:
    weights = wf.Variable([1.0, 2.0, 3.0])
    product = weights * example()
    grad = wf.gradients(wf.reduce_sum(product.values), weights)[0]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run(grad).tolist() == [0, 4, 6]


def test_integers_are_divided_in_float64() -> None:
    quotient = example(wf.int32) / wf.constant([1, 8, 4])
    assert quotient.dtype is wf.float64
    assert run(quotient.values).tolist() == [0.5, 1.5]


def test_other_values_and_shapes_at_the_same_places() -> None:
    x = unknown([[0, 1]], [5.0], [2, 3])
    assert x.shape.ndims is None
    x.set_shape([2, None])
    assert x.with_values(["a"]).shape.as_list() == [2, None]
    with pytest.raises(errors.InvalidArgumentError):
        x.set_shape([3, None])


SHAPES: dict[str, Callable[[], Any]] = {
    "[2,3]": lambda: wf.sparse.add(example(), example()),
    "[2,6]": lambda: wf.sparse.concat(-1, [example(), example()]),
    "[3,2]": lambda: wf.sparse.transpose(example()),
    "[1,6]": lambda: wf.sparse.reshape(example(), [1, -1]),
    "[2,2]": lambda: wf.sparse.slice(example(), [0, 1], [5, 5]),
    "[1,3]": lambda: wf.sparse.split(sp_input=example(), num_split=2, axis=0)[1],
    "[2,1,3]": lambda: wf.sparse.expand_dims(example(), 1),
    "[4,5]": lambda: wf.sparse.reset_shape(example(), [4, 5]),
    "[2,7]": lambda: wf.sparse.to_indicator(example(wf.int32), 7),
    "[2,9]": lambda: wf.sparse.merge(example(wf.int32), example(), 9),
    "[2]": lambda: wf.sparse.reduce_sum(example(), 1),
    "[3,5]": lambda: wf.sparse.eye(3, 5),
}


def test_static_shapes() -> None:
    with Parts() as parts:
        for expected, build in SHAPES.items():
            with parts.part(expected):
                assert str(build().shape.as_list()).replace(" ", "") == expected


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: wf.sparse.add(x, x),
    "add dense": lambda x: wf.sparse.add(x, wf.zeros([2, 2])),
    "product": lambda x: x * 2.0,
    "sum": lambda x: wf.sparse.reduce_sum(x, 0),
    "sparse sum": lambda x: wf.sparse.reduce_sum_sparse(x, 0),
    "softmax": wf.sparse.softmax,
    "maximum": lambda x: wf.sparse.maximum(x, x),
    "concat": lambda x: wf.sparse.concat(0, [x, x]),
    "reshape": lambda x: wf.sparse.reshape(x, [4]),
    "slice": lambda x: wf.sparse.slice(x, [0, 0], [1, 1]),
    "split": lambda x: wf.sparse.split(sp_input=x, num_split=2, axis=0),
    "fill_empty_rows": lambda x: wf.sparse.fill_empty_rows(x, 0.0),
    "transpose": wf.sparse.transpose,
    "dense": wf.sparse.to_dense,
    "matmul": lambda x: wf.sparse.matmul(x, wf.zeros([2, 2])),
}


def test_indices_outside_of_the_shape_are_refused() -> None:
    with Parts() as parts:
        for name, function in OUTSIDE.items():
            for place in ([0, 2], [0, -1], [-(2**62), 0]):
                with parts.part(f"{name}, {place}"), pytest.raises(errors.InvalidArgumentError):
                    run(function(unknown([place], [1.0], [2, 2])))


REFUSED: dict[str, Callable[[], Any]] = {
    "two dense operands": lambda: wf.sparse.add([1], [1]),
    "shapes of a sum": lambda: wf.sparse.add(example(), wf.sparse.eye(3)),
    "a reduced axis": lambda: wf.sparse.reduce_sum(example(), 2),
    "two names of an axis": lambda: wf.sparse.reduce_sum(example(), 0, reduction_axes=1),
    "an axis to join along": lambda: wf.sparse.concat(2, [example(), example()]),
    "sizes that are joined": lambda: wf.sparse.concat(0, [example(), wf.sparse.eye(2)]),
    "elements of another shape": lambda: wf.sparse.reshape(example(), [5]),
    "two unknown sizes": lambda: wf.sparse.reshape(example(), [-1, -1]),
    "a negative start": lambda: wf.sparse.slice(example(), [0, -1], [1, 1]),
    "split by position": lambda: wf.sparse.split(example(), example(), 2, 0),
    "split without axis": lambda: wf.sparse.split(sp_input=example(), num_split=2),
    "a permutation": lambda: wf.sparse.transpose(example(), [0, 0]),
    "a smaller shape": lambda: wf.sparse.reset_shape(example(), [2, 2]),
    "a rank": lambda: wf.sparse.reset_shape(example(), [2, 3, 4]),
    "a dense operand too large": lambda: example() * wf.ones([2, 4]),
    "softmax of a vector": lambda: wf.sparse.softmax(wf.SparseTensor([[0]], [1.0], [2])),
    "types": lambda: wf.sparse.maximum(example(), example(wf.float64)),
    "ids": lambda: wf.sparse.to_indicator(example(), 4),
    "sets of other sizes": lambda: wf.sets.union([[1]], [[1], [2]]),
    "sets of rank 1": lambda: wf.sets.union([1], [1]),
    "the size of dense sets": lambda: wf.sets.size([[1]]),
    "the size of sets of rank 0": lambda: wf.sets.size(
        wf.SparseTensor(np.zeros((0, 0), np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))
    ),
    "distances of dense sequences": lambda: wf.edit_distance([[1]], [[1]]),
    "ranks of sequences": lambda: wf.edit_distance(example(), wf.SparseTensor([[0]], [1.0], [1])),
    "features of floats": lambda: wf.sparse.cross([example()]),
    "rows of features": lambda: wf.sparse.cross([wf.constant([[1]]), wf.constant([[1], [2]])]),
    "no features": lambda: wf.sparse.cross([]),
    "an axis of counts": lambda: wf.sparse.bincount([1], axis=1),
    "weights and binary counts": lambda: wf.sparse.bincount([1], weights=[1.0], binary_output=True),
    "weights of another shape": lambda: wf.sparse.bincount([[1]], weights=[1.0, 2.0], axis=-1),
    "dense weights": lambda: wf.sparse.bincount(example(wf.int32), weights=[1.0, 2.0]),
    "two parts of three": lambda: wf.deserialize_many_sparse([["a", "b"]], wf.int32),
    "vocabularies": lambda: wf.sparse.merge([example(wf.int32)], example(), [4, 4]),
}


def test_what_cannot_fit_is_refused_while_the_graph_is_built() -> None:
    with Parts() as parts:
        for name, build in REFUSED.items():
            with parts.part(name), pytest.raises(errors.OpError):
                build()


def test_shapes_beyond_any_memory() -> None:
    x = unknown([[1, 2], [3, 1]], [1.0, 2.0], [2**40, 2**40])
    assert run(wf.sparse.add(x, x)).values.tolist() == [2, 4]
    assert run(wf.sparse.transpose(x)).values.tolist() == [2, 1]
    assert run(wf.sparse.reduce_sum_sparse(x, 1)).indices.tolist() == [[1], [3]]
    with pytest.raises(errors.ResourceExhaustedError):
        run(wf.sparse.fill_empty_rows(x, 0.0)[0])
    with pytest.raises(errors.InvalidArgumentError):
        run(wf.sparse.reshape(x, [2**20, 2**60]))


def test_the_mask_of_slices() -> None:
    slices = wf.IndexedSlices(wf.constant([[1.0], [2.0], [3.0]]), wf.constant([4, 7, 9]))
    found = run(wf.sparse.mask(slices, [7, 8]))
    assert (found.values.tolist(), found.indices.tolist()) == ([[1.0], [3.0]], [4, 9])


def test_axes_that_are_not_joined_along_may_grow() -> None:
    other = wf.SparseTensor([[4, 0]], [1.0], [5, 1])
    joined = wf.sparse.concat(1, [example(), other], expand_nonconcat_dim=True)
    assert run(joined).dense_shape.tolist() == [5, 4]
    assert joined.shape.as_list() == [5, 4]


FAILING: dict[str, Callable[[], Any]] = {
    "no text of tensors": lambda: wf.deserialize_many_sparse([["a", "b", "c"]], wf.int32),
    "values of another type": lambda: wf.deserialize_many_sparse(
        [wf.serialize_sparse(example())], wf.int32
    ),
    "sets out of order": lambda: wf.sets.size(unknown([[1, 0], [0, 0]], [1, 2], [2, 2])),
    "negative counts": lambda: wf.sparse.bincount(wf.placeholder_with_default([-1], None)),
    "choices beyond any memory": lambda: wf.sparse.cross([wf.zeros([2, 2**12], wf.int64)] * 5),
}


def test_what_is_found_when_it_runs_is_a_named_error() -> None:
    with Parts() as parts:
        for name, build in FAILING.items():
            with parts.part(name), pytest.raises(errors.OpError):
                run(build())


def test_weights_must_be_where_the_values_are() -> None:
    values = example(wf.int32)
    moved = wf.SparseTensor([[0, 0], [1, 2]], [1.0, 2.0], [2, 3])
    counts = run(wf.sparse.bincount(values, weights=example()))
    assert counts.values.tolist() == [4, 6]
    with pytest.raises(errors.InvalidArgumentError):
        run(wf.sparse.bincount(values, weights=moved))


def test_counts_of_stored_elements() -> None:
    assert run(wf.math.bincount(example(wf.int32))).tolist() == [0, 0, 0, 0, 1, 0, 1]


def test_long_and_many_sequences_are_compared_in_parts() -> None:
    lengths = np.array([3000, *[1] * 50, 0])
    places = [(i, j) for i, n in enumerate(lengths) for j in range(n)]
    values = np.arange(len(places)) % 7
    said = wf.SparseTensor(places, values, [52, 3000])
    meant = wf.SparseTensor(places, values + (np.arange(len(places)) == 5), [52, 3000])
    found = run(wf.edit_distance(said, meant, normalize=False))
    assert found.tolist() == [1, *[0] * 51]


def test_text_that_tensorflow_serialized() -> None:
    # Lengths come before the bytes there.
    message = wf.placeholder_with_default(
        b"\x08\x07\x12\x04\x12\x02\x08\x02\x22\x05\x01\x02abc", []
    )
    assert run(wf.io.parse_tensor(message, wf.string)).tolist() == [b"a", b"bc"]
    cut = wf.placeholder_with_default(b"\x08\x07\x12\x04\x12\x02\x08\x02\x22\x04\x01\x02ab", [])
    with pytest.raises(errors.InvalidArgumentError):
        run(wf.io.parse_tensor(cut, wf.string))


def test_a_shape_that_may_not_be_fed_says_who_used_it() -> None:
    shape = wf.constant([2, 3], wf.int64)
    x = wf.sparse_placeholder(wf.float32, shape=shape)
    product = wf.sparse.matmul(x, wf.ones([3, 1]))
    value = wf.SparseTensorValue([[0, 0]], [1.0], [2, 3])
    assert run(product, {x: value}).tolist() == [[1], [0]]
    for feeds in ({shape: [3, 3]}, {x: value._replace(dense_shape=[3, 3])}):
        with pytest.raises(errors.InvalidArgumentError, match=r"\[2, 3\].*MatMul' made at.*\.py"):
            run(product, feeds)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_an_axis_and_a_shape_may_be_tensors(axis: int) -> None:
    x = wf.SparseTensor([[2]], [5], [3])
    wanted = [1, 3] if axis in (0, -2) else [3, 1]
    late = wf.placeholder_with_default(axis, None)
    for given in (wf.constant(axis), late):
        found = wf.sparse.expand_dims(x, given).dense_shape
        assert wf.Session().run(found).tolist() == wanted
    shape = wf.placeholder_with_default([7], None)
    assert shape.dtype == wf.int32
    assert wf.Session().run(wf.sparse.reset_shape(x, shape).dense_shape).tolist() == [7]
