"""The summary of a trace: how its steps spent their time, and which changes would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft_trace.analysis.breakdown import Total, break_down_tasks, op_of, scope_of, sum_by
from weft_trace.analysis.categories import Category
from weft_trace.analysis.changes import short_task
from weft_trace.analysis.critical_path import CriticalPath, find_critical_path
from weft_trace.analysis.dependencies import resolve_dependencies
from weft_trace.analysis.gains import rank_gains
from weft_trace.analysis.memory import view_memory
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex, StepSpan, representative_steps
from weft_trace.analysis.stragglers import TaskSpeed, compare_tasks, measure_variation
from weft_trace.schema import Node
from weft_trace.trace import Trace

_ROWS: Final = 10
_LABELS: Final = 3
_MEMORIES: Final = 3


def summarize(trace: Trace, rows: int = _ROWS, labels: int = _LABELS) -> dict[str, Any]:
    """Return the summary of a trace as values of JSON; times are nanoseconds.

    Args:
      rows: the most rows of each table.
      labels: the most labels of steps, of the longest total time.
    Returns: a dictionary with `processes`, `warnings`, `num_events`; `steps`, one entry per label,
      with the critical path of the step of median duration, the time of each task in it, the time
      of kernels per step by op, scope and line, the variation between steps, and the changes with
      the largest predicted gain; `stragglers`; and `memory`, the
      three memory spaces with the highest peaks.
    """
    index = StepIndex(trace)
    speeds = compare_tasks(index)
    predecessors = index.lane_predecessors()
    variations = {v.label: v for v in measure_variation(index)}
    steps = []
    for span in representative_steps(index, labels):
        dependencies = resolve_dependencies(trace, index.executions_of(span.step))
        path = find_critical_path(index, span, dependencies, predecessors)
        replay = Replay(index, span, dependencies, predecessors)
        gains = rank_gains(index, replay, path, speeds, rows)
        label = trace.steps[span.step].label
        variation = variations[label]
        steps.append(
            {
                "label": label,
                "num_steps": variation.num_steps,
                "median": variation.median,
                "p90": variation.p90,
                "longest": variation.longest,
                "slowest_step": trace.steps[variation.slowest.step].number,
                "varying_ops": [{"op": op, "deviation": d} for op, d in variation.causes],
                "step": trace.steps[span.step].number,
                "duration": span.duration,
                "critical_path": _path(index, path, rows),
                "tasks": _tasks(index, span),
                **_kernels(trace, label, rows),
                "gains": [gain._asdict() for gain in gains],
            }
        )
    return {
        "num_events": len(trace.events),
        "warnings": list(trace.warnings),
        "processes": [process._asdict() for process in trace.processes],
        "steps": steps,
        "stragglers": [_speed(trace, speed) for speed in speeds if speed.is_straggler],
        "memory": _memory(trace, rows),
    }


def steps_of(trace: Trace, label: str) -> list[int]:
    """Return the ids of the steps of a label, without the first one if there are others."""
    steps = [i for i, step in enumerate(trace.steps) if step.label == label]
    return [i for i in steps if trace.steps[i].number > 0] or steps


def path_by_node(index: StepIndex, path: CriticalPath) -> dict[tuple[int, Category], int]:
    """Return the time on a critical path of each node and category."""
    totals: dict[tuple[int, Category], int] = {}
    for segment in path.segments:
        node = int(index.nodes[segment.event]) if segment.event >= 0 else -1
        key = (node, segment.category)
        totals[key] = totals.get(key, 0) + segment.end - segment.start
    return totals


def _path(index: StepIndex, path: CriticalPath, rows: int) -> dict[str, Any]:
    by_node = sorted(path_by_node(index, path).items(), key=lambda item: -item[1])
    process_of = {int(index.nodes[e]): int(index.processes[e]) for e in path.events}
    longest = [
        {
            "node": node.name,
            "op": op_of(node, index.trace.nodes),
            "line": node.line,
            "task": short_task(index.trace.processes[process_of[i]].name),
            "category": category.value,
            "time": time,
        }
        for (i, category), time in by_node[:rows]
        if i in process_of
        for node in [index.trace.nodes[i]]
    ]
    categories = {c.value: time for c, time in path.by_category().items() if time}
    return {"num_events": len(path.events), "categories": categories, "longest": longest}


def _tasks(index: StepIndex, span: StepSpan) -> list[dict[str, Any]]:
    return [
        {
            "task": index.trace.processes[process].name,
            "categories": {c.value: time for c, time in totals.items() if time},
        }
        for process, totals in break_down_tasks(index, span).items()
    ]


def _kernels(trace: Trace, label: str, rows: int) -> dict[str, Any]:
    steps = steps_of(trace, label)
    keys: dict[str, Callable[[Node], str]] = {
        "ops": lambda node: op_of(node, trace.nodes),
        "scopes": scope_of,
        "lines": lambda node: node.line,
    }
    return {
        name: _per_step(sum_by(trace, key, steps)[:rows], len(steps)) for name, key in keys.items()
    }


def _per_step(totals: Sequence[Total], num_steps: int) -> list[dict[str, Any]]:
    return [
        {
            "name": total.name,
            "events_per_step": total.num_events / num_steps,
            "time_per_step": total.duration / num_steps,
            "queueing_per_step": total.queueing / num_steps,
            "is_estimated": total.is_estimated,
        }
        for total in totals
    ]


def _speed(trace: Trace, speed: TaskSpeed) -> dict[str, Any]:
    return {
        "task": trace.processes[speed.process].name,
        "ratio": speed.ratio,
        "time": speed.duration,
    }


def _memory(trace: Trace, rows: int) -> list[dict[str, Any]]:
    result = []
    for view in view_memory(trace)[:_MEMORIES]:
        lane = trace.lanes[view.lane]
        holders = [
            {
                "node": trace.nodes[holder.node].name,
                "op": trace.nodes[holder.node].op,
                "line": trace.nodes[holder.node].line,
                "buffers": holder.num_buffers,
                "bytes": holder.bytes,
            }
            for holder in view.holders[:rows]
        ]
        result.append(
            {
                "task": trace.processes[lane.process].name,
                "memory": lane.name,
                "peak_bytes": view.peak_bytes,
                "peak_time": view.peak_time,
                "holders": holders,
            }
        )
    return result
