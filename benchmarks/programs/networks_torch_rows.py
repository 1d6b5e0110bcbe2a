"""The rows that take a few lines in PyTorch, written as its users would."""

from __future__ import annotations

from functools import partial
from typing import Any

import timing
import torch
import torch_rows
from timing import Timer
from torch import Tensor, nn
from torch.nn import functional
from torch_rows import built, generator, time_training

WIDTH, HEADS = 256, 8


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator)


def layer_norm_gelu(timer: Timer) -> None:
    x, gain, offset = uniform(4096, 1024), uniform(1024), uniform(1024)

    def run() -> Tensor:
        y = functional.layer_norm(x, (1024,), gain, offset)
        return functional.gelu(y, approximate="tanh")

    with torch.no_grad():
        timer.time("layer_norm_gelu", built(run))


def cross_entropy(timer: Timer) -> None:
    x = uniform(400, 10_000).requires_grad_()
    labels = torch.randint(0, 10_000, (400,), generator=generator)
    loss = built(lambda: functional.cross_entropy(x, labels))

    def step() -> None:
        x.grad = None
        loss().backward()

    timer.time("cross_entropy", step)


def adamw(timer: Timer) -> None:
    parameters = [nn.Parameter(uniform(1_000_000)) for _ in range(10)]
    for parameter in parameters:
        parameter.grad = uniform(1_000_000) - 0.5
    optimizer = torch.optim.AdamW(parameters, 1e-3, fused=True)
    timer.time("adamw_10M", optimizer.step)


def products(timer: Timer) -> None:
    x, y = uniform(1000, 16, 16), uniform(1000, 16, 16)
    with torch.no_grad():
        timer.time("products_16", built(lambda: torch.bmm(x, y)))


def small_nodes(timer: Timer) -> None:
    x = uniform(16)

    def run() -> Tensor:
        y = x
        for at in range(1000):
            y = torch.tanh(y * 1.01 + x) - 0.1 * (at % 7)
        return y

    with torch.no_grad():
        timer.time("small_nodes_4000", run)  # which torch.compile takes minutes for


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.first(x)).split(WIDTH, 2)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        inner = functional.gelu(self.wide(self.second(h)), approximate="tanh")
        return h + self.narrow(inner)


def block(timer: Timer, row: str, batch: int, length: int) -> None:
    model, x = Block(), uniform(batch, length, WIDTH)
    time_training(timer, row, list(model.parameters()), lambda: model(x).square().mean(), 1e-3)


def gru(timer: Timer) -> None:
    model, x = nn.GRU(128, 128), uniform(100, 32, 128)
    step: Any = lambda: model(x)[0].square().mean()  # noqa: E731
    time_training(timer, "gru_100", list(model.parameters()), step, 1e-3)


PROGRAMS: dict[str, timing.Program] = {
    "block_128": partial(block, row="block_128", batch=8, length=128),
    "block_1024": partial(block, row="block_1024", batch=1, length=1024),
    "gru_100": gru,
    "adamw_10M": adamw,
    "cross_entropy": cross_entropy,
    "layer_norm_gelu": layer_norm_gelu,
    "products_16": products,
    "small_nodes_4000": small_nodes,
}

if __name__ == "__main__":
    torch_rows.start(PROGRAMS)
