"""Programs whose traces are recorded: for tests, and as input of other tools.

`python -m weft_testing.traces FILE` records the training of a small network with a loop.
`record_two_tasks` records the program of the worked example in `docs/tracing.md`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

import weft as wf
from weft_distrib.client.recording import record_trace
from weft_testing.tasks import jobs, servers


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


PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def build_recurrent(step_device: str, size: int, trips: int) -> tuple[Any, Any]:
    """Build a recurrent network whose weights are on a parameter server.

    Args:
      step_device: the device of the product in the loop.
      size: number of columns of the input and of the weights.
      trips: number of iterations of the loop.
    Returns: the input and the loss.
    """
    with wf.device(PS):
        weights = wf.get_variable("weights", [size, size])
    with wf.device(WORKER):
        x = wf.placeholder(wf.float32, [64, size], name="x")

        def body(i: Any, state: Any) -> Any:
            with wf.device(step_device):
                product = wf.matmul(state, weights, name="product")
            return i + 1, wf.tanh(product, name="state")

        _, state = wf.while_loop(lambda i, _: i < trips, body, [0, x], name="rnn")
        return x, wf.reduce_mean(wf.square(state), name="loss")


def _named(code: CodeType, name: str) -> CodeType:
    """Return code whose file has a name: traces show it instead of the folder of a checkout."""
    constants = [_named(c, name) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=name, co_consts=tuple(constants))


def record_two_tasks(path: str | Path, step_device: str = PS, steps: int = 6) -> None:
    """Record some steps of `build_recurrent` on a parameter server and a worker."""
    build = FunctionType(_named(build_recurrent.__code__, "train.py"), globals())
    with servers(jobs(ps=1, worker=1)) as (_, worker), wf.Graph().as_default():
        x, loss = build(step_device, 128, 12)
        feeds = {x: np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)}
        with wf.Session(worker.target) as session:
            session.run(wf.global_variables_initializer())
            for _ in range(3):
                session.run(loss, feeds)
            recording = threading.Thread(target=record_trace, args=(worker.target, steps, path))
            recording.start()
            while recording.is_alive():
                session.run(loss, feeds)
            recording.join()


if __name__ == "__main__":
    record_training(sys.argv[1])
