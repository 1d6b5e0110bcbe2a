"""An unrolled LSTM language model: truncated backpropagation, clipping, decaying rate."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(7)
    text = "hello tensor world, hello dataflow world. " * 8
    vocabulary = sorted(set(text))
    ids = np.array([vocabulary.index(c) for c in text])
    V, H, batch, steps = len(vocabulary), 12, 4, 6
    rows = ids[: len(ids) // batch * batch].reshape(batch, -1)

    def variable(name, *shape):
        values = rng.uniform(-0.3, 0.3, shape).astype(np.float32)
        return tf.get_variable(name, shape, tf.float32, tf.constant_initializer(values))

    with tf.Graph().as_default():
        inputs = tf.placeholder(tf.int32, [batch, steps])
        targets = tf.placeholder(tf.int32, [batch, steps])
        with tf.variable_scope("model"):
            embedding, kernel = variable("embedding", V, H), variable("kernel", 2 * H, 4 * H)
            bias, W, b = variable("bias", 4 * H), variable("softmax_w", H, V), variable("b", V)
        state = initial_c, initial_h = tf.zeros([batch, H]), tf.zeros([batch, H])
        outputs = []
        for x in tf.unstack(tf.nn.embedding_lookup(embedding, inputs), num=steps, axis=1):
            c, h = state
            gates = tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias)
            i, j, f, o = tf.split(value=gates, num_or_size_splits=4, axis=1)
            c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
            h = tf.tanh(c) * tf.sigmoid(o)
            outputs.append(h)
            state = c, h
        logits = tf.matmul(tf.reshape(tf.stack(outputs, axis=1), [-1, H]), W) + b
        xent = tf.nn.sparse_softmax_cross_entropy_with_logits(
            logits=logits, labels=tf.reshape(targets, [-1])
        )
        cost = tf.reduce_sum(xent) / batch
        global_step = tf.Variable(0, name="global_step", trainable=False)
        rate = tf.train.exponential_decay(1.0, global_step, 4, 0.5, staircase=True)
        tvars = tf.trainable_variables()
        grads, norm = tf.clip_by_global_norm(tf.gradients(cost, tvars), 1.0)
        optimizer = tf.train.GradientDescentOptimizer(rate)
        train_op = optimizer.apply_gradients(zip(grads, tvars, strict=True), global_step)

        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            values = sess.run([initial_c, initial_h])
            history = []
            for k in range(12):
                feed = dict(zip((initial_c, initial_h), values, strict=True))
                feed[inputs] = rows[:, k * steps : (k + 1) * steps]
                feed[targets] = rows[:, k * steps + 1 : (k + 1) * steps + 1]
                out = sess.run([cost, norm, rate, state, train_op], feed)
                values = out[3]
                history.append(out[:3])
            costs, norms, rates = np.array(history).T
            return {
                "perplexity": np.exp(costs / steps),
                "norms": norms,
                "rates": rates,
                "h": values[1],
                "step": sess.run(global_step),
            }
