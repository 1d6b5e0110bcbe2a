"""Training keeps moving averages; evaluation restores them from the checkpoint by name."""

from __future__ import annotations

import os
import tempfile
from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(15)
    x_data = rng.randn(50, 4).astype(np.float32)
    y_data = np.tanh(x_data.dot(rng.randn(4, 1))).astype(np.float32)
    start = rng.randn(4, 1).astype(np.float32)

    def inference(x):
        with tf.variable_scope("layer"):
            w = tf.get_variable("w", [4, 1], initializer=tf.constant_initializer(start))
            b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
            return tf.tanh(tf.matmul(x, w) + b)

    def train(directory):
        with tf.Graph().as_default():
            global_step = tf.train.create_global_step()
            loss = tf.losses.mean_squared_error(y_data, inference(tf.constant(x_data)))
            opt = tf.train.GradientDescentOptimizer(0.3)
            apply_op = opt.minimize(loss, global_step=global_step)
            ema = tf.train.ExponentialMovingAverage(0.9, global_step)
            with tf.control_dependencies([apply_op]):
                train_op = ema.apply(tf.trainable_variables())
            saver = tf.train.Saver(max_to_keep=2)
            with tf.Session() as sess:
                sess.run(tf.global_variables_initializer())
                losses = []
                for step in range(12):
                    losses.append(sess.run([loss, train_op])[0])
                    if step % 4 == 3:
                        saver.save(sess, os.path.join(directory, "model.ckpt"), global_step)
                averages = [ema.average(v).eval() for v in tf.trainable_variables()]
        return losses, averages

    def evaluate(directory, decay):
        with tf.Graph().as_default():
            loss = tf.losses.mean_squared_error(y_data, inference(tf.constant(x_data)))
            mapping = None
            if decay:
                mapping = tf.train.ExponentialMovingAverage(decay).variables_to_restore()
                assert "layer/w/ExponentialMovingAverage" in mapping
            saver = tf.train.Saver(mapping)
            with tf.Session() as sess:
                checkpoint = tf.train.get_checkpoint_state(directory)
                saver.restore(sess, checkpoint.model_checkpoint_path)
                step = checkpoint.model_checkpoint_path.split("/")[-1].split("-")[-1]
                return sess.run(loss), int(step), len(checkpoint.all_model_checkpoint_paths)

    with tempfile.TemporaryDirectory() as directory:
        losses, (w, b) = train(directory)
        averaged, step, kept = evaluate(directory, 0.9)
        plain, _, _ = evaluate(directory, None)
    return {
        "losses": np.array(losses),
        "w": w,
        "b": b,
        "averaged": averaged,
        "plain": plain,
        "step": np.array([step, kept]),
    }
