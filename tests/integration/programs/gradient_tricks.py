"""Gradients of one's own: override maps, custom_gradient, stop_gradient, py_func."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(17)
    x_data = rng.randn(20, 4).astype(np.float32)
    start = rng.randn(4, 4).astype(np.float32)
    suffix = str(np.random.randint(10**8))  # the registry is the process's

    @tf.RegisterGradient("GuidedRelu" + suffix)
    def _guided(op, grad):
        gate = tf.cast(grad > 0, tf.float32) * tf.cast(op.outputs[0] > 0, tf.float32)
        return gate * grad

    @tf.RegisterGradient("FlipGradient" + suffix)
    def _flip(op, grad):
        return [tf.negative(grad) * 0.5]

    @tf.RegisterGradient("CubeGradient" + suffix)
    def _cube(op, grad):
        return 3 * tf.square(op.inputs[0]) * grad

    @tf.custom_gradient
    def log1pexp(x):
        e = tf.exp(x)

        def grad(dy):
            return dy * (1 - 1 / (1 + e))

        return tf.log(1 + e), grad

    def binarize(x):  # the straight-through estimator
        return x + tf.stop_gradient(tf.sign(x) - x)

    with tf.Graph().as_default() as g:
        x = tf.constant(x_data)
        W = tf.Variable(start)
        with g.gradient_override_map({"Relu": "GuidedRelu" + suffix}):
            hidden = tf.nn.relu(tf.matmul(x, W))
        with g.gradient_override_map({"Identity": "FlipGradient" + suffix}):
            flipped = tf.identity(hidden, name="flip")
        with g.gradient_override_map({"PyFunc": "CubeGradient" + suffix}):
            cubed = tf.py_func(lambda a: np.power(a, 3).astype(np.float32), [x], tf.float32)
            cubed.set_shape(x.get_shape())
        adversary = tf.reduce_mean(log1pexp(tf.reduce_sum(flipped, 1)))
        loss = tf.reduce_mean(tf.square(binarize(hidden) - 0.2)) + adversary
        dx, dW, dcube = tf.gradients([loss, tf.reduce_mean(cubed)], [x, W, cubed])
        saliency = tf.gradients(hidden[:, 1], x, grad_ys=tf.ones([20]))[0]
        stopped = tf.gradients(tf.square(W) * W, W, stop_gradients=[W])[0]
        stable = tf.gradients(log1pexp(tf.constant(100.0)), x)[0]
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            first = sess.run({"dx": dx[:3], "dW": dW, "dcube": dcube[0], "saliency": saliency[:3]})
            losses = [sess.run([loss, train])[0] for _ in range(10)]
            return {
                "losses": np.array(losses),
                **first,
                "stopped": sess.run(stopped),
                "unreachable": np.array(stable is None),
            }
