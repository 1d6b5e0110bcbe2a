"""Softmax regression on synthetic digits, written with raw ops."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(0)
    prototypes = rng.rand(10, 64)
    labels = rng.randint(10, size=200)
    images = (prototypes[labels] + 0.3 * rng.randn(200, 64)).astype(np.float32)
    one_hot = np.eye(10, dtype=np.float32)[labels]

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 64], name="x")
        y_ = tf.placeholder(tf.float32, [None, 10], name="labels")
        W = tf.Variable(tf.zeros([64, 10]), name="weights")
        b = tf.Variable(tf.zeros([10]), name="biases")
        logits = tf.matmul(x, W) + b
        y = tf.nn.softmax(logits)
        cross_entropy = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(y), reduction_indices=[1]))
        train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
        correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
        accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

        sess = tf.InteractiveSession()
        tf.global_variables_initializer().run()
        losses = []
        for step in range(20):
            batch = slice(step % 4 * 50, step % 4 * 50 + 50)
            _, loss = sess.run(
                [train_step, cross_entropy], feed_dict={x: images[batch], y_: one_hot[batch]}
            )
            losses.append(loss)
        result = {
            "losses": np.array(losses),
            "accuracy": accuracy.eval({x: images, y_: one_hot}),
            "biases": b.eval(),
            "prediction": tf.argmax(y, 1).eval(feed_dict={x: images[:20]}),
        }
        sess.close()
    return result
