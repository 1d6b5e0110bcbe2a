"""Selects mutants: a seeded sample of each package, and the tests that mirror a file."""

from __future__ import annotations

import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from operators import Mutation, mutations

GENERATED = ("_pb2.py", "_generated.py")

_FAMILIES = ("grads", "kernels", "ops")
"""Folders with a file for each op family."""

_MAX_IMPORTERS = 8
"""A module that more files of tests import is not what any of them is about."""


@dataclass(frozen=True)
class Mutant:
    """A mutation of one file of a package; `path` is relative to the root of the repository."""

    package: str
    path: Path
    mutation: Mutation


def source_files(root: Path, package: str) -> list[Path]:
    """Return the handwritten modules of a package, relative to `root`."""
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
    package; a family without cases of its own is used by others. The last ones are the tests
    of other packages that import the module, and the examples in the docstrings of the package.
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
    table = ["tests/conformance/test_ops.py", "tests/conformance/test_backends.py"]
    if (root / "tests" / "conformance" / "cases" / f"{stem}.py").exists():
        groups.append([*table, "-k", stem])
    elif path.parts[4] in _FAMILIES:
        groups.append(table[:1])
    ignored = [f"--ignore={file}" for file in files]
    groups.append([str(folder.relative_to(root)), *ignored])
    groups.append([str(file.relative_to(root)) for file in importing_tests(root, path, folder)])
    documents = root / "tests" / "integration" / "test_documents.py"
    if documents.exists() and f'"{package}"' in documents.read_text(encoding="utf-8"):
        name = f"{documents.relative_to(root)}::test_the_examples_of_the_api_run[{package}]"
        groups.append([name])
    return list(filter(None, groups))


def importing_tests(root: Path, path: Path, folder: Path) -> list[Path]:
    """Return the files of tests outside a folder that import a module, none if it is common."""
    parts = path.with_suffix("").parts[3:]
    names = parts[:-1] if parts[-1] == "__init__" else parts
    parent, name = ".".join(names[:-1]), names[-1]
    from_parent = f"from {parent} import "
    named = re.compile(rf"{from_parent}(?:\([^)]*|[^(\n]*)\b{re.escape(name)}\b")
    module = ".".join(names)
    importing = [
        file
        for file, text in _texts_of_tests(root).items()
        if not file.is_relative_to(folder)
        and (f" {module} " in text or (from_parent in text and named.search(text)))
    ]
    return importing if len(importing) <= _MAX_IMPORTERS else []


@cache
def _texts_of_tests(root: Path) -> dict[Path, str]:
    """Return the texts of the tests by their files, without those of the conformance tables."""
    files = sorted((root / "tests").rglob("test_*.py"))
    return {
        file: file.read_text(encoding="utf-8") for file in files if "conformance" not in file.parts
    }


def packages(root: Path, names: Sequence[str]) -> list[str]:
    """Return the packages to mutate, all by default.

    Raises: SystemExit: there is no such package.
    """
    known = sorted(path.parent.name for path in root.glob("packages/*/pyproject.toml"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"no such package: {', '.join(unknown)}; there are {', '.join(known)}")
    return list(names) or known
