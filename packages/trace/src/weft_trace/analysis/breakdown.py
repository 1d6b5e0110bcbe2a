"""The time of a step by task, and the time of kernels by op, scope, line and node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft_trace.analysis.categories import Category, category_of
from weft_trace.analysis.steps import StepIndex, StepSpan
from weft_trace.schema import NO_STEP, Kind, Node
from weft_trace.trace import Trace

_PRIORITY: Final = (
    Category.COMPUTE, Category.COMPILE, Category.CHECKPOINT, Category.PYTHON, Category.WIRE,
    Category.WAIT, Category.PEER, Category.QUEUEING,
)  # fmt: skip


def break_down_tasks(index: StepIndex, span: StepSpan) -> dict[int, dict[Category, int]]:
    """Return how each task spent a step.

    At each time, a task counts as computing if any of its threads runs a kernel; else as doing
    the first of: compile, checkpoint, Python, wire, wait for input, wait for peers, queueing; else
    as idle.

    Returns: for each process with events in the step, the nanoseconds of each category. Together
      they are the duration of the step.
    """
    events = index.executions_of(span.step)
    categories = np.array(
        [
            _PRIORITY.index(category_of(int(k), index.trace.nodes[n]))
            for k, n in zip(index.kinds[events], index.nodes[events], strict=True)
        ],
        np.int64,
    )
    starts, ends = index.starts[events], index.ends[events]
    ready = index.trace.events["ready"][events]
    processes = index.processes[events]
    result = {}
    for process in np.unique(processes):
        of_process = processes == process
        queued = of_process & (categories == _PRIORITY.index(Category.COMPUTE))
        result[int(process)] = _sweep(
            np.concatenate([starts[of_process], ready[queued]]),
            np.concatenate([ends[of_process], starts[queued]]),
            np.concatenate(
                [
                    categories[of_process],
                    np.full(queued.sum(), _PRIORITY.index(Category.QUEUEING)),
                ]
            ),
            span,
        )
    return result


def _sweep(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    categories: NDArray[np.int64],
    span: StepSpan,
) -> dict[Category, int]:
    times = np.clip(np.concatenate([starts, ends]), span.start, span.end)
    changes = np.repeat([1, -1], len(starts))
    order = np.argsort(times, kind="stable")
    times = times[order]
    lengths = np.diff(times, append=span.end)
    is_free = np.ones(len(times), bool)
    totals = dict.fromkeys(Category, 0)
    for i, category in enumerate(_PRIORITY):
        is_changed = np.tile(categories == i, 2)
        active = np.cumsum(np.where(is_changed, changes, 0)[order]) > 0
        totals[category] = int(lengths[is_free & active].sum())
        is_free &= ~active
    totals[Category.IDLE] = span.duration - sum(totals.values())
    return totals


class Total(NamedTuple):
    """The time of a group of events.

    Attributes:
      name: an op, a scope, a line or a node.
      num_events: their number.
      duration: their sum, in nanoseconds.
      queueing: the sum of their queueing delays.
      is_estimated: True if durations are shares of measured ones.
    """

    name: str
    num_events: int
    duration: int
    queueing: int
    is_estimated: bool


def op_of(node: Node, nodes: Sequence[Node]) -> str:
    """Return the op of a node; of a generated kernel or a region, the ops of its members."""
    if not node.members:
        return node.op
    ops = dict.fromkeys([nodes[m].op for m in node.members])
    names = list(ops)
    return "+".join(names[:3]) + (f"+{len(names) - 3}" if len(names) > 3 else "")


def scope_of(node: Node) -> str:
    """Return the name scope of a node, such as "tower/layer1"; "" if it has none."""
    return node.name.rpartition("/")[0]


def sum_by(trace: Trace, key: Callable[[Node], str], steps: Sequence[int] = ()) -> list[Total]:
    """Return the time of kernels by a property of their nodes, longest first.

    A region is broken down into its generated kernels if they are in the trace.

    Args:
      key: the property.
      steps: ids of the steps that count; by default all.
    """
    events = trace.events
    kinds = events["kind"]
    is_kernel = (kinds == Kind.KERNEL) | (kinds == Kind.GENERATED) | (kinds == Kind.COPY)
    is_kernel |= (kinds == Kind.REGION) & ~_have_parts(trace)[events["node"]]
    if steps:
        is_selected = np.zeros(len(trace.steps) + 1, bool)
        is_selected[list(steps)] = True
        is_kernel &= is_selected[
            np.where(events["step"] == NO_STEP, len(trace.steps), events["step"])
        ]
    chosen = np.flatnonzero(is_kernel)
    groups: dict[str, int] = {}
    group_of = np.array(
        [groups.setdefault(key(node), len(groups)) for node in trace.nodes], np.intp
    )
    ids = group_of[events["node"][chosen]] if len(chosen) else np.zeros(0, np.intp)

    def total(weights: NDArray[np.int64] | None) -> list[int]:
        return [int(total) for total in np.bincount(ids, weights, len(groups))]

    starts = events["start"][chosen]
    count = total(None)
    duration = total(events["end"][chosen] - starts)
    queueing = total(starts - events["ready"][chosen])
    estimated = total(events["flags"][chosen] & 1)
    totals = [
        Total(name, count[i], duration[i], queueing[i], estimated[i] > 0)
        for name, i in groups.items()
        if count[i]
    ]
    return sorted(totals, key=lambda t: -t.duration)


def _have_parts(trace: Trace) -> NDArray[np.bool_]:
    """Return, for each node, whether one of its members has GENERATED events."""
    generated = np.zeros(len(trace.nodes), bool)
    generated[trace.events["node"][trace.events["kind"] == Kind.GENERATED]] = True
    return np.array([any(generated[m] for m in node.members) for node in trace.nodes], bool)
