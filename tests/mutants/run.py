"""Plants small faults in the packages and counts those that the tests notice.

    hatch run test:mutants                            8 mutants of each package
    hatch run test:mutants --package lite --count 40 --seed 7
    hatch run test:mutants --changed main             those of files that differ from main first

Every mutant runs in a copy of the tree and in a process of its own, against the tests that mirror
the mutated file. A mutant that a test notices is killed, and so is one with which a test hangs or
the process crashes; a survivor is printed with its diff. A test that fails without the mutant, too,
counts for nothing.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from selection import Mutant, changed_files, packages, sample
from workspace import Limits, Outcome, Verdict, Workspace

ROOT = Path(__file__).parents[2]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--package", action="append", default=[], help="one of packages/; repeat it"
    )
    parser.add_argument("--count", type=int, default=8, help="mutants per package (8)")
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument(
        "--changed", metavar="COMMIT", default="HEAD", help="files that differ come first (HEAD)"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="processor time of a selection of tests (300)"
    )
    parser.add_argument("--test-seconds", type=float, default=60, help="limit of one test (60)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (1)")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the mutants and print the outcomes."""
    options = parse(arguments)
    changed = changed_files(root, options.changed)
    mutants = [
        mutant
        for package in packages(root, options.package)
        for mutant in sample(root, package, options.count, options.seed, changed)
    ]
    if options.list:
        for mutant in mutants:
            print(describe(mutant))
        return 0
    outcomes = run_all(root, mutants, Limits(options.seconds, options.test_seconds), options.jobs)
    report(root, mutants, outcomes)
    return 0


def run_all(root: Path, mutants: Sequence[Mutant], limits: Limits, jobs: int) -> list[Outcome]:
    """Run mutants, some of them at a time; outcomes in the order of `mutants`."""
    with ExitStack() as stack:
        free: SimpleQueue[Workspace] = SimpleQueue()
        for _ in range(jobs):
            free.put(stack.enter_context(Workspace.copy_of(root, limits)))

        def run_one(mutant: Mutant) -> Outcome:
            workspace = free.get()
            try:
                outcome = workspace.run(mutant)
            finally:
                free.put(workspace)
            print(f"{outcome.verdict:9} {outcome.seconds:6.1f} s  {describe(mutant)}", flush=True)
            return outcome

        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        return list(pool.map(run_one, mutants))


def describe(mutant: Mutant) -> str:
    """Return the location and the change of a mutant."""
    return f"{mutant.path}:{mutant.mutation.line}: {mutant.mutation.operator}"


def report(root: Path, mutants: Sequence[Mutant], outcomes: Sequence[Outcome]) -> None:
    """Print the survivors with their changes, then the killed share of each package."""
    counts: dict[str, Counter[Verdict]] = defaultdict(Counter)
    for mutant, outcome in zip(mutants, outcomes, strict=True):
        counts[mutant.package][outcome.verdict] += 1
        if not outcome.is_killed:
            print(f"\nsurvived: {describe(mutant)} ({outcome.note})\n{diff(root, mutant)}", end="")
    print("\npackage    " + "  ".join(f"{verdict:>8}" for verdict in Verdict) + "   share killed")
    total: Counter[Verdict] = Counter()
    for package, count in counts.items():
        total += count
        print(row(package, count))
    print(row("all", total))


def row(title: str, count: Counter[Verdict]) -> str:
    """Return a line of the table: how many mutants had each verdict, and the killed share."""
    share = 1 - count[Verdict.SURVIVED] / count.total()
    return (
        f"{title:11}" + "  ".join(f"{count[verdict]:8}" for verdict in Verdict) + f"{share:15.0%}"
    )


def diff(root: Path, mutant: Mutant) -> str:
    """Return the change of a mutant as a unified diff of one line of context."""
    before = (root / mutant.path).read_text(encoding="utf-8")
    after = mutant.mutation.apply(before)
    lines = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(*lines, str(mutant.path), str(mutant.path), n=1))


if __name__ == "__main__":
    sys.exit(main())
