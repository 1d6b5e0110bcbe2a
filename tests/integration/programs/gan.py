"""A generative adversarial net: two players, two variable lists picked by scope."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(8)
    init = {
        k: (0.5 * rng.randn(*s)).astype(np.float32)
        for k, s in {"g0": (3, 6), "g1": (6, 2), "d0": (2, 6), "d1": (6, 1)}.items()
    }

    def linear(x, name):
        with tf.variable_scope(name):
            w = tf.get_variable("w", initializer=tf.constant(init[name]))
            b = tf.get_variable("b", [w.shape[1]], initializer=tf.constant_initializer(0.0))
        return tf.matmul(x, w) + b

    def generator(z):
        with tf.variable_scope("generator"):
            return linear(tf.nn.relu(linear(z, "g0")), "g1")

    def discriminator(x, reuse=False):
        with tf.variable_scope("discriminator") as scope:
            if reuse:
                scope.reuse_variables()
            return linear(tf.nn.leaky_relu(linear(x, "d0"), alpha=0.2), "d1")

    def cross_entropy(logits, ones):
        labels = tf.ones_like(logits) if ones else tf.zeros_like(logits)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=labels))

    with tf.Graph().as_default():
        z = tf.placeholder(tf.float32, shape=[None, 3], name="Z")
        real = tf.placeholder(tf.float32, shape=[None, 2], name="X")
        fake = generator(z)
        d_real, d_fake = discriminator(real), discriminator(fake, reuse=True)
        d_loss = cross_entropy(d_real, True) + cross_entropy(d_fake, False)
        g_loss = cross_entropy(d_fake, True)
        t_vars = tf.trainable_variables()
        d_vars = [var for var in t_vars if "discriminator" in var.name]
        g_vars = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="generator")
        d_solver = tf.train.AdamOptimizer(2e-2, beta1=0.5).minimize(d_loss, var_list=d_vars)
        g_solver = tf.train.AdamOptimizer(2e-2, beta1=0.5).minimize(g_loss, var_list=g_vars)
        clip_d = [p.assign(tf.clip_by_value(p, -0.8, 0.8)) for p in d_vars]

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            history = []
            for _ in range(12):
                feed = {z: rng.uniform(-1, 1, [16, 3]), real: 1.5 + rng.randn(16, 2)}
                _, d_now = sess.run([d_solver, d_loss], feed)
                sess.run(clip_d)
                _, g_now = sess.run([g_solver, g_loss], feed_dict={z: feed[z]})
                history.append((d_now, g_now))
            return {
                "losses": np.array(history),
                "sample": sess.run(fake, {z: np.eye(3)}),
                "d_names": np.array([v.name for v in d_vars]),
                "g_names": np.array([v.name for v in g_vars]),
            }
