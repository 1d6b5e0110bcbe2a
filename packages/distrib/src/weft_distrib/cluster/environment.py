"""The description of a task in the environment variable `TF_CONFIG`, which cluster managers set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from weft_distrib.cluster.spec import ClusterSpec
from weft_tensor import errors

VARIABLE = "TF_CONFIG"


class Task(NamedTuple):
    """A task, and the cluster that it belongs to."""

    cluster: ClusterSpec
    job: str
    number: int


def task_from_environment(environment: Mapping[str, str] | None = None) -> Task | None:
    """Return the task that `TF_CONFIG` describes.

    Args:
      environment: the environment variables; by default those of the process.
    Returns: the task, or None if the variable is not set.
    Raises: InvalidArgumentError: the variable does not describe a task.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE)
    if not text:
        return None
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise errors.InvalidArgumentError(f"{VARIABLE} is not valid JSON: {error}") from error
    task = document.get("task") if isinstance(document, dict) else None
    if not isinstance(task, dict) or "cluster" not in document or "type" not in task:
        raise errors.InvalidArgumentError(
            f'{VARIABLE} must be like {{"cluster": {{"worker": ["host:2222"]}}, '
            f'"task": {{"type": "worker", "index": 0}}}}, got {text}'
        )
    cluster, job = ClusterSpec(document["cluster"]), str(task["type"])
    try:
        index = int(task.get("index", 0))
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"the task's index in {VARIABLE} must be a number, got {task['index']!r}"
        ) from error
    cluster.task_address(job, index)
    return Task(cluster, job, index)
