"""A denoising autoencoder with tied weights in a class, trained by RMSProp."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(4)
    data = rng.rand(60, 3).dot(rng.rand(3, 20)).astype(np.float32) / 3
    noisy = data * (rng.rand(*data.shape) > 0.2)
    start = (0.2 * rng.randn(20, 6)).astype(np.float32)

    class Autoencoder:
        def __init__(self, n_input, n_hidden, transfer_function=tf.nn.softplus):
            self.weights = {
                "w": tf.Variable(start, name="w"),
                "b1": tf.Variable(tf.zeros([n_hidden], dtype=tf.float32)),
                "b2": tf.Variable(tf.zeros([n_input], dtype=tf.float32)),
            }
            self.x = tf.placeholder(tf.float32, [None, n_input])
            self.clean = tf.placeholder(tf.float32, [None, n_input])
            self.hidden = transfer_function(
                tf.add(tf.matmul(self.x, self.weights["w"]), self.weights["b1"])
            )
            self.reconstruction = (
                tf.matmul(self.hidden, self.weights["w"], transpose_b=True) + self.weights["b2"]
            )
            difference = tf.subtract(self.reconstruction, self.clean)
            sparsity = tf.reduce_sum(tf.abs(self.hidden)) * 1e-3
            self.cost = 0.5 * tf.reduce_sum(tf.pow(difference, 2.0)) + sparsity
            optimizer = tf.train.RMSPropOptimizer(0.005, decay=0.9, momentum=0.5, epsilon=1e-6)
            self.train = optimizer.minimize(self.cost)
            self.sess = tf.Session()
            self.sess.run(tf.global_variables_initializer())

        def partial_fit(self, x, clean):
            feed = {self.x: x, self.clean: clean}
            return self.sess.run((self.cost, self.train), feed_dict=feed)[0]

        def transform(self, x):
            return self.sess.run(self.hidden, feed_dict={self.x: x})

        def generate(self, hidden):
            return self.sess.run(self.reconstruction, feed_dict={self.hidden: hidden})

    with tf.Graph().as_default():
        model = Autoencoder(20, 6)
        costs = [
            model.partial_fit(noisy[i : i + 20], data[i : i + 20])
            for _ in range(6)
            for i in range(0, 60, 20)
        ]
        code = model.transform(data[:2])
        result = {"costs": np.array(costs), "code": code, "generated": model.generate(code)}
        model.sess.close()
    return result
