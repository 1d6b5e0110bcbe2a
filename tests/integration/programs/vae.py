"""A variational autoencoder whose noise is fed; the evidence bound by its two terms."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(5)
    data = (rng.rand(40, 16) < np.tile([0.1, 0.9], 8)).astype(np.float32)
    noise = rng.randn(15, 40, 2).astype(np.float32)

    def xavier_init(fan_in, fan_out):
        bound = np.sqrt(6.0 / (fan_in + fan_out))
        return rng.uniform(-bound, bound, size=(fan_in, fan_out)).astype(np.float32)

    def affine(name, x, size):
        with tf.variable_scope(name):
            W = tf.get_variable("W", initializer=xavier_init(int(x.shape[1]), size))
            b = tf.get_variable("b", initializer=tf.zeros([size]))
            return tf.matmul(x, W) + b

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [40, 16], name="input")
        eps = tf.placeholder(tf.float32, [40, 2], name="eps")
        with tf.variable_scope("encoder"):
            h = tf.nn.elu(affine("hidden", x, 8))
            mu, log_sigma_sq = affine("mu", h, 2), affine("log_sigma_sq", h, 2)
        z = tf.add(mu, tf.multiply(tf.exp(0.5 * log_sigma_sq), eps), name="z")
        with tf.variable_scope("decoder"):
            logits = affine("out", tf.tanh(affine("hidden", z, 8)), 16)
        probabilities = tf.sigmoid(logits)
        reconstruction = tf.reduce_sum(
            tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), axis=1
        )
        kl = -0.5 * tf.reduce_sum(1 + log_sigma_sq - tf.square(mu) - tf.exp(log_sigma_sq), axis=1)
        cost = tf.reduce_mean(reconstruction + kl)
        optimizer = tf.train.AdagradOptimizer(0.1)
        grads_and_vars = optimizer.compute_gradients(cost)
        clipped = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in grads_and_vars]
        train_op = optimizer.apply_gradients(clipped)

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            parts = {"cost": cost, "kl": tf.reduce_mean(kl), "train": train_op}
            history = [sess.run(parts, {x: data, eps: e}) for e in noise]
            grid = np.zeros((40, 2), np.float32)
            grid[:, 0] = np.linspace(-2, 2, 40)
            return {
                "costs": np.array([h["cost"] for h in history]),
                "kl": np.array([h["kl"] for h in history]),
                "decoded": sess.run(probabilities, {z: grid})[::10],
            }
