"""A chief that trains on a cluster, and kills a task or itself at a chosen moment.

    python -m weft_testing.chief '{"cluster": …, "directory": …, "role": "ps", "how": "SIGKILL",
                                   "moment": "in a step"}'

It strikes once, however often it is started: the file "struck" says that it has. It prints what it
has trained.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import weft as wf
from weft_testing.waiting import wait_until

STEPS, SAVED_EVERY, STRUCK_AT = 24, 4, 10
MOMENTS = (
    "before a step", "in a step", "after a step", "before a save", "in a save", "after a save",
    "before a restore", "in a restore", "after a restore",
)  # fmt: skip


def model(worker: str) -> tuple[Any, Any, Any]:
    """Build the step, the trained variable and its train op; the gradient is a worker's."""
    step = wf.train.get_or_create_global_step()
    w = wf.get_variable("w", initializer=[0.0] * 1000)
    with wf.device(worker):
        loss = wf.reduce_sum(wf.square(w - 10.0))
    return step, w, wf.train.MomentumOptimizer(0.02, 0.9).minimize(loss, step)


class Striker:
    """Strikes once, at one moment."""

    def __init__(self, told: dict[str, Any], server: Any) -> None:
        self._told, self._server = told, server
        self._mark = Path(told["directory"], "struck")

    def at(self, moment: str, now: int = STRUCK_AT) -> None:
        """Strike if this moment is the chosen one."""
        wanted = self._told["moment"]
        if now < STRUCK_AT or self._mark.exists():
            return
        if moment == wanted:
            self._strike()
        elif wanted == moment.replace("before", "in"):
            threading.Thread(target=self._strike_inside, daemon=True).start()

    def _strike_inside(self) -> None:
        wait_until(lambda: self._server.master.running_steps)
        self._strike()

    def _strike(self) -> None:
        self._mark.touch()
        role = self._told["role"]
        pid = int(Path(self._told["directory"], f"{role}.pid").read_text())
        os.kill(pid, getattr(signal, self._told["how"]))


class Steps(wf.train.SessionRunHook):
    """Reports steps to a striker."""

    def __init__(self, striker: Striker, step: Any) -> None:
        self._striker, self._step, self._now = striker, step, 0

    def before_run(self, run_context: Any) -> Any:
        self._striker.at("before a step", self._now)
        return wf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._now = int(run_values.results)
        self._striker.at("after a step", self._now)


class Saves(wf.train.CheckpointSaverListener):
    """Reports saves to a striker."""

    def __init__(self, striker: Striker) -> None:
        self._striker = striker

    def before_save(self, session: Any, global_step_value: int) -> None:
        self._striker.at("before a save", global_step_value)

    def after_save(self, session: Any, global_step_value: int) -> None:
        self._striker.at("after a save", global_step_value)


class ToldSaver(wf.train.Saver):
    """Reports restores to a striker."""

    striker: Striker

    def restore(self, sess: Any, save_path: Any) -> None:
        self.striker.at("before a restore")
        super().restore(sess, save_path)
        self.striker.at("after a restore")


def main() -> None:
    """Train, continuing after earlier processes."""
    told = json.loads(sys.argv[1])
    server = wf.train.Server(told["cluster"], "worker", 0)
    striker = Striker(told, server)
    with wf.device(wf.train.replica_device_setter(cluster=told["cluster"])):
        step, w, train = model("/job:worker/task:1")
    saver = ToldSaver(sharded=True)
    saver.striker = striker
    scaffold = wf.train.Scaffold(saver=saver)
    saves = wf.train.CheckpointSaverHook(
        told["directory"], save_steps=SAVED_EVERY, scaffold=scaffold, listeners=[Saves(striker)]
    )
    creator = wf.train.ChiefSessionCreator(
        scaffold, server.target, checkpoint_dir=told["directory"]
    )
    hooks = [saves, Steps(striker, step), wf.train.StopAtStepHook(last_step=STEPS)]
    last = None
    with wf.train.MonitoredSession(creator, hooks) as session:
        while not session.should_stop():
            _, last = session.run([train, w])
    sys.stdout.write(json.dumps(None if last is None else last.tolist()))


if __name__ == "__main__":
    main()
