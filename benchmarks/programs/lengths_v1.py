"""Training with batches of varying sizes, for weft and for tensorflow.compat.v1 as `tf`.

Each program has a fixed sequence of batches, which its timed step goes through in a cycle.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import models_v1
import numpy as np
import timing

tf: Any = None  # weft or tensorflow.compat.v1

WORDS, WIDTH, HEADS = 1000, 64, 4
CYCLE = 64


def session(threads: int) -> Any:
    config = tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    return tf.Session(config=config)


def train(timer: timing.Timer, row: str, fetches: Any, batches: list[models_v1.Feeds]) -> None:
    cycle = itertools.cycle(batches)
    with session(timer.threads) as s:
        s.run(tf.global_variables_initializer())
        timer.time(row, lambda: s.run(fetches, next(cycle)))


def texts(ids: Any, batch: int | None) -> list[models_v1.Feeds]:
    """Return batches of sequences of 10 to 80 tokens; of 8 to 32 sequences if `batch` is None."""
    draw = np.random.RandomState(0)
    sizes = [(batch or draw.randint(8, 33), draw.randint(10, 81)) for _ in range(CYCLE)]
    return [{ids: draw.randint(0, WORDS, size).astype(np.int32)} for size in sizes]


def next_token_loss(h: Any, embedding: Any, ids: Any) -> Any:
    logits = tf.matmul(tf.reshape(h, [-1, WIDTH]), embedding, transpose_b=True)
    targets = tf.reshape(ids[:, 1:], [-1])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    return tf.reduce_mean(losses)


def clipped_adam(loss: Any) -> Any:
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    return tf.train.AdamOptimizer(1e-3).apply_gradients(zip(gradients, variables, strict=True))


def lstm(timer: timing.Timer) -> None:
    """Build an LSTM language model for varying lengths."""
    ids = tf.placeholder(tf.int32, [16, None])
    embedding = models_v1.variable("embedding", WORDS, WIDTH)
    inputs = tf.nn.embedding_lookup(embedding, ids[:, :-1])
    cell = models_v1.Lstm(WIDTH, WIDTH, "cell")
    outputs, _ = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32)
    loss = next_token_loss(outputs, embedding, ids)
    train(timer, "lstm_lengths", [clipped_adam(loss), loss], texts(ids, 16))


def attention(x: Any) -> Any:
    batch, length = tf.shape(x)[0], tf.shape(x)[1]

    def heads(part: Any) -> Any:
        return tf.transpose(tf.reshape(part, [batch, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    q, k, v = (heads(part) for part in tf.split(models_v1.dense(x, 3 * WIDTH, "qkv"), 3, axis=2))
    scores = tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(WIDTH // HEADS))
    mask = tf.matrix_band_part(tf.ones([length, length]), -1, 0)
    scores = tf.nn.softmax(scores * mask - 1e10 * (1 - mask))
    merged = tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3])
    return models_v1.dense(tf.reshape(merged, [batch, length, WIDTH]), WIDTH, "out")


def transformer(timer: timing.Timer, batch: int | None) -> None:
    """Build a model of two blocks for varying lengths, and batch sizes if `batch` is None."""
    ids = tf.placeholder(tf.int32, [batch, None])
    embedding = models_v1.variable("embedding", WORDS, WIDTH)
    positions = models_v1.variable("positions", 128, WIDTH)
    h = tf.gather(embedding, ids[:, :-1]) + positions[: tf.shape(ids)[1] - 1]
    for block in range(2):
        with tf.variable_scope(f"block{block}"):
            h += attention(models_v1.normalized(h, "before"))
            between = models_v1.normalized(h, "between")
            inner = models_v1.dense(between, 4 * WIDTH, "wide", models_v1.gelu)
            h += models_v1.dense(inner, WIDTH, "narrow")
    loss = next_token_loss(models_v1.normalized(h, "last"), embedding, ids)
    train(timer, "transformer_lengths", [clipped_adam(loss), loss], texts(ids, batch))


def mlp(timer: timing.Timer) -> None:
    """Return digits in batches of 64; the last batch has 40."""
    draw = np.random.RandomState(0)
    x, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    h = models_v1.dense(x, 256, "one", tf.nn.relu)
    h = models_v1.dense(h, 128, "two", tf.nn.relu)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, models_v1.dense(h, 10, "logits"))
    batches = [
        {
            x: draw.rand(size, 784).astype(np.float32),
            labels: draw.randint(0, 10, size).astype(np.int32),
        }
        for size in [64] * 15 + [40]
    ]
    step = tf.train.AdamOptimizer(1e-3).minimize(loss)
    train(timer, "mlp_last_batch", [step, loss], batches)


PROGRAMS: dict[str, timing.Program] = {
    "lstm_lengths": lstm,
    "transformer_lengths": lambda timer: transformer(timer, 16),
    "transformer_batches": lambda timer: transformer(timer, None),
    "mlp_last_batch": mlp,
}


def use(module: Any) -> None:
    global tf
    tf = module
    models_v1.use(module)


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)
