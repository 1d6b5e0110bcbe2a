"""TFRecord files read with their checksums, batched and parsed: beside tf.data.

    python benchmarks/programs/records.py records
    python benchmarks/programs/records.py compare --rounds 5 --tensorflow PYTHON

The first form measures the framework that this interpreter has and prints a line per row, seconds
per record, as the other programs do. The second alternates, round after round, between weft and
TensorFlow in child processes on one core, and prints medians and the ratios within the rounds.

Both read the same bytes from the system's memory: examples with an integer label beside one string
(an image, say), a vector of floats, or a vector of integers below 50,000. The steps fetch nothing,
so that neither copies results to the program. Where others use the machine too, --cpu counts the
time of the processor.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import timing
from timing import Timer

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

tf: Any = None  # the framework of this interpreter
clock = time.perf_counter
kinds: list[str] = []

SIZES = {"100B": (100, 128, 50_000), "10KB": (10_000, 128, 5_000), "1MB": (1_000_000, 8, 80)}
"""Bytes of a record, records of a batch, records of a file."""

KINDS = ("bytes", "floats", "integers")
OVERHEAD = 50  # bytes of an example beside its content
DIFFERENT = 50  # examples; files repeat them


@cache
def names() -> Any:
    """What the programs need, from where the framework has it."""
    if tf.__name__ != "weft":
        return SimpleNamespace(
            Example=tf.train.Example,
            TFRecordWriter=tf.python_io.TFRecordWriter,
            FixedLenFeature=tf.FixedLenFeature,
        )
    from weft_graph.proto import Example
    from weft_io.parsing import FixedLenFeature
    from weft_io.python_io import TFRecordWriter

    return SimpleNamespace(
        Example=Example, TFRecordWriter=TFRecordWriter, FixedLenFeature=FixedLenFeature
    )


def elements(kind: str, size: int) -> int:
    return (size - OVERHEAD) // {"bytes": 1, "floats": 4, "integers": 3}[kind]


def example(kind: str, size: int, rng: np.random.Generator) -> bytes:
    message = names().Example()
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
    with names().TFRecordWriter(str(path)) as writer:
        for i in range(count):
            writer.write(examples[i % DIFFERENT])


def features(kind: str, size: int) -> dict[str, Any]:
    shape, dtype = {
        "bytes": ([], tf.string),
        "floats": ([elements(kind, size)], tf.float32),
        "integers": ([elements(kind, size)], tf.int64),
    }[kind]
    feature = names().FixedLenFeature
    return {"label": feature([], tf.int64), "x": feature(shape, dtype)}


def session(threads: int) -> Any:
    limits = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": threads}
    return tf.Session(config=tf.ConfigProto(**limits))


Passes = Callable[[Path], None]


def with_weft(kind: str, size: int, batch: int, threads: int) -> Iterator[Passes]:
    """What goes through a file once."""
    from weft_io.parsing import parse_example
    from weft_io.python_io import tf_record_batches

    with tf.Graph().as_default(), session(threads) as s:
        serialized = tf.placeholder(tf.string, [None])
        parsed = parse_example(serialized, features(kind, size))
        step = s.make_callable([value.op for value in parsed.values()], [serialized])

        def passes(path: Path) -> None:
            for records in tf_record_batches(path, batch):
                step(records)

        yield passes


def with_tensorflow(kind: str, size: int, batch: int, threads: int) -> Iterator[Passes]:
    with tf.Graph().as_default(), session(threads) as s:
        name = tf.placeholder(tf.string, [])
        wanted = features(kind, size)
        data = tf.data.TFRecordDataset(name).batch(batch)
        data = data.map(lambda serialized: tf.io.parse_example(serialized, wanted))
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.threading.max_intra_op_parallelism = threads
        iterator = tf.data.make_initializable_iterator(data.with_options(options))
        step = s.make_callable([value.op for value in iterator.get_next().values()])

        def passes(path: Path) -> None:
            s.run(iterator.initializer, {name: str(path)})
            try:
                while True:
                    step()
            except tf.errors.OutOfRangeError:
                pass

        yield passes


def measure(timer: Timer) -> None:
    make = with_weft if tf.__name__ == "weft" else with_tensorflow
    with tempfile.TemporaryDirectory() as directory:
        for kind in kinds:
            for label, (size, batch, count) in SIZES.items():
                path = Path(directory) / f"{kind}_{label}"
                write(path, kind, size, count)
                for passes in make(kind, size, batch, timer.threads):
                    passes(path)
                    timer.report(f"records_{kind}_{label}", samples(passes, path, count, timer))
                path.unlink()


def samples(passes: Passes, path: Path, count: int, timer: Timer) -> list[float]:
    """Seconds per record, of at least three passes through the file."""
    found: list[float] = []
    end = time.perf_counter() + timer.budget
    while len(found) < 3 or time.perf_counter() < end:
        started = clock()
        passes(path)
        found.append((clock() - started) / count)
    return found


# ----------------------------------------------------------------------------- comparing


def child(python: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [python, __file__, "records", "--threads", "1", "--budget", str(arguments.budget)]
    command += ["--cpu"] if arguments.cpu else []
    command += ["--kinds", *arguments.kinds]
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"row"')]
    return {report["row"]: report["median"] for report in map(json.loads, lines)}


def compare(arguments: argparse.Namespace) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    subjects = {"weft": sys.executable, "tensorflow": arguments.tensorflow}
    rounds: list[dict[str, dict[str, float]]] = []
    for index in range(arguments.rounds):
        order = list(subjects) if index % 2 == 0 else list(subjects)[::-1]
        rounds.append({name: child(subjects[name], arguments) for name in order})
    print(f"{'records per second':24} {'weft':>10} {'TensorFlow':>10} {'ratio':>7}  (least, most)")
    for row in rounds[0]["weft"]:
        rates = {name: [1 / each[name][row] for each in rounds] for name in subjects}
        ratios = [w / t for w, t in zip(*rates.values(), strict=True)]
        medians = [statistics.median(values) for values in (*rates.values(), ratios)]
        print(
            f"{row.removeprefix('records_'):24} {medians[0]:10,.0f} {medians[1]:10,.0f} "
            f"{medians[2]:7.2f}  ({min(ratios):.2f}, {max(ratios):.2f})"
        )


def main() -> None:
    global tf, clock, kinds
    parser = timing.parser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensorflow", default=os.environ.get("WEFT_BENCH_TENSORFLOW"))
    parser.add_argument("--cpu", action="store_true", help="time of the processor, not the clock")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    arguments = parser.parse_args()
    kinds = arguments.kinds
    clock = time.process_time if arguments.cpu else time.perf_counter
    if arguments.program == "compare":
        compare(arguments)
        return
    if importlib.util.find_spec("weft"):
        tf = importlib.import_module("weft")
    else:
        tf = importlib.import_module("tensorflow.compat.v1")
        tf.disable_v2_behavior()
    timing.main({"records": measure}, arguments)


if __name__ == "__main__":
    main()
