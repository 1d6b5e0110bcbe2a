"""The task of this process in a Slurm step, from environment variables."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from weft_distrib.cluster.spec import ClusterSpec
from weft_distrib.launch.spec import Launch, TaskId
from weft_tensor import errors

FIRST_PORT: Final = 20_000
"""First port for the Slurm job with number 0 if Slurm reserves no ports; later jobs use later
ports.
"""

_PORTS: Final = 10_000
_MAX_NODES: Final = 1 << 17
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_COUNT = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")


class SlurmTask(NamedTuple):
    """A task of a Slurm step.

    Attributes:
      cluster: the addresses of all tasks.
      place: the job and number of this task.
    """

    cluster: ClusterSpec
    task_id: TaskId


def task_from_slurm(
    launch: Launch, environment: Mapping[str, str] | None = None, port: int | None = None
) -> SlurmTask:
    """Return the task of this process in a Slurm step, with the addresses of all tasks.

    Ranks are assigned to the jobs in order: with one "ps" and two "worker" tasks, rank 0 is the
    parameter server.

    Args:
      launch: the launch; it has the same number of tasks as the step.
      environment: the environment variables; by default those of the process.
      port: the first port on each node; by default the one that `srun --resv-ports` has reserved,
        or one that is derived from the number of the Slurm job.
    Raises: InvalidArgumentError: this is not a Slurm step, its number of tasks differs, or they are
    not distributed over the nodes in block or cyclic order.
    """
    variables = _Environment(os.environ if environment is None else environment)
    nodes = expand(variables.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    counts = tasks_per_node(variables.text("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    if len(nodes) != len(counts):
        raise errors.InvalidArgumentError(
            f"Slurm names {len(nodes)} nodes but task counts for {len(counts)}"
        )
    task_ids = list(launch.task_ids())
    if sum(counts) != len(task_ids):
        raise errors.InvalidArgumentError(
            f"the jobs have {len(task_ids)} tasks in total, but the Slurm step has {sum(counts)}"
        )
    rank = variables.number("SLURM_PROCID")
    positions = list(layout(counts, variables.get("SLURM_DISTRIBUTION", "block")))
    if not rank < len(positions):
        raise errors.InvalidArgumentError(
            f"SLURM_PROCID is {rank}, but the step has {len(positions)} tasks"
        )
    node = (
        variables.number("SLURM_NODEID")
        if variables.get("SLURM_NODEID", "")
        else positions[rank][0]
    )
    if node != positions[rank][0]:
        raise errors.InvalidArgumentError(
            f"rank {rank} is on node {node} instead of node {positions[rank][0]}: distribute the "
            "tasks in blocks: srun --distribution=block"
        )
    first = _first_port(variables, max(counts)) if port is None else port
    addresses = [f"{nodes[node]}:{first + local}" for node, local in positions]
    return SlurmTask(launch.cluster(addresses), task_ids[rank])


class _Environment:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def get(self, name: str, default: str) -> str:
        return self._variables.get(name) or default

    def text(self, *names: str) -> str:
        for name in names:
            if variable := self._variables.get(name):
                return variable
        raise errors.InvalidArgumentError(
            f"the environment variable {' or '.join(names)} is missing: start this command with "
            "srun"
        )

    def number(self, name: str) -> int:
        text = self.text(name)
        if not text.isdecimal():
            raise errors.InvalidArgumentError(f"{name} must be a number, got {text!r}")
        return int(text)


def expand(nodes: str) -> list[str]:
    """Expand a list of nodes in Slurm's notation.

    Args:
      nodes: the list, such as "tux[01-03,7],login".
    Raises: InvalidArgumentError: the list is malformed, or has more than 131,072 nodes.

    Examples:
      >>> from weft_distrib.launch import slurm
      >>> slurm.expand("tux[08-10],gpu-[1,3]-b,login")
      ['tux08', 'tux09', 'tux10', 'gpu-1-b', 'gpu-3-b', 'login']
    """
    names: list[str] = []
    for item in _items(nodes):
        pieces = re.split(r"\[([^\]]*)\]", item)
        choices: list[list[str]] = []
        total = 1
        for i, piece in enumerate(pieces):
            if i % 2 == 0 and re.search(r"[\[\],\s]", piece):
                raise errors.InvalidArgumentError(f"invalid list of nodes {nodes!r}")
            choices.append(list(_numbers(piece, nodes)) if i % 2 else [piece])
            total *= len(choices[-1])
            _check_size(total + len(names))
        names += ["".join(parts) for parts in itertools.product(*choices)]
    if not all(names):
        raise errors.InvalidArgumentError(f"invalid list of nodes {nodes!r}")
    return names


def _items(nodes: str) -> Iterator[str]:
    """Split a list at commas outside brackets."""
    depth, start = 0, 0
    for i, c in enumerate(nodes):
        depth += (c == "[") - (c == "]")
        if not 0 <= depth <= 1:
            raise errors.InvalidArgumentError(f"invalid list of nodes {nodes!r}")
        if c == "," and not depth:
            yield nodes[start:i]
            start = i + 1
    yield nodes[start:]


def _numbers(ranges: str, nodes: str) -> Iterator[str]:
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise errors.InvalidArgumentError(f"invalid list of nodes {nodes!r}: {text!r}")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise errors.InvalidArgumentError(f"invalid list of nodes {nodes!r}: {text!r}")
        _check_size(int(high) - int(low) + 1)
        yield from (str(n).zfill(len(low)) for n in range(int(low), int(high) + 1))


def _check_size(count: int) -> None:
    if count > _MAX_NODES:
        raise errors.InvalidArgumentError(f"a list of nodes must have at most {_MAX_NODES} entries")


def tasks_per_node(counts: str) -> list[int]:
    """Return the number of tasks of each node, from a list in Slurm's notation.

    Args:
      counts: the list, such as "2(x3),1".
    Raises: InvalidArgumentError: the list is malformed.

    Examples:
      >>> from weft_distrib.launch import slurm
      >>> slurm.tasks_per_node("2(x3),1")
      [2, 2, 2, 1]
    """
    result: list[int] = []
    for text in counts.split(","):
        match = _COUNT.fullmatch(text)
        if match is None:
            raise errors.InvalidArgumentError(f"malformed list of task counts {counts!r}: {text!r}")
        times = int(match[2] or 1)
        _check_size(len(result) + times)
        result += [int(match[1])] * times
    _check_size(sum(result))
    return result


def layout(counts: list[int], distribution: str) -> Iterator[tuple[int, int]]:
    """Yield, for each rank, its node and its number on the node.

    Args:
      counts: the number of tasks on each node.
      distribution: the value of SLURM_DISTRIBUTION: "block" or "cyclic", optionally followed by a
        colon and further text.
    Raises: InvalidArgumentError: the distribution is not supported.
    """
    kind = distribution.partition(":")[0].partition(",")[0]
    if kind == "block":
        yield from ((node, i) for node, count in enumerate(counts) for i in range(count))
    elif kind == "cyclic":
        for i in range(max(counts)):
            yield from ((node, i) for node, count in enumerate(counts) if i < count)
    else:
        raise errors.InvalidArgumentError(
            "the tasks must be distributed in blocks or cyclically, got "
            f"SLURM_DISTRIBUTION={kind!r}"
        )


def _first_port(environment: _Environment, count: int) -> int:
    """Return the first of the consecutive ports on a node; each task uses one."""
    reserved = environment.get("SLURM_STEP_RESV_PORTS", "")
    if reserved:
        match = _RANGE.fullmatch(reserved)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if match is None or last - first + 1 < count:
            raise errors.InvalidArgumentError(
                f"a node has {count} tasks, but the reserved ports are {reserved}: reserve "
                "consecutive ports, srun --resv-ports=N"
            )
        return first
    return FIRST_PORT + environment.number("SLURM_JOB_ID") * 64 % _PORTS
