"""The cost of viztracer on the chain of `trace_v1.py`, as a function that is called 1,000 times.

    python trace_viztracer.py chain ROUNDS

viztracer records calls of Python functions, so it has no events inside the steps of a framework.
Prints the same JSON object as `trace_v1.py`.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from trace_blocks import chrome_trace_sizes, measure_blocks, time_block
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
        return time_block(step, block)

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

        result = measure_blocks(steps, traced_steps, ROUNDS) | chrome_trace_sizes(path, block)
    print(json.dumps(result))


main()
