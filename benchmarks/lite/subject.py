"""Times one file in one runtime.

python subject.py FILE THREADS SECONDS [--processor-time]   median and least of invocations, in ms
python subject.py FILE --start   import, first load, first invocation, and a load of a second
interpreter in ms, and the peak memory in KB
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any


def open_file(path: str, threads: int) -> Any:
    """Open a file with the runtime of its suffix, and set its input; return an invoker."""
    if path.endswith(".onnx"):
        return OnnxRuntime(path, threads)
    if path.endswith(".param"):
        return Ncnn(path, threads)
    interpreter = loaded(path, threads)
    fill(interpreter)
    return interpreter


def loaded(path: str, threads: int) -> Any:
    """Return an interpreter of lite or LiteRT, ready for its input."""
    if path.endswith(".so"):  # a compiled model, beside its file
        os.environ["WEFT_LITE_LIBRARY"] = path
        path = f"{path.removesuffix('so')}weftlite"
    if path.endswith(".weftlite"):
        from weft_lite import Interpreter
    else:
        from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    return interpreter


def fill(interpreter: Any) -> None:
    """Set the inputs."""
    for details in interpreter.get_input_details():
        interpreter.set_tensor(details["index"], value(details["shape"]))


class OnnxRuntime:
    """A session of ONNX Runtime with the methods that this program uses."""

    def __init__(self, path: str, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(path, options)
        self.feeds = {given.name: value(given.shape) for given in self._session.get_inputs()}

    def invoke(self) -> Any:
        return self._session.run(None, self.feeds)


class Ncnn:
    """A network of ncnn with the methods that this program uses; float32, without a batch axis."""

    def __init__(self, path: str, threads: int) -> None:
        import ncnn

        self._net = ncnn.Net()
        options = self._net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = options.use_bf16_packed = False
        for load, file in (
            (self._net.load_param, path),
            (self._net.load_model, f"{path.removesuffix('param')}bin"),
        ):
            if load(file):
                raise ValueError(f"ncnn does not load {file}")
        given = value(shape_beside(path))[0]
        self._given = ncnn.Mat(given).clone()  # since it has no hold of the array

    def invoke(self) -> Any:
        asked = self._net.create_extractor()
        asked.input("in0", self._given)
        return asked.extract("out0")[1].clone()  # since its memory is the extractor's


def shape_beside(path: str) -> list[int]:
    """Return the shape of the input, read from the network that the file was converted from."""
    import onnxruntime

    model = onnxruntime.InferenceSession(path.replace(".ncnn.param", ".onnx"))
    shape: list[int] = model.get_inputs()[0].shape
    return shape


def value(shape: Any) -> Any:
    import numpy as np

    return np.random.default_rng(1).random(shape, "float32")


def times(path: str, threads: int, seconds: float, clock: Callable[[], float]) -> list[float]:
    """Return the durations of invocations, in ascending order."""
    interpreter = open_file(path, threads)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        start = clock()
        interpreter.invoke()
        found.append(clock() - start)
    return sorted(found)


def start(path: str) -> None:
    import numpy  # noqa: F401  # which both take their values from

    began = time.perf_counter()
    if path.endswith(".weftlite"):
        import weft_lite  # noqa: F401
    else:
        import ai_edge_litert.interpreter  # noqa: F401
    imported, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    interpreter = loaded(path, 1)
    ready = time.perf_counter()
    fill(interpreter)
    filled = time.perf_counter()
    interpreter.invoke()
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    again = time.perf_counter()
    loaded(path, 1)
    parts = [imported - began, ready - imported, ended - filled, time.perf_counter() - again]
    print(*(f"{each * 1e3:.3f}" for each in parts), after - before)


if __name__ == "__main__":
    if sys.argv[2] == "--start":
        start(sys.argv[1])
    else:
        clock = time.process_time if "--processor-time" in sys.argv else time.perf_counter
        found = times(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), clock)
        print(found[len(found) // 2] * 1e3, found[0] * 1e3)
