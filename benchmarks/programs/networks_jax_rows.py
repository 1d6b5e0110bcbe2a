"""The rows that take a few lines in JAX, written as its users would."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import timing
from jax import Array
from jax_rows import bias, integers, time_training, uniform, weights
from timing import Timer

WIDTH, HEADS = 256, 8


def time_call(timer: Timer, row: str, function: Callable[..., Any], *given: Any) -> None:
    compiled = jax.jit(function)
    timer.time(row, lambda: jax.block_until_ready(compiled(*given)))


def layer_norm(x: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + jnp.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def layer_norm_gelu(timer: Timer) -> None:
    gain, offset = uniform(1024), bias(1024)
    x = uniform(4096, 1024)
    time_call(timer, "layer_norm_gelu", lambda x: gelu(layer_norm(x) * gain + offset), x)


def cross_entropy(timer: Timer) -> None:
    labels = integers(10_000, 400)

    def loss(x: Array) -> Array:
        return -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean()

    time_call(timer, "cross_entropy", jax.value_and_grad(loss), uniform(400, 10_000))


def adamw(timer: Timer) -> None:
    gradients = [uniform(1_000_000) - 0.5 for _ in range(10)]

    def update(state: Any) -> Any:
        step = state[0] + 1
        rate = 1e-3 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        found = []
        for (p, m, v), g in zip(state[1], gradients, strict=True):
            new_m, new_v = m + 0.1 * (g - m), v + 0.001 * (g * g - v)
            new_p = p - 1e-5 * p - rate * new_m / (jnp.sqrt(new_v) + 1e-8)
            found.append((new_p, new_m, new_v))
        return step, found

    compiled = jax.jit(update, donate_argnums=0)
    state = [(jnp.float32(0), [(uniform(1_000_000), bias(1_000_000), bias(1_000_000))] * 10)]
    state[0] = jax.tree.map(jnp.array, state[0])

    def step() -> None:
        state[0] = jax.block_until_ready(compiled(state[0]))

    timer.time("adamw_10M", step)


def products(timer: Timer) -> None:
    time_call(timer, "products_16", jnp.matmul, uniform(1000, 16, 16), uniform(1000, 16, 16))


def small_nodes(timer: Timer) -> None:
    def run(x: Array) -> Array:
        y = x
        for at in range(1000):
            y = jnp.tanh(y * 1.01 + x) - 0.1 * (at % 7)
        return y

    time_call(timer, "small_nodes_4000", run, uniform(16))


def block(timer: Timer, row: str, batch: int, length: int) -> None:
    size = WIDTH // HEADS
    x = uniform(batch * length, WIDTH)
    mask = jnp.triu(jnp.full((length, length), -1e9), 1)
    sizes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    parameters = [(weights(m, n), bias(n)) for m, n in sizes]
    parameters += [(uniform(WIDTH), bias(WIDTH)), (uniform(WIDTH), bias(WIDTH))]

    def loss(p: Any) -> Array:
        (qkv, out, wide, narrow), (first, second) = p[:4], p[4:]
        parts = jnp.split((layer_norm(x) * first[0] + first[1]) @ qkv[0] + qkv[1], 3, 1)
        q, k, v = (part.reshape(batch, length, HEADS, size).transpose(0, 2, 1, 3) for part in parts)
        scores = jax.nn.softmax(q @ k.swapaxes(2, 3) * (1 / math.sqrt(size)) + mask)
        merged = (scores @ v).transpose(0, 2, 1, 3).reshape(batch * length, WIDTH)
        h = x + merged @ out[0] + out[1]
        inner = gelu((layer_norm(h) * second[0] + second[1]) @ wide[0] + wide[1])
        return jnp.square(h + inner @ narrow[0] + narrow[1]).mean()

    time_training(timer, row, parameters, loss, 1e-3)


def gru(timer: Timer) -> None:
    x = uniform(100, 32, 128)
    parameters = [weights(256, 256), jnp.ones(256), weights(256, 128), bias(128)]

    def loss(p: Any) -> Array:
        gates, b, inner, c = p

        def step(h: Array, now: Array) -> tuple[Array, Array]:
            reset, keep = jnp.split(jax.nn.sigmoid(jnp.concatenate([now, h], 1) @ gates + b), 2, 1)
            new = jnp.tanh(jnp.concatenate([now, reset * h], 1) @ inner + c)
            h = keep * h + (1.0 - keep) * new
            return h, h

        return jnp.square(jax.lax.scan(step, jnp.zeros((32, 128)), x)[1]).mean()

    time_training(timer, "gru_100", parameters, loss, 1e-3)


def compiling(timer: Timer) -> None:
    def once(size: int) -> float:
        def run(x: Array) -> Array:
            y = x
            for at in range(250):
                y = jnp.tanh(y * 1.01 + x) - 0.1 * (at % 7)
            return y

        x = uniform(size)
        started = timing.clock()
        jax.block_until_ready(jax.jit(run)(x))
        return timing.clock() - started

    once(5)
    timer.report("compile_1000", [once(size) for size in range(7, 12)])


PROGRAMS: dict[str, timing.Program] = {
    "block_128": partial(block, row="block_128", batch=8, length=128),
    "block_1024": partial(block, row="block_1024", batch=1, length=1024),
    "gru_100": gru,
    "adamw_10M": adamw,
    "cross_entropy": cross_entropy,
    "layer_norm_gelu": layer_norm_gelu,
    "products_16": products,
    "small_nodes_4000": small_nodes,
    "compile_1000": compiling,
}

if __name__ == "__main__":
    timing.main(PROGRAMS, timing.parser().parse_args())
