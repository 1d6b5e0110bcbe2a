"""Tasks that are slower than others at the same work, and steps that are slower than others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from weft_trace.analysis.steps import StepIndex, StepSpan
from weft_trace.schema import Kind

_DIGITS: Final = re.compile(r"\d+")
_SLOW: Final = 1.25
_MAX_STEPS: Final = 2_000


class TaskSpeed(NamedTuple):
    """How long a task takes for work that other tasks do too.

    Attributes:
      process: its id.
      ratio: its time divided by the median of all tasks that run the same nodes.
      duration: nanoseconds that it spent on this work.
      is_straggler: True if the ratio is at least 1.25.
    """

    process: int
    ratio: float
    duration: int
    is_straggler: bool


def compare_tasks(index: StepIndex) -> list[TaskSpeed]:
    """Compare tasks by the work that at least three of them share, slowest first.

    Work is the same if op and name are equal, apart from the digits in the name (`tower_0/MatMul`,
    `tower_1/MatMul`). The time of an execution is compared, not the number of executions.
    """
    trace = index.trace
    groups: dict[tuple[str, str], int] = {}
    group_of = np.array(
        [groups.setdefault((_DIGITS.sub("#", n.name), n.op), len(groups)) for n in trace.nodes],
        np.intp,
    )
    chosen = np.flatnonzero((index.kinds == Kind.KERNEL) | (index.kinds == Kind.REGION))
    if not len(chosen):
        return []
    num = len(trace.processes)
    cells = group_of[index.nodes[chosen]] * num + index.processes[chosen]
    durations = index.ends[chosen] - index.starts[chosen]
    shape = (len(groups), num)
    counts = np.bincount(cells, minlength=len(groups) * num).reshape(shape)
    totals = np.bincount(cells, durations, len(groups) * num).reshape(shape)
    shared = (counts > 0).sum(1) >= 3
    counts, totals = counts[shared], totals[shared]
    means = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
    usual = np.nanmedian(means, axis=1, keepdims=True) if len(means) else means
    expected = np.where(counts > 0, usual * counts, 0).sum(0)
    speeds = [
        TaskSpeed(p, float(total / expected[p]), int(total), total >= _SLOW * expected[p])
        for p, total in enumerate(totals.sum(0))
        if expected[p] > 0
    ]
    return sorted(speeds, key=lambda speed: -speed.ratio)


class Variation(NamedTuple):
    """The durations of the steps of a label, in nanoseconds.

    Attributes:
      label: the fetches and feeds.
      num_steps: their number.
      median, p90, longest: of their durations; the first step, which compiles, is left out.
      slowest: the longest step.
      causes: ops whose time per step varies most, with its standard deviation.
    """

    label: str
    num_steps: int
    median: int
    p90: int
    longest: int
    slowest: StepSpan
    causes: Sequence[tuple[str, int]]


def measure_variation(index: StepIndex) -> list[Variation]:
    """Return the variation of the steps of each label, in the order of their total time."""
    labels: dict[str, list[StepSpan]] = {}
    for span in index.spans():
        labels.setdefault(index.trace.steps[span.step].label, []).append(span)
    result = []
    for label, spans in labels.items():
        later = [s for s in spans if index.trace.steps[s.step].number > 0] or spans
        durations = np.array([span.duration for span in later])
        result.append(
            Variation(
                label,
                len(spans),
                int(np.median(durations)),
                int(np.quantile(durations, 0.9)),
                int(durations.max()),
                later[int(durations.argmax())],
                _varying_ops(index, later[:_MAX_STEPS]),
            )
        )
    return sorted(result, key=lambda v: -v.median * v.num_steps)


def _varying_ops(index: StepIndex, spans: Sequence[StepSpan]) -> list[tuple[str, int]]:
    ops: dict[str, int] = {}
    op_of = np.array([ops.setdefault(node.op, len(ops)) for node in index.trace.nodes], np.intp)
    rows = []
    for span in spans:
        events = index.executions_of(span.step)
        events = events.compress(index.kinds[events] != Kind.RECEIVE)  # they wait for others
        durations = index.ends[events] - index.starts[events]
        rows.append(np.bincount(op_of[index.nodes[events]], durations, len(ops)))
    deviations = np.std(rows, axis=0)
    names = list(ops)
    order = np.argsort(-deviations, kind="stable")[:5]
    return [(names[i], int(deviations[i])) for i in order if deviations[i] >= 1]
