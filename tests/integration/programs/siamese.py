"""Twin towers that share variables: reuse=True, AUTO_REUSE and make_template."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(14)
    classes = rng.randint(3, size=(2, 30))
    pairs = np.eye(3, 6)[classes] * 2 + 0.4 * rng.randn(2, 30, 6)
    similar = (classes[0] == classes[1]).astype(np.float32)
    w1, w2 = 0.5 * rng.randn(6, 5), 0.5 * rng.randn(5, 2)

    def tower(x, scope_name=None):
        with tf.variable_scope("fc1"):
            W = tf.get_variable("W", [6, 5], initializer=tf.constant_initializer(w1))
            h = tf.nn.relu(tf.matmul(x, W))
        with tf.variable_scope("fc2"):
            W = tf.get_variable("W", [5, 2], initializer=tf.constant_initializer(w2))
            return tf.matmul(h, W)

    def by_reuse(a, b):
        with tf.variable_scope("siamese") as scope:
            first = tower(a)
            scope.reuse_variables()
            return first, tower(b)

    def by_auto_reuse(a, b):
        outputs = []
        for x in (a, b):
            with tf.variable_scope("siamese", reuse=tf.AUTO_REUSE):
                outputs.append(tower(x))
        return outputs

    def by_template(a, b):
        shared = tf.make_template("siamese", tower)
        return shared(a), shared(b)

    results = {}
    for build in (by_reuse, by_auto_reuse, by_template):
        with tf.Graph().as_default(), tf.Session() as sess:
            x1 = tf.placeholder(tf.float32, [None, 6])
            x2 = tf.placeholder(tf.float32, [None, 6])
            y = tf.placeholder(tf.float32, [None])
            e1, e2 = build(x1, x2)
            assert len(tf.trainable_variables()) == 2
            distance = tf.sqrt(tf.reduce_sum(tf.square(e1 - e2), 1) + 1e-6)
            negative = (1 - y) * tf.square(tf.maximum(0.0, 2.0 - distance))
            loss = tf.reduce_mean(y * tf.square(distance) + negative, name="contrastive")
            train = tf.train.AdamOptimizer(0.05).minimize(loss)
            tf.global_variables_initializer().run()
            feed = {x1: pairs[0], x2: pairs[1], y: similar}
            losses = [sess.run((train, loss), feed)[1] for _ in range(10)]
            results[build.__name__] = np.array(losses)
            results[build.__name__ + "_names"] = np.array(
                [v.name for v in tf.trainable_variables()]
            )
    try:
        with tf.Graph().as_default(), tf.variable_scope("a"):
            tf.get_variable("v", [1])
            tf.get_variable("v", [1])
    except ValueError as error:
        results["already"] = np.array("already exists" in str(error))
    return results
