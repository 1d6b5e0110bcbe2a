"""Two tasks on one trunk: collections of losses, and regularizers in variable scopes."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(16)
    x_data = rng.randn(40, 6).astype(np.float32)
    classes = (x_data[:, 0] > 0).astype(np.int32) + (x_data[:, 1] > 0)
    values = (x_data[:, 2:3] * 2 - x_data[:, 3:4]).astype(np.float32)
    weight = (np.arange(40) % 3 > 0).astype(np.float32)
    init = [0.3 * rng.randn(*s) for s in [(6, 8), (8, 3), (8, 1)]]

    def l2_regularizer(scale):
        return lambda v: scale * tf.nn.l2_loss(v)

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 6])
        w = tf.placeholder(tf.float32, [None])
        with tf.variable_scope("model", regularizer=l2_regularizer(0.01)):
            with tf.variable_scope("trunk"):
                W = tf.get_variable("W", [6, 8], initializer=tf.constant_initializer(init[0]))
                trunk = tf.nn.relu6(tf.matmul(x, W))
            logits = tf.layers.dense(
                trunk, 3, kernel_initializer=tf.constant_initializer(init[1]), name="classes"
            )
            regression = tf.layers.dense(
                trunk, 1, kernel_initializer=tf.constant_initializer(init[2]), name="value"
            )
        one_hot = tf.one_hot(classes, depth=3)
        tf.losses.softmax_cross_entropy(one_hot, logits, weights=w, label_smoothing=0.1)
        tf.losses.huber_loss(values, regression, weights=0.5, delta=0.8)
        margin = tf.losses.hinge_loss(one_hot, logits, weights=tf.expand_dims(w, 1), scope="hinge")
        absolute = tf.losses.absolute_difference(values, regression, loss_collection=None)
        tf.losses.add_loss(tf.reduce_mean(tf.square(logits)) * 0.01)
        assert len(tf.losses.get_losses()) == 4
        regularization = tf.losses.get_regularization_losses()
        total = tf.losses.get_total_loss()
        by_hand = tf.add_n(tf.get_collection(tf.GraphKeys.LOSSES) + regularization)
        train = tf.train.AdagradOptimizer(0.2).minimize(total)

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            feed = {x: x_data, w: weight}
            losses = [sess.run([total, by_hand, train], feed)[:2] for _ in range(12)]
            return {
                "losses": np.array(losses),
                "margin": sess.run(margin, feed),
                "absolute": sess.run(absolute, feed),
                "parts": np.array(sess.run(tf.losses.get_losses(), feed)),
                "regularization": np.array(sess.run(regularization)),
            }
