"""Read an infinite dataset, and print the number and the element of each step."""

from __future__ import annotations

import sys

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_graph.ir.collections_keys import GraphKeys
from weft_io.data.dataset import Dataset
from weft_io.training import MonitoredTrainingSession, StopAtStepHook
from weft_io.training.input_hooks import CheckpointInputPipelineHook


def shuffled() -> Dataset:
    return Dataset.range(20).map(lambda i: (i, i, i)).shuffle(9, seed=5).repeat().prefetch(2)


def main(directory: str, every: int, last: int) -> None:
    iterator = shuffled().make_initializable_iterator()
    value, *_ = iterator.get_next()
    value.graph.add_to_collection(GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    advance = get_or_create_global_step().assign_add(1)
    with MonitoredTrainingSession(
        checkpoint_dir=directory,
        save_checkpoint_steps=every,
        hooks=[CheckpointInputPipelineHook(), StopAtStepHook(last_step=last)],
    ) as session:
        while not session.should_stop():
            found, step = session.run([value, advance])
            sys.stdout.write(f"{step} {found}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
