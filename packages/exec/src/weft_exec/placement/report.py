"""Placement reports: the device of each node, and the reason for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

REQUESTED: Final = "requested"
ONLY: Final = "the only device with kernels for it"
TOGETHER: Final = "colocated"
STATE: Final = "its state is there"
FINISH: Final = "earliest finish"
NEAR: Final = "too small to move away from its inputs"
LOOP: Final = "the loop is there"
USER: Final = "its first user is there"
FIRST: Final = "it is unused; the first device with room"
ROOM: Final = "the only device with room"


class NodePlacement(NamedTuple):
    """The placement of one node.

    Attributes:
      name, op: the name and op type of the node.
      device: the chosen device.
      reason: the rule that selected it.
      candidates: the possible devices, with the simulated finish time in seconds on each; NaN if it
        was not simulated.
      start, finish: its times in the simulated run, in seconds.
    """

    name: str
    op: str
    device: str
    reason: str
    candidates: Mapping[str, float]
    start: float
    finish: float


class PlacementReport:
    """The decisions of a simulated run for the nodes of a step.

    Attributes:
      nodes: the nodes in the order of the run.
      transfers: tuples of the value's name, source, target, bytes, and arrival time in seconds.
    """

    def __init__(
        self,
        nodes: Sequence[NodePlacement],
        transfers: Sequence[tuple[str, str, str, int, float]],
    ) -> None:
        self.nodes = tuple(nodes)
        self.transfers = tuple(transfers)
        self._by_name = {node.name: node for node in nodes}

    def __getitem__(self, name: str) -> NodePlacement:
        if name not in self._by_name:
            raise KeyError(
                f"no node {name!r} runs in this step: it does not exist, is not needed, or was "
                "folded or merged"
            )
        return self._by_name[name]

    def __iter__(self) -> Iterator[NodePlacement]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def seconds(self) -> float:
        """The duration of the simulated run."""
        return max([node.finish for node in self.nodes], default=0.0)

    def __str__(self) -> str:
        return self.table()

    def table(self, limit: int | None = None) -> str:
        """Return a table of the nodes.

        Args:
          limit: the number of nodes to show, slowest first; by default all nodes in run order.
        """
        nodes: Sequence[NodePlacement] = self.nodes
        if limit is not None and len(nodes) > limit:
            nodes = sorted(nodes, key=lambda node: node.start - node.finish)[:limit]
        num_omitted = len(self.nodes) - len(nodes)
        footer = f"\nand {num_omitted} nodes that take at most as long" if num_omitted else ""
        return _table(nodes) + footer


def _table(nodes: Sequence[NodePlacement]) -> str:
    tasks = {name.rpartition("/")[0] for node in nodes for name in (node.device, *node.candidates)}
    label = _device if len(tasks) < 2 else _task_and_device
    rows = [("node", "op", "device", "finish, µs", "decided by", "candidates, µs")]
    for node in nodes:
        other_devices = ", ".join(
            f"{label(device)} {_micros(finish)}" for device, finish in node.candidates.items()
        )
        finish = _micros(node.finish)
        rows.append((node.name, node.op, label(node.device), finish, node.reason, other_devices))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _device(name: str) -> str:
    """Return the name of a device as programs write it: `/device:CPU:1`."""
    return "/" + name.rpartition("/")[2]


def _task_and_device(name: str) -> str:
    """Return the name of a device including its task: `/job:ps/task:0/device:CPU:1`."""
    return name.replace("/replica:0", "")


def _micros(seconds: float) -> str:
    return "–" if seconds != seconds else f"{seconds * 1e6:.1f}"
