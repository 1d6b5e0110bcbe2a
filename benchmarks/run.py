"""Measures weft beside its peers and prints one table. See README.md in this directory."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from report import Results, machine, write
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rows import GPU_PROGRAMS, PROGRAMS, Program
from subjects import REQUIREMENTS, Subject, has_gpu, make_peers, peers, weft

OUT = Path(__file__).parent / "out"
PLAIN_WIDTH = 140  # where the output is a file and has no width of its own


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "rows", nargs="*", help="names of programs, rows or families; all if none is given"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per row and round")
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile too; wants a C++ compiler"
    )
    parser.add_argument(
        "--jit", action="store_true", help="weft compiled and TensorFlow with XLA too"
    )
    parser.add_argument(
        "--processor-time", action="store_true", help="where the machine has other work to do"
    )
    parser.add_argument(
        "--gpu", action="store_true", help="the rows that need a GPU, and no others"
    )
    parser.add_argument("--make-peers", type=Path, metavar="DIR", help="create the peers with pip")
    parser.add_argument("--out", type=Path, default=OUT, help="where results.json and .md go")
    for name in REQUIREMENTS:
        variable = f"WEFT_BENCH_{name.upper()}"
        parser.add_argument(
            f"--{name}", default=os.environ.get(variable), metavar="PYTHON", help=f"or {variable}"
        )
    return parser.parse_args()


def chosen(names: Sequence[str], on_gpu: bool) -> list[Program]:
    programs = [
        program
        for program in (GPU_PROGRAMS if on_gpu else PROGRAMS)
        if not names
        or {program.name, program.family, *(row.name for row in program.rows)} & set(names)
    ]
    if not programs:
        raise SystemExit(f"no such row: {', '.join(names)}")
    return programs


def schedule(
    programs: Sequence[Program], subjects: Sequence[Subject], rounds: int
) -> Iterator[tuple[int, Program, Subject]]:
    """Run a program; subjects alternate, and each round starts with another one."""
    for index in range(rounds):
        turn = index % len(subjects)
        for program in programs:
            for subject in [*subjects[turn:], *subjects[:turn]]:
                if subject.peer in program.subjects:
                    yield index, program, subject


def measure(arguments: argparse.Namespace, results: Results, programs: Sequence[Program]) -> None:
    results.rounds = [{} for _ in range(arguments.rounds)]
    steps = list(schedule(programs, results.subjects, arguments.rounds))
    with Progress(transient=True) as progress:
        task = progress.add_task("", total=len(steps))
        for index, program, subject in steps:
            progress.update(task, description=f"{program.name}: {subject.title}")
            try:
                values = subject.run(program, arguments.threads, arguments.budget)
            except subprocess.CalledProcessError as error:
                last = error.stderr.strip().splitlines()[-1:] or [str(error)]
                results.failures[f"{program.name}, {subject.title}"] = last[0]
            except subprocess.TimeoutExpired as error:
                results.failures[f"{program.name}, {subject.title}"] = str(error)
            else:
                for row, value in values.items():
                    results.rounds[index].setdefault(row, {})[subject.name] = value
            progress.advance(task)


def show(console: Console, title: str, header: list[str], body: list[list[str]]) -> None:
    table = Table(*header, title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for cells in body:
        table.add_row(*cells)
    console.print(table)


def main() -> int:
    arguments = parse()
    if arguments.processor_time:
        os.environ["WEFT_BENCH_CLOCK"] = "processor"  # for the children
    programs = chosen(arguments.rows, arguments.gpu)
    if arguments.gpu and not has_gpu():
        Console().print("There is no GPU here: nothing is measured.")
        return 0
    pythons = make_peers(arguments.make_peers) if arguments.make_peers else {}
    given = {name: getattr(arguments, name) for name in REQUIREMENTS}
    pythons |= {name: python for name, python in given.items() if python}
    subjects = [*weft(arguments.jit), *peers(pythons, arguments.compile, arguments.jit)]
    setting = machine() | {
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "processor_time": arguments.processor_time,
        "versions": {subject.name: subject.version() for subject in subjects},
    }
    results = Results(subjects, programs)
    measure(arguments, results, programs)

    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    show(console, "weft and its peers (peer over weft)", *results.cells())
    show(console, "Promises", *results.promises())
    for what, why in results.failures.items():
        console.print(f"failed: {what}: {why}", style="red", markup=False)
    for path in write(results, setting, arguments.out):
        console.print(f"written: {path}")
    return 1 if any(", weft" in what for what in results.failures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
