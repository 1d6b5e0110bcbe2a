"""What a journey defines: its graphs, its data, and the result that it must reach."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

import weft as wf
from journey.replicas import Replicas

Feeds = Mapping[str, np.ndarray]
"""Values of the inputs of a served model, by name."""

Answers = Sequence[np.ndarray]
"""The first output of a served model for each question, in order."""


@dataclass
class Training:
    """A training graph, built into the default graph.

    Attributes:
      train: the operation of a step; it increments the global step.
      loss: a scalar that is shown and drawn.
      feeds: yields what to feed in each step of a session; None if the graph reads its own input.
      hooks: hooks of the session in addition to those of the frame.
    """

    train: wf.Operation
    loss: wf.Tensor
    feeds: Callable[[wf.train.MonitoredSession], Iterator[Mapping[wf.Tensor, Any]]] | None = None
    hooks: Sequence[wf.train.SessionRunHook] = ()


@dataclass
class Serving:
    """A graph for inference, built into the default graph.

    Attributes:
      inputs: placeholders.
      outputs: tensors by name; the score is computed from the first one.
      bounds: shapes of inputs with open sizes on the device, by name.
      state: names of outputs that are fed back, by the input that receives them. They begin as
        zeros.
    """

    inputs: Sequence[wf.Tensor]
    outputs: Mapping[str, wf.Tensor]
    bounds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)


class Journey(ABC):
    """A model on its whole way, from data to a device.

    Attributes:
      name: the directory of the example.
      steps, short_steps: number of training steps, and of those of the short form.
      metric: the name of the score.
      goal, short_goal: the score that must be reached.
      is_better_high: whether a higher score is better.
      variants: names of the models that the option `--variant` chooses from; the first by default.
      has_graph_per_worker: whether each worker of the cluster runs a graph of its own, as
        `SyncReplicasOptimizer` needs it; otherwise one graph has the copies of all workers.
      jobs: the number of tasks of each job of the cluster of `--cluster`; empty without one.
    """

    name: ClassVar[str]
    steps: ClassVar[int]
    short_steps: ClassVar[int]
    metric: ClassVar[str]
    goal: ClassVar[float]
    short_goal: ClassVar[float]
    is_better_high: ClassVar[bool] = True
    variants: ClassVar[Sequence[str]] = ()
    jobs: ClassVar[Mapping[str, int]] = {}
    has_graph_per_worker: ClassVar[bool] = False

    def __init__(
        self,
        directory: Path,
        seed: int,
        is_short: bool,
        replicas: Replicas | None = None,
        variant: str | None = None,
        num_steps: int | None = None,
    ) -> None:
        self.directory = directory
        self.seed = seed
        self.is_short = is_short
        self.replicas = replicas or Replicas()
        self.variant = variant or next(iter(self.variants), "")
        self.num_steps = num_steps or (self.short_steps if is_short else self.steps)

    def reaches_goal(self, score: float) -> bool:
        """Return True if a score is good enough."""
        goal = self.short_goal if self.is_short else self.goal
        return score >= goal if self.is_better_high else score <= goal

    def on_worker(self, worker: int) -> Self:
        """Return this journey for the graph of another worker."""
        result = copy.copy(self)
        result.replicas = Replicas(self.replicas.cluster, worker)
        return result

    @abstractmethod
    def training(self) -> Training:
        """Build the training graph."""

    @abstractmethod
    def serving(self) -> Serving:
        """Build the graph for inference, with the variables of the training graph."""

    @abstractmethod
    def calibration(self) -> Sequence[Feeds]:
        """Return samples of all inputs that are not state, in the order of a sequence."""

    @abstractmethod
    def questions(self) -> Sequence[Feeds]:
        """Return held-out inputs that are not state, in the order of a sequence."""

    @abstractmethod
    def score(self, answers: Answers) -> float:
        """Return the score of the answers to `questions`."""

    def report(self, serving: Serving, session: wf.Session) -> str:
        """Return text about the trained model, such as samples; none by default."""
        return ""
