"""The command line of a journey."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from journey import curve, deploy, tracing, training
from journey.base import Journey
from journey.cluster import local_cluster
from journey.replicas import Replicas


def main(kind: type[Journey], arguments: list[str] | None = None) -> int:
    """Take a journey: train, draw the curve, export, and score all forms of the model.

    Returns: 0 if all scores reach the goal, 1 if one does not, 130 if the training was interrupted.
    """
    options = _parser(kind).parse_args(arguments)
    console = Console()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.restart:
        training.forget(options.directory)
    trace = options.trace or options.directory / "run.weft-trace"
    trace.unlink(missing_ok=True)
    try:
        with ExitStack() as stack:
            cluster = None
            if options.cluster:
                cluster = stack.enter_context(local_cluster(kind.jobs, options.directory, console))
            journey = kind(
                options.directory,
                options.seed,
                options.short,
                Replicas(cluster),
                options.variant,
                options.steps,
            )
            seconds = training.train(journey, console, options.deterministic, trace)
    except KeyboardInterrupt:
        console.print("interrupted; the same command continues from the last checkpoint")
        return 130
    if trace.exists():
        tracing.print_summary(trace, console)
    picture = options.directory / "curve.png"
    curve.draw_curve(curve.read_curve(options.directory), kind.name, picture)
    console.print(f"{1e3 * seconds:.1f} ms per step; training curve in {picture}", soft_wrap=True)
    if options.no_deploy:
        return 0
    return _deploy(journey, options.device_python, console)


def _parser(kind: type[Journey]) -> argparse.ArgumentParser:
    description = (sys.modules[kind.__module__].__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog=kind.name, description=description[0])
    parser.set_defaults(variant=None, cluster=False)
    parser.add_argument("--directory", type=Path, default=Path("runs") / kind.name)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="train for seconds, to a lower goal")
    parser.add_argument("--steps", type=int, help="number of training steps")
    parser.add_argument("--restart", action="store_true", help="delete an earlier run")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="compute the same bits in each run, however often it is interrupted",
    )
    if kind.variants:
        parser.add_argument("--variant", choices=kind.variants, default=kind.variants[0])
    if kind.jobs:
        tasks = ", ".join(f"{number} {name}" for name, number in kind.jobs.items())
        parser.add_argument(
            "--cluster", action="store_true", help=f"train on local processes: {tasks}"
        )
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="of some steps; run.weft-trace by default"
    )
    parser.add_argument("--no-deploy", action="store_true", help="end after the training")
    parser.add_argument(
        "--device-python",
        type=Path,
        metavar="PATH",
        help="a Python that has weft_lite; by default an environment is made that has it alone",
    )
    return parser


def _deploy(journey: Journey, python: Path | None, console: Console) -> int:
    with console.status("exporting, and running on the device"):
        python = python or deploy.make_environment(journey.directory.parent)
        results, text = deploy.deploy(journey, python)
    if text:
        console.print(text, markup=False)
    report = [result._asdict() for result in results]
    _replace(journey.directory / "result.json", json.dumps(report, indent=1))
    table = Table("form", "KB", journey.metric, "ms per question")
    for result in results:
        size = f"{result.size_bytes / 1000:.0f}" if result.size_bytes else ""
        table.add_row(result.form, size, f"{result.score:.4f}", f"{result.milliseconds:.3f}")
    console.print(table)
    missed = [result.form for result in results if not journey.reaches_goal(result.score)]
    if missed:
        console.print(f"the goal was not reached by: {', '.join(missed)}")
    return 1 if missed else 0


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)
