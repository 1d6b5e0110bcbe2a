"""Training with a progress bar, summaries, checkpoints and exact resumption."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import weft as wf
from journey.base import Journey, Training
from journey.tracing import TraceHook

NUM_SAVES = 10
"""Number of checkpoints in a whole training."""

NUM_POINTS = 100
"""Number of points of the training curve."""

NUM_SHORT_POINTS = 20
"""The same in the short form."""


class _ProgressHook(wf.train.SessionRunHook):
    """Shows the global step and the loss."""

    def __init__(self, progress: Progress, num_steps: int, loss: wf.Tensor) -> None:
        self._progress = progress
        self._num_steps = num_steps
        self._fetches = {"loss": loss, "step": wf.train.get_or_create_global_step()}
        self._task: Any = None

    def after_create_session(self, session: wf.Session, coord: wf.train.Coordinator) -> None:
        """Show the steps of an earlier run."""
        done = int(session.run(self._fetches["step"]))
        self._task = self._progress.add_task(
            "train", total=self._num_steps, completed=done, loss=float("nan")
        )

    def before_run(self, run_context: Any) -> Any:
        """Fetch the loss in each step."""
        return wf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Move the bar."""
        values: Mapping[str, Any] = run_values.results
        self._progress.update(self._task, completed=int(values["step"]), loss=float(values["loss"]))


def train(
    journey: Journey,
    console: Console,
    is_deterministic: bool = False,
    trace: Path | None = None,
) -> float:
    """Train what is left to train; return the seconds per step, 0.0 without steps.

    Args:
      journey: the model.
      console: shows the progress.
      is_deterministic: compute the same bits in each run.
      trace: the file of a trace of some steps.
    """
    config = wf.ConfigProto()
    config.experimental.deterministic = is_deterministic
    target = journey.replicas.target
    num_points = NUM_SHORT_POINTS if journey.is_short else NUM_POINTS
    directory = str(journey.directory.resolve())  # the tasks of a cluster write checkpoints here
    with wf.Graph().as_default() as nodes, journey.replicas.on_worker(0), ExitStack() as stack:
        wf.set_random_seed(journey.seed)
        wf.train.get_or_create_global_step()
        graph = journey.training()
        wf.summary.scalar("loss", graph.loss)
        columns = [
            TextColumn(journey.name),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}"),
            TimeRemainingColumn(),
        ]
        with Progress(*columns, console=console) as progress:
            hooks = [
                wf.train.StopAtStepHook(last_step=journey.num_steps),
                wf.train.NanTensorHook(graph.loss),
                _ProgressHook(progress, journey.num_steps, graph.loss),
                *graph.hooks,
            ]
            if trace is not None:
                hooks.append(TraceHook(trace, journey.num_steps, target or None))
            with wf.train.MonitoredTrainingSession(
                target,
                checkpoint_dir=directory,
                scaffold=wf.train.Scaffold(saver=wf.train.Saver(resumable=True, max_to_keep=2)),
                save_checkpoint_steps=max(1, journey.num_steps // NUM_SAVES),
                save_summaries_steps=max(1, journey.num_steps // num_points),
                log_step_count_steps=None,
                config=config,
                hooks=hooks,
            ) as session:
                if journey.has_graph_per_worker:
                    stack.enter_context(_other_workers(journey))
                seconds = _run_steps(session, graph)
            console.print(f"{len(nodes.get_operations()):,} nodes")
            return seconds


@contextmanager
def _other_workers(journey: Journey) -> Iterator[None]:
    """Train on all workers but the first one, in threads, until the training has ended."""
    workers = range(1, journey.replicas.num_workers)
    threads = [
        threading.Thread(target=_train_replica, args=[journey.on_worker(i)]) for i in workers
    ]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def _train_replica(journey: Journey) -> None:
    """Train until the first worker ends."""
    replicas = journey.replicas
    with wf.Graph().as_default(), replicas.on_worker(replicas.worker):
        wf.set_random_seed(journey.seed)
        wf.train.get_or_create_global_step()
        graph = journey.training()
        hooks = [wf.train.StopAtStepHook(last_step=journey.num_steps), *graph.hooks]
        with wf.train.MonitoredTrainingSession(
            replicas.target, is_chief=False, hooks=hooks
        ) as session:
            _run_steps(session, graph)


def _run_steps(session: wf.train.MonitoredSession, graph: Training) -> float:
    count, started = 0, time.perf_counter()
    feeds = itertools.repeat(None) if graph.feeds is None else graph.feeds(session)
    while not session.should_stop():
        session.run(graph.train, next(feeds))
        count += 1
    return (time.perf_counter() - started) / count if count else 0.0


def restored(journey: Journey) -> wf.Session:
    """Return a session over the default graph with the newest variables of the training.

    Raises: FileNotFoundError: there is no checkpoint.
    """
    newest = wf.train.latest_checkpoint(str(journey.directory))
    if newest is None:
        raise FileNotFoundError(f"no checkpoint in {journey.directory}")
    session = wf.Session()
    wf.train.Saver().restore(session, newest)
    return session


def forget(directory: Path) -> None:
    """Delete the checkpoints and event files of an earlier run."""
    for pattern in ("model.ckpt*", "checkpoint*", "events.*", "graph.*"):
        for path in directory.glob(pattern):
            path.unlink()
