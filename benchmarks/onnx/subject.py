"""Runs one model in one runtime; each line of input is a number of runs.

    python subject.py weft|onnxruntime FILE MODEL RESULTS CLOCK

It writes the outputs to RESULTS, and answers each number of seconds by the least milliseconds
that a run took in them, by the function of `time` that CLOCK names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from models import MODELS


def by_weft(file: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    import weft as wf

    model = wf.onnx.import_model(file)
    config = wf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    session = wf.Session(config=config)
    feeds = {model.inputs[name]: value for name, value in inputs.items()}
    fetches = list(model.outputs.values())
    return lambda: session.run(fetches, feeds)


def by_onnxruntime(file: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def least(run: Callable[[], Any], seconds: float, clock: Callable[[], float]) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return min(times) * 1e3


def main(runtime: str, file: str, name: str, results: str, clock: str) -> None:
    inputs = next(model for model in MODELS if model.name == name).inputs()
    start = time.perf_counter()
    run = {"weft": by_weft, "onnxruntime": by_onnxruntime}[runtime](file, inputs)
    loaded = time.perf_counter() - start
    np.savez(Path(results), *run())
    print(loaded * 1e3, flush=True)
    for line in sys.stdin:
        print(least(run, float(line), getattr(time, clock)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
