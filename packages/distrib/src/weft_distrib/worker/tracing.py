"""Traces of steps over several tasks: each task's own, put on the clock of the master."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

from weft_exec.devices.device import Device
from weft_exec.tracing import StepTrace
from weft_graph import proto
from weft_graph.ir.device_spec import DeviceSpec
from weft_tensor import errors

_TIMES = struct.Struct("<QQ")


def pack(trace: StepTrace, began: int, devices: Mapping[str, Device]) -> bytes:
    """What a worker recorded of its parts: StepStats, and when it began and ended by its own clock.

    Args:
      began: in nanoseconds since the epoch.
      devices: of the worker, by their full names.
    """
    for record in trace.records:
        if record.device not in devices:  # what the node asks for
            asked = DeviceSpec.from_string(record.device)
            record.device = next(n for n, device in devices.items() if asked.matches(device.spec))
    metadata = proto.RunMetadata()
    trace.fill(metadata, "")
    return _TIMES.pack(began, time.time_ns()) + bytes(metadata.step_stats.SerializeToString())


def unpack(data: bytes, sent: int, got: int) -> Any:
    """The StepStats that a worker packed, by the clock of the master.

    Args:
      sent, got: when the master sent its order and got the reply, by its own clock.
    Raises: DataLossError: it is too short.
    """
    if len(data) < _TIMES.size:
        raise errors.DataLossError(f"a trace of {len(data)} bytes is none")
    began, ended = _TIMES.unpack_from(data)
    stats = proto.StepStats.FromString(data[_TIMES.size :])
    ahead = clock_ahead(sent, began, ended, got)
    if ahead:
        for device in stats.dev_stats:
            for node in device.node_stats:
                node.all_start_nanos -= ahead
                node.all_start_micros = node.all_start_nanos // 1000
    return stats


def clock_ahead(sent: int, began: int, ended: int, got: int) -> int:
    """How many nanoseconds a worker's clock is ahead of the master's.

    Both messages are taken to be equally long on their way. Where one clock explains the four
    times, it is taken to be one.
    """
    if sent <= began and ended <= got:
        return 0
    return ((began - sent) + (ended - got)) // 2
