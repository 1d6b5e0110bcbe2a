"""Sparse logistic and linear regression by FTRL with L1, compared with other optimizers."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(12)
    x_data = rng.randn(80, 10).astype(np.float32)
    truth = np.array([[2.0], [-1.0], [0.5]] + [[0.0]] * 7, np.float32)
    y_data = x_data.dot(truth) + 0.1 * rng.randn(80, 1).astype(np.float32)
    optimizers = {
        "ftrl": lambda: tf.train.FtrlOptimizer(
            0.5, l1_regularization_strength=0.05, l2_regularization_strength=0.01
        ),
        "proximal": lambda: tf.train.ProximalGradientDescentOptimizer(
            0.1, l1_regularization_strength=0.1
        ),
        "proximal_adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.5),
        "adadelta": lambda: tf.train.AdadeltaOptimizer(1.0, epsilon=1e-2),
        "polynomial": lambda: tf.train.GradientDescentOptimizer(
            tf.train.polynomial_decay(0.2, tf.train.get_or_create_global_step(), 10, 0.01)
        ),
    }
    results = {}
    for name, make in optimizers.items():
        with tf.Graph().as_default(), tf.Session() as sess:
            X = tf.placeholder(tf.float32, name="X")
            Y = tf.placeholder(tf.float32, name="Y")
            w = tf.Variable(np.zeros((10, 1)), dtype=tf.float32, name="weight")
            b = tf.Variable(0.0, name="bias")
            prediction = tf.add(tf.matmul(X, w), b)
            cost = tf.reduce_sum(tf.pow(prediction - Y, 2)) / (2 * x_data.shape[0])
            step = tf.train.get_or_create_global_step()
            train = make().minimize(cost, global_step=step)
            sess.run(tf.global_variables_initializer())
            costs = []
            for _ in range(15):
                sess.run(train, feed_dict={X: x_data, Y: y_data})
                costs.append(sess.run(cost, feed_dict={X: x_data, Y: y_data}))
            assert sess.run(step) == 15
            results[name] = np.array(costs)
            results[name + "_weight"] = w.eval()
            results[name + "_bias"] = b.eval()
    return results
