"""Metrics that stream over batches, with their local variables and update ops."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(18)
    labels = rng.randint(4, size=(5, 30))
    scores = (np.eye(4)[labels] + 2 * rng.rand(5, 30, 4)).astype(np.float32)

    with tf.Graph().as_default():
        y = tf.placeholder(tf.int64, [None])
        logits = tf.placeholder(tf.float32, [None, 4])
        predictions = tf.argmax(logits, axis=1)
        positive, guess = tf.equal(y, 1), tf.equal(predictions, 1)
        probability = tf.nn.softmax(logits)[:, 1]
        pairs = {
            "accuracy": tf.metrics.accuracy(labels=y, predictions=predictions),
            "weighted": tf.metrics.accuracy(y, predictions, weights=tf.cast(y + 1, tf.float32)),
            "precision": tf.metrics.precision(positive, guess),
            "recall": tf.metrics.recall(positive, guess),
            "auc": tf.metrics.auc(positive, probability),
            "mean": tf.metrics.mean(logits),
            "mse": tf.metrics.mean_squared_error(tf.cast(positive, tf.float32), probability),
            "rmse": tf.metrics.root_mean_squared_error(tf.cast(positive, tf.float32), probability),
            "mae": tf.metrics.mean_absolute_error(tf.cast(positive, tf.float32), probability),
            "per_class": tf.metrics.mean_per_class_accuracy(y, predictions, 4),
            "iou": tf.metrics.mean_iou(y, predictions, num_classes=4),
            "top2": tf.metrics.recall_at_k(y, logits, k=2),
            "false_negatives": tf.metrics.false_negatives(positive, guess),
            "mean_tensor": tf.metrics.mean_tensor(tf.reduce_max(logits, axis=0)),
        }
        values = {name: pair[0] for name, pair in pairs.items()}
        updates = {name: pair[1] for name, pair in pairs.items()}
        confusion = tf.confusion_matrix(y, predictions, num_classes=4)
        assert not tf.trainable_variables()
        reset = tf.variables_initializer(tf.local_variables())

        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            history = []
            for batch in range(5):
                feed = {y: labels[batch], logits: scores[batch]}
                history.append(sess.run(updates, feed)["accuracy"])
            results = dict(sess.run(values))
            results["history"] = np.array(history)
            results["confusion"] = sess.run(confusion, feed)
            sess.run(reset)
            sess.run(updates, feed)
            results["last_accuracy"] = sess.run(values["accuracy"])
            return results
