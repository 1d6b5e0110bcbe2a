"""A convolutional net of tf.nn ops; its variables come from get_variable in scopes."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(2)
    labels = rng.randint(4, size=32).astype(np.int64)
    images = 0.3 * rng.randn(32, 12, 12, 1).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[label * 3 : label * 3 + 3] += 1

    def weights(name, shape, wd=None):
        values = (rng.randn(*shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)
        var = tf.get_variable(name, shape, initializer=tf.constant_initializer(values))
        if wd is not None:
            tf.add_to_collection("decay", tf.multiply(tf.nn.l2_loss(var), wd, name="weight_loss"))
        return var

    def conv(x, channels, stride):
        kernel = weights("kernel", [3, 3, x.get_shape()[-1].value, channels], wd=1e-3)
        biases = tf.get_variable("biases", [channels], initializer=tf.constant_initializer(0.1))
        out = tf.nn.conv2d(x, kernel, strides=[1, stride, stride, 1], padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(out, biases))

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 12, 12, 1])
        y = tf.placeholder(tf.int64, [None])
        with tf.variable_scope("conv1"):
            net = conv(x, 8, 1)
        net = tf.nn.max_pool(net, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
        net = tf.nn.lrn(net, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm1")
        with tf.variable_scope("conv2"):
            net = conv(net, 8, 2)
        net = tf.nn.avg_pool(net, [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
        dim = int(np.prod(net.get_shape().as_list()[1:]))
        net = tf.reshape(net, [-1, dim])
        with tf.variable_scope("softmax_linear"):
            logits = tf.nn.xw_plus_b(
                net,
                weights("W", [dim, 4]),
                tf.get_variable("b", [4], initializer=tf.zeros_initializer()),
            )
        xent = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        loss = tf.reduce_mean(xent) + tf.add_n(tf.get_collection("decay"))
        train_op = tf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True).minimize(loss)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            feed = {x: images, y: labels}
            losses = [sess.run([train_op, loss], feed)[1] for _ in range(12)]
            kernel = tf.get_default_graph().get_tensor_by_name("conv1/kernel:0")
            return {
                "losses": np.array(losses),
                "kernel": sess.run(kernel)[1, 1, 0],
                "predicted": sess.run(tf.argmax(logits, 1), feed),
                "names": np.array(sorted(v.name for v in tf.global_variables())),
            }
