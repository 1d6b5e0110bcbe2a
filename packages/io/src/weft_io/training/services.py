"""The threads of a Supervisor that save, summarize and count steps at intervals."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

from weft_autodiff.optimizers.training_util import global_step as value_of_step
from weft_exec import progress
from weft_graph import proto
from weft_io.coordination.coordinator import Coordinator, LooperThread

_log = logging.getLogger("weft")


class SupervisorInterface(Protocol):
    """The interface of a Supervisor for its threads."""

    @property
    def coord(self) -> Coordinator:
        """The coordinator that stops the threads."""

    @property
    def save_path(self) -> str | None:
        """The prefix of the names of checkpoints."""

    @property
    def save_model_secs(self) -> Any:
        """Seconds between checkpoints."""

    @property
    def save_summaries_secs(self) -> Any:
        """Seconds between summaries."""

    @property
    def saver(self) -> Any:
        """The saver of the model."""

    @property
    def summary_op(self) -> Any:
        """The summaries."""

    @property
    def summary_writer(self) -> Any:
        """The writer of summaries and events; None for no writer."""

    @property
    def global_step(self) -> Any:
        """The global step; None if the model has none."""


class SummaryThread(LooperThread):
    """A thread that writes the summaries of a model.

    Args:
      supervisor: provides the nodes, the writer and the interval.
      session: runs the nodes.
    """

    def __init__(self, supervisor: SupervisorInterface, session: Any) -> None:
        super().__init__(supervisor.coord, supervisor.save_summaries_secs)
        self._supervisor = supervisor
        self._session = session

    def run_loop(self) -> None:
        """Write the summaries once."""
        supervisor = self._supervisor
        if supervisor.global_step is None:
            data, step = self._session.run(supervisor.summary_op), None
        else:
            data, step = self._session.run([supervisor.summary_op, supervisor.global_step])
        if supervisor.summary_writer is not None:
            _log.info("Recording summary at step %s.", step)
            supervisor.summary_writer.add_summary(data, step)


class StepCounterThread(LooperThread):
    """A thread that logs the steps per second and writes them as a summary."""

    def __init__(self, supervisor: SupervisorInterface, session: Any) -> None:
        super().__init__(supervisor.coord, supervisor.save_summaries_secs)
        self._supervisor = supervisor
        self._session = session
        self._tag = f"{supervisor.global_step.op.name}/sec"

    def start_loop(self) -> None:
        """Record the start of the first interval."""
        self._last = (time.monotonic(), self._step())

    def run_loop(self) -> None:
        """Log and write the rate of the last interval."""
        now, step = time.monotonic(), self._step()
        seconds, steps = now - self._last[0], step - self._last[1]
        self._last = (now, step)
        speed = steps / seconds if seconds else float("inf")
        value = proto.Summary.Value(tag=self._tag, simple_value=speed)
        if self._supervisor.summary_writer is not None:
            self._supervisor.summary_writer.add_summary(proto.Summary(value=[value]), step)
        progress.log.info("%s: %g", self._tag, speed)

    def _step(self) -> int:
        return value_of_step(self._session, self._supervisor.global_step)


class CheckpointThread(LooperThread):
    """A thread that saves checkpoints."""

    def __init__(self, supervisor: SupervisorInterface, session: Any) -> None:
        super().__init__(supervisor.coord, supervisor.save_model_secs)
        self._supervisor = supervisor
        self._session = session

    def run_loop(self) -> None:
        """Save one checkpoint."""
        supervisor = self._supervisor
        progress.log.info("Saving checkpoint to path %s", supervisor.save_path)
        step = supervisor.global_step
        supervisor.saver.save(self._session, supervisor.save_path, global_step=step)
        if supervisor.summary_writer is not None and step is not None:
            status = proto.SessionLog(
                status=proto.SessionLog.CHECKPOINT, checkpoint_path=supervisor.save_path
            )
            supervisor.summary_writer.add_session_log(status, value_of_step(self._session, step))
