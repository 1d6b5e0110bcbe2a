"""The harness of mutants: the changes, the samples, and the difference a test makes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
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
    workspace: Any


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "mutants"))
        import operators
        import run
        import selection
        import workspace

        yield Harness(operators, selection, run, workspace)
    for name in ("child", "operators", "run", "selection", "workspace"):
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
        for mutation in harness.operators.mutations(source)[::15]:
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
    examples = "tests/integration/test_documents.py::test_the_examples_of_the_api_run[exec]"
    assert mirrored(ROOT, kernels / "philox.py")[1:] == [["tests/exec/kernels"], [examples]]
    tables = Path("packages/distrib/src/weft_distrib/protocol/tables.py")
    assert "tests/distrib/security/test_bounds.py" in mirrored(ROOT, tables)[-1]
    for package in harness.selection.packages(ROOT, []):
        for path in harness.selection.source_files(ROOT, package)[::5]:
            groups = mirrored(ROOT, path)
            assert all((ROOT / group[0].partition("::")[0]).exists() for group in groups)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one package, one of whose two functions has a test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a child starts five times as fast
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")
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
    outcomes = run.run_all(repository, negated, harness.workspace.Limits(), jobs=1)
    assert {
        mutant.mutation.line: outcome.is_killed
        for mutant, outcome in zip(negated, outcomes, strict=True)
    } == {2: True, 6: False}
    run.report(repository, negated, outcomes)
    printed = capsys.readouterr().out
    assert "toy               1         0         0         1            50%" in printed
    assert "survived: packages/toy/src/weft_toy/math.py:6: negate a condition" in printed
    assert "-    return -a if a else a\n+    return -a if (not (a)) else a\n" in printed
    assert before == {path: path.read_bytes() for path in before}


LEAST = "def least(a, b):\n    return a if a < b else b\n"
TOYS = {
    "fails": ("killed", "def test_least():\n    assert {right}\n"),
    "hangs": ("hung", "def test_least():\n    while not {right}: pass\n"),
    "aborts": ("crashed", "def test_least():\n    {right} or os.abort()\n"),
    "crashes": ("survived", "def test_least():\n    {right}\n    os.abort()\n"),
    "slows": ("survived", "def test_least():\n    time.sleep(0.3 if {right} else 1.3)\n"),
    "skips": ("survived", "@pytest.mark.skip\ndef test_least():\n    assert {right}\n"),
    "empty": ("survived", "assert {right} or True\n"),
    "unloaded": ("killed", "assert {right}\ndef test_least(): pass\n"),
}


def write_toys(repository: Path, toys: Mapping[str, str]) -> None:
    """Write modules with one function each into a repository, and the tests that mirror them."""
    for name, test in toys.items():
        module = repository / "packages" / "toy" / "src" / "weft_toy" / name / "code.py"
        tests = repository / "tests" / "toy" / name
        for folder in (module.parent, tests):
            folder.mkdir()
        module.write_text(LEAST)
        head = f"import os, time, pytest\nfrom weft_toy.{name}.code import least\n"
        (tests / "test_code.py").write_text(head + test.format(right="least(1, 2) == 1"))


def run_negated(harness: Harness, repository: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the verdicts of the mutants that negate the conditions of modules."""
    mutants = [
        mutant
        for mutant in harness.selection.sample(repository, "toy", 99, 0, set())
        if mutant.mutation.operator == "negate a condition" and mutant.path.parent.name in names
    ]
    outcomes = harness.run.run_all(repository, mutants, harness.workspace.Limits(test=1), jobs=1)
    return {
        mutant.path.parent.name: outcome.verdict
        for mutant, outcome in zip(mutants, outcomes, strict=True)
    }


def test_only_failures_hangs_and_crashes_kill(
    harness: Harness, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_toys(repository, {name: test for name, (_, test) in TOYS.items()})
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    verdicts = run_negated(harness, repository, TOYS)
    assert verdicts == {name: verdict for name, (verdict, _) in TOYS.items()}


def test_tests_that_cannot_be_loaded_without_the_mutant_stop_the_harness(
    harness: Harness, repository: Path
) -> None:
    write_toys(repository, dict.fromkeys(("broken", "breaks"), "def test_least(): pass\n"))
    tests = repository / "tests" / "toy"
    (tests / "broken" / "conftest.py").write_text("1 / 0\n")
    (tests / "breaks" / "conftest.py").write_text(
        "from weft_toy.breaks.code import least\nassert least(1, 2) == 1\n"
    )
    assert run_negated(harness, repository, ["breaks"]) == {"breaks": "crashed"}
    with pytest.raises(SystemExit, match=r"ends with 4 without a mutant, too:(?s:.)*division"):
        run_negated(harness, repository, ["broken"])
