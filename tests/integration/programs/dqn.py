"""Q-learning with a target network: copies by assign, one-hot actions, Huber loss."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(21)
    w1, w2 = 0.5 * rng.randn(4, 10), 0.5 * rng.randn(10, 2)

    def q_network(state, scope, trainable=True):
        with tf.variable_scope(scope):
            h = tf.layers.dense(
                state,
                10,
                tf.nn.tanh,
                kernel_initializer=tf.constant_initializer(w1),
                trainable=trainable,
                name="h1",
            )
            return tf.layers.dense(
                h, 2, kernel_initializer=tf.constant_initializer(w2), trainable=trainable, name="q"
            )

    with tf.Graph().as_default():
        state = tf.placeholder("float", [None, 4], name="state")
        next_state = tf.placeholder("float", [None, 4])
        action = tf.placeholder("int32", [None])
        reward = tf.placeholder("float", [None])
        terminal = tf.placeholder("bool", [None])
        q_values = q_network(state, "online")
        target_q = q_network(next_state, "target", trainable=False)
        online = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="online")
        target = tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope="target")
        hard = [tf.assign(t, o) for t, o in zip(target, online, strict=True)]
        soft = [t.assign(0.9 * t + 0.1 * o) for t, o in zip(target, online, strict=True)]
        alive = tf.where(terminal, tf.zeros_like(reward), tf.ones_like(reward))
        y = tf.stop_gradient(reward + 0.9 * alive * tf.reduce_max(target_q, axis=1))
        chosen = tf.reduce_sum(q_values * tf.one_hot(action, 2, 1.0, 0.0), axis=1)
        error = tf.abs(y - chosen)
        huber = tf.where(error < 1.0, 0.5 * tf.square(error), error - 0.5)
        loss = tf.reduce_mean(huber)
        optimizer = tf.train.RMSPropOptimizer(0.01, decay=0.95, epsilon=0.01, centered=True)
        grads = optimizer.compute_gradients(loss, var_list=tf.trainable_variables("online"))
        grads = [(tf.clip_by_norm(g, 0.5), v) for g, v in grads if g is not None]
        train_op = optimizer.apply_gradients(grads)

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            losses = []
            for step in range(15):
                before = rng.randn(16, 4)
                acts = rng.randint(2, size=16)
                feed = {
                    state: before,
                    action: acts,
                    next_state: before + 0.1 * rng.randn(16, 4),
                    reward: np.where(before[:, 0] > 0, acts, 1 - acts),
                    terminal: acts > 0.5,
                }
                losses.append(sess.run([train_op, loss], feed)[1])
                sess.run(hard if step % 5 == 4 else soft)
            probe = np.eye(4)
            return {
                "losses": np.array(losses),
                "q": q_values.eval({state: probe}),
                "target": target_q.eval({next_state: probe}),
            }
