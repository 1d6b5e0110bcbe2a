"""Times invocations of one file by one runtime: python subject.py FILE THREADS SECONDS -> ms."""

from __future__ import annotations

import sys
import time
from typing import Any


def open_file(path: str, threads: int) -> Any:
    if path.endswith(".weftlite"):
        from weft_lite import Interpreter
    else:
        from ai_edge_litert.interpreter import Interpreter
    return Interpreter(model_path=path, num_threads=threads)


def main(path: str, threads: int, seconds: float) -> None:
    import numpy as np

    interpreter = open_file(path, threads)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()[0]
    value = np.random.default_rng(1).random(details["shape"], "float32")
    interpreter.set_tensor(details["index"], value)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - start)
    print(min(times) * 1e3)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
