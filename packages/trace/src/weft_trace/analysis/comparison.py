"""The comparison of two traces: which parts became slower, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from weft_trace.analysis.breakdown import op_of, scope_of, sum_by
from weft_trace.analysis.changes import short_task
from weft_trace.analysis.critical_path import find_critical_path
from weft_trace.analysis.steps import StepIndex, StepSpan, representative_steps
from weft_trace.analysis.stragglers import compare_tasks, measure_variation
from weft_trace.analysis.summary import path_by_node, steps_of
from weft_trace.schema import Node
from weft_trace.trace import Trace

_ALL_LABELS: Final = 1000


def compare(before: Trace, after: Trace, rows: int = 10) -> dict[str, Any]:
    """Return the differences between the steps of two traces, as JSON values.

    Steps are aligned by their label. Times are nanoseconds; differences are positive if `after` is
    slower.

    Args:
      rows: the most rows of each table.
    Returns: a dictionary with `steps`, one entry per label that both traces have, with the medians,
      and the differences of the critical path by category and by node, and of the time of kernels
      per step by op, scope, line and node; and with the labels and stragglers of just one trace.
    """
    traces = (before, after)
    indices = (StepIndex(before), StepIndex(after))
    spans = [
        {index.trace.steps[s.step].label: s for s in representative_steps(index, _ALL_LABELS)}
        for index in indices
    ]
    medians = [{v.label: v.median for v in measure_variation(index)} for index in indices]
    steps: list[dict[str, Any]] = []
    for label in [label for label in spans[0] if label in spans[1]]:
        median = [some[label] for some in medians]
        paths = [_Path(index, some[label]) for index, some in zip(indices, spans, strict=True)]
        steps.append(
            {
                "label": label,
                "before": median[0],
                "after": median[1],
                "difference": median[1] - median[0],
                "critical_path": _differences(paths[0].categories, paths[1].categories, rows),
                "path_nodes": _differences(paths[0].nodes, paths[1].nodes, rows),
                **_kernel_differences(traces, label, rows),
            }
        )
    steps.sort(key=lambda step: -abs(step["difference"]))
    stragglers = [
        {
            short_task(index.trace.processes[s.process].name): s.ratio
            for s in compare_tasks(index)
            if s.is_straggler
        }
        for index in indices
    ]
    return {
        "steps": steps,
        "only_before": [label for label in spans[0] if label not in spans[1]],
        "only_after": [label for label in spans[1] if label not in spans[0]],
        "stragglers_before": stragglers[0],
        "stragglers_after": stragglers[1],
    }


class _Path:
    """The critical path of a step, by category and by node."""

    def __init__(self, index: StepIndex, span: StepSpan) -> None:
        path = find_critical_path(index, span)
        self.categories = {c.value: float(time) for c, time in path.by_category().items()}
        self.nodes: dict[str, float] = {}
        for (node, category), time in path_by_node(index, path).items():
            name = index.trace.nodes[node].name if node >= 0 else ""
            key = f"{name} ({category.value})"
            self.nodes[key] = self.nodes.get(key, 0.0) + time


def _kernel_differences(
    traces: tuple[Trace, Trace], label: str, rows: int
) -> dict[str, list[dict[str, Any]]]:
    keys: dict[str, Callable[[Trace], Callable[[Node], str]]] = {
        "ops": lambda trace: lambda node: op_of(node, trace.nodes),
        "scopes": lambda _: scope_of,
        "lines": lambda _: lambda node: node.line,
        "nodes": lambda _: lambda node: node.name,
    }
    result = {}
    for name, key in keys.items():
        times = []
        for trace in traces:
            steps = steps_of(trace, label)
            totals = sum_by(trace, key(trace), steps)
            times.append({total.name: total.duration / len(steps) for total in totals})
        result[name] = _differences(times[0], times[1], rows)
    return result


def _differences(
    before: dict[str, float], after: dict[str, float], rows: int
) -> list[dict[str, Any]]:
    """Return the names whose time differs most."""
    names = dict.fromkeys([*before, *after])
    table: list[dict[str, Any]] = [
        {
            "name": name,
            "before": before.get(name, 0.0),
            "after": after.get(name, 0.0),
            "difference": after.get(name, 0.0) - before.get(name, 0.0),
        }
        for name in names
    ]
    table.sort(key=lambda row: -abs(row["difference"]))
    return [row for row in table if row["difference"]][:rows]
