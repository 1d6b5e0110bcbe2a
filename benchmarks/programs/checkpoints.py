"""Checkpoints of a gigabyte, beside plain file access, torch.save and Orbax.

Everything is flushed to the disk before a save counts as done, and nothing is replaced, so that no
time goes into removing old files. "cached" restores find the file in the memory of the system,
"cold" ones on the disk.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
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
    """Drop the files from the system's page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    try:
        yield made
    finally:
        shutil.rmtree(made)
        os.sync()


class Plain:
    """Plain file access: pwrite and fsync, then preadv into new arrays."""

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


def cycle(subject: Any, samples: Samples) -> None:
    """Measure one save, and restores with a warm and with a cold page cache."""
    with place() as directory:
        found = {"save": timed(lambda: subject.save(directory))}
        found["restore_cached"] = timed(lambda: subject.restore(directory))
        cool(directory)
        found["restore_cold"] = timed(lambda: subject.restore(directory))
    for what, seconds in found.items():
        samples.setdefault(f"checkpoint_{what}_{subject.name}", []).append(seconds)


def stops(arrays: list[np.ndarray], samples: Samples) -> None:
    """Measure how long an asynchronous save blocks training, beside a memory copy of the same size.

    The stop is the call and what the steps take longer while it goes on than they do else, up to
    the one after which nothing is held any more.
    """
    import weft as wf

    with wf.Graph().as_default(), wf.Session() as session, place() as directory:
        variables = [wf.Variable(wf.zeros(a.shape), name=f"v{i}") for i, a in enumerate(arrays)]
        step = wf.group(*[v.assign_add(v * 0.5).op for v in variables])
        saver = wf.train.Saver(asynchronous=True)
        session.run(wf.global_variables_initializer())
        alone = statistics.median([timed(lambda: session.run(step)) for _ in range(4)])
        # The second save: the memory that the first one took is there then, as it is for the copy.
        for _ in range(2):
            call = timed(lambda: saver.save(session, str(directory / "m"), write_meta_graph=False))
            first = timed(lambda: session.run(step))
            saver.wait_until_finished()
        saver.close()
        copies = [np.ones_like(a) for a in arrays]
        copy = timed(lambda: [np.copyto(c, a) for c, a in zip(copies, arrays, strict=True)])
    found = {"call": call, "stop": call + max(0.0, first - alone), "copy": copy}
    for what, seconds in found.items():
        samples.setdefault(f"checkpoint_async_{what}_weft", []).append(seconds)


def own_subjects(arrays: list[np.ndarray]) -> list[Any]:
    if importlib.util.find_spec("weft"):
        return [Plain(arrays), Weft(arrays)]
    return [Torch(arrays)] if importlib.util.find_spec("torch") else [Orbax(arrays)]


def measure(timer: Timer) -> None:
    """Return the rows without the subject's name; rows named "plain" belong to weft's table.

    The first cycle counts for nothing: memory that nobody had before is slow to get. Then the
    subjects take turns in being first.
    """
    arrays = values(GIGABYTE if timer.budget else LEAST)
    subjects = own_subjects(arrays)
    for subject in subjects:
        cycle(subject, {})
    samples: Samples = {}
    end = time.perf_counter() + timer.budget
    while len(samples.get(f"checkpoint_save_{subjects[0].name}", ())) < len(subjects) or (
        time.perf_counter() < end
    ):
        subjects.reverse()
        for subject in subjects:
            cycle(subject, samples)
        if len(subjects) > 1:
            stops(arrays, samples)
    for name, found in samples.items():
        row, _, subject = name.rpartition("_")
        timer.report(name if subject == "plain" else row, found)


def main() -> None:
    timing.main({"checkpoints": measure}, timing.parser().parse_args())


if __name__ == "__main__":
    main()
