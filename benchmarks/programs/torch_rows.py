"""The same steps in PyTorch: eager, or with torch.compile if requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import timing
import torch
from timing import Timer
from torch import Tensor
from torch.nn import functional

Loss = Callable[[], Tensor]

generator = torch.Generator().manual_seed(0)
compiled = False


def weights(*shape: int, scale: float = 0.05) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape, generator=generator) * scale)


def bias(size: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(size))


def built(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(fn) if compiled else fn


def time_training(
    timer: Timer,
    row: str,
    parameters: Sequence[torch.nn.Parameter],
    loss: Loss,
    rate: float,
    clip: float | None = None,
) -> None:
    optimizer = torch.optim.SGD(parameters, rate)
    loss = built(loss)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()

    timer.time(row, step)


def dense_stack(h: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    for w, b in layers[:-1]:
        h = functional.relu(torch.addmm(b, h, w))
    w, b = layers[-1]
    return torch.addmm(b, h, w)


def dense_parameters(sizes: list[int]) -> list[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
    return [(weights(m, n), bias(n)) for m, n in pairwise(sizes)]


def trivial(timer: Timer) -> None:
    one = torch.ones(())
    increment = built(lambda x: x + 1.0)
    with torch.no_grad():
        timer.time("null_run", lambda: increment(one))


def chain(timer: Timer) -> None:
    one = torch.ones(())

    def run() -> Tensor:
        y = one
        for i in range(1000):
            y = y + one if i % 2 else y * one
        return y

    with torch.no_grad():
        timer.time("chain1000", run)


def mlp(timer: Timer) -> None:
    layers = dense_parameters([784, 512, 512, 10])
    x = torch.rand(128, 784, generator=generator)
    t = torch.randint(0, 10, (128,), generator=generator)
    parameters = [p for layer in layers for p in layer]
    loss = lambda: functional.cross_entropy(dense_stack(x, layers), t)  # noqa: E731
    time_training(timer, "mlp_train", parameters, loss, 0.01)


def cnn(timer: Timer) -> None:
    convolutions = [(weights(64, 3, 5, 5), bias(64)), (weights(64, 64, 5, 5), bias(64))]
    head = dense_parameters([4096, 384, 192, 10])
    x = torch.rand(32, 3, 32, 32, generator=generator)
    t = torch.randint(0, 10, (32,), generator=generator)

    def logits() -> Tensor:
        h = x
        for w, b in convolutions:
            h = functional.max_pool2d(
                functional.relu(functional.conv2d(h, w, b, padding=2)), 3, 2, 1
            )
        return dense_stack(h.flatten(1), head)

    infer = built(logits)
    with torch.no_grad():
        timer.time("cnn_infer", infer)
    parameters = [p for layer in convolutions + head for p in layer]
    time_training(
        timer, "cnn_train", parameters, lambda: functional.cross_entropy(logits(), t), 0.01
    )


def lstm(timer: Timer) -> None:
    batch, steps, hidden, words, layers = 20, 20, 200, 10_000, 2
    embedding, output, output_bias = weights(words, hidden), weights(hidden, words), bias(words)
    cells = [(weights(2 * hidden, 4 * hidden), bias(4 * hidden)) for _ in range(layers)]
    ids = torch.randint(0, words, (batch, steps), generator=generator)
    targets = torch.randint(0, words, (batch, steps), generator=generator).reshape(-1)

    def cell(
        x: Tensor, state: tuple[Tensor, Tensor], w: Tensor, b: Tensor
    ) -> tuple[Tensor, Tensor]:
        c, h = state
        i, j, f, o = torch.addmm(b, torch.cat([x, h], 1), w).split(hidden, 1)
        c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j)
        return c, torch.tanh(c) * torch.sigmoid(o)

    def loss() -> Tensor:
        embedded = embedding[ids]
        zeros = torch.zeros(batch, hidden)
        states = [(zeros, zeros)] * layers
        outputs = []
        for step in range(steps):
            h = embedded[:, step]
            for layer, (w, b) in enumerate(cells):
                states[layer] = cell(h, states[layer], w, b)
                h = states[layer][1]
            outputs.append(h)
        flat = torch.stack(outputs, 1).reshape(-1, hidden)
        return functional.cross_entropy(torch.addmm(output_bias, flat, output), targets)

    parameters = [embedding, output, output_bias, *(p for layer in cells for p in layer)]
    time_training(timer, "lstm_train", parameters, loss, 1.0, clip=5.0)


def word2vec(timer: Timer) -> None:
    words, size = 50_000, 128
    embedding, output, output_bias = (
        torch.nn.Embedding(words, columns, sparse=True) for columns in (size, size, 1)
    )
    center, context = (torch.randint(0, words, (128,), generator=generator) for _ in range(2))
    negatives = torch.randint(0, words, (64,), generator=generator)

    def loss() -> Tensor:
        e = embedding(center)
        true = (e * output(context)).sum(1) + output_bias(context)[:, 0]
        sampled = e @ output(negatives).T + output_bias(negatives)[:, 0]
        return functional.softplus(-true).mean() + functional.softplus(sampled).sum(1).mean()

    parameters = [embedding.weight, output.weight, output_bias.weight]
    time_training(timer, "word2vec_train", parameters, loss, 0.1)


def elementwise(timer: Timer) -> None:
    y = torch.rand(1 << 20, generator=generator)

    def run(y: Tensor) -> Tensor:
        gelu = 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y * y * y)))
        return (gelu + torch.exp(-y) * torch.sigmoid(y)) * 0.5

    run = built(run)
    with torch.no_grad():
        timer.time("fused_ewise_1M", lambda: y.copy_(run(y)))


PROGRAMS: dict[str, timing.Program] = {
    "trivial": trivial,
    "chain": chain,
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "word2vec": word2vec,
    "elementwise": elementwise,
}


def start(programs: dict[str, timing.Program]) -> None:
    """Run the program that the command line names, compiled if requested."""
    global compiled
    parser = timing.parser()
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    compiled = arguments.compile
    torch.set_num_threads(arguments.threads)
    timing.main(programs, arguments)


if __name__ == "__main__":
    start(PROGRAMS)
