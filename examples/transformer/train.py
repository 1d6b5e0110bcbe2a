"""Train a small GPT on English text in mixed precision, and decode on a device with a cache.

The text is the manual that ships with Python. Products are bfloat16 in the training (float16 with a
GPU), variables float32. The served graph computes one token from cached keys and values of the
preceding ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main
from journey.text import Text, load_text, perplexity

import weft as wf

BATCH = 16
LENGTH = 64
DEPTH = 64
HEADS = 4
NUM_LAYERS = 2


def normalize(x: wf.Tensor, name: str) -> wf.Tensor:
    """Normalize the last axis."""
    with wf.variable_scope(name):
        scale = wf.get_variable("scale", [DEPTH], initializer=wf.ones_initializer())
        shift = wf.get_variable("shift", [DEPTH], initializer=wf.zeros_initializer())
        mean, variance = wf.nn.moments(x, [-1], keep_dims=True)
        return (x - mean) * wf.rsqrt(variance + 1e-5) * scale + shift


def gelu(x: wf.Tensor) -> wf.Tensor:
    """Apply the Gaussian error linear unit."""
    return 0.5 * x * (1.0 + wf.erf(x * 0.5**0.5))


def split_heads(x: wf.Tensor) -> wf.Tensor:
    """Return (batch, time, depth) as (batch, heads, time, depth per head)."""
    x = wf.reshape(x, [wf.shape(x)[0], -1, HEADS, DEPTH // HEADS])
    return wf.transpose(x, [0, 2, 1, 3])


class Cache:
    """Keys and values of the positions up to now, for decoding."""

    def __init__(self, position: wf.Tensor) -> None:
        self.at_position = wf.reshape(wf.one_hot(position, LENGTH), [1, 1, LENGTH, 1])
        self.inputs: list[wf.Tensor] = []
        self.outputs: list[wf.Tensor] = []

    def extend(self, value: wf.Tensor, name: str) -> wf.Tensor:
        """Return the cached values with those of the current position."""
        shape = [1, HEADS, LENGTH, DEPTH // HEADS]
        cached = wf.placeholder(wf.float32, shape, name=name)
        merged = cached * (1.0 - self.at_position) + value * self.at_position
        self.inputs.append(cached)
        self.outputs.append(wf.identity(merged, name=f"{name}_out"))
        return merged


def block(x: wf.Tensor, mask: wf.Tensor, name: str, cache: Cache | None = None) -> wf.Tensor:
    """Apply masked attention and a feed-forward network, both residual."""
    with wf.variable_scope(name):
        hidden = normalize(x, "norm1")
        query, key, value = (
            split_heads(wf.layers.dense(hidden, DEPTH, use_bias=False, name=part))
            for part in ("query", "key", "value")
        )
        if cache is not None:
            key, value = cache.extend(key, f"{name}_key"), cache.extend(value, f"{name}_value")
        scores = wf.matmul(query, key, transpose_b=True) * (DEPTH // HEADS) ** -0.5
        mixed = wf.transpose(wf.matmul(wf.nn.softmax(scores + mask), value), [0, 2, 1, 3])
        mixed = wf.reshape(mixed, [wf.shape(mixed)[0], -1, DEPTH])
        x += wf.layers.dense(mixed, DEPTH, name="out")
        hidden = wf.layers.dense(normalize(x, "norm2"), 4 * DEPTH, activation=gelu, name="up")
        return x + wf.layers.dense(hidden, DEPTH, name="down")


def embed(tokens: wf.Tensor, positions: Any, num_characters: int) -> wf.Tensor:
    """Return the sum of the embeddings of tokens and of positions."""
    token_table = wf.get_variable("tokens", [num_characters, DEPTH])
    position_table = wf.get_variable("positions", [LENGTH, DEPTH])
    return wf.gather(token_table, tokens) + wf.gather(position_table, positions)


class Transformer(Journey):
    """A GPT of two blocks."""

    name = "transformer"
    steps, short_steps = 3000, 80
    metric = "perplexity"
    goal, short_goal = 6.0, 25.0
    jobs: ClassVar = {"ps": 1, "worker": 2}
    is_better_high = False

    @cached_property
    def text(self) -> Text:
        """The text; the short form has less of it."""
        return load_text(100_000 if self.is_short else 400_000)

    def training(self) -> Training:
        """Read shuffled pieces of the text through a dataset."""
        rows = self.text.training
        count = (len(rows) - 1) // LENGTH
        pieces = np.stack([rows[i * LENGTH : i * LENGTH + LENGTH + 1] for i in range(count)])
        dataset = wf.data.Dataset.from_tensor_slices(pieces).shuffle(count, seed=self.seed)
        tokens = dataset.repeat().batch(BATCH, drop_remainder=True).prefetch(2)
        tokens = tokens.make_one_shot_iterator().get_next()
        mask = wf.cast(wf.range(LENGTH) > wf.range(LENGTH)[:, None], wf.float32) * -1e9
        num_characters = self.text.num_characters

        def replica(tokens: wf.Tensor) -> list[wf.Tensor]:
            x = embed(tokens[:, :-1], wf.range(LENGTH), num_characters)
            for i in range(NUM_LAYERS):
                x = block(x, mask, f"block{i}")
            logits = wf.layers.dense(normalize(x, "norm"), num_characters, name="logits")
            return [wf.losses.sparse_softmax_cross_entropy(tokens[:, 1:], logits)]

        (loss,) = self.replicas.apply(replica, tokens)
        step = wf.train.get_or_create_global_step()
        rate = wf.train.cosine_decay(3e-3, step, self.num_steps)
        optimizer = wf.train.experimental.enable_mixed_precision_graph_rewrite(
            wf.train.AdamOptimizer(rate),
            128.0,  # a fixed scale, which needs no branch in the step
        )
        train = optimizer.minimize(loss, global_step=step, colocate_gradients_with_ops=True)
        return Training(train, loss)

    def serving(self) -> Serving:
        """Return the logits of the next character, in float32; the cache goes in and out."""
        wf.train.experimental.disable_mixed_precision_graph_rewrite()
        token = wf.placeholder(wf.int32, [1, 1], name="token")
        position = wf.placeholder(wf.int32, [1], name="position")
        cache = Cache(position)
        mask = wf.cast(wf.range(LENGTH) > position, wf.float32) * -1e9
        x = embed(token, position, self.text.num_characters)
        for i in range(NUM_LAYERS):
            x = block(x, mask, f"block{i}", cache)
        logits = wf.layers.dense(normalize(x, "norm"), self.text.num_characters, name="logits")
        outputs = {"scores": wf.identity(logits, name="scores")}
        outputs |= {tensor.op.name: tensor for tensor in cache.outputs}
        fed_back = {tensor.op.name: f"{tensor.op.name}_out" for tensor in cache.inputs}
        return Serving([token, position, *cache.inputs], outputs, state=fed_back)

    def calibration(self) -> Sequence[Feeds]:
        """Return pieces of the training text, one after the other."""
        return self._pieces(self.text.training, 1 if self.is_short else 3)

    def questions(self) -> Sequence[Feeds]:
        """Return pieces of the held-out text, one after the other."""
        return self._pieces(self.text.held_out, 4 if self.is_short else 10)

    def _pieces(self, tokens: np.ndarray, count: int) -> list[Feeds]:
        positions = np.arange(LENGTH, dtype=np.int32).reshape(-1, 1)
        return [
            {"token": tokens[i].reshape(1, 1), "position": positions[i % LENGTH]}
            for i in range(count * LENGTH)
        ]

    def score(self, answers: Answers) -> float:
        """Return the perplexity of the held-out text, of which a model sees up to 64 characters."""
        logits = np.concatenate([answer[0] for answer in answers])
        return perplexity(logits, self.text.held_out[1 : len(logits) + 1])


if __name__ == "__main__":
    sys.exit(main(Transformer))
