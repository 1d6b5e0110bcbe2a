"""The ops of the table for which PyTorch has a function of the same name, called equally often."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
import torch

OTHERS = {
    "AddV2": torch.add, "RealDiv": torch.div, "MatMul": torch.matmul, "BatchMatMulV2": torch.matmul,
    "Relu": torch.relu, "Sub": torch.sub, "Mul": torch.mul, "Pow": torch.pow, "Neg": torch.neg,
    "Greater": torch.gt, "Less": torch.lt, "Equal": torch.eq, "Maximum": torch.maximum,
}  # fmt: skip


def seconds(entry: dict[str, Any], count: int, budget: float) -> float:
    function: Any = OTHERS.get(entry["op"]) or getattr(torch, entry["op"].lower())
    inputs = []
    for told in entry["arrays"]:
        values = np.resize(np.array(told["values"]), told["shape"])
        inputs.append(torch.tensor(values, dtype=getattr(torch, told["dtype"])))
    samples, end = [], time.perf_counter() + budget
    while len(samples) < 3 or time.perf_counter() < end:
        started = time.process_time()
        for _ in range(count):
            function(*inputs)
        samples.append(time.process_time() - started)
    return min(samples) / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for line in sys.stdin:
        entry = json.loads(line)
        try:
            told = {"seconds": seconds(entry, arguments.nodes, arguments.budget)}
        except Exception as why:  # because most ops have another form there
            told = {"failed": f"{type(why).__name__}: {str(why)[:100]}"}
        print(json.dumps({"op": entry["op"]} | told), flush=True)


if __name__ == "__main__":
    main()
