"""The cost of viztracer on the chain of `trace_v1.py`, as a function that is called 1,000 times.

    python trace_viztracer.py chain ROUNDS

viztracer records calls of Python functions, so it has no events inside the steps of a framework.
Prints the same JSON object as `trace_v1.py`.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from viztracer import VizTracer

ROUNDS = int(sys.argv[2])


def add(x, y):
    return x + y


def chain():
    x = np.float32(1)

    def step():
        y = x
        for _ in range(1000):
            y = add(y, x)
        return y

    return step, 20


def main():
    step, block = chain()

    def steps():
        start = time.perf_counter()
        for _ in range(block):
            step()
        return (time.perf_counter() - start) / block * 1e3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"

        def traced_steps():
            tracer = VizTracer(output_file=str(path), verbose=0, ignore_c_function=True)
            tracer.start()
            took = steps()
            tracer.stop()
            ended = time.perf_counter()
            tracer.save()
            return took, (time.perf_counter() - ended) / block * 1e3

        for _ in range(3):
            steps()
            traced_steps()
        plain, traced, rest = [], [], []
        for _ in range(ROUNDS):
            plain.append(steps())
            took, after = traced_steps()
            traced.append(took)
            rest.append(after)
        events = json.loads(path.read_text())["traceEvents"]
        size = path.stat().st_size / block
    result = {
        "plain": statistics.median(plain), "traced": statistics.median(traced),
        "rest": statistics.median(rest),
        "events": sum(event["ph"] == "X" for event in events) / block, "bytes": size,
    }  # fmt: skip
    print(json.dumps(result))


main()
