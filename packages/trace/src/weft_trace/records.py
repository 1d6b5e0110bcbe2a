"""The records of a trace: processes, lanes, nodes, iterations and steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft_trace.errors import TraceError
from weft_trace.schema import Crossing, Iteration, Lane, LaneKind, Node, Process, Step


class Records(NamedTuple):
    """The records of a trace; indices are ids."""

    processes: list[Process]
    lanes: list[Lane]
    nodes: list[Node]
    iterations: list[Iteration]
    steps: list[Step]


class RecordsBuilder:
    """Collects the records of a file, which is untrusted."""

    def __init__(self) -> None:
        self._records = Records([], [], [], [Iteration("", 0)], [])

    def add(self, tables: dict[str, list[list[Any]]]) -> None:
        """Add the tables of a chunk.

        Raises: TraceError: a row has an unknown form, or refers to a record that does not exist.
        """
        records = self._records
        try:
            records.processes.extend(_process(*row) for row in tables.get("processes", ()))
            for row in tables.get("lanes", ()):
                lane = _lane(*row)
                if lane.process >= len(records.processes):
                    raise ValueError(f"a lane of process {lane.process}, which does not exist")
                records.lanes.append(lane)
            records.nodes.extend(_node(*row) for row in tables.get("nodes", ()))
            for node, inputs in tables.get("inputs", ()):
                node = _index(node)
                records.nodes[node] = records.nodes[node]._replace(inputs=_ids(inputs))
            for row in tables.get("iterations", ()):
                iteration = _iteration(*row)
                if iteration.parent >= len(records.iterations):
                    raise ValueError("an iteration is inside one that comes later")
                records.iterations.append(iteration)
            for row in tables.get("steps", ()):
                step = _step(*row)
                if step.process >= len(records.processes):
                    raise ValueError(f"a step of process {step.process}, which does not exist")
                records.steps.append(step)
        except (TypeError, ValueError, IndexError) as error:
            raise TraceError(f"the records of a chunk have an unknown form: {error}") from error

    def finish(self) -> Records:
        """Return the records, without references to nodes that are not in the file."""
        count = len(self._records.nodes)
        for i, node in enumerate(self._records.nodes):
            if max(node.inputs, default=0) >= count or max(node.members, default=0) >= count:
                self._records.nodes[i] = node._replace(
                    inputs=tuple([n for n in node.inputs if n < count]),
                    members=tuple([n for n in node.members if n < count]),
                )
        return self._records


def _process(
    name: object, pid: object, host: object, clock_offset: object, clock_error: object
) -> Process:
    return Process(_text(name), _int(pid), _text(host), _int(clock_offset), _index(clock_error))


def _lane(process: object, kind: object, name: object) -> Lane:
    return Lane(_index(process), LaneKind(_index(kind)), _text(name))


def _node(
    name: object,
    op: object,
    device: object,
    line: object,
    inputs: object,
    origins: object,
    crossing: object,
    members: object,
    output_bytes: object,
) -> Node:
    names = tuple([_text(origin) for origin in _list(origins)])
    return Node(
        _text(name), _text(op), _text(device), _text(line), _ids(inputs), names,
        Crossing(_index(crossing)), _ids(members), _int(output_bytes),
    )  # fmt: skip


def _iteration(frame: object, number: object, parent: object) -> Iteration:
    return Iteration(_text(frame), _index(number), _index(parent))


def _step(process: object, label: object, number: object) -> Step:
    return Step(_index(process), _text(label), _index(number))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r:.40}")
    return value


def _int(value: object) -> int:
    if type(value) is not int or abs(value) >= 1 << 63:
        raise TypeError(f"expected an integer of 64 bits, got {value!r:.40}")
    return value


def _index(value: object) -> int:
    number = _int(value)
    if number < 0:
        raise ValueError(f"expected a number that is not negative, got {number}")
    return number


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r:.40}")
    return value


def _ids(value: object) -> tuple[int, ...]:
    return tuple([_index(item) for item in _list(value)])
