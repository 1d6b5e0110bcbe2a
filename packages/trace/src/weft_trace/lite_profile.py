"""Conversion of profiles of weft-lite, which a device writes without NumPy, to traces."""

from __future__ import annotations

import json
import os
from typing import Any, Final

import numpy as np

from weft_trace.errors import TraceError
from weft_trace.schema import EVENT, LATEST, Kind, Lane, LaneKind, Node, Process, Step
from weft_trace.writer import Writer

FORMAT: Final = "weft-lite profile"
"""The value of the key "format" of a profile."""


def convert_lite_profile(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write a trace of the invocations in a profile of weft-lite.

    Each invocation is a step, and each execution of an op an event.

    Args:
      source: a file that `weft-lite profile --timeline` wrote.
      path: the trace file, which is replaced if it exists.
    Raises:
      OSError: a file cannot be read or written.
      TraceError: the source is not a profile.
    """
    with open(source, "rb") as file:
        content = file.read()
    try:
        document = json.loads(content)
        if document["format"] != FORMAT or document["version"] != 1:
            raise ValueError(f"it has the format {document['format']!r}")
        ops = [_op(*op) for op in document["ops"]]
        label, host, pid = str(document["model"]), str(document["host"]), int(document["pid"])
        invocations = np.array(document["invocations"], np.int64).reshape(-1, 2)
        times = np.array(document["events"], np.int64).reshape(-1, 3)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TraceError(f"{os.fspath(source)} is not a profile of weft-lite: {error}") from error
    _check(source, invocations, times, len(ops))
    with Writer(path) as writer:
        process = writer.process(Process(label, pid, host))
        lane = writer.lane(Lane(process, LaneKind.THREAD, "interpreter"))
        for node in _with_inputs(ops):
            writer.node(node)
        step_node = writer.node(Node(label, "_Step"))
        for number in range(len(invocations)):
            writer.step(Step(process, label, number))
        rows = np.zeros(len(invocations) + len(times), EVENT)
        rows["kind"][: len(invocations)] = Kind.STEP
        rows["kind"][len(invocations) :] = Kind.KERNEL
        rows["lane"] = lane
        rows["node"] = np.concatenate([np.full(len(invocations), step_node), times[:, 0]])
        steps = np.searchsorted(invocations[:, 0], times[:, 1], side="right") - 1
        rows["step"] = np.concatenate([np.arange(len(invocations)), steps])
        rows["start"] = np.concatenate([invocations[:, 0], times[:, 1]])
        rows["end"] = np.concatenate([invocations[:, 1], times[:, 2]])
        rows["ready"] = rows["start"]
        rows["input_bytes"] = rows["output_bytes"] = -1
        writer.events(rows)


def _op(kind: Any, name: Any, inputs: Any, outputs: Any) -> tuple[Node, list[int], list[int]]:
    return Node(str(name), str(kind)), [int(i) for i in inputs], [int(i) for i in outputs]


def _with_inputs(ops: list[tuple[Node, list[int], list[int]]]) -> list[Node]:
    """Return the nodes of ops with the ops that produced their inputs."""
    producers: dict[int, int] = {}
    nodes = []
    for number, (node, inputs, outputs) in enumerate(ops):
        sources = dict.fromkeys([producers[tensor] for tensor in inputs if tensor in producers])
        nodes.append(node._replace(inputs=tuple(sources)))
        producers.update(dict.fromkeys(outputs, number))
    return nodes


def _check(source: Any, invocations: Any, times: Any, num_ops: int) -> None:
    """Reject events of unknown ops, outside of invocations, or with times that are out of range."""
    intervals = np.concatenate([invocations, times[:, 1:]])
    starts = invocations[:, 0]
    is_valid = (
        (intervals >= 0).all()
        and (intervals <= LATEST).all()
        and (intervals[:, 0] <= intervals[:, 1]).all()
        and (np.diff(starts) >= 0).all()
        and (times[:, 0] >= 0).all()
        and (times[:, 0] < num_ops).all()
        and (not len(times) or (len(starts) and times[:, 1].min() >= starts[0]))
    )
    if not is_valid:
        raise TraceError(
            f"{os.fspath(source)} is not a profile of weft-lite: an event has an unknown op, or is "
            "outside of the invocations"
        )
