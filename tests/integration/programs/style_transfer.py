"""An image is the variable: Gram matrices of fixed features and total variation."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(20)
    content, style, start = rng.rand(3, 1, 10, 10, 3).astype(np.float32)
    filters = [(rng.randn(3, 3, i, o) / 6).astype(np.float32) for i, o in [(3, 6), (6, 8)]]

    def net(image):
        layers, current = {}, image - tf.constant([0.5, 0.4, 0.3])
        for i, kernel in enumerate(filters):
            current = tf.nn.conv2d(current, tf.constant(kernel), (1, 1, 1, 1), "SAME")
            current = tf.nn.relu(current)
            layers[f"relu{i}"] = current
            current = tf.nn.avg_pool(current, (1, 2, 2, 1), (1, 2, 2, 1), padding="SAME")
        return layers

    def gram_matrix(layer):
        _, height, width, channels = (d.value for d in layer.get_shape())
        features = tf.reshape(layer, (-1, channels))
        return tf.matmul(features, features, transpose_a=True) / (height * width * channels)

    targets = {}
    with tf.Graph().as_default(), tf.Session() as sess:
        image = tf.placeholder(tf.float32, content.shape)
        layers = net(image)
        targets["content"] = layers["relu1"].eval(feed_dict={image: content})
        grams = {name: gram_matrix(layer) for name, layer in layers.items()}
        targets["style"] = sess.run(grams, {image: style})

    with tf.Graph().as_default():
        image = tf.Variable(start)
        layers = net(image)
        content_loss = 2 * tf.nn.l2_loss(layers["relu1"] - targets["content"])
        style_losses = [
            tf.nn.l2_loss(gram_matrix(layers[name]) - gram) / gram.size
            for name, gram in targets["style"].items()
        ]
        tv_loss = tf.nn.l2_loss(image[:, 1:, :, :] - image[:, :-1, :, :]) / 270
        tv_loss += tf.nn.l2_loss(image[:, :, 1:, :] - image[:, :, :-1, :]) / 270
        style_loss = 100 * sum(style_losses)
        loss = content_loss + style_loss + tv_loss
        train_step = tf.train.AdamOptimizer(0.05).minimize(loss)
        clip = tf.assign(image, tf.clip_by_value(image, 0.0, 1.0))
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            history = []
            for _ in range(10):
                train_step.run()
                clip.op.run()
                history.append(sess.run([loss, content_loss, style_loss, tv_loss]))
            return {"history": np.array(history), "corner": image.eval()[0, :3, :3]}
