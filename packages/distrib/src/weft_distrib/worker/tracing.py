"""Traces of steps over several tasks, converted to the master's clock."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from weft_exec.devices.device import Device
from weft_exec.kernels.random_counters import iteration_tag
from weft_exec.resources.rendezvous import ends_of
from weft_exec.step_labels import NodeLabel
from weft_exec.tracing.records import records_of
from weft_exec.tracing.step_stats import fill_step_stats, fill_times, send_name
from weft_exec.tracing.step_trace import StepTrace, trace_time
from weft_graph import proto
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ops.step import RECEIVE
from weft_tensor import errors

_TIMES = struct.Struct("<QQQ")  # began, ended, bytes of the StepStats

SEND_THREAD = 0xFFFFFFFF
"""Number of the pseudo-thread that has the transfers in a trace."""


class Transfer(NamedTuple):
    """One end of a transfer of a value between two tasks.

    Attributes:
      key: the rendezvous key.
      at: the time when the value left or arrived, in nanoseconds since the epoch.
      nbytes: the size of a value that arrived.
      link: the transport of a value that arrived: "shared memory", "socket" or "tls"; "" if it
        left.
      asked: the time when a value that arrived was requested.
    """

    key: str
    at: int
    nbytes: int = 0
    link: str = ""
    asked: int = 0


class WorkerTrace(NamedTuple):
    """A worker's trace of its partitions, by the master's clock."""

    stats: Any
    passages: list[Transfer]


def pack(
    trace: StepTrace, start: int, devices: Mapping[str, Device], passages: Sequence[Transfer] = ()
) -> bytes:
    """Encode a worker's trace: StepStats, with its start and end by the worker's clock.

    Args:
      start: the start of the step, in nanoseconds since the epoch.
      devices: the worker's devices by their full names.
    """
    records = records_of(trace)
    for record in records:
        if record.device not in devices:  # the node's requested device
            string = DeviceSpec.from_string(record.device)
            record.device = next(n for n, device in devices.items() if string.matches(device.spec))
    message = proto.StepStats()
    fill_step_stats(message, records, "")
    stats = bytes(message.SerializeToString())
    return b"".join(
        (_TIMES.pack(start, trace_time(), len(stats)), stats, json.dumps(passages).encode())
    )


def unpack(data: bytes, sent: int, actual: int) -> WorkerTrace:
    """Decode a worker's trace, and convert it to the clock of the master.

    Args:
      sent, actual: the times when the master sent its request and received the reply, by its clock.
    Raises: DataLossError: the data is not a trace.
    """
    if len(data) < _TIMES.size:
        raise errors.DataLossError(f"invalid trace of {len(data)} bytes")
    start, end, size = _TIMES.unpack_from(data)
    remaining = data[_TIMES.size :]
    try:
        stats = proto.StepStats.FromString(remaining[:size])
        document = json.loads(remaining[size:])
        passages = [
            Transfer(str(k), int(index), int(n), str(link), int(requested))
            for k, index, n, link, requested in document
        ]
    except (DecodeError, ValueError, TypeError, RecursionError) as error:
        raise errors.DataLossError(f"a trace cannot be read: {error}") from error
    ahead = clock_offset(sent, start, end, actual)
    if ahead:
        for device in stats.dev_stats:
            for node in device.node_stats:
                node.all_start_nanos -= ahead
                node.all_start_micros = node.all_start_nanos // 1000
        passages = [p._replace(at=p.at - ahead, asked=p.asked - ahead) for p in passages]
    return WorkerTrace(stats, passages)


def add_transfers(stats: Any, passages: Iterable[Transfer]) -> None:
    """Add transfers between tasks to the StepStats of a step.

    Each transfer is shown on the sending device, from the time when the value was both ready and
    requested until it was received. The label has the number of bytes, the transport and the
    duration. If a value left after its sender's trace was encoded, the end of its node is used as
    its send time.
    """
    end_times, receives = _index_by_iteration(stats)
    departures: dict[str, int] = {}
    arrivals: list[Transfer] = []
    for passage in passages:
        if passage.link:
            arrivals.append(passage)
        else:
            departures[passage.key] = passage.at
    devices = {dev_stat.device: dev_stat for dev_stat in stats.dev_stats}
    for item in sorted(arrivals, key=lambda item: item.at):
        sender, receiver = ends_of(item.key)
        if sender not in devices:
            devices[sender] = stats.dev_stats.add(device=sender)
        tensor = item.key.split(";")[2]
        producer, iteration = tensor.partition(":")[0], _iteration_of(item.key)
        send_end = departures.get(item.key) or end_times.get((sender, producer, iteration), 0)
        start = min(max(send_end, item.asked), item.at)
        added = devices[sender].node_stats.add(thread_id=SEND_THREAD)
        name = send_name(tensor, receiver)
        fill_times(added, name, start, item.at, item.nbytes)
        note = f"{item.nbytes} bytes by {item.link} in {(item.at - start) / 1e6:.3f} ms"
        label = NodeLabel(name, "_Send", (producer,), iteration, note=note)
        added.timeline_label = str(label)
        if (receive := receives.get((receiver, name, iteration))) is not None:
            _begin_at(receive, start)


def _index_by_iteration(
    stats: Any,
) -> tuple[dict[tuple[str, str, int], int], dict[tuple[str, str, int], Any]]:
    """Index end times by device, node and iteration, and Receives by transfer name."""
    end_times, receives = {}, {}
    for device in stats.dev_stats:
        for node in device.node_stats:
            label = NodeLabel.parse(node.timeline_label, node.node_name)
            end = node.all_start_nanos + node.all_end_rel_nanos
            end_times[device.device, node.node_name, label.iteration] = end
            if label.op == RECEIVE:
                receives[device.device, label.inputs[0], label.iteration] = node
    return end_times, receives


def _iteration_of(key: str) -> int:
    """Return the tag of the iteration in the rendezvous key of a value."""
    tag = 0
    for part in reversed(key.split(";")[3:]):
        tag = iteration_tag(tag, int(part.rpartition(":")[2]))
    return tag


def _begin_at(receive: Any, sent: int) -> None:
    """Set the start of a Receive to the send time of its value, and record the wait before it."""
    requested, end = receive.all_start_nanos, receive.all_start_nanos + receive.all_end_rel_nanos
    start = min(max(requested, sent), end)
    label = NodeLabel.parse(receive.timeline_label, receive.node_name)
    receive.timeline_label = str(label._replace(waited=label.waited + start - requested))
    nbytes = sum(memory.total_bytes for memory in receive.memory)
    del receive.memory[:]
    fill_times(receive, receive.node_name, start, end, nbytes)


def clock_offset(sent: int, began: int, ended: int, received: int) -> int:
    """Return the number of nanoseconds that a worker's clock is ahead of the master's.

    It is assumed that the request and the reply take the same time. If the four times are
    consistent with a single clock, the result is 0.
    """
    if sent <= began and ended <= received:
        return 0
    return ((began - sent) + (ended - received)) // 2
