"""Training that resumes at the saved position of its input."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_graph import Graph
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ops.array import placeholder
from weft_graph.ops.control import group
from weft_graph.variables.reference import Variable, local_variables_initializer
from weft_io.checkpoint.state import load_variable
from weft_io.data.dataset import Dataset
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.iterator import Iterator
from weft_io.saving.saver import Saver
from weft_io.training import (
    MonitoredTrainingSession,
    Scaffold,
    SessionRunHook,
    StopAtStepHook,
)
from weft_io.training.input_hooks import CheckpointInputPipelineHook
from weft_tensor import dtypes, errors

PROGRAM = Path(__file__).parent / "programs" / "read.py"


def shuffled() -> Dataset:
    """As in `read.py`."""
    return Dataset.range(20).map(lambda i: (i, i, i)).shuffle(9, seed=5).repeat().prefetch(2)


def in_order(steps: int) -> list[int]:
    """Return the examples that uninterrupted training reads."""
    with Graph().as_default():
        return Training(shuffled).run(None, steps)


class Training:
    """One process's part of a training, in the default graph."""

    def __init__(self, make: Callable[[], Dataset], one_shot: bool = False) -> None:
        dataset = make()
        if one_shot:
            self.iterator = dataset.make_one_shot_iterator()
        else:
            self.iterator = dataset.make_initializable_iterator()
        self.value = self.iterator.get_next()[0]
        self.count = get_or_create_global_step().assign_add(1)
        self.arguments: dict[str, Any] = {}
        self.hooks: list[SessionRunHook] = []
        if not one_shot:
            self.initialize_with_tables()

    def initialize_with_tables(self) -> None:
        Graph.get_collection_ref(
            self.iterator.initializer.graph, GraphKeys.TABLE_INITIALIZERS
        ).append(self.iterator.initializer)

    def is_saved(self) -> Training:
        saveable = make_saveable_from_iterator(self.iterator)
        self.value.graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, saveable)
        return self

    def run(self, directory: Path | None, steps: int) -> list[int]:
        found = []
        with MonitoredTrainingSession(
            checkpoint_dir=directory,
            save_checkpoint_steps=3,
            hooks=[*self.hooks, StopAtStepHook(num_steps=steps)],
            **self.arguments,
        ) as session:
            while not session.should_stop():
                found.append(int(session.run([self.value, self.count])[0]))
        return found


def tables() -> Training:
    return Training(shuffled).is_saved()


def local_init_op() -> Training:
    made = Training(shuffled).is_saved()
    del made.value.graph.get_collection_ref(GraphKeys.TABLE_INITIALIZERS)[:]
    init = group(local_variables_initializer(), made.iterator.initializer)
    made.arguments["scaffold"] = Scaffold(local_init_op=init)
    return made


class Initializes(SessionRunHook):
    def __init__(self, node: Any) -> None:
        self.node = node

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.node)


def a_hook_initializes() -> Training:
    made = Training(shuffled).is_saved()
    del made.value.graph.get_collection_ref(GraphKeys.TABLE_INITIALIZERS)[:]
    made.hooks = [Initializes(made.iterator.initializer)]
    return made


def one_shot() -> Training:
    return Training(shuffled, one_shot=True).is_saved()


def the_hook_saves() -> Training:
    made = Training(shuffled)
    made.hooks = [CheckpointInputPipelineHook()]
    return made


def the_hook_is_given_one() -> Training:
    made = Training(shuffled)
    made.hooks = [CheckpointInputPipelineHook([made.iterator])]
    made.arguments["scaffold"] = Scaffold(saver=Saver(defer_build=True, max_to_keep=2))
    return made


@pytest.mark.parametrize(
    "make",
    [
        tables,
        local_init_op,
        a_hook_initializes,
        one_shot,
        the_hook_saves,
        the_hook_is_given_one,
    ],
)
def test_it_goes_on_where_it_was(
    make: Callable[[], Training], tmp_path: Path, logged: Callable[[], list[str]]
) -> None:
    found: list[int] = []
    for steps in (2, 4, 0, 3):
        with Graph().as_default():
            found += make().run(tmp_path, steps)
    assert found == in_order(9)
    assert not [line for line in logged() if "collection" in line]


def test_a_session_that_is_made_again_goes_on_too(tmp_path: Path) -> None:
    class Fails(SessionRunHook):
        steps = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.steps += 1
            if self.steps == 5:
                raise errors.AbortedError("preempted")

    with Graph().as_default():
        training = tables()
        training.hooks = [Fails()]
        wanted = in_order(6)
        assert training.run(tmp_path, 6) == [*wanted[:4], *wanted[3:6]]


def test_several_iterators_in_turns(tmp_path: Path) -> None:
    """Behind a handle, one of them of several datasets, and one that was never initialized."""

    def part() -> list[int]:
        handle = placeholder(dtypes.string, ())
        value = Iterator.from_string_handle(handle, dtypes.int64, ()).get_next()
        train = Dataset.range(100).repeat().make_initializable_iterator()
        check = Iterator.from_structure(dtypes.int64, ())
        begin = check.make_initializer(Dataset.range(1000, 1004))
        Dataset.range(3).make_initializable_iterator()
        table = value.graph.get_collection_ref(GraphKeys.TABLE_INITIALIZERS)
        table += [train.initializer, begin]
        handles = [train.string_handle(), check.string_handle()]
        count = get_or_create_global_step().assign_add(1)
        with MonitoredTrainingSession(
            checkpoint_dir=tmp_path, hooks=[CheckpointInputPipelineHook()]
        ) as session:
            names = session.run_step_fn(lambda step_context: step_context.session.run(handles))
            return [
                int(session.run([value, count], {handle: names[which]})[0]) for which in (0, 1, 0)
            ]

    found = []
    for _ in range(2):
        with Graph().as_default():
            found.append(part())
    assert found == [[0, 1000, 1], [2, 1001, 3]]


def test_a_training_may_get_the_hook_later(tmp_path: Path, logged: Callable[[], list[str]]) -> None:
    with Graph().as_default():
        found = [Training(shuffled).run(tmp_path, 2)]
    with Graph().as_default(), pytest.raises(errors.NotFoundError, match="IteratorV2"):
        tables().run(tmp_path, 2)
    for _ in range(2):
        with Graph().as_default():
            found.append(the_hook_saves().run(tmp_path, 2))
    wanted = in_order(4)
    assert found == [wanted[:2], wanted[:2], wanted[2:]]
    assert load_variable(str(tmp_path), "global_step") == 6
    assert sum("no state of the iterator 'IteratorV2'" in line for line in logged()) == 1


def test_a_saver_without_the_iterator_is_told(tmp_path: Path) -> None:
    with Graph().as_default():
        training = the_hook_saves()
        training.arguments["scaffold"] = Scaffold(saver=Saver())
        with pytest.raises(errors.FailedPreconditionError, match="no saver saves the iterator"):
            training.run(tmp_path, 1)
    with Graph().as_default():
        Variable(1.0)
        with pytest.raises(errors.FailedPreconditionError, match="got none"):
            MonitoredTrainingSession(hooks=[CheckpointInputPipelineHook()])
    with pytest.raises(errors.InvalidTypeError, match="an Iterator is required"):
        CheckpointInputPipelineHook([Dataset.range(3)])


def read_by_program(directory: Path, last: int, kill_after: int | None) -> dict[int, int]:
    """Return the examples that a run has read; it is killed after this number, or a few more."""
    command = [sys.executable, str(PROGRAM), str(directory), "3", str(last)]
    found: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            step, value = map(int, line.split())
            found[step] = value
            if len(found) == kill_after:
                process.kill()
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    return found


def test_a_killed_training_goes_on_with_what_its_checkpoint_had_not_read(tmp_path: Path) -> None:
    first = read_by_program(tmp_path, 10**9, kill_after=8)
    second = read_by_program(tmp_path, max(first) + 5, kill_after=None)
    wanted = dict(enumerate(in_order(max(second)), 1))
    assert first.items() | second.items() <= wanted.items()
    assert max(first) - 3 < min(second) <= max(first) + 2  # one may not have been told
