"""A critic with gradient penalty: gradients of gradients."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(9)
    w0, w1 = 0.5 * rng.randn(2, 8), 0.5 * rng.randn(8, 1)

    def critic(x, scope="critic"):
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
            W0 = tf.get_variable("W0", [2, 8], initializer=tf.constant_initializer(w0))
            b0 = tf.get_variable("b0", [8], initializer=tf.zeros_initializer)
            W1 = tf.get_variable("W1", [8, 1], initializer=tf.constant_initializer(w1))
            return tf.squeeze(tf.matmul(tf.tanh(tf.matmul(x, W0) + b0), W1), [1])

    with tf.Graph().as_default():
        real = tf.placeholder(tf.float32, [None, 2])
        fake = tf.placeholder(tf.float32, [None, 2])
        alpha = tf.placeholder(tf.float32, [None, 1])
        interpolated = real + alpha * (fake - real)
        gradient = tf.gradients(critic(interpolated), [interpolated])[0]
        slopes = tf.sqrt(tf.reduce_sum(tf.square(gradient), axis=[1]) + 1e-8)
        penalty = tf.reduce_mean((slopes - 1.0) ** 2)
        wasserstein = tf.reduce_mean(critic(fake)) - tf.reduce_mean(critic(real))
        loss = wasserstein + 10.0 * penalty
        variables = tf.trainable_variables(scope="critic")
        assert len(variables) == 3
        solver = tf.train.AdamOptimizer(learning_rate=0.02, beta1=0.0, beta2=0.9)
        train = solver.minimize(loss, var_list=variables)
        rows = tf.unstack(tf.gradients(loss, variables[1])[0])
        hessian = tf.stack([tf.gradients(row, variables[1])[0] for row in rows])

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            history = []
            for _ in range(15):
                feed = {
                    real: 1 + 0.5 * rng.randn(12, 2),
                    fake: rng.randn(12, 2) - 1,
                    alpha: rng.rand(12, 1),
                }
                history.append(sess.run([loss, penalty, train], feed)[:2])
            return {
                "losses": np.array(history),
                "slopes": sess.run(slopes, feed),
                "hessian": sess.run(hessian, feed),
            }
