"""The networks of the examples as PyTorch users would write them; time their training steps."""

from __future__ import annotations

import argparse
import json
import statistics

import timing
import torch
from torch import nn
from torch.nn import functional

CHARACTERS = 95


class ConvNorm(nn.Module):
    """A convolution, a batch normalization and a ReLU."""

    def __init__(self, before: int, after: int, size=(3, 3), stride: int = 1) -> None:
        super().__init__()
        padding = (size[0] // 2, size[1] // 2)
        self.conv = nn.Conv2d(before, after, size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(after, momentum=0.1)

    def forward(self, x):
        return functional.relu(self.norm(self.conv(x)))


class Language(nn.Module):
    """Two LSTM layers of 128 over characters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, 64)
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True)
        self.logits = nn.Linear(128, CHARACTERS)

    def forward(self, tokens, state):
        outputs, state = self.lstm(self.embedding(tokens), state)
        return self.logits(outputs), state


class Block(nn.Module):
    """A block of a GPT of width 64 with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.queries = nn.Linear(64, 192, bias=False)
        self.out = nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        batch, time, depth = x.shape
        parts = self.queries(self.norm1(x)).reshape(batch, time, 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, depth))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A GPT of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(CHARACTERS, 64), nn.Embedding(64, 64)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.logits = nn.LayerNorm(64), nn.Linear(64, CHARACTERS)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.logits(self.norm(self.blocks(x)))


class UNet(nn.Module):
    """The U-Net of the example `segmentation`."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = ConvNorm(3, 16), ConvNorm(16, 32)
        self.bottom, self.up2, self.up1 = ConvNorm(32, 64), ConvNorm(64, 32), ConvNorm(32, 16)
        self.grow2, self.grow1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.classify = nn.Conv2d(16, 3, 1)

    def forward(self, images):
        full = self.down1(images)
        half = self.down2(functional.max_pool2d(full, 2))
        x = self.grow2(self.bottom(functional.max_pool2d(half, 2)))
        x = self.grow1(self.up2(torch.cat([x, half], 1)))
        return self.classify(self.up1(torch.cat([x, full], 1)))


class Module(nn.Module):
    """An Inception module with factorized convolutions."""

    def __init__(self, before: int, width: int, n: int) -> None:
        super().__init__()
        half = width // 2
        self.single = ConvNorm(before, width, (1, 1))
        self.short = nn.Sequential(
            ConvNorm(before, half, (1, 1)), ConvNorm(half, half, (1, n)),
            ConvNorm(half, width, (n, 1)),
        )  # fmt: skip
        self.long = nn.Sequential(
            ConvNorm(before, half, (1, 1)), ConvNorm(half, half, (n, 1)),
            ConvNorm(half, width, (1, n)), ConvNorm(width, half, (n, 1)),
            ConvNorm(half, width, (1, n)),
        )  # fmt: skip
        self.pooled = ConvNorm(before, half, (1, 1))

    def forward(self, x):
        pooled = self.pooled(functional.avg_pool2d(x, 3, 1, 1))
        result = torch.cat([self.single(x), self.short(x), self.long(x), pooled], 1)
        return x + result if x.shape == result.shape else result


def inception() -> nn.Module:
    """Return the network of the example `inception`."""
    layers, channels = [ConvNorm(3, 16, stride=2)], 16
    for stage, depth in enumerate((2, 7, 11)):
        width = 8 * (stage + 1)
        for _ in range(depth):
            layers.append(Module(channels, width, 3 if stage == 0 else 5))
            channels = 3 * width + width // 2
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 8))


def training_step(name: str):
    """Return a function that trains for one step on random data."""
    generator = torch.Generator().manual_seed(0)

    def characters(*shape):
        return torch.randint(CHARACTERS, shape, generator=generator)

    if name == "language":
        model, tokens = Language(), characters(32, 33)
        state = [torch.zeros(2, 32, 128) for _ in range(2)]

        def loss_of():
            logits, end = model(tokens[:, :-1], tuple(state))
            state[:] = [value.detach() for value in end]
            return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    elif name == "transformer":
        model, tokens = Transformer(), characters(16, 65)

        def loss_of():
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(tokens[:, :-1])
            return functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    else:
        shape = {"segmentation": (8, 3, 64, 64), "inception": (32, 3, 32, 96)}[name]
        images = torch.rand(shape, generator=generator)
        if name == "segmentation":
            model, labels = UNet(), torch.randint(3, (8, 64, 64), generator=generator)
        else:
            model, labels = inception(), torch.randint(8, (32,), generator=generator)
        smoothing = 0.05 if name == "inception" else 0.0

        def loss_of():
            return functional.cross_entropy(model(images), labels, label_smoothing=smoothing)

    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    averages = [torch.zeros_like(p) for p in model.parameters()] if name == "inception" else []

    def step():
        optimizer.zero_grad()
        loss_of().backward()
        if name == "language":
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if averages:
            with torch.no_grad():
                torch._foreach_lerp_(averages, list(model.parameters()), 0.1)

    return step


def main() -> None:
    """Train for some steps, and print the median seconds of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    step, samples = training_step(options.name), []
    for _ in range(options.warm_up + options.steps):
        started = timing.clock()
        step()
        samples.append(timing.clock() - started)
    line = {"row": options.name, "median": statistics.median(samples[options.warm_up :])}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
