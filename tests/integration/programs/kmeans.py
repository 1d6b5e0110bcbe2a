"""Lloyd's k-means with segment sums, and the assignment of clusters as a graph."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(11)
    centers = np.array([[0, 0], [4, 4], [-4, 3], [3, -5]])
    points = np.concatenate([c + rng.randn(25, 2) for c in centers]).astype(np.float32)
    k, n = 4, len(points)

    with tf.Graph().as_default():
        samples = tf.constant(points)
        centroids = tf.Variable(tf.slice(samples, [48, 0], [k, -1]), name="centroids")
        assignments = tf.Variable(tf.zeros([n], dtype=tf.int64), name="assignments")
        replicated = tf.reshape(tf.tile(centroids, [n, 1]), [n, k, 2])
        expanded = tf.reshape(tf.tile(samples, [1, k]), [n, k, 2])
        distances = tf.reduce_sum(tf.square(expanded - replicated), reduction_indices=2)
        nearest = tf.argmin(distances, 1)
        did_change = tf.reduce_any(tf.not_equal(nearest, assignments))

        def bucket_mean(values, buckets, count):
            total = tf.unsorted_segment_sum(values, buckets, count)
            number = tf.unsorted_segment_sum(tf.ones_like(values), buckets, count)
            return total / tf.maximum(number, 1.0)

        means = bucket_mean(samples, nearest, k)
        with tf.control_dependencies([did_change]):
            do_updates = tf.group(centroids.assign(means), assignments.assign(nearest))
        inertia = tf.reduce_sum(tf.reduce_min(distances, axis=1))
        parts = tf.dynamic_partition(samples, tf.cast(nearest, tf.int32), k)
        centered = [p - tf.reduce_mean(p, axis=0) for p in parts]
        spreads = tf.stack([tf.reduce_mean(tf.norm(p, axis=1)) for p in centered])
        sizes = tf.stack([tf.shape(p)[0] for p in parts])
        ranked = tf.gather(samples, tf.nn.top_k(-distances[:, 0], k=3).indices)

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            inertias, changed, iterations = [], True, 0
            while changed and iterations < 20:
                inertias.append(sess.run(inertia))
                changed, _ = sess.run([did_change, do_updates])
                iterations += 1
            return {
                "inertias": np.array(inertias),
                "iterations": np.array(iterations),
                "centroids": sess.run(centroids),
                "assignments": sess.run(assignments),
                "spreads": sess.run(spreads),
                "sizes": sess.run(sizes),
                "ranked": sess.run(ranked),
            }
