"""Programs whose traces are recorded: for tests, and as input of other tools.

`python -m weft_testing.traces FILE` records the training of a small network with a loop.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import weft as wf


def record_training(path: str | Path, steps: int = 5, side: int = 32) -> None:
    """Record some training steps of a network with a recurrent loop, and a checkpoint."""
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, side], name="x")
        w = wf.get_variable("w", [side, side])
        _, state = wf.while_loop(
            lambda i, state: i < 5,
            lambda i, state: (i + 1, wf.tanh(wf.matmul(state, w, name="recurrent"))),
            [0, x],
        )
        loss = wf.reduce_mean(wf.square(state - 1.0), name="loss")
        train = wf.train.GradientDescentOptimizer(0.1).minimize(loss)
        saver = wf.train.Saver()
        data = np.random.default_rng(0).standard_normal((64, side)).astype(np.float32)
        with wf.Session() as session:
            session.run(wf.global_variables_initializer())
            with wf.trace(path):
                for _ in range(steps):
                    session.run([train, loss], {x: data})
                saver.save(session, str(Path(path).with_suffix("")))


if __name__ == "__main__":
    record_training(sys.argv[1])
