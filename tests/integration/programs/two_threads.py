"""A training thread and evaluation threads on one session, stopped by a step count."""

from __future__ import annotations

import threading
from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(19)
    x_data = rng.randn(100, 5).astype(np.float32)
    y_data = x_data.dot(rng.randn(5, 1)).astype(np.float32)

    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None, 5])
        y = tf.placeholder(tf.float32, [None, 1])
        w = tf.Variable(tf.zeros([5, 1]))
        global_step = tf.Variable(0, trainable=False, dtype=tf.int64)
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        train_op = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=global_step)
        counter = tf.Variable(0, dtype=tf.int32, trainable=False)
        count = tf.assign_add(counter, 1, use_locking=True)
        init = tf.global_variables_initializer()
    graph.finalize()

    with tf.Session(graph=graph) as sess:
        sess.run(init)
        done = threading.Event()
        train_losses, eval_losses, errors = [], [[], []], []

        def train():
            for step in range(20):
                batch = slice(step % 5 * 20, step % 5 * 20 + 20)
                feed = {x: x_data[batch], y: y_data[batch]}
                train_losses.append(sess.run([loss, train_op], feed)[0])
            done.set()

        def evaluate(log):
            try:
                while not done.is_set() or len(log) < 5:
                    log.append(sess.run((global_step, loss), {x: x_data, y: y_data}))
                for _ in range(50):
                    sess.run(count)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=train)]
        threads += [threading.Thread(target=evaluate, args=(log,)) for log in eval_losses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        for log in eval_losses:
            steps, values = np.array(log).T
            assert np.all(np.diff(steps) >= 0)
            assert np.all(np.isfinite(values))
        return {
            "losses": np.array(train_losses),
            "final": np.array(sess.run((global_step, loss), {x: x_data, y: y_data})),
            "w": sess.run(w),
            "count": sess.run(counter),
        }
