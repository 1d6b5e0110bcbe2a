"""Traces of steps: when each node ran, and on which device and thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from weft_exec.step_labels import NodeLabel
from weft_graph.ir.device_spec import parse
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role


class NodeRecord:
    """One execution of a node; times in nanoseconds since the epoch.

    Attributes:
      output_bytes: total bytes of all outputs.
      sizes: bytes of each output; empty if unknown.
      waited: whether most of the time was spent waiting for something other than the device.
      iteration: tag of the iteration that the node ran in; see `NodeLabel`.
      estimated: whether the time is a share of the time of a compiled region.
      asked: time at which a Receive requested its value, if that was before `start`; else 0.
    """

    __slots__ = (
        "asked", "device", "end", "estimated", "iteration", "node", "output_bytes", "sizes",
        "start", "thread", "waited",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        device: str,
        start: int,
        end: int,
        thread: int,
        output_bytes: int,
        sizes: tuple[int, ...] = (),
        waited: bool = False,
        iteration: int = 0,
        estimated: bool = False,
        asked: int = 0,
    ) -> None:
        self.node = node
        self.device = device
        self.start = start
        self.end = end
        self.thread = thread
        self.output_bytes = output_bytes
        self.sizes = sizes
        self.waited = waited
        self.iteration = iteration
        self.estimated = estimated
        self.asked = asked


class _Waiting(NamedTuple):
    """An asynchronous node that has started.

    Attributes:
      key: the rendezvous key of a Receive.
    """

    node: Node
    device: str
    start: int
    iteration: int
    key: str


class StepTrace:
    """Collects the records of one step from all its threads."""

    def __init__(self) -> None:
        self.records: list[NodeRecord] = []
        self._other_records: list[Any] = []
        self._waiting: dict[Any, _Waiting] = {}
        self._sent: dict[str, int] = {}
        self._end_times: dict[str, int] = {}

    def record(self, node: Node, device: str, call: Callable[[], Any], iteration: int) -> Any:
        """Return `call()`, timed as an execution of `node`.

        Args:
          iteration: tag of the iteration that the node runs in; see `NodeLabel`.
        """
        start = time.time_ns()
        value = call()
        end = time.time_ns()
        sizes = _sizes(value)
        thread = threading.get_ident()
        self.records.append(
            NodeRecord(node, device, start, end, thread, sum(sizes), sizes, iteration=iteration)
        )
        return value

    def share(
        self,
        parts: Mapping[Node, float],
        device: str,
        start: int,
        values: Mapping[Output, Any],
        iteration: int,
    ) -> None:
        """Record nodes that were computed together, from `start` until now.

        Args:
          parts: estimated fraction of the time of each node, 1 in total; they are shown one after
            the other.
          values: the outputs that are used outside; other values were never stored in memory.
          iteration: as for `record`.
        """
        thread, duration = threading.get_ident(), time.time_ns() - start
        for node, part in parts.items():
            end = start + round(part * duration)
            sizes = tuple([_bytes(values.get(output)) for output in node.outputs])
            static_sizes = sizes if all(output in values for output in node.outputs) else ()
            self.records.append(
                NodeRecord(
                    node, device, start, end, thread, sum(sizes), static_sizes,
                    iteration=iteration, estimated=True,
                )
            )  # fmt: skip
            start = end

    def waiting(
        self, token: Any, node: Node, device: str, start: int, iteration: int, key: str = ""
    ) -> None:
        """Record that an asynchronous node has started.

        Args:
          iteration: tag of its iteration.
          key: the rendezvous key of a Receive.
        """
        self._waiting[token] = _Waiting(node, device, start, iteration, key)

    def sent(self, key: str) -> None:
        """Record that a value is sent now under a rendezvous key."""
        self._sent[key] = time.time_ns()

    def arrived(self, token: Any, value: Any = None) -> None:
        """Record that an asynchronous node has completed, with its value or None if it failed."""
        node, device, start, iteration, key = self._waiting.pop(token)
        requested, start = start, max(start, self._sent.pop(key, 0))
        end, thread, sizes = time.time_ns(), threading.get_ident(), _sizes(value)
        computed = node.role is not Role.RECEIVE and parse(device).device_type not in (
            "CPU",
            None,
        )
        if computed:  # nodes of one device run one after the other, in its stream
            start = max(start, self._end_times.get(device, 0))
            self._end_times[device] = end
        self.records.append(
            NodeRecord(
                node, device, start, end, thread, sum(sizes), sizes, not computed, iteration,
                asked=requested if key and requested < start else 0,
            )
        )  # fmt: skip

    def fetched(self, outputs: Sequence[Output], values: Sequence[Any], device: str) -> None:
        """Record fetches of a step that runs no kernels, such as of a variable."""
        now, thread = time.time_ns(), threading.get_ident()
        for output, value in zip(outputs, values, strict=True):
            sizes = _sizes(value)
            node = output.node
            where = node.device or device
            self.records.append(NodeRecord(node, where, now, now, thread, sum(sizes), sizes))

    @property
    def empty(self) -> bool:
        """Return True if nothing was recorded, in this or other processes."""
        return not (self.records or self._other_records)

    def add_step_stats(self, stats: Any) -> None:
        """Add the records of the step from another process, as a StepStats message."""
        self._other_records.append(stats)

    def fill(self, metadata: Any, default_device: str) -> None:
        """Write the records into a RunMetadata message as step statistics."""
        for stats in self._other_records:
            metadata.step_stats.MergeFrom(stats)
        by_device: dict[str, list[NodeRecord]] = {}
        for record in self.records:
            by_device.setdefault(record.device or default_device, []).append(record)
        for device, records in sorted(by_device.items()):
            stats = metadata.step_stats.dev_stats.add(device=device)
            for record in sorted(records, key=lambda r: r.start):
                _fill_node(stats.node_stats.add(), record)


def _fill_node(stats: Any, record: NodeRecord) -> None:
    node = record.node
    inputs = [source.node.name for source in node.inputs]
    if node.role is Role.RECEIVE:
        inputs = [send_name(node.attrs["tensor_name"], node.attrs["recv_device"])]
    waited = record.start - record.asked if record.asked else 0
    label = NodeLabel(
        node.name, node.type, tuple(inputs), record.iteration, record.estimated, waited
    )
    stats.timeline_label = str(label)
    stats.thread_id = record.thread & 0xFFFFFFFF
    fill_times(stats, node.name, record.start, record.end, record.output_bytes)


def fill_times(stats: Any, name: str, start: int, end: int, nbytes: int) -> None:
    """Write an interval into a NodeExecStats message; times as in `NodeRecord`."""
    stats.node_name = name
    stats.all_start_micros = start // 1000
    stats.op_start_rel_micros = 0
    stats.op_end_rel_micros = stats.all_end_rel_micros = (end - start) // 1000
    stats.all_start_nanos = start
    stats.op_end_rel_nanos = stats.all_end_rel_nanos = end - start
    if nbytes:
        memory = stats.memory.add(allocator_name="cpu")
        memory.total_bytes = nbytes


def send_name(tensor: str, receiver: str) -> str:
    """Return the name that a trace shows for a transfer between devices."""
    return f"{tensor.removesuffix(':0')}/to{receiver}"


def _sizes(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(map(_bytes, value)) if isinstance(value, tuple) else (_bytes(value),)


def _bytes(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(_bytes(item) for item in value)
    return getattr(value, "nbytes", 0)
