"""A trace in memory: records and NumPy columns, and tables with names instead of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.schema import NO_STEP, Flag, Iteration, Kind, Lane, Node, Process, Step

if TYPE_CHECKING:
    import pandas
    import pyarrow


class Trace(NamedTuple):
    """A trace in memory. The fields of records are described in `weft_trace.schema`.

    Attributes:
      processes, lanes, nodes, iterations, steps: the records; indices are ids.
      events: array [number of events] of the dtype `EVENT`, sorted by start.
      samples: array [number of samples] of the dtype `SAMPLE`, sorted by time.
      warnings: where and why parts of a damaged file could not be read; empty for a whole file.
    """

    processes: Sequence[Process]
    lanes: Sequence[Lane]
    nodes: Sequence[Node]
    iterations: Sequence[Iteration]
    steps: Sequence[Step]
    events: NDArray[Any]
    samples: NDArray[Any]
    warnings: Sequence[str]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the events as a table of pandas; columns of names are categories.

        Raises: ImportError: pandas is not installed.
        """
        import pandas

        columns = {
            name: pandas.Categorical.from_codes(column.codes, categories=list(column.names))
            if isinstance(column, _Names)
            else column
            for name, column in _columns(self).items()
        }
        return pandas.DataFrame(columns)

    def to_arrow(self) -> pyarrow.Table:
        """Return the events as a table of Arrow; columns of names are dictionaries.

        Raises: ImportError: pyarrow is not installed.
        """
        import pyarrow

        columns = {
            name: pyarrow.DictionaryArray.from_arrays(column.codes, list(column.names))
            if isinstance(column, _Names)
            else pyarrow.array(column)
            for name, column in _columns(self).items()
        }
        return pyarrow.table(columns)


class _Names(NamedTuple):
    """A column of strings: indices of a few distinct ones."""

    codes: NDArray[Any]
    names: Sequence[str]


def _columns(trace: Trace) -> dict[str, _Names | NDArray[Any]]:
    events = trace.events
    lanes = np.array([lane.process for lane in trace.lanes] or [0])
    nodes = events["node"]
    step = events["step"].astype(np.int64)
    step[events["step"] == NO_STEP] = -1
    columns: dict[str, _Names | NDArray[Any]] = {
        "kind": _distinct(events["kind"], [k.name for k in Kind], "KIND_"),
        "process": _distinct(lanes[events["lane"]], [p.name for p in trace.processes]),
        "lane": _distinct(events["lane"], [lane.name for lane in trace.lanes]),
    }
    for name in ("name", "op", "device", "line"):
        columns[name] = _distinct(nodes, [getattr(node, name) for node in trace.nodes])
    columns["step"] = step
    frames = [iteration.frame for iteration in trace.iterations]
    numbers = np.array([iteration.number for iteration in trace.iterations])
    columns["frame"] = _distinct(events["iteration"], frames)
    columns["iteration"] = numbers[events["iteration"]]
    columns["is_estimated"] = (events["flags"] & Flag.ESTIMATED) != 0
    columns["is_failed"] = (events["flags"] & Flag.FAILED) != 0
    for name in ("ready", "start", "end", "input_bytes", "output_bytes"):
        columns[name] = np.ascontiguousarray(events[name])
    return columns


def _distinct(indices: NDArray[Any], names: Sequence[str], unknown: str = "") -> _Names:
    """Return a column whose names are distinct, as categories must be."""
    if len(indices):
        names = [*names, *[f"{unknown}{i}" for i in range(len(names), int(indices.max()) + 1)]]
    distinct = {name: i for i, name in enumerate(dict.fromkeys(names))}
    codes = np.array([distinct[name] for name in names], np.int32)
    return _Names(codes[indices] if len(codes) else codes, list(distinct))
