"""A perceptron of tf.layers with dropout, trained by Adam."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(1)
    images = rng.rand(120, 6, 4).astype(np.float32)
    labels = images.reshape(120, 24)[:, :3].argmax(axis=1).astype(np.int32)
    w1, w2, w3 = (0.3 * rng.randn(*s).astype(np.float32) for s in [(24, 16), (16, 12), (12, 3)])

    def mlp(x, training):
        net = tf.layers.flatten(x)
        for i, w in enumerate([w1, w2]):
            net = tf.layers.dense(
                net,
                w.shape[1],
                activation=tf.nn.relu,
                kernel_initializer=tf.constant_initializer(w),
                name=f"hidden{i}",
            )
            net = tf.layers.dropout(net, rate=0.4, training=training, name=f"dropout{i}")
        return tf.layers.dense(net, 3, kernel_initializer=tf.constant_initializer(w3), name="out")

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 6, 4])
        y = tf.placeholder(tf.int32, [None])
        logits = mlp(x, training=False)
        loss = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=logits)
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=global_step)
        in_top = tf.nn.in_top_k(logits, y, 1)
        keep_prob = tf.placeholder_with_default(1.0, [])
        dropped = tf.nn.dropout(tf.ones([100, 50]), keep_prob=keep_prob)
        names = [v.op.name for v in tf.trainable_variables()]
        shapes = [v.get_shape().as_list() for v in tf.trainable_variables()]

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = [sess.run([loss, train_op], {x: images, y: labels})[0] for _ in range(15)]
            kept = sess.run(dropped, {keep_prob: 0.5})
            assert set(np.unique(kept)) == {0.0, 2.0}
            assert 0.45 < (kept == 2).mean() < 0.55
            return {
                "losses": np.array(losses),
                "accuracy": np.mean(sess.run(in_top, {x: images, y: labels})),
                "undropped": sess.run(dropped)[0],
                "step": sess.run(global_step),
                "names": np.array(names),
                "sizes": np.array([int(np.prod(shape)) for shape in shapes]),
            }
