"""A small attention block: masks, layer normalization, a warm-up schedule."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(22)
    B, T, D, V, heads = 3, 5, 8, 11, 2
    tokens = rng.randint(1, V, size=(B, T))
    lengths = np.array([5, 3, 4])

    def variable(name, *shape):
        values = (rng.randn(*shape) / np.sqrt(shape[0])).astype(np.float32)
        return tf.get_variable(name, initializer=values)

    def layer_norm(x, scope):
        with tf.variable_scope(scope):
            gain = tf.get_variable("g", [D], initializer=tf.ones_initializer())
            mean, var = tf.nn.moments(x, [-1], keep_dims=True)
            return (x - mean) * tf.rsqrt(var + 1e-6) * gain

    def project(x, name, size):
        return tf.tensordot(x, variable(name, x.shape[-1].value, size), [[2], [0]])

    def split_heads(x):
        return tf.transpose(tf.reshape(x, [B, T, heads, D // heads]), [0, 2, 1, 3])

    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int32, [B, T])
        length = tf.placeholder(tf.int32, [B])
        table = variable("table", V, D)
        position = tf.cast(tf.range(T), tf.float32)[:, tf.newaxis] / tf.pow(
            100.0, tf.range(0, D, 2, dtype=tf.float32) / D
        )
        x = tf.nn.embedding_lookup(table, ids) * D**0.5
        x += tf.concat([tf.sin(position), tf.cos(position)], axis=-1)[tf.newaxis]
        q, k, v = (split_heads(project(layer_norm(x, n), n + "_w", D)) for n in ("q", "k", "v"))
        logits = tf.matmul(q, k, transpose_b=True) / np.sqrt(D // heads).astype(np.float32)
        causal = tf.matrix_band_part(tf.ones([T, T]), -1, 0)
        logits += (1.0 - causal) * -1e9
        weights = tf.nn.softmax(logits)
        context = tf.reshape(tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]), [B, T, D])
        x += project(context, "o", D)
        x += project(tf.nn.relu(project(layer_norm(x, "ff"), "ff1", 16)), "ff2", D)
        out = tf.einsum("btd,vd->btv", x, table)
        targets = tf.concat([ids[:, 1:], tf.zeros([B, 1], tf.int32)], 1)
        mask = tf.sequence_mask(length, T, dtype=tf.float32)
        smooth = tf.one_hot(targets, V, on_value=0.9, off_value=0.1 / (V - 1))
        xent = tf.nn.softmax_cross_entropy_with_logits_v2(labels=smooth, logits=out)
        loss = tf.reduce_sum(xent * mask) / tf.reduce_sum(mask)
        step = tf.train.get_or_create_global_step()
        n = tf.to_float(step + 1)
        rate = D**-0.5 * tf.minimum(n**-0.5, n * 8.0**-1.5)
        optimizer = tf.train.AdamOptimizer(rate, beta1=0.9, beta2=0.98, epsilon=1e-6)
        train_op = optimizer.minimize(loss, step, colocate_gradients_with_ops=True)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            feed = {ids: tokens, length: lengths}
            history = np.array([sess.run([loss, rate, train_op], feed)[:2] for _ in range(12)])
            return {
                "losses": history[:, 0],
                "rates": history[:, 1],
                "weights": sess.run(weights, feed)[0, 1],
            }
