"""`weft trace summary`, `diff` and `whatif`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from weft_trace.analysis.changes import TARGETS, Change, check_matches, parse_change
from weft_trace.analysis.comparison import compare
from weft_trace.analysis.replay import Replay
from weft_trace.analysis.steps import StepIndex, representative_steps
from weft_trace.analysis.summary import summarize
from weft_trace.commands.output import (
    count,
    format_difference,
    format_share,
    format_size,
    format_time,
    load_trace,
    write_json,
    write_line,
    write_table,
)
from weft_trace.errors import TraceError
from weft_trace.trace import Trace


def add_summary(parser: argparse.ArgumentParser) -> None:
    """Show how the time of steps was spent, and which changes would make them faster."""
    parser.add_argument("file", help="trace file")
    parser.add_argument("--rows", type=int, default=10, help="rows of each table (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON; times are nanoseconds")
    parser.set_defaults(run=run_summary)


def add_diff(parser: argparse.ArgumentParser) -> None:
    """Show which parts became slower between two traces, and why."""
    parser.add_argument("before", help="trace file")
    parser.add_argument("after", help="trace file")
    parser.add_argument("--rows", type=int, default=10, help="rows of each table (default: 10)")
    parser.add_argument("--json", action="store_true", help="print JSON; times are nanoseconds")
    parser.set_defaults(run=run_diff)


def add_whatif(parser: argparse.ArgumentParser) -> None:
    """Predict the duration of steps after a change."""
    parser.add_argument("file", help="trace file")
    helps = {
        "op": "kernels of an op, such as Conv2D=0.5",
        "node": "a node",
        "scope": "all nodes of a name scope",
        "line": "nodes of a source line, such as train.py:12",
        "task": "kernels of a task, such as worker1",
        "link": "transfers of a task or a link, such as ps0=10Gbit or 'ps0->worker1=0.5'",
        "wait": "waits for a queue, a dataset or a lock; input=0 stands for all of them",
        "phase": "a phase of the session, such as compile=0",
    }
    for target in TARGETS:
        parser.add_argument(
            f"--{target}",
            action="append",
            default=[],
            metavar="NAME=FACTOR",
            help=f"multiply the time of {helps[target]}; * and ? match any characters",
        )
    parser.add_argument("--threads", type=int, help="threads of each pool that has several")
    parser.add_argument("--json", action="store_true", help="print JSON; times are nanoseconds")
    parser.set_defaults(run=run_whatif)


def run_summary(arguments: argparse.Namespace) -> int:
    """Print the summary of a trace."""
    trace = load_trace(arguments.file)
    summary = summarize(trace, _rows(arguments))
    if arguments.json:
        write_json(summary)
    else:
        _write_summary(trace, summary)
    return 0


def run_diff(arguments: argparse.Namespace) -> int:
    """Print the differences of two traces."""
    traces = load_trace(arguments.before), load_trace(arguments.after)
    difference = compare(*traces, _rows(arguments))
    if arguments.json:
        write_json(difference)
    else:
        _write_difference(difference)
    return 0


def run_whatif(arguments: argparse.Namespace) -> int:
    """Print predictions."""
    changes = parse_changes(arguments)
    if arguments.threads is not None and arguments.threads < 1:
        raise TraceError(f"--threads must be at least 1, got {arguments.threads}")
    if not changes and arguments.threads is None:
        options = ", ".join([f"--{target}" for target in TARGETS])
        raise TraceError(f"whatif needs a change: one of {options}, --threads")
    index = StepIndex(load_trace(arguments.file))
    check_matches(index, changes)
    predictions = []
    for span in representative_steps(index):
        prediction = Replay(index, span).predict(changes, arguments.threads)
        step = index.trace.steps[span.step]
        predictions.append({"label": step.label, "step": step.number, **prediction._asdict()})
    if arguments.json:
        write_json(predictions)
        return 0
    write_table(
        "Predicted duration of the step of median duration",
        ("step", "recorded", "predicted", "change", "error of the model"),
        [
            (
                row["label"],
                format_time(row["recorded"]),
                format_time(row["predicted"]),
                f"{100 * (row['predicted'] / max(1, row['recorded']) - 1):+.1f} %",
                f"{100 * (row['replayed'] / max(1, row['recorded']) - 1):+.2f} %",
            )
            for row in predictions
        ],
    )
    return 0


def parse_changes(arguments: argparse.Namespace) -> list[Change]:
    """Return the changes of the options. Raises: TraceError: an option is invalid."""
    try:
        return [
            parse_change(target, text) for target in TARGETS for text in getattr(arguments, target)
        ]
    except ValueError as error:
        raise TraceError(str(error)) from error


def _rows(arguments: argparse.Namespace) -> int:
    if arguments.rows < 1:
        raise TraceError(f"--rows must be at least 1, got {arguments.rows}")
    return int(arguments.rows)


def _write_summary(trace: Trace, summary: dict[str, Any]) -> None:
    write_line(
        f"{count(summary['num_events'], 'event')} of {count(len(trace.processes), 'process')}, "
        f"{count(len(trace.steps), 'step')}"
    )
    remote = [process for process in trace.processes if process.clock_error]
    if remote:
        error = max(process.clock_error for process in remote)
        write_line(f"clocks agree within ±{format_time(error)}")
    if not summary["steps"]:
        write_line("the trace has no complete step")
    for step in summary["steps"]:
        _write_step(step)
    write_table(
        "Stragglers: time for the same work, compared with the median of all tasks",
        ("task", "ratio"),
        [(row["task"], f"{row['ratio']:.2f}") for row in summary["stragglers"]],
    )
    for memory in summary["memory"]:
        _write_memory(memory)


def _write_step(step: dict[str, Any]) -> None:
    write_line()
    write_line(f"Step {step['label']!r}: {step['num_steps']} runs")
    write_line(
        f"  median {format_time(step['median'])}, p90 {format_time(step['p90'])}, longest "
        f"{format_time(step['longest'])} (step {step['slowest_step']})"
    )
    if step["varying_ops"]:
        ops = [f"{v['op']} ±{format_time(v['deviation'])}" for v in step["varying_ops"]]
        write_line(f"  varies most: {', '.join(ops)}")
    path, duration = step["critical_path"], step["duration"]
    write_table(
        f"Critical path of step {step['step']}: {format_time(duration)}, "
        f"{path['num_events']} events",
        ("category", "time", "share"),
        _shares(path["categories"], duration),
    )
    write_table(
        "Longest parts of the critical path",
        ("node", "op", "task", "category", "line", "time", "share"),
        [
            (
                row["node"], row["op"], row["task"], row["category"], row["line"],
                format_time(row["time"]), format_share(row["time"], duration),
            )
            for row in path["longest"]
        ],
        num_left_aligned=5,
    )  # fmt: skip
    categories = list(dict.fromkeys(c for task in step["tasks"] for c in task["categories"]))
    write_table(
        "Time of each task",
        ("task", *categories),
        [
            (
                task["task"],
                *[format_share(task["categories"].get(c, 0), duration) for c in categories],
            )
            for task in step["tasks"]
        ],
    )
    for name in ("ops", "scopes", "lines"):
        write_table(
            f"Kernels per step by {name.removesuffix('s')}",
            (name.removesuffix("s"), "events", "time", "queueing"),
            [
                (
                    row["name"] + (" (estimate)" if row["is_estimated"] else ""),
                    f"{row['events_per_step']:,.0f}",
                    format_time(row["time_per_step"]),
                    format_time(row["queueing_per_step"]),
                )
                for row in step[name]
            ],
        )
    write_table(
        "Changes with the largest predicted gain",
        ("change", "option of weft trace whatif", "saved", "share"),
        [
            (
                row["text"],
                row["option"],
                format_time(row["saved"]),
                format_share(row["saved"], duration),
            )
            for row in step["gains"]
        ],
        num_left_aligned=2,
    )


def _shares(categories: dict[str, int], duration: int) -> Sequence[tuple[str, str, str]]:
    rows = sorted(categories.items(), key=lambda item: -item[1])
    return [(name, format_time(time), format_share(time, duration)) for name, time in rows]


def _write_memory(memory: dict[str, Any]) -> None:
    write_table(
        f"Memory of {memory['task']} {memory['memory']}: peak {format_size(memory['peak_bytes'])}",
        ("node", "op", "line", "buffers", "size"),
        [
            (h["node"], h["op"], h["line"], f"{h['buffers']:,}", format_size(h["bytes"]))
            for h in memory["holders"]
        ],
        num_left_aligned=3,
    )


def _write_difference(difference: dict[str, Any]) -> None:
    for step in difference["steps"]:
        change = step["difference"]
        verdict = "slower" if change > 0 else "faster"
        write_line(
            f"Step {step['label']!r}: {format_time(step['before'])} → "
            f"{format_time(step['after'])}, {format_time(abs(change))} {verdict} "
            f"({100 * change / max(1, step['before']):+.1f} %)"
        )
        titles = {
            "critical_path": "Critical path by category",
            "path_nodes": "Critical path by node",
            "ops": "Kernels per step by op",
            "scopes": "Kernels per step by scope",
            "lines": "Kernels per step by line",
            "nodes": "Kernels per step by node",
        }
        for name, title in titles.items():
            write_table(
                title,
                ("name", "before", "after", "difference"),
                [
                    (
                        row["name"],
                        format_time(row["before"]),
                        format_time(row["after"]),
                        format_difference(row["difference"]),
                    )
                    for row in step[name]
                ],
            )
        write_line()
    for name in ("before", "after"):
        for label in difference[f"only_{name}"]:
            write_line(f"Only {name}: step {label!r}")
        for task, ratio in difference[f"stragglers_{name}"].items():
            write_line(f"Straggler {name}: {task}, {ratio:.2f} times the median of all tasks")
    if not difference["steps"]:
        sys.stderr.write("weft: the traces have no steps with the same fetches and feeds\n")
