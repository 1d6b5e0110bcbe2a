"""Sparse values and sparse gradients in branches and bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import row

TABLE_VALUES = np.arange(12.0).reshape(6, 2) / 10


def _table(tf: Any, resource: bool) -> Any:
    return tf.get_variable("table", initializer=TABLE_VALUES, use_resource=resource)


@row({"p": False}, p=True, ids=[1, 3, 1], order=1)
def an_embedding_in_both_branches(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, True)
    return tf.cond(
        p,
        lambda: tf.nn.embedding_lookup(table, ids) * 2.0,
        lambda: tf.square(tf.nn.embedding_lookup(table, ids + 1)),
    )


@row({"p": False}, p=True, ids=[1, 3, 1], order=1)
def an_embedding_in_one_branch(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, True)
    return tf.cond(p, lambda: tf.gather(table, ids) * 2.0, lambda: tf.zeros([3, 2], tf.float64))


@row({"p": False}, p=True, ids=[1, 3, 1], order=1)
def an_embedding_of_a_reference_variable(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, False)
    return tf.cond(p, lambda: tf.gather(table, ids) * 2.0, lambda: tf.gather(table, ids + 1))


@row({"p": False}, p=True, ids=[1, 3, 1], order=1)
def sparse_in_one_branch_and_dense_in_the_other(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, True)
    return tf.cond(
        p,
        lambda: tf.reduce_sum(tf.gather(table, ids)),
        lambda: tf.reduce_sum(tf.square(table)),
    )


@row({"ids": [5, 5, 5, 5]}, ids=[1, 3, 1, 0], order=1)
def an_embedding_in_a_body(tf: Any, ids: Any) -> Any:
    table = _table(tf, True)

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.tanh(a * 0.5 + tf.gather(table, ids[i]))

    return tf.while_loop(lambda i, _: i < 4, body, [0, tf.ones([2], tf.float64)])[1]


@row({"n": 0}, n=3, ids=[1, 3, 1], order=1)
def embeddings_of_several_ids_in_a_body(tf: Any, n: Any, ids: Any) -> Any:
    table = _table(tf, False)

    def body(i: Any, a: Any) -> Any:
        looked = tf.nn.embedding_lookup(table, (ids + i) % 6)
        return i + 1, a + tf.reduce_sum(looked, 0) * a

    return tf.while_loop(lambda i, _: i < n, body, [0, tf.ones([2], tf.float64)])[1]


@row(n=3, ids=[1, 3, 1], order=1)
def an_embedding_before_the_loop(tf: Any, n: Any, ids: Any) -> Any:
    table = _table(tf, True)
    looked = tf.gather(table, ids)
    return tf.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, a * looked), [0, looked])[1]


@row({"p": False}, p=True, x=[1.0, 2.0])
def cond_of_sparse_tensors(tf: Any, p: Any, x: Any) -> Any:
    def sparse(indices: Any, factor: float) -> Any:
        return tf.SparseTensor(np.array(indices, np.int64), x * factor, np.array([3, 3], np.int64))

    found = tf.cond(p, lambda: sparse([[0, 1], [2, 2]], 1.0), lambda: sparse([[1, 1], [2, 0]], 3.0))
    assert isinstance(found, tf.SparseTensor)
    return {
        "values": found.values,
        "_indices": found.indices,
        "dense": tf.sparse_tensor_dense_matmul(found, tf.eye(3, dtype=tf.float64)),
    }


@row({"p": False}, p=True, x=[[1.0, 2.0], [3.0, 4.0]])
def cond_of_slices(tf: Any, p: Any, x: Any) -> Any:
    def slices(ids: Any, values: Any) -> Any:
        return tf.IndexedSlices(values, tf.constant(ids), tf.constant([5, 2]))

    found = tf.cond(p, lambda: slices([0, 3], x), lambda: slices([1, 1], x * x))
    assert isinstance(found, tf.IndexedSlices)
    return {"values": found.values, "_ids": found.indices, "dense": tf.convert_to_tensor(found)}


@row({"n": 0}, n=3, x=[1.0, 2.0])
def a_sparse_loop_variable(tf: Any, n: Any, x: Any) -> Any:
    start = tf.SparseTensor(np.array([[0, 1], [2, 2]], np.int64), x, np.array([3, 3], np.int64))

    def body(i: Any, s: Any) -> Any:
        return i + 1, tf.SparseTensor(s.indices, s.values * x, s.dense_shape)

    _, found = tf.while_loop(lambda i, _: i < n, body, [0, start])
    assert isinstance(found, tf.SparseTensor)
    return {"values": found.values, "_indices": found.indices}


@row({"n": 0}, n=3, x=[1.0, 2.0], order=1)
def a_sparse_loop_variable_that_grows(tf: Any, n: Any, x: Any) -> Any:
    start = tf.SparseTensor(np.array([[0], [2]], np.int64), x, np.array([9], np.int64))

    def body(i: Any, s: Any) -> Any:
        place = tf.cast(tf.reshape(i + 3, [1, 1]), tf.int64)
        return i + 1, tf.SparseTensor(
            tf.concat([s.indices, place], 0),
            tf.concat([s.values, tf.reduce_sum(s.values, keepdims=True)], 0),
            s.dense_shape,
        )

    _, found = tf.while_loop(
        lambda i, _: i < n,
        body,
        [0, start],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    return {"dense": tf.sparse_tensor_to_dense(found), "_indices": found.indices}


@row(n=4, ids=[1, 3, 1, 0], order=1)
def an_embedding_in_a_branch_of_a_body(tf: Any, n: Any, ids: Any) -> Any:
    table = _table(tf, True)

    def body(i: Any, a: Any) -> Any:
        b = tf.cond(
            tf.equal(i % 2, 0),
            lambda: a + tf.gather(table, ids[i]),
            lambda: a * tf.reduce_sum(tf.gather(table, ids), 0),
        )
        return i + 1, b

    return tf.while_loop(lambda i, _: i < n, body, [0, tf.ones([2], tf.float64)])[1]


@row({"n": 0}, {"n": 1}, n=3, ids=[1, 3, 1, 0], order=1)
def an_embedding_in_an_inner_loop(tf: Any, n: Any, ids: Any) -> Any:
    table = _table(tf, True)

    def outer(i: Any, a: Any) -> Any:
        def inner(j: Any, b: Any) -> Any:
            return j + 1, tf.tanh(b + tf.gather(table, ids[j]) * a)

        return i + 1, tf.while_loop(lambda j, _: j < i, inner, [0, a])[1]

    return tf.while_loop(lambda i, _: i < n, outer, [0, tf.ones([2], tf.float64)])[1]


@row({"p": False}, p=True, ids=[1, 3, 1, 0], order=1)
def a_loop_over_an_embedding_in_a_branch(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, True)

    def looped() -> Any:
        return tf.while_loop(
            lambda i, _: i < 4,
            lambda i, a: (i + 1, a * 0.5 + tf.gather(table, ids[i])),
            [0, tf.ones([2], tf.float64)],
        )[1]

    return tf.cond(p, looped, lambda: tf.gather(table, ids[0]))


@row({"p": False}, p=True, ids=[1, 3, 1])
def second_derivatives_of_an_embedding_in_a_branch(tf: Any, p: Any, ids: Any) -> Any:
    table = _table(tf, True)
    return tf.cond(
        p,
        lambda: tf.square(tf.gather(table, ids)) * tf.gather(table, ids[::-1]),
        lambda: tf.sin(tf.gather(table, ids)),
    )


@row(ids=[1, 3, 1])
def second_derivatives_of_an_embedding_in_a_body(tf: Any, ids: Any) -> Any:
    table = _table(tf, True)

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.sin(a) * tf.gather(table, ids[i]) + tf.square(tf.gather(table, ids[0]))

    return tf.while_loop(lambda i, _: i < 3, body, [0, tf.ones([2], tf.float64)])[1]
