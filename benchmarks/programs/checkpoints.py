"""Checkpoints of a gigabyte: beside plain writing and reading, torch.save and Orbax.

    python benchmarks/programs/checkpoints.py checkpoints
    python benchmarks/programs/checkpoints.py compare --rounds 5 --torch PYTHON --jax PYTHON

The first form measures the framework that this interpreter has and prints a line per row, as the
other programs do. The second alternates, round after round, between plain files, weft, and child
processes of the peers, all in one directory, and prints medians and the ratios within the rounds.

Everything is flushed to the disk before a save counts as done, and nothing is replaced, so that no
time goes into removing old files. "cached" restores find the file in the memory of the system,
"cold" ones on the disk.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import timing
from timing import Timer

TENSORS = 16
GIGABYTE = 1_000_000_000
LEAST = 4_000_000  # where there is no time, and only to see that it runs
Samples = dict[str, list[float]]


def values(size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    each = size // TENSORS // 4 // 512 * 512
    return [rng.integers(0, 2**32, each, np.uint32).view(np.float32) for _ in range(TENSORS)]


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cool(directory: Path) -> None:
    """Let the system forget what the files hold."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def place(parent: Path | None) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made)
        os.sync()


class Plain:
    """The bytes one after the other: pwrite and fsync, preadv into new arrays."""

    name = "plain"

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays

    def save(self, directory: Path) -> None:
        descriptor = os.open(directory / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        position = 0
        for array in self.arrays:
            left = memoryview(array).cast("B")
            while left:
                written = os.pwrite(descriptor, left, position)
                left, position = left[written:], position + written
        os.fsync(descriptor)
        os.close(descriptor)

    def restore(self, directory: Path) -> None:
        descriptor = os.open(directory / "file", os.O_RDONLY)
        position, restored = 0, []
        for array in self.arrays:
            made = np.empty_like(array)
            left = memoryview(made).cast("B")
            while left:
                read = os.preadv(descriptor, [left], position)
                left, position = left[read:], position + read
            restored.append(made)
        os.close(descriptor)


class Weft:
    """Saver in a session: checksums, index, list of checkpoints; restores into a new session."""

    name = "weft"

    def __init__(self, arrays: list[np.ndarray]) -> None:
        import weft as wf

        self.wf = wf
        self.graph = wf.Graph()
        with self.graph.as_default():
            self.variables = [
                wf.Variable(wf.zeros(array.shape), name=f"v{i}") for i, array in enumerate(arrays)
            ]
            self.saver = wf.train.Saver(max_to_keep=None)
        self.session = wf.Session(graph=self.graph)
        for variable, array in zip(self.variables, arrays, strict=True):
            variable.load(array, self.session)

    def save(self, directory: Path) -> None:
        self.saver.save(self.session, str(directory / "m"), write_meta_graph=False)

    def restore(self, directory: Path) -> None:
        with self.wf.Session(graph=self.graph) as session:
            self.saver.restore(session, str(directory / "m"))


class Torch:
    """torch.save of a state dict, flushed; torch.load."""

    name = "torch"

    def __init__(self, arrays: list[np.ndarray]) -> None:
        import torch

        self.torch = torch
        self.state = {f"v{i}": torch.from_numpy(array) for i, array in enumerate(arrays)}

    def save(self, directory: Path) -> None:
        with open(directory / "file", "wb") as file:
            self.torch.save(self.state, file)
            file.flush()
            os.fsync(file.fileno())

    def restore(self, directory: Path) -> None:
        self.torch.load(directory / "file", weights_only=True)


class Orbax:
    """Orbax's PyTreeCheckpointer."""

    name = "orbax"

    def __init__(self, arrays: list[np.ndarray]) -> None:
        import orbax.checkpoint

        self.checkpointer = orbax.checkpoint.PyTreeCheckpointer()
        self.tree = {f"v{i}": array for i, array in enumerate(arrays)}

    def save(self, directory: Path) -> None:
        self.checkpointer.save(directory / "tree", self.tree)

    def restore(self, directory: Path) -> None:
        self.checkpointer.restore(directory / "tree")


def cycle(subject: Any, parent: Path | None, samples: Samples) -> None:
    """One save, and restores with and without the help of the system's cache."""
    with place(parent) as directory:
        found = {"save": timed(lambda: subject.save(directory))}
        found["restore_cached"] = timed(lambda: subject.restore(directory))
        cool(directory)
        found["restore_cold"] = timed(lambda: subject.restore(directory))
    for what, seconds in found.items():
        samples.setdefault(f"checkpoint_{what}_{subject.name}", []).append(seconds)


def stops(arrays: list[np.ndarray], parent: Path | None, samples: Samples) -> None:
    """How long an asynchronous save stops training, beside a copy of the same bytes in memory.

    The stop is the call and what the steps take longer while it goes on than they do else, up to
    the one after which nothing is held any more.
    """
    import weft as wf

    with wf.Graph().as_default(), wf.Session() as session, place(parent) as directory:
        variables = [wf.Variable(wf.zeros(a.shape), name=f"v{i}") for i, a in enumerate(arrays)]
        step = wf.group(*[v.assign_add(v * 0.5).op for v in variables])
        saver = wf.train.Saver(asynchronous=True)
        session.run(wf.global_variables_initializer())
        alone = statistics.median([timed(lambda: session.run(step)) for _ in range(4)])
        call = timed(lambda: saver.save(session, str(directory / "m"), write_meta_graph=False))
        first = timed(lambda: session.run(step))
        saver.close()
        copies = [np.empty_like(a) for a in arrays]
        copy = timed(lambda: [np.copyto(c, a) for c, a in zip(copies, arrays, strict=True)])
    found = {"call": call, "stop": call + max(0.0, first - alone), "copy": copy}
    for what, seconds in found.items():
        samples.setdefault(f"checkpoint_async_{what}_weft", []).append(seconds)


def own_subjects(arrays: list[np.ndarray]) -> list[Any]:
    if importlib.util.find_spec("weft"):
        return [Plain(arrays), Weft(arrays)]
    return [Torch(arrays)] if importlib.util.find_spec("torch") else [Orbax(arrays)]


def measure(timer: Timer, size: int, parent: Path | None) -> None:
    """Rows without the subject's name, as the table has them; "plain" ones are rows of weft's."""
    arrays = values(size if timer.budget else LEAST)
    samples: Samples = {}
    subjects = own_subjects(arrays)
    end = time.perf_counter() + timer.budget
    while not samples or time.perf_counter() < end:
        for subject in subjects:
            cycle(subject, parent, samples)
        if len(subjects) > 1:
            stops(arrays, parent, samples)
    for name, found in samples.items():
        row, _, subject = name.rpartition("_")
        timer.report(name if subject == "plain" else row, found)


# --------------------------------------------------------------------------- comparing


def compare(arguments: argparse.Namespace) -> None:
    pythons = {"weft": sys.executable, "torch": arguments.torch, "orbax": arguments.jax}
    rounds: list[dict[str, float]] = []
    for index in range(arguments.rounds):
        found: dict[str, float] = {}
        names = [name for name, python in pythons.items() if python]
        turn = index % len(names)
        for name in [*names[turn:], *names[:turn]]:
            found |= child(name, pythons[name], arguments)
        rounds.append(found)
        print(f"round {index + 1}: " + "  ".join(f"{k} {v:.3f}" for k, v in found.items()))
    table(rounds)


def child(name: str, python: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [python, __file__, "checkpoints", "--budget", str(arguments.budget)]
    command += ["--size", str(arguments.size)]
    if arguments.directory:
        command += ["--directory", str(arguments.directory)]
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"row"')]
    return {
        line["row"] if "_plain" in line["row"] else f"{line['row']}_{name}": line["median"]
        for line in lines
    }


def table(rounds: list[dict[str, float]]) -> None:
    for what in ("save", "restore_cached", "restore_cold"):
        ours = [found[f"checkpoint_{what}_weft"] for found in rounds]
        print(f"{what}: weft {statistics.median(ours):.3f} s")
        for peer in ("plain", "torch", "orbax"):
            theirs = [found.get(f"checkpoint_{what}_{peer}") for found in rounds]
            if None in theirs:
                continue
            ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            median = statistics.median(ratios)
            print(f"  {peer} {statistics.median(theirs):.3f} s, over weft {median:.2f} ({spread})")
    for what in ("call", "stop"):
        pairs = [
            (found[f"checkpoint_async_{what}_weft"], found["checkpoint_async_copy_weft"])
            for found in rounds
        ]
        seconds = statistics.median([a for a, _ in pairs])
        share = statistics.median([a / b for a, b in pairs])
        print(f"asynchronous {what}: {seconds:.4f} s, over a copy in memory {share:.2f}")


def main() -> None:
    parser = timing.parser()
    parser.add_argument("--size", type=int, default=GIGABYTE, help="bytes of all tensors")
    parser.add_argument("--directory", type=Path, help="where to write; a temporary one else")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--jax", metavar="PYTHON", help="with Orbax")
    arguments = parser.parse_args()
    if arguments.program == "compare":
        compare(arguments)
        return
    size, directory = arguments.size, arguments.directory
    timing.main({"checkpoints": lambda timer: measure(timer, size, directory)}, arguments)


if __name__ == "__main__":
    main()
