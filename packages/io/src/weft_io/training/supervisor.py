"""Supervisor: a session for training, with threads that save, summarize and count steps."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["Supervisor"]

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from weft_autodiff.optimizers.training_util import global_step as value_of_step
from weft_exec.session.session import Session
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.traits import Role
from weft_io.coordination.coordinator import Coordinator, LooperThread
from weft_io.files.systems import PathLike, as_path
from weft_io.meta_graphs.export import export_meta_graph
from weft_io.meta_graphs.graph_io import write_graph
from weft_io.summary.writer import FileWriter
from weft_io.training.services import CheckpointThread, StepCounterThread, SummaryThread
from weft_io.training.session_manager import SessionManager
from weft_io.training.supervisor_nodes import SupervisedNodes
from weft_tensor import errors
from weft_tensor.arguments import check_number, check_text

_log = logging.getLogger("weft")


class Supervisor:
    """Initializes or restores a model, and saves and summarizes it in threads during training.

    One of the programs that train a model is the chief, which does all of this; the others wait for
    it. The graph is finalized. Omitted nodes are taken from the graph's collections, or created;
    None disables a node.

    Args:
      graph: the default graph by default.
      ready_op: string, shape (n,): names of variables that are not ready.
      ready_for_local_init_op: string, shape (n,): names that `local_init_op` still waits for.
      is_chief: True if this program is the chief.
      init_op: node that initializes the model.
      init_feed_dict: feeds of `init_op`.
      local_init_op: node to run in each new session.
      logdir: directory for checkpoints and event files; without it, neither.
      summary_op: string, shape (): serialized summaries.
      saver: a `Saver`.
      global_step: integer, shape ().
      save_summaries_secs: seconds between summaries; 0 for none.
      save_model_secs: seconds between checkpoints; 0 for none.
      recovery_wait_secs: pause between checks of whether the model is ready.
      stop_grace_secs: seconds that threads may take to stop.
      checkpoint_basename: prefix of the names of checkpoints.
      session_manager: creates the sessions; a `SessionManager` by default.
      summary_writer: a `FileWriter`; one in `logdir` by default.
      init_fn: called with the session after `init_op`.
      local_init_run_options: RunOptions for `local_init_op`.
    Raises: InvalidArgumentError: an argument is too small, or a variable has no device and this
      program is not the chief; InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> step = wf.train.get_or_create_global_step()
      >>> advance = step.assign_add(1)
      >>> supervisor = wf.train.Supervisor(logdir="./supervised")
      >>> with supervisor.managed_session() as session:
      ...     while not supervisor.should_stop():
      ...         if session.run(advance) == 3:
      ...             supervisor.request_stop()
      ...     path = supervisor.saver.save(session, supervisor.save_path, global_step=step)
      >>> path
      './supervised/model.ckpt-3'
    """

    USE_DEFAULT: Final[Any] = 0

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: PathLike | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        if not (graph is None or isinstance(graph, Graph)):
            raise errors.InvalidTypeError(f"graph must be a Graph, got {graph!r}")
        self._grace = check_number(stop_grace_secs, "stop_grace_secs", 0)
        self._summaries_secs = _seconds(save_summaries_secs, "save_summaries_secs")
        self._model_secs = _seconds(save_model_secs, "save_model_secs")
        check_text(checkpoint_basename, "checkpoint_basename")
        self._graph = graph or get_default_graph()
        self._is_chief = is_chief
        if not is_chief:
            _check_devices(self._graph)
        self._logdir = as_path(logdir) if logdir and is_chief else None
        with self._graph.as_default():
            self._nodes = SupervisedNodes.of(
                {
                    "ready_op": ready_op,
                    "ready_for_local_init_op": ready_for_local_init_op,
                    "init_op": init_op,
                    "local_init_op": local_init_op,
                    "saver": saver,
                    "summary_op": summary_op,
                    "global_step": global_step,
                }
            )
        self._coord = Coordinator()
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._save_path = self._logdir and os.path.join(self._logdir, checkpoint_basename)
        self._writer = self._writer_of(summary_writer)
        self._graph_is_written = False
        self._manager = session_manager or SessionManager(
            local_init_op=self._nodes.local_init_op,
            ready_op=self._nodes.ready_op,
            ready_for_local_init_op=self._nodes.ready_for_local_init_op,
            graph=self._graph,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        self._graph.finalize()

    def _writer_of(self, argument: Any) -> Any:
        if not self._is_chief:
            return None
        if argument is not Supervisor.USE_DEFAULT:
            return argument
        if self._logdir is None:
            return None
        return FileWriter(self._logdir)

    # ------------------------------------------------------------- what it has

    @property
    def is_chief(self) -> bool:
        """True if this program is the chief."""
        return self._is_chief

    @property
    def session_manager(self) -> SessionManager:
        """The object that creates the sessions."""
        return self._manager

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> Any:
        """The node that initializes the model."""
        return self._nodes.init_op

    @property
    def init_feed_dict(self) -> Mapping[Any, Any] | None:
        """The feeds of `init_op`."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """The output with the names of variables that are not ready."""
        return self._nodes.ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """The output with the names that `local_init_op` still waits for."""
        return self._nodes.ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        """The writer; None if there is none."""
        return self._writer

    @property
    def summary_op(self) -> Any:
        """The summaries; None if there are none."""
        return self._nodes.summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries; None if this program is not the chief."""
        return self._summaries_secs if self._is_chief else None

    @property
    def global_step(self) -> Any:
        """The global step; None if there is none."""
        return self._nodes.global_step

    @property
    def saver(self) -> Any:
        """The saver; None if there is none."""
        return self._nodes.saver

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints; None if this program is not the chief."""
        return self._model_secs if self._is_chief else None

    @property
    def save_path(self) -> str | None:
        """The prefix of the paths of checkpoints; None without a log directory."""
        return self._save_path

    # ------------------------------------------------------------- sessions

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """Return a session with a ready model, and start the threads that work for it.

        Args:
          master: a session target.
          config: a ConfigProto.
          wait_for_checkpoint: wait until there is one.
          max_wait_secs: maximum number of seconds to wait for that, or for the chief.
          start_standard_services: start the threads that save, summarize and count, and the queue
            runners.
        Raises: FailedPreconditionError: the model is not ready after its initialization;
          DeadlineExceededError: it is not ready in time.
        """
        self._coord.clear_stop()
        if self._writer is not None:
            self._writer.reopen()
        if not self._is_chief:
            session = self._manager.wait_for_session(
                master, config=config, max_wait_secs=max_wait_secs
            )
        else:
            session = self._manager.prepare_session(
                master,
                init_op=self.init_op,
                saver=self.saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
        try:
            self._start_threads(session, start_standard_services)
        except BaseException as error:  # because no other owner closes the session after a failure
            self._coord.request_stop(error)
            session.close()
            raise
        return session

    def _start_threads(self, session: Session, services: bool) -> None:
        """Write the graph, and start the threads that work for a session."""
        if self._is_chief:
            self._write_graph()
            if services:
                _log.info("Starting standard services.")
                self.start_standard_services(session)
        if services:
            _log.info("Starting queue runners.")
            self.start_queue_runners(session)

    @contextmanager
    def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Session]:
        """Return a context with a session, which at the end stops threads and closes it.

        `OutOfRangeError`, the end of the data, ends the block without an error.

        Args:
          master, config, start_standard_services: as for `prepare_or_wait_for_session`.
          close_summary_writer: close the writer, too.
        Raises: the first error of the block or a thread.
        """
        session: Session | None = None
        try:
            session = self.prepare_or_wait_for_session(
                master, config, start_standard_services=start_standard_services
            )
            yield session
        except Exception as error:  # because the threads must stop after any failure
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                if session is not None:
                    session.close()

    # ------------------------------------------------------------- threads

    def start_standard_services(self, sess: Any) -> list[LooperThread]:
        """Start the threads that save, summarize and count; do nothing without a log directory.

        Raises: FailedPreconditionError: this program is not the chief.
        """
        if not self._is_chief:
            raise errors.FailedPreconditionError(
                "Only chief supervisor can start standard services. Because only chief supervisors "
                "can write events."
            )
        if self._logdir is None:
            _log.warning("Standard services need a 'logdir' passed to the Supervisor")
            return []
        self._log_start(sess)
        threads: list[LooperThread] = []
        if self._summaries_secs and self._writer is not None:
            if self.summary_op is not None:
                threads.append(SummaryThread(self, sess))
            if self.global_step is not None:
                threads.append(StepCounterThread(self, sess))
        if self.saver is not None and self._model_secs:
            threads.append(CheckpointThread(self, sess))
        for thread in threads:
            thread.start()
        return threads

    def start_queue_runners(
        self, sess: Any, queue_runners: Iterable[Any] | None = None
    ) -> list[threading.Thread]:
        """Start the threads of queue runners, by default of all in the graph."""
        if queue_runners is None:
            queue_runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        return [
            thread
            for runner in queue_runners
            for thread in runner.create_threads(sess, coord=self._coord, daemon=True, start=True)
        ]

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperThread:
        """Start and return a thread that repeats `target`; for arguments see `LooperThread`."""
        return LooperThread.loop(self._coord, timer_interval_secs, target, args, kwargs)

    def stop(
        self,
        threads: Iterable[threading.Thread] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stop the threads.

        Args:
          threads: threads to wait for, in addition to the coordinator's threads.
          close_summary_writer: close the writer.
          ignore_live_threads: log threads that take too long, instead of raising.
        Raises: the first reported error; FailedPreconditionError: threads still run.
        """
        self._coord.request_stop()
        try:
            self._coord.join(threads, self._grace, ignore_live_threads)
        finally:
            if close_summary_writer and self._writer is not None:
                self._writer.add_session_log(proto.SessionLog(status=proto.SessionLog.STOP))
                self._writer.close()
                self._graph_is_written = False

    def request_stop(self, ex: Any = None) -> None:
        """Request the threads to stop; see `Coordinator.request_stop`."""
        self._coord.request_stop(ex)

    def should_stop(self) -> bool:
        """Return True if a stop was requested."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Return a context that stops the threads after an error instead of raising it."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Wait until a stop is requested."""
        self._coord.wait_for_stop()

    # ------------------------------------------------------------- summaries

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Write a summary.

        Args:
          sess: a session.
          summary: a serialized summary, or a message.
          global_step: the step; by default its current value in the session.
        Raises: FailedPreconditionError: there is no writer.
        """
        if self._writer is None:
            raise errors.FailedPreconditionError("Writing a summary requires a summary writer.")
        if global_step is None and self.global_step is not None:
            global_step = value_of_step(sess, self.global_step)
        self._writer.add_summary(summary, global_step)

    def _log_start(self, session: Any) -> None:
        if self.global_step is None or self._writer is None:
            return
        status = proto.SessionLog(status=proto.SessionLog.START)
        self._writer.add_session_log(status, value_of_step(session, self.global_step))

    def _write_graph(self) -> None:
        if self._logdir is not None:
            message = self._graph.as_graph_def(add_shapes=True)
            write_graph(message, self._logdir, "graph.pbtxt")
        if self._writer is not None and not self._graph_is_written:
            saver = self.saver
            saver_def = None if saver is None else saver.as_saver_def()
            self._writer.add_graph(self._graph)
            self._writer.add_meta_graph(export_meta_graph(graph=self._graph, saver_def=saver_def))
            self._graph_is_written = True

    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    RequestStop = request_stop
    Loop = loop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed


def _seconds(value: Any, label: str) -> Any:
    if value is not None:
        check_number(value, label, 0)
    return value


def _check_devices(graph: Graph) -> None:
    """Check that all variables have device requests, for a program that is not the chief."""
    for node in graph.nodes:
        if node.role is Role.VARIABLE and node.outputs[0].dtype.is_ref and not node.device:
            raise errors.InvalidArgumentError(
                f"When using replicas, all Variables must have their device set: {node.name}"
            )
