"""Batch normalization: tf.layers with UPDATE_OPS, and the same by hand with moments."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(3)
    data = (3 + 2 * rng.randn(64, 5)).astype(np.float32)
    target = np.sin(data).sum(axis=1, keepdims=True)
    maps = rng.rand(6, 4, 4, 3).astype(np.float32)
    w1, w2 = (0.4 * rng.randn(*s).astype(np.float32) for s in [(5, 10), (10, 1)])

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 5])
        y = tf.placeholder(tf.float32, [None, 1])

        def net(training, reuse):
            with tf.variable_scope("net", reuse=reuse):
                h = tf.layers.dense(
                    x, 10, use_bias=False, kernel_initializer=tf.constant_initializer(w1)
                )
                h = tf.layers.batch_normalization(h, momentum=0.9, training=training, name="bn")
                h = tf.nn.relu(h)
                return tf.layers.dense(h, 1, kernel_initializer=tf.constant_initializer(w2))

        loss = tf.reduce_mean(tf.square(net(True, None) - y))
        test_loss = tf.losses.mean_squared_error(y, net(False, True))
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        assert len(update_ops) == 2, update_ops
        with tf.control_dependencies(update_ops):
            train_op = tf.train.AdamOptimizer(0.02).minimize(loss)

        mean, variance = tf.nn.moments(tf.constant(maps), axes=[0, 1, 2])
        by_hand = tf.nn.batch_normalization(maps, mean, variance, 0.1, 2.0, 1e-3)
        fused, _, _ = tf.nn.fused_batch_norm(
            maps, scale=tf.fill([3], 2.0), offset=tf.fill([3], 0.1), epsilon=1e-3
        )
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            feed = {x: data, y: target}
            losses = [sess.run([loss, train_op], feed)[0] for _ in range(15)]
            moving = {v.op.name: v for v in tf.global_variables() if "moving" in v.op.name}
            values = sess.run(moving)
            return {
                "losses": np.array(losses),
                "test_loss": sess.run(test_loss, feed),
                "moving_mean": values["net/bn/moving_mean"],
                "moving_variance": values["net/bn/moving_variance"],
                "by_hand": sess.run(by_hand)[0, 0],
                "fused_difference": np.round(sess.run(tf.reduce_max(tf.abs(by_hand - fused))), 4),
            }
