"""Ratings as products of user and item vectors with biases; lazy Adam-like updates."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(10)
    users, items, rank = 12, 9, 3
    truth = 3 + rng.randn(users, rank).dot(rng.randn(rank, items))
    u, i = (a.ravel()[::2] for a in np.mgrid[:users, :items])
    ratings = truth[u, i].astype(np.float32)
    P, Q = (0.1 * rng.randn(n, rank).astype(np.float32) for n in (users, items))

    with tf.Graph().as_default():
        user = tf.placeholder(tf.int32, [None], name="user")
        item = tf.placeholder(tf.int32, [None], name="item")
        rating = tf.placeholder(tf.float32, [None], name="rating")
        mean = tf.constant(ratings.mean(), name="global_mean")
        user_table = tf.Variable(P, name="user_vectors")
        item_table = tf.Variable(Q, name="item_vectors")
        user_bias = tf.Variable(tf.zeros([users]), name="user_bias")
        item_bias = tf.Variable(tf.zeros([items]), name="item_bias")
        p = tf.nn.embedding_lookup(user_table, user)
        q = tf.gather(item_table, item)
        bu = tf.nn.embedding_lookup(user_bias, user)
        bi = tf.gather(item_bias, item)
        dot = tf.reduce_sum(tf.multiply(p, q), 1)
        predicted = tf.add_n([dot, bu, bi]) + mean
        squared = tf.squared_difference(predicted, rating)
        penalty = tf.nn.l2_loss(p) + tf.nn.l2_loss(q) + tf.nn.l2_loss(bu)
        loss = tf.reduce_mean(squared) + 0.01 * penalty
        train_op = tf.train.AdamOptimizer(0.05).minimize(loss)
        per_user = tf.segment_mean(squared, tf.sort(user))
        rmse = tf.sqrt(tf.reduce_mean(squared))
        scores, best = tf.nn.top_k(
            tf.matmul(user_table, item_table, transpose_b=True) + item_bias, k=2
        )

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = []
            for step in range(20):
                batch = slice(step % 2, None, 2)
                feed = {user: u[batch], item: i[batch], rating: ratings[batch]}
                losses.append(sess.run([loss, train_op], feed)[0])
            feed = {user: u, item: i, rating: ratings}
            return {
                "losses": np.array(losses),
                "rmse": rmse.eval(feed),
                "per_user": per_user.eval(feed),
                "best": sess.run(best),
                "scores": sess.run(scores),
            }
