"""The harness of mutants: the changes, the samples, and the difference a test makes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

SOURCE = '''\
"""A module of 3 lines."""

LIMIT: tuple[int, 2] = 4

def clamp(x: int, low: int) -> int:
    """Return 1."""
    if x < low and x is not None:
        raise ValueError(f"{x + 1}")
    check_range(x, "<")
    return x - low
'''


class Harness(NamedTuple):
    operators: Any
    selection: Any
    run: Any


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "mutants"))
        import operators
        import run
        import selection

        yield Harness(operators, selection, run)
    for name in ("operators", "run", "selection", "workspace"):
        del sys.modules[name]


def test_each_operator_changes_one_place(harness: Harness) -> None:
    changed = {
        (mutation.operator, mutation.apply(SOURCE).splitlines()[mutation.line - 1].strip())
        for mutation in harness.operators.mutations(SOURCE)
    }
    assert changed == {
        ("shift a constant", "LIMIT: tuple[int, 2] = 5"),
        ("negate a condition", "if (not (x < low and x is not None)):"),
        ("shift a comparison", "if x <= low and x is not None:"),
        ("shift a comparison", "if x < low and x is None:"),
        ("swap and/or", "if x < low or x is not None:"),
        ("drop a check", "pass"),
        ("swap arithmetic", "return x + low"),
        ("return an operand", "return x"),
    }


def test_a_changed_file_is_still_a_program(harness: Harness) -> None:
    files = harness.selection.source_files(ROOT, "graph")[::10]
    count = 0
    for path in files:
        source = (ROOT / path).read_text(encoding="utf-8")
        for mutation in harness.operators.mutations(source)[::20]:
            ast.parse(mutation.apply(source))
            count += 1
    assert count > 100


def test_samples_repeat_and_begin_with_changed_files(harness: Harness) -> None:
    changed = {Path("packages/tensor/src/weft_tensor/shape.py")}
    sample = harness.selection.sample(ROOT, "tensor", 9, 3, changed)
    assert sample == harness.selection.sample(ROOT, "tensor", 9, 3, changed)
    assert {mutant.path for mutant in sample} == changed
    assert len({mutant.mutation.operator for mutant in sample}) >= 6
    others = harness.selection.sample(ROOT, "tensor", 9, 4, set())
    assert len({mutant.path for mutant in others}) > 1


def test_the_nearest_tests_come_first(harness: Harness) -> None:
    mirrored = harness.selection.mirrored_tests
    kernels = Path("packages/exec/src/weft_exec/kernels")
    assert mirrored(ROOT, kernels / "conv.py")[0] == ["tests/exec/kernels/test_conv.py"]
    assert mirrored(ROOT, kernels / "conv.py")[1][-2:] == ["-k", "conv"]
    assert mirrored(ROOT, kernels / "philox.py") == [["tests/exec/kernels"]]
    for package in harness.selection.packages(ROOT, []):
        for path in harness.selection.source_files(ROOT, package):
            assert all((ROOT / group[0]).exists() for group in mirrored(ROOT, path))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one package, one of whose two functions has a test."""
    module = tmp_path / "packages" / "toy" / "src" / "weft_toy"
    tests = tmp_path / "tests" / "toy"
    for folder in (module, tests):
        folder.mkdir(parents=True)
    (tmp_path / "packages" / "toy" / "pyproject.toml").write_text("")
    (module / "__init__.py").write_text("")
    (module / "math.py").write_text(
        "def least(a, b):\n    return a if a < b else b\n\n\n"
        "def untested(a):\n    return -a if a else a\n"
    )
    (tests / "test_math.py").write_text(
        "from weft_toy.math import least\n\n\n"
        "def test_broken():\n    assert False\n\n\n"
        "def test_least():\n    assert (least(1, 2), least(2, 1)) == (1, 1)\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_mutant_is_killed_only_by_a_test_that_passes_without_it(
    harness: Harness, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in repository.rglob("*.py")}
    run = harness.run
    draw = harness.selection.sample(repository, "toy", 99, 0, set())
    negated = [mutant for mutant in draw if mutant.mutation.operator == "negate a condition"]
    outcomes = run.run_all(repository, negated, seconds=60, jobs=1)
    assert {
        mutant.mutation.line: outcome.is_killed
        for mutant, outcome in zip(negated, outcomes, strict=True)
    } == {2: True, 6: False}
    run.report(repository, negated, outcomes)
    printed = capsys.readouterr().out
    assert "toy             1        2    50%" in printed
    assert "survived: packages/toy/src/weft_toy/math.py:6: negate a condition" in printed
    assert "-    return -a if a else a\n+    return -a if (not (a)) else a\n" in printed
    assert before == {path: path.read_bytes() for path in before}
