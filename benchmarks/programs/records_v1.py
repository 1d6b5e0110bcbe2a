"""TFRecord files, verified, batched and parsed; for weft or TensorFlow as `tf`.

Both read the same bytes from the system's memory: examples with an integer label beside one string
(an image, say), a vector of floats, or a vector of integers below 50,000. The steps fetch nothing,
so that neither copies results to the program.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timing
from timing import Timer

tf: Any = None  # weft or tensorflow.compat.v1

SIZES = {"100B": (100, 128, 50_000), "10KB": (10_000, 128, 5_000), "1MB": (1_000_000, 8, 80)}
"""Bytes of a record, records of a batch, records of a file."""

KINDS = ("bytes", "floats", "integers")
OVERHEAD = 50  # bytes of an example beside its content
DIFFERENT = 50  # examples; files repeat them


def elements(kind: str, size: int) -> int:
    return (size - OVERHEAD) // {"bytes": 1, "floats": 4, "integers": 3}[kind]


def example(kind: str, size: int, rng: np.random.Generator) -> bytes:
    message = tf.train.Example()
    feature = message.features.feature
    feature["label"].int64_list.value.append(int(rng.integers(1000)))
    count = elements(kind, size)
    if kind == "bytes":
        feature["x"].bytes_list.value.append(rng.bytes(count))
    elif kind == "floats":
        feature["x"].float_list.value.extend(rng.standard_normal(count).tolist())
    else:
        feature["x"].int64_list.value.extend(rng.integers(0, 50_000, count).tolist())
    serialized: bytes = message.SerializeToString()
    return serialized


def write(path: Path, kind: str, size: int, count: int) -> None:
    rng = np.random.default_rng(0)
    examples = [example(kind, size, rng) for _ in range(DIFFERENT)]
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for i in range(count):
            writer.write(examples[i % DIFFERENT])


def features(kind: str, size: int) -> dict[str, Any]:
    shape, dtype = {
        "bytes": ([], tf.string),
        "floats": ([elements(kind, size)], tf.float32),
        "integers": ([elements(kind, size)], tf.int64),
    }[kind]
    feature = tf.FixedLenFeature
    return {"label": feature([], tf.int64), "x": feature(shape, dtype)}


def session(threads: int) -> Any:
    limits = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": threads}
    return tf.Session(config=tf.ConfigProto(**limits))


def measure(kind: str, timer: Timer) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for label, (size, batch, count) in SIZES.items():
            path = Path(directory) / label
            write(path, kind, size, count)
            with tf.Graph().as_default(), session(timer.threads) as s:
                wanted = features(kind, size)
                data = tf.data.TFRecordDataset(str(path)).batch(batch)
                data = data.map(partial(tf.io.parse_example, features=wanted))
                iterator = tf.data.make_initializable_iterator(with_threads(data, timer.threads))
                step = s.make_callable([value.op for value in iterator.get_next().values()])
                found = samples(s, iterator, step, count, timer)
            timer.report(f"records_{kind}_{label}", found)
            path.unlink()


def with_threads(data: Any, threads: int) -> Any:
    """Limit the threads of TensorFlow's pipelines, which ignore the session's setting."""
    if tf.__name__ == "weft":
        return data
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = threads
    return data.with_options(options)


def samples(s: Any, iterator: Any, step: timing.Step, count: int, timer: Timer) -> list[float]:
    """Return the seconds per record, of at least three passes through the file."""
    found: list[float] = []
    end = time.perf_counter() + timer.budget
    while len(found) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        s.run(iterator.initializer)
        try:
            while True:
                step()
        except tf.errors.OutOfRangeError:
            found.append((time.perf_counter() - started) / count)
    return found


PROGRAMS: dict[str, timing.Program] = {f"records_{kind}": partial(measure, kind) for kind in KINDS}


def use(module: Any) -> None:
    global tf
    tf = module


if __name__ == "__main__":
    timing.graph_mode(PROGRAMS, use)
