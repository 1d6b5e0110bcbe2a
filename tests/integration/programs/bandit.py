"""A policy gradient for contextual bandits: feeds on intermediate edges, gradient buffers."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(13)
    payoff = np.array([[0.2, 0.0, -0.5], [0.1, -5.0, 1.0]], np.float32)

    class Agent:
        def __init__(self, lr, s_size, a_size):
            self.state_in = tf.placeholder(shape=[None], dtype=tf.int32)
            state_hot = tf.one_hot(self.state_in, s_size)
            start = tf.constant_initializer(0.1 * rng.randn(s_size, a_size))
            weights = tf.get_variable("W", [s_size, a_size], initializer=start)
            self.output = tf.nn.softmax(tf.matmul(state_hot, weights))
            self.chosen_action = tf.argmax(self.output, 1)
            self.reward_holder = tf.placeholder(shape=[None], dtype=tf.float32)
            self.action_holder = tf.placeholder(shape=[None], dtype=tf.int32)
            shape = tf.shape(self.output)
            indexes = tf.range(0, shape[0]) * shape[1] + self.action_holder
            responsible = tf.gather(tf.reshape(self.output, [-1]), indexes)
            self.loss = -tf.reduce_mean(tf.log(responsible) * self.reward_holder)
            tvars = tf.trainable_variables()
            self.gradient_holders = [
                tf.placeholder(tf.float32, name=f"{i}_holder") for i, _ in enumerate(tvars)
            ]
            self.gradients = tf.gradients(self.loss, tvars)
            optimizer = tf.train.GradientDescentOptimizer(learning_rate=lr)
            self.update_batch = optimizer.apply_gradients(
                zip(self.gradient_holders, tvars, strict=True)
            )

    with tf.Graph().as_default(), tf.Session() as sess:
        agent = Agent(0.5, 2, 3)
        sess.run(tf.global_variables_initializer())
        buffer = [np.zeros_like(v) for v in sess.run(tf.trainable_variables())]
        losses = []
        for episode in range(12):
            states = rng.randint(2, size=6)
            policy = sess.run(agent.output, {agent.state_in: states})
            actions = [rng.choice(3, p=p.astype(float) / p.sum(dtype=float)) for p in policy]
            feed = {
                agent.output: policy,  # an intermediate edge
                agent.reward_holder: payoff[states, actions],
                agent.action_holder: actions,
            }
            losses.append(sess.run(agent.loss, feed))
            del feed[agent.output]
            feed[agent.state_in] = states
            for k, grad in enumerate(sess.run(agent.gradients, feed)):
                buffer[k] += grad
            if episode % 3 == 2:
                sess.run(agent.update_batch, dict(zip(agent.gradient_holders, buffer, strict=True)))
                buffer = [g * 0 for g in buffer]
        return {
            "losses": np.array(losses),
            "policy": sess.run(agent.output, {agent.state_in: [0, 1]}),
            "best": sess.run(agent.chosen_action, {agent.output: payoff}),
        }
