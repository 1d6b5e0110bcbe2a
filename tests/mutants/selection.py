"""Selects mutants: a seeded sample of each package, and the tests that mirror a file."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from operators import Mutation, mutations

GENERATED = ("_pb2.py", "_generated.py")


@dataclass(frozen=True)
class Mutant:
    """A mutation of one file of a package; `path` is relative to the root of the repository."""

    package: str
    path: Path
    mutation: Mutation


def source_files(root: Path, package: str) -> list[Path]:
    """Return the modules of a package that somebody wrote, relative to `root`."""
    files = sorted((root / "packages" / package / "src").rglob("*.py"))
    return [
        path.relative_to(root)
        for path in files
        if not path.name.endswith(GENERATED) and path.name != "__main__.py"
    ]


def changed_files(root: Path, reference: str) -> set[Path]:
    """Return the files that differ from a commit, and the untracked ones.

    Raises: SystemExit: git does not know the commit.
    """
    commands = (
        ["git", "diff", "--name-only", reference, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    changed: set[Path] = set()
    for command in commands:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        changed.update(map(Path, done.stdout.splitlines()))
    return changed


def sample(root: Path, package: str, count: int, seed: int, changed: set[Path]) -> list[Mutant]:
    """Draw mutants of a package, those of changed files before all others.

    Operators take turns, since constants and conditions are far more frequent than checks.

    Args:
      count: how many; fewer where the package has fewer.
      seed: the same seed draws the same mutants of the same sources.
    """
    draw = random.Random(f"{seed} {package}")
    files = source_files(root, package)
    chosen: list[Mutant] = []
    for group in ([f for f in files if f in changed], [f for f in files if f not in changed]):
        by_operator: dict[str, list[Mutant]] = defaultdict(list)
        if len(chosen) < count:
            for path in group:
                for mutation in mutations((root / path).read_text(encoding="utf-8")):
                    by_operator[mutation.operator].append(Mutant(package, path, mutation))
        for mutants in by_operator.values():
            draw.shuffle(mutants)
        while len(chosen) < count and any(by_operator.values()):
            for operator in sorted(by_operator):
                if by_operator[operator] and len(chosen) < count:
                    chosen.append(by_operator[operator].pop())
    return chosen


def mirrored_tests(root: Path, path: Path) -> list[list[str]]:
    """Return the arguments of pytest for the tests of a file, the nearest ones first.

    `packages/exec/src/weft_exec/kernels/conv.py` is mirrored by `tests/exec/kernels/`, or by the
    nearest folder above it that exists. The table of cases of an op family tests its files in every
    package.
    """
    package, folders, stem = path.parts[1], path.parts[4:-1], path.stem.strip("_")
    folder = root / "tests" / package
    for name in folders:
        if not (folder / name).is_dir():
            break
        folder /= name
    near = sorted(folder.glob(f"test_{stem}*.py")) if stem != "init" else []
    files = [str(file.relative_to(root)) for file in near]
    groups = [files] if files else []
    if (root / "tests" / "conformance" / "cases" / f"{stem}.py").exists():
        table = ["tests/conformance/test_ops.py", "tests/conformance/test_backends.py"]
        groups.append([*table, "-k", stem])
    ignored = [f"--ignore={file}" for file in files]
    return [*groups, [str(folder.relative_to(root)), *ignored]]


def packages(root: Path, names: Sequence[str]) -> list[str]:
    """Return the packages to mutate, all by default.

    Raises: SystemExit: there is no such package.
    """
    known = sorted(path.parent.name for path in root.glob("packages/*/pyproject.toml"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"no such package: {', '.join(unknown)}; there are {', '.join(known)}")
    return list(names) or known
