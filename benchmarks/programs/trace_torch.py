"""The cost of PyTorch's profiler (Kineto) on the programs of `trace_v1.py`.

    python trace_torch.py chain|convnet ROUNDS

Prints the same JSON object as `trace_v1.py`.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from trace_blocks import chrome_trace_sizes, measure_blocks, time_block

PROGRAM, ROUNDS = sys.argv[1], int(sys.argv[2])


def chain():
    x = torch.tensor(1.0)

    def step():
        y = x
        for _ in range(1000):
            y = y + x
        return y

    return step, 20


def convnet():
    generator = torch.Generator().manual_seed(0)

    def weight(*shape):
        return torch.nn.Parameter(torch.randn(*shape, generator=generator) * 0.05)

    first, second = weight(64, 3, 5, 5), weight(64, 64, 5, 5)
    dense = [weight(4096, 384), weight(384, 192), weight(192, 10)]
    optimizer = torch.optim.SGD([first, second, *dense], 0.01)
    images = torch.randn(32, 3, 32, 32, generator=generator)
    labels = torch.arange(32) % 10

    def step():
        optimizer.zero_grad(set_to_none=True)
        h = images
        for filters in (first, second):
            h = functional.relu(functional.conv2d(h, filters, padding=2))
            h = functional.max_pool2d(h, 3, 2, 1)
        h = h.flatten(1)
        for matrix in dense[:-1]:
            h = functional.relu(h @ matrix)
        functional.cross_entropy(h @ dense[-1], labels).backward()
        optimizer.step()

    return step, 4


def main():
    torch.set_num_threads(1)
    step, block = {"chain": chain, "convnet": convnet}[PROGRAM]()

    def steps():
        return time_block(step, block)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"

        def traced_steps():
            profiler = profile(activities=[ProfilerActivity.CPU])
            with profiler:
                took = steps()
                ended = time.perf_counter()
            profiler.export_chrome_trace(str(path))
            return took, (time.perf_counter() - ended) / block * 1e3

        result = measure_blocks(steps, traced_steps, ROUNDS) | chrome_trace_sizes(path, block)
    print(json.dumps(result))


main()
