"""One process of a training with injected faults: a server, a client, or both.

`python program.py ROLE NUMBER FOLDER`, with the cluster in the folder. What it goes through is
written to `FOLDER/events/ROLE-NUMBER.jsonl`, a line with the time of the monotonic clock for each.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "digits"))

import digits
import numpy as np

import weft as wf

BATCH = 32
STEP_SECONDS = 0.02
"""Minimum number of seconds between two logged steps."""

CHIEF, CLIENT, PS, WORKER = "chief", "client", "ps", "worker"


class Events:
    """The event log of this process, which the fault injector reads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._stepped = 0.0

    def say(self, what: str, **more: Any) -> None:
        self._file.write(json.dumps({"t": time.monotonic(), "what": what, **more}) + "\n")

    def step(self, number: int) -> None:
        if time.monotonic() - self._stepped >= STEP_SECONDS:
            self._stepped = time.monotonic()
            self.say("step", step=number)


class Preemptions(logging.Handler):
    """Logs the errors after which a training loop creates a new session."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        error = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(error, wf.errors.OpError):
            self._events.say("error", kind=type(error).__name__, message=error.message[:300])


class Watch(wf.train.SessionRunHook):  # type: ignore[misc]  # the base is made by a namespace
    """Logs sessions and steps, and stops on request."""

    def __init__(self, events: Events, stop: Path) -> None:
        self._events, self._stop = events, stop
        self._step: Any = None

    def begin(self) -> None:
        self._step = wf.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._events.say("session")

    def before_run(self, run_context: Any) -> Any:
        return wf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._events.step(int(run_values.results))
        if self._stop.exists():
            run_context.request_stop()


def build(small: bool) -> tuple[Any, Any, Any, Any]:
    """Build images, labels, the train op, and the accuracy."""
    images = wf.placeholder(wf.float32, [None, 8, 8, 1])
    labels = wf.placeholder(wf.int32, [None])
    hidden = images
    if not small:
        hidden = wf.layers.conv2d(hidden, 16, 3, padding="same", activation=wf.nn.relu)
        hidden = wf.layers.max_pooling2d(hidden, 2, 2)
    hidden = wf.layers.dense(wf.layers.flatten(hidden), 64, activation=wf.nn.relu)
    logits = wf.layers.dense(hidden, 10)
    loss = wf.losses.sparse_softmax_cross_entropy(labels, logits)
    correct = wf.equal(wf.argmax(logits, 1, output_type=wf.int32), labels)
    accuracy = wf.reduce_mean(wf.cast(correct, wf.float32))
    step = wf.train.get_or_create_global_step()
    train = wf.train.AdamOptimizer(1e-3).minimize(loss, global_step=step)
    return images, labels, train, accuracy


def train(target: str, place: str, number: int, folder: Path, events: Events) -> None:
    """Train until the folder has the file "stop"."""
    plan = json.loads((folder / "plan.json").read_text())
    setter = wf.train.replica_device_setter(cluster=plan["cluster"], worker_device=place)
    with wf.device(setter):
        images, labels, step, _ = build(plan["small"])
    data, _ = digits.load()
    order = np.random.default_rng([number, os.getpid()])
    config = wf.ConfigProto(device_filters=["/job:ps", place], inter_op_parallelism_threads=1)
    chief = place == f"/job:{CHIEF}/task:0"
    with wf.train.MonitoredTrainingSession(
        target,
        is_chief=chief,
        checkpoint_dir=str(folder / "model") if chief else None,
        hooks=[Watch(events, folder / "stop")],
        save_checkpoint_secs=2,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        config=config,
    ) as session:
        while not session.should_stop():
            chosen = order.integers(0, len(data.labels), BATCH)
            session.run(step, {images: data.images[chosen], labels: data.labels[chosen]})
            time.sleep(plan["pause"])
    events.say("done")


def main(role: str, number: int, folder: Path) -> None:
    """Run one process."""
    events = Events(folder / "events" / f"{role}-{number}.jsonl")
    handler = Preemptions(events)
    log = logging.getLogger("weft")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    plan = json.loads((folder / "plan.json").read_text())
    events.say("start", pid=os.getpid())
    if role == CLIENT:
        target = f"grpc://{plan['cluster'][CHIEF][0]}"
        train(target, f"/job:{CHIEF}/task:0", number, folder, events)
        return
    server = wf.train.Server(plan["cluster"], role, number, insecure=True)
    events.say("up")
    if role == WORKER:
        train(server.target, f"/job:{WORKER}/task:{number}", number, folder, events)
        server.close()
    else:
        server.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
