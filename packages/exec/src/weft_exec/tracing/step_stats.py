"""Step statistics: the StepStats message of a traced step, as `RunMetadata` contains it."""

from __future__ import annotations

from typing import Any

from weft_exec.step_labels import NodeLabel
from weft_exec.tracing.records import NodeRecord, records_of
from weft_exec.tracing.step_trace import StepTrace
from weft_graph.ir.traits import Role


def fill_metadata(metadata: Any, trace: StepTrace, default_device: str) -> None:
    """Write the records of a step into a RunMetadata message as step statistics."""
    for stats in trace.other:
        metadata.step_stats.MergeFrom(stats)
    fill_step_stats(metadata.step_stats, records_of(trace), default_device)


def fill_step_stats(stats: Any, records: list[NodeRecord], default_device: str) -> None:
    """Add executions of nodes to a StepStats message, by device and in the order of their start."""
    by_device: dict[str, list[NodeRecord]] = {}
    for record in records:
        by_device.setdefault(record.device or default_device, []).append(record)
    for device, of_device in sorted(by_device.items()):
        device_stats = stats.dev_stats.add(device=device)
        for record in sorted(of_device, key=lambda r: r.start):
            _fill_node(device_stats.node_stats.add(), record)


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
