"""The same steps in JAX: each is a jitted function that donates its parameters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import timing
from jax import Array
from timing import Timer

rng = np.random.RandomState(0)


def weights(*shape: int, scale: float = 0.05) -> Array:
    return jnp.asarray((rng.randn(*shape) * scale).astype(np.float32))


def bias(size: int) -> Array:
    return jnp.zeros(size, jnp.float32)


def uniform(*shape: int) -> Array:
    return jnp.asarray(rng.rand(*shape).astype(np.float32))


def integers(limit: int, *shape: int) -> Array:
    return jnp.asarray(rng.randint(0, limit, shape).astype(np.int32))


def cross_entropy(logits: Array, labels: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def clipped(gradients: Any, limit: float) -> Any:
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / norm), gradients)


def time_training(
    timer: Timer,
    row: str,
    parameters: Any,
    loss: Callable[[Any], Array],
    rate: float,
    clip: float | None = None,
) -> None:
    def update(p: Any) -> tuple[Any, Array]:
        value, gradients = jax.value_and_grad(loss)(p)
        if clip is not None:
            gradients = clipped(gradients, clip)
        return jax.tree.map(lambda a, g: a - rate * g, p, gradients), value

    compiled = jax.jit(update, donate_argnums=0)
    state = [parameters]

    def step() -> None:
        state[0], value = compiled(state[0])
        jax.block_until_ready((state[0], value))

    timer.time(row, step)


def dense_stack(h: Array, layers: list[tuple[Array, Array]]) -> Array:
    for w, b in layers[:-1]:
        h = jax.nn.relu(h @ w + b)
    w, b = layers[-1]
    return h @ w + b


def dense_parameters(sizes: list[int]) -> list[tuple[Array, Array]]:
    return [(weights(m, n), bias(n)) for m, n in pairwise(sizes)]


def trivial(timer: Timer) -> None:
    increment = jax.jit(lambda x: x + 1.0)
    one = jnp.float32(1)
    timer.time("null_run", lambda: increment(one).block_until_ready())


def mlp(timer: Timer) -> None:
    x, t = uniform(128, 784), integers(10, 128)
    layers = dense_parameters([784, 512, 512, 10])
    time_training(timer, "mlp_train", layers, lambda p: cross_entropy(dense_stack(x, p), t), 0.01)


def convolution(h: Array, w: Array, b: Array) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    h = jax.lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=layout)
    h = jax.nn.relu(h + b)
    return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def cnn(timer: Timer) -> None:
    x, t = uniform(32, 32, 32, 3), integers(10, 32)
    parameters = {
        "convolutions": [(weights(5, 5, 3, 64), bias(64)), (weights(5, 5, 64, 64), bias(64))],
        "head": dense_parameters([4096, 384, 192, 10]),
    }

    def logits(p: Any) -> Array:
        h = x
        for w, b in p["convolutions"]:
            h = convolution(h, w, b)
        return dense_stack(h.reshape(32, -1), p["head"])

    infer = jax.jit(logits)
    timer.time("cnn_infer", lambda: infer(parameters).block_until_ready())
    time_training(timer, "cnn_train", parameters, lambda p: cross_entropy(logits(p), t), 0.01)


def lstm(timer: Timer) -> None:
    batch, steps, hidden, words, layers = 20, 20, 200, 10_000, 2
    ids, targets = integers(words, batch, steps), integers(words, batch * steps)
    parameters = {
        "embedding": weights(words, hidden, scale=0.1),
        "cells": [(weights(2 * hidden, 4 * hidden), bias(4 * hidden)) for _ in range(layers)],
        "output": (weights(hidden, words), bias(words)),
    }

    def cell(x: Array, state: tuple[Array, Array], w: Array, b: Array) -> tuple[Array, Array]:
        c, h = state
        i, j, f, o = jnp.split(jnp.concatenate([x, h], 1) @ w + b, 4, 1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(j)
        return c, jnp.tanh(c) * jax.nn.sigmoid(o)

    def loss(p: Any) -> Array:
        embedded = p["embedding"][ids]
        zeros = jnp.zeros((batch, hidden))
        states = [(zeros, zeros)] * layers
        outputs = []
        for step in range(steps):
            h = embedded[:, step]
            for layer, (w, b) in enumerate(p["cells"]):
                states[layer] = cell(h, states[layer], w, b)
                h = states[layer][1]
            outputs.append(h)
        w, b = p["output"]
        return cross_entropy(jnp.stack(outputs, 1).reshape(-1, hidden) @ w + b, targets)

    time_training(timer, "lstm_train", parameters, loss, 1.0, clip=5.0)


def word2vec(timer: Timer) -> None:
    words, size = 50_000, 128
    center, context, negatives = integers(words, 128), integers(words, 128), integers(words, 64)

    def loss(p: Any) -> Array:
        embedding, output, output_bias = p
        e = embedding[center]
        true = (e * output[context]).sum(1) + output_bias[context]
        sampled = e @ output[negatives].T + output_bias[negatives]
        return jax.nn.softplus(-true).mean() + jax.nn.softplus(sampled).sum(1).mean()

    parameters = [weights(words, size), weights(words, size), bias(words)]
    time_training(timer, "word2vec_train", parameters, loss, 0.1)


def elementwise(timer: Timer) -> None:
    def run(y: Array) -> Array:
        gelu = 0.5 * y * (1 + jnp.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
        return (gelu + jnp.exp(-y) * jax.nn.sigmoid(y)) * 0.5

    compiled = jax.jit(run, donate_argnums=0)
    state = [uniform(1 << 20)]

    def step() -> None:
        state[0] = compiled(state[0]).block_until_ready()

    timer.time("fused_ewise_1M", step)


PROGRAMS: dict[str, timing.Program] = {
    "trivial": trivial,
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "word2vec": word2vec,
    "elementwise": elementwise,
}

if __name__ == "__main__":
    timing.main(PROGRAMS, timing.parser().parse_args())
