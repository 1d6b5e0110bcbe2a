"""A small convolutional network for 8x8 digits, with its loss and its training step."""

from __future__ import annotations

from typing import NamedTuple

import weft as wf


class Model(NamedTuple):
    """What a training program needs of the graph."""

    images: wf.Tensor
    labels: wf.Tensor
    training: wf.Tensor | bool
    logits: wf.Tensor
    loss: wf.Tensor
    accuracy: wf.Tensor
    step: wf.Tensor
    train: wf.Operation
    initialize: wf.Operation


def build(seed: int, steps: int, serving: bool = False) -> Model:
    """Build the graph into the default graph; `steps` is the length of the training.

    A graph for serving has no choice about dropout in it.
    """
    wf.set_random_seed(seed)
    images = wf.placeholder(wf.float32, [None, 8, 8, 1], name="images")
    labels = wf.placeholder(wf.int32, [None], name="labels")
    training = False if serving else wf.placeholder_with_default(False, [], name="training")
    hidden = wf.layers.conv2d(images, 32, 3, padding="same", activation=wf.nn.relu)
    hidden = wf.layers.conv2d(hidden, 64, 3, padding="same", activation=wf.nn.relu)
    hidden = wf.layers.max_pooling2d(hidden, 2, 2)
    hidden = wf.layers.flatten(hidden)
    hidden = wf.layers.dropout(hidden, 0.4, training=training)
    hidden = wf.layers.dense(hidden, 128, activation=wf.nn.relu)
    hidden = wf.layers.dropout(hidden, 0.4, training=training)
    logits = wf.layers.dense(hidden, 10, name="logits")
    loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
    correct = wf.equal(wf.argmax(logits, 1, output_type=wf.int32), labels)
    accuracy = wf.reduce_mean(wf.cast(correct, wf.float32), name="accuracy")
    step = wf.train.get_or_create_global_step()
    rate = wf.train.cosine_decay(2e-3, step, steps)
    train = wf.train.AdamOptimizer(rate).minimize(loss, global_step=step)
    initialize = wf.global_variables_initializer()
    return Model(images, labels, training, logits, loss, accuracy, step, train, initialize)
