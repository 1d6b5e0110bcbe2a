"""Save in child processes that die, and check the remaining files. Run as a program: it forks.

Modes: "boundaries STRIDE" dies at each call of the operating system in turn, or at every so many,
and in the middle of each write; "kill TIMES SEED" is killed at seeded moments while it saves in a
loop. With "asynchronous" behind these the saves are; with "bundles" they are in the format of
TensorFlow. Writes a line per failure.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft_exec import Session
from weft_graph import Graph, proto
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_io import Saver, get_checkpoint_state, latest_checkpoint
from weft_io.checkpoint.journal import names_of
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder

CALLS = ("open", "write", "fsync", "replace", "unlink", "close", "fstat", "listdir", "makedirs")
CALLS += ("link", "scandir", "rmdir")
DIED = 9


class Training:
    """A model whose variables all hold the step, and its saver; made once, and used in forks."""

    def __init__(self, directory: Path, overwrite: bool, kind: str = "plain") -> None:
        self.directory = directory
        self.overwrite = overwrite
        self.asynchronous = kind == "asynchronous"
        self.builder = BundleSaverBuilder() if kind == "bundles" else None
        self.kind = f"overwrite={overwrite} {kind}"
        self.graph = Graph()
        with self.graph.as_default():
            self.step = Variable(0, name="step", dtype=np.int64)
            self.weights = [
                Variable(np.zeros(size, np.float32), name=f"w{i}", use_resource=bool(i % 2))
                for i, size in enumerate((5, 40_000, 100))
            ]
            with self.graph.device("/cpu:1"):
                self.word = Variable(np.array([b""], object), name="word")
            self.start = global_variables_initializer()
            self.saver = Saver(
                max_to_keep=2, sharded=True, asynchronous=self.asynchronous, builder=self.builder
            )
            # One thread: a pool would not survive the fork.
            config = proto.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=1)
            self.session = Session(config=config)
        self.load(0)

    def examiner(self) -> Training:
        """One that saves in the foreground."""
        kind = "plain" if self.builder is None else "bundles"
        return Training(self.directory, self.overwrite, kind)

    def begin(self) -> None:
        """Take over the list of checkpoints, as a program does when it starts."""
        found = get_checkpoint_state(str(self.directory))
        if found is not None:
            self.saver.recover_last_checkpoints(found.all_model_checkpoint_paths)

    def load(self, step: int) -> None:
        feeds = {self.step: np.int64(step), self.word: np.array([b"x" * (step % 50)], object)}
        for variable in self.weights:
            feeds[variable] = np.full(variable.shape.as_list(), step, np.float32)
        self.session.run(self.start, {v.initializer.inputs[1]: x for v, x in feeds.items()})

    def save(self, step: int) -> None:
        self.load(step)
        number = None if self.overwrite else step
        self.saver.save(self.session, str(self.directory / "model"), number)

    def restore(self) -> int:
        """The step of the latest checkpoint, all of whose variables must agree."""
        latest = latest_checkpoint(str(self.directory))
        assert latest is not None, "no checkpoint is left"
        self.load(0)
        self.saver.restore(self.session, latest)
        step, weights, word = self.session.run([self.step, self.weights, self.word])
        assert all((w == step).all() for w in weights), "a mixture of checkpoints"
        assert word[0] == b"x" * (int(step) % 50), "a mixture of checkpoints"
        return int(step)

    def check_files(self) -> None:
        """Only the checkpoints of the list, and files of others, remain."""
        state = get_checkpoint_state(str(self.directory))
        assert state is not None
        expected = {"checkpoint", "model-0.data-00000-of-00001", "notes.txt"}
        for path in state.all_model_checkpoint_paths:
            expected |= {os.path.basename(path) + ".index"} | names_of(path)
        found = set(os.listdir(self.directory))
        # The graph is written last: a save that dies just before leaves a checkpoint without.
        missing = {name for name in expected - found if not name.endswith(".meta")}
        assert found <= expected and not missing, f"left: {found - expected}, missing: {missing}"


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process; its exit code, or the negative signal."""
    process = os.fork()
    if not process:
        try:
            work()
        except BaseException as error:  # because a child must not go on as the parent
            sys.stderr.write(f"the child failed: {error!r}\n")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


class Death:
    """Counts calls of the operating system and ends the process at one of them."""

    def __init__(self, at: int, torn: bool) -> None:
        self.at = at
        self.torn = torn
        self.calls = 0

    def __enter__(self) -> Death:
        self.real = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            if name == "write" or not self.torn:
                setattr(os, name, self._counting(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self.real.items():
            setattr(os, name, function)

    def _counting(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                if self.torn:
                    real(args[0], args[1][: len(args[1]) // 2])
                os._exit(DIED)
            return real(*args, **kwargs)

        return call


def prepared(training: Training) -> None:
    """A directory with two saves; from a copy after the first time."""
    directory = training.directory
    copy = directory.with_name(f"prepared-{training.overwrite}")
    shutil.rmtree(directory, ignore_errors=True)
    if copy.exists():
        shutil.copytree(copy, directory)
        return
    assert in_child(lambda: prepare(training)) == 0
    shutil.copytree(directory, copy)


def prepare(training: Training) -> None:
    training.directory.mkdir()
    (training.directory / "notes.txt").write_text("not the saver's")
    (training.directory / "model-0.data-00000-of-00001").write_text("not the saver's")
    training.save(1)
    training.save(2)


def examine(training: Training, allowed: set[int]) -> None:
    """After a death: an allowed step restores, and the next save leaves nothing behind."""
    training.begin()
    step = training.restore()
    assert step in allowed, f"step {step} was restored, not one of {sorted(allowed)}"
    training.save(step + 100)
    assert training.restore() == step + 100
    training.save(step + 101)
    training.check_files()


def boundaries(training: Training, torn: bool, stride: int) -> list[str]:
    failures = []
    plain = training.examiner()
    for at in range(1 + (training.overwrite + 2 * torn) % stride, 1000, stride):
        prepared(plain)

        def die(at: int = at) -> None:
            training.begin()
            with Death(at, torn):
                training.save(3)
                training.saver.close()

        code = in_child(die)
        checked = in_child(lambda: examine(plain, {2, 3}))
        if checked or code not in (0, DIED):
            failures.append(f"{training.kind} torn={torn} call {at}: {code}, {checked}")
        if code == 0:
            return failures if at > 5 else [*failures, "too few calls were seen"]
    return [*failures, "the save never ended"]


def train_until_killed(training: Training, report: int) -> None:
    """Save one step after the other; report where it starts, then each step that is saved.

    An asynchronous save is reported when it is under way.
    """
    training.begin()
    step = training.restore()
    while True:
        os.write(report, step.to_bytes(8, "little"))
        step += 1
        training.save(step)


def killed_once(training: Training, delay: float) -> list[int]:
    """Kill a training `delay` seconds after it started to save; the steps it reported."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        try:
            train_until_killed(training, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        reported = pipe.read(8)
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)
        reported += pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == -signal.SIGKILL, f"the training ended by itself: {code}"
    return [int.from_bytes(reported[i : i + 8], "little") for i in range(0, len(reported), 8)]


def killed(training: Training, times: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    failures = []
    plain = training.examiner()
    prepared(plain)
    for number in range(times):
        saved = killed_once(training, rng.uniform(0, 0.03))
        allowed = {saved[-1], saved[-1] + 1}
        if training.asynchronous and len(saved) > 1:
            allowed.add(saved[-2])
        if in_child(lambda allowed=allowed: examine(plain, allowed)):
            failures.append(f"{training.kind} kill {number}, after steps {saved}")
            prepared(plain)
    return failures


def warm_up() -> None:
    """Import the modules that each child would otherwise import again."""
    from google.protobuf import text_format

    from weft_exec.kernels.registry import registered_kernels
    from weft_graph.ir.op_def import registered_ops

    assert text_format and registered_ops() and registered_kernels()
    proto.MetaGraphDef()


def main() -> None:
    warm_up()
    mode, directory, *rest = sys.argv[1:]
    kind = rest[-1] if rest[-1] in ("asynchronous", "bundles") else "plain"
    place = Path(directory) / "run"
    failures: list[str] = []
    for overwrite in (False, True):
        training = Training(place, overwrite, kind)
        if mode == "boundaries":
            for torn in (False, True):
                failures += boundaries(training, torn, int(rest[0]))
        else:
            failures += killed(training, int(rest[0]) // 2, int(rest[1]))
    sys.stdout.write("".join(f"{line}\n" for line in failures) + f"{mode} done\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
