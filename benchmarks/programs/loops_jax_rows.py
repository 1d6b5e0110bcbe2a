"""The same loops in JAX, each as one jitted function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import timing
from jax import Array, lax
from timing import Timer

ITERATIONS, OUTER, INNER, NARROW = 1000, 50, 50, 64
PRODUCTS, SIDE = 100, 256
STEPS, BATCH, UNITS = 100, 32, 128
EXPERTS, WIDTH, ROWS = 2, 256, 32

rng = np.random.RandomState(0)


def weights(*shape: int) -> Array:
    return jnp.asarray((rng.randn(*shape) / shape[0] ** 0.5).astype(np.float32))


def time_call(timer: Timer, row: str, function: Callable[..., Any], *arguments: Any) -> None:
    compiled = jax.jit(function)
    timer.time(row, lambda: jax.block_until_ready(compiled(*arguments)))


def halved(count: int, start: Any, x: Any) -> Any:
    return lax.while_loop(
        lambda v: v[0] < count, lambda v: (v[0] + 1, v[1] * 0.5 + 1.0), (start, x)
    )


def scalar(timer: Timer) -> None:
    time_call(timer, "loop_scalar", lambda i: halved(ITERATIONS, i, 0.0), 0)


def nested(timer: Timer) -> None:
    def run(x: Any) -> Any:
        return lax.while_loop(
            lambda v: v[0] < OUTER, lambda v: (v[0] + 1, halved(INNER, 0, v[1])[1]), (0, x)
        )

    time_call(timer, "loop_nested", run, 0.0)


def nested_gradient(timer: Timer) -> None:
    """Build loops with a fixed trip count, whose iterations beyond a limit change nothing.

    A `while_loop` of JAX has no gradient backward; `scan` has one.
    """
    w = weights(NARROW)

    def loss(x: Array, w: Array) -> Array:
        def row(v: Array, i: Array) -> tuple[Array, None]:
            def turn(u: Array, j: Array) -> tuple[Array, None]:
                return jnp.where(j < i, jnp.tanh(u * w) + 0.5 * v, u), None

            return lax.scan(turn, v, jnp.arange(OUTER))[0], None

        return lax.scan(row, x, jnp.arange(OUTER))[0].sum()

    time_call(timer, "loop_nested_gradient", jax.grad(loss, (0, 1)), weights(NARROW), w)


def products(timer: Timer) -> None:
    w = weights(SIDE, SIDE)

    def run(x: Array) -> Any:
        return lax.while_loop(lambda v: v[0] < PRODUCTS, lambda v: (v[0] + 1, v[1] @ w), (0, x))

    time_call(timer, "loop_products", run, weights(SIDE, SIDE))


def rnn(timer: Timer, lengths: bool) -> None:
    x = jnp.asarray(rng.randn(STEPS, BATCH, UNITS).astype(np.float32))
    ends = jnp.asarray(rng.randint(1, STEPS + 1, BATCH))
    parameters = weights(2 * UNITS, 4 * UNITS), jnp.zeros(4 * UNITS)

    def step(p: Any, before: Any, row: Any) -> Any:
        (c, h), (x, time) = before, row
        i, j, f, o = jnp.split(jnp.concatenate([x, h], 1) @ p[0] + p[1], 4, 1)
        new_c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(j)
        new_h = output = jnp.tanh(new_c) * jax.nn.sigmoid(o)
        if lengths:
            ended = (time >= ends)[:, None]
            new_c, new_h = jnp.where(ended, c, new_c), jnp.where(ended, h, new_h)
            output = jnp.where(ended, 0.0, output)
        return (new_c, new_h), output

    def outputs(p: Any) -> Array:
        zeros = jnp.zeros((BATCH, UNITS))
        rows = (x, jnp.arange(STEPS))
        return lax.scan(lambda before, row: step(p, before, row), (zeros, zeros), rows)[1]

    row = "rnn_lengths" if lengths else "rnn"
    time_call(timer, f"{row}_forward", outputs, parameters)
    time_call(timer, f"{row}_gradient", jax.grad(lambda p: (outputs(p) ** 2).sum()), parameters)


def conditional(timer: Timer) -> None:
    x = weights(ROWS, WIDTH)

    def loss(experts: Any, first: Array) -> Array:
        (a, b), (c, d) = experts
        y = lax.cond(first, lambda: jnp.tanh(x @ a) @ b, lambda: jax.nn.sigmoid(x @ c) @ d)
        return (y**2).mean()

    @jax.jit
    def step(experts: Any, first: Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(experts, first)
        norm = sum((g**2).sum() for g in jax.tree.leaves(gradients))

        def updated() -> Any:
            return jax.tree.map(lambda w, g: w - 1e-6 * g, experts, gradients)

        return lax.cond(jnp.isfinite(norm), updated, lambda: experts), value

    state = [[weights(WIDTH, WIDTH) for _ in range(2)] for _ in range(EXPERTS)]

    def both() -> None:
        nonlocal state
        for first in (True, False):
            state, value = step(state, jnp.asarray(first))
        jax.block_until_ready((state, value))

    timer.time("conditional", both)


PROGRAMS: dict[str, timing.Program] = {
    "loop_scalar": scalar,
    "loop_nested": nested,
    "loop_nested_gradient": nested_gradient,
    "loop_products": products,
    "conditional": conditional,
    "rnn": lambda timer: rnn(timer, lengths=False),
    "rnn_lengths": lambda timer: rnn(timer, lengths=True),
}

if __name__ == "__main__":
    timing.main(PROGRAMS, timing.parser().parse_args())
