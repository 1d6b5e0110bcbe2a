"""Steps of small or irregular ops, for weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

from functools import partial
from typing import Any

import models_v1
import networks_v1
import numpy as np
import timing
from models_v1 import dense, placeholder_of, random_floats, random_ids, variable
from networks_v1 import run
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

CHAIN = 10_000
TINY_LAYERS, TINY_WIDTH, TINY_BATCH = 50, 16, 8
NODES, EDGES, FEATURES = 10_000, 100_000, 16
SAMPLES, FRAME, HOP = 65_536, 512, 128
LENGTHS = (40, 64, 100, 57, 81, 23)


def chain(timer: Timer) -> None:
    """Build a chain of ten thousand dependent scalar ops."""
    x, z = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    y = x
    for index in range(CHAIN):
        y = y + z if index % 2 else y * z
    run(timer, "chain_10000", y, {x: np.float32(1.0), z: np.float32(1.0)})


def _classifier(h: Any, labels: Any, optimizer: Any, units: int) -> list[Any]:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=dense(h, units, "logits")
    )
    loss = tf.reduce_mean(losses)
    return [optimizer.minimize(loss), loss]


def tiny_layers(timer: Timer) -> None:
    """Build fifty layers of 16 units with Adam."""
    rows, digits = random_floats(TINY_BATCH, TINY_WIDTH), random_ids(4, TINY_BATCH)
    x, labels = placeholder_of(rows), placeholder_of(digits)
    h = x
    for layer in range(TINY_LAYERS):
        h = dense(h, TINY_WIDTH, f"layer{layer}", tf.tanh)
    fetches = _classifier(h, labels, tf.train.AdamOptimizer(1e-3), 4)
    run(timer, "tiny_layers", fetches, {x: rows, labels: digits})


def small_batch(timer: Timer) -> None:
    """Build an MLP with batches of 16 rows."""
    images, digits = random_floats(16, 784), random_ids(10, 16)
    x, labels = placeholder_of(images), placeholder_of(digits)
    h = dense(dense(x, 256, "one", tf.nn.relu), 128, "two", tf.nn.relu)
    fetches = _classifier(h, labels, tf.train.GradientDescentOptimizer(1e-2), 10)
    run(timer, "small_batch", fetches, {x: images, labels: digits})


def messages(timer: Timer) -> None:
    """Build two rounds of message passing along the edges of a graph, with gradients."""
    features, sources, targets = (
        random_floats(NODES, FEATURES),
        random_ids(NODES, EDGES),
        np.random.RandomState(1).randint(0, NODES, EDGES).astype(np.int32),
    )
    x, source, target = map(placeholder_of, (features, sources, targets))
    h, weights = x, []
    for layer in range(2):
        weights.append(variable(f"w{layer}", FEATURES, FEATURES))
        sent = tf.gather(h, source)
        received = tf.math.unsorted_segment_sum(sent, target, NODES)
        h = tf.nn.relu(tf.matmul(received, weights[-1]))
    loss = tf.reduce_mean(tf.square(h))
    feeds = {x: features, source: sources, target: targets}
    run(timer, "messages", [loss, *tf.gradients(loss, weights)], feeds)


def spectrogram(timer: Timer, train: bool) -> None:
    """Build log magnitudes of short-time Fourier transforms, and the gradient of the signal."""
    sound = random_floats(4, SAMPLES) - 0.5
    x = placeholder_of(sound)
    spectra = tf.signal.stft(x, FRAME, HOP)
    magnitudes = tf.math.log(tf.square(tf.math.real(spectra)) + tf.square(tf.imag(spectra)) + 1e-6)
    loss = tf.reduce_mean(magnitudes)
    fetches = [loss, *tf.gradients(loss, [x])] if train else magnitudes
    run(timer, "stft_gradient" if train else "stft", fetches, {x: sound})


def softmax(timer: Timer, rows: int, columns: int) -> None:
    values = random_floats(rows, columns)
    x = placeholder_of(values)
    run(timer, f"softmax_{columns}", tf.nn.softmax(x), {x: values})


def lengths(timer: Timer) -> None:
    """Build a training step of a convolution over texts, whose length varies from step to step."""
    texts = [random_ids(1000, 16, length) for length in LENGTHS]
    digits = random_ids(10, 16)
    x, labels = tf.placeholder(tf.int32, [16, None]), placeholder_of(digits)
    h = tf.nn.embedding_lookup(variable("words", 1000, 64), x)
    for layer in range(2):
        scores = dense(h, 64, f"layer{layer}", tf.tanh)
        h = tf.nn.softmax(tf.matmul(scores, h, transpose_b=True)) @ h + h
    fetches = _classifier(tf.reduce_mean(h, 1), labels, tf.train.GradientDescentOptimizer(1e-2), 10)
    threads = timer.threads
    config = tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        step = session.make_callable(fetches, feed_list=[x, labels])

        def steps() -> None:
            for text in texts:
                step(text, digits)

        timer.time("lengths", steps)


PROGRAMS: dict[str, timing.Program] = {
    "chain_10000": chain,
    "tiny_layers": tiny_layers,
    "small_batch": small_batch,
    "messages": messages,
    "stft": partial(spectrogram, train=False),
    "stft_gradient": partial(spectrogram, train=True),
    "softmax_1000": partial(softmax, rows=1024, columns=1000),
    "softmax_32": partial(softmax, rows=16_384, columns=32),
    "lengths": lengths,
}


def use(module: Any) -> None:
    global tf
    tf = module
    models_v1.use(module)
    networks_v1.use(module)


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)
