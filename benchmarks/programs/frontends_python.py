"""Measures steps on a server from Python: TARGET SECONDS; prints seconds by row, as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import weft as wf


def median(budget: float, call: Callable[[], object]) -> float:
    """Return the median time of a call, over as many calls as fit into the time."""
    times = []
    call()
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    target, budget = sys.argv[1], float(sys.argv[2])
    x = wf.placeholder(wf.float32)
    y = -x
    large = np.zeros(4 << 20, np.float32)
    with wf.Session(target) as session:
        step = median(budget, lambda: session.run(y, {x: 1.0}))
        bulk = median(budget, lambda: session.run(y, {x: large}))
    start = time.perf_counter()
    with wf.Graph().as_default() as graph:
        last = wf.constant(1.0)
        for _ in range(6000):
            last = -last
    built = time.perf_counter() - start
    start = time.perf_counter()
    with wf.Session(target, graph) as session:
        session.run(graph.get_operation_by_name("Const"))  # sends the graph
        sent = time.perf_counter() - start
    print(json.dumps({"step": step, "16 MB": bulk, "build": built, "send": sent}))


if __name__ == "__main__":
    main()
