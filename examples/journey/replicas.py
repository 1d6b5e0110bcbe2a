"""Copies of a model that train on parts of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft as wf


class Replicas:
    """The copies of a model: one on each worker of a cluster, or a single one.

    They are in one graph, or in one graph for each worker.

    Args:
      cluster: the cluster; None if the model is trained on one machine.
      worker: the number of the worker whose graph is built.
    """

    def __init__(self, cluster: wf.train.ClusterSpec | None = None, worker: int = 0) -> None:
        self.cluster = cluster
        self.worker = worker
        self.num_workers = 1 if cluster is None else cluster.num_tasks("worker")

    def apply(
        self, function: Callable[..., Sequence[wf.Tensor]], *batch: wf.Tensor
    ) -> list[wf.Tensor]:
        """Apply a function to each part of a batch on another worker, all in one graph.

        The name scopes are `replica0`, …. The first copy creates all variables.

        Args:
          function: receives a part of each tensor of the batch; returns tensors.
          batch: tensors, which are split along their first axis.
        Returns: the mean of each scalar, and the concatenation of each other result.
        """
        parts = [wf.split(tensor, self.num_workers) for tensor in batch]
        results = []
        for worker, part in enumerate(zip(*parts, strict=True)):
            scope = wf.variable_scope(wf.get_variable_scope(), reuse=worker > 0 or None)
            with self.on_worker(worker), scope, wf.name_scope(f"replica{worker}/"):
                results.append(function(*part))
        return [_merge(list(values)) for values in zip(*results, strict=True)]

    @property
    def target(self) -> str:
        """The target of sessions: the server of the worker; empty on one machine."""
        if self.cluster is None:
            return ""
        return f"grpc://{self.cluster.task_address('worker', self.worker)}"

    def on_worker(self, worker: int) -> Any:
        """Return a scope whose variables are on parameter servers, and all else on a worker."""
        device = f"/job:worker/task:{worker}"
        return wf.device(wf.train.replica_device_setter(cluster=self.cluster, worker_device=device))


def _merge(values: list[wf.Tensor]) -> wf.Tensor:
    if values[0].shape.ndims == 0:
        return wf.add_n(values) / len(values)
    return wf.concat(values, 0)
