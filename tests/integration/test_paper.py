"""The white paper's Figure 1 and section 4.1, with the corrections of docs/differences.md."""

from __future__ import annotations

import numpy as np

import weft as tf


def test_figure_1_and_its_gradients() -> None:
    with tf.Graph().as_default():
        b = tf.Variable(tf.zeros([100]))
        W = tf.Variable(tf.random_uniform([784, 100], -1, 1))
        x = tf.placeholder(tf.float32, [1, 784], name="x")
        relu = tf.nn.relu(tf.matmul(x, W) + b)
        C = tf.reduce_mean(relu)
        s = tf.Session()
        s.run(tf.global_variables_initializer())
        rng = np.random.default_rng(0)
        results = [s.run(C, feed_dict={x: rng.random((1, 784))}) for step in range(10)]
        assert all(result > 0 for result in results)

        [db, dW, dx] = tf.gradients(C, [b, W, x])
        fed = rng.random((1, 784)).astype(np.float32)
        weights, got_db, got_dW, got_dx = s.run([W, db, dW, dx], {x: fed})
        mask = (fed @ weights > 0).astype(np.float32) / 100
        np.testing.assert_allclose(got_db, mask[0], rtol=1e-5)
        np.testing.assert_allclose(got_dW, fed.T @ mask, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(got_dx, mask @ weights.T, rtol=1e-4, atol=1e-6)


def test_a_placeholder_as_the_paper_prints_it() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        x = tf.placeholder(name="x")
        assert x.dtype == tf.float32 and x.shape.ndims is None
        assert s.run(tf.nn.relu(x), {x: [-1.0, 2.0]}).tolist() == [0.0, 2.0]


def test_partial_execution_of_section_4_2() -> None:
    """Figure 6: if b is fed, neither b nor nodes that only b needs are executed."""
    with tf.Graph().as_default(), tf.Session() as s:
        ran: list[str] = []

        def node(name: str, *inputs: tf.Tensor) -> tf.Tensor:
            def body(*values: np.float32) -> np.float32:
                ran.append(name)
                return np.float32(1 + sum(values))

            return tf.py_func(body, list(inputs), tf.float32, name=name)

        a = node("a")
        b = node("b")
        c = node("c", a, b)
        d = node("d", a)
        node("e", d)
        node("f", c)
        assert s.run("f:0", {"b:0": 10.0}) == 13.0
        assert sorted(ran) == ["a", "c", "f"]
