"""Train without an end, and print each step, so that a killed process leaves its progress."""

from __future__ import annotations

import sys

from weft_autodiff.optimizers.training_util import get_or_create_global_step
from weft_graph.ops.control import group
from weft_graph.variables.reference import Variable
from weft_io.training import MonitoredTrainingSession, StopAtStepHook


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main(directory: str, every: int, last: int) -> None:
    step = get_or_create_global_step()
    w = Variable([0.0] * 100, name="w")
    train = group(w.assign_add([1.0] * 100, read_value=False), step.assign_add(1, read_value=False))
    with MonitoredTrainingSession(
        checkpoint_dir=directory,
        save_checkpoint_steps=every,
        hooks=[StopAtStepHook(last_step=last)],
    ) as session:
        while not session.should_stop():
            reached, values = session.run([step, w, train])[:2]
            assert (values == reached).all(), "the variables are of different steps"
            say(reached)
    say("end")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
