"""House rules that no linter checks: sizes, forbidden constructs, files every package has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_testing.survey import Facts, facts, packages
from weft_testing.workspace import PACKAGES, ROOT, distribution, module, project

SOURCES = sorted(
    path
    for path in ROOT.glob("packages/*/src/**/*.py")
    if not path.name.endswith(("_pb2.py", "_generated.py"))
)

MODULE_LINES = 600  # docstrings apart, which hold arguments and examples
FUNCTION_LINES = 80
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BLANKET = re.compile(r"^\s*except\s*(\(?\s*(Base)?Exception\b.*)?:")


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def lines() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield where(path, number), line


def of_sources() -> dict[Path, Facts]:
    """The facts of all sources that people write."""
    return {path: packages()[path] for path in SOURCES}


def test_no_pickle_eval_or_exec() -> None:
    found = [where(path, line) for path, each in of_sources().items() for line in each.unsafe]
    assert found == []


@pytest.mark.parametrize(
    "line", ["import pickle", "from marshal import loads", "eval('1')", "import os, dill.temp"]
)
def test_what_is_unsafe_is_found(line: str) -> None:
    assert facts(f"x = 1\n{line}\n").unsafe == [2]


def test_modules_are_short() -> None:
    sizes = {path: each.lines for path, each in of_sources().items()}
    assert not {path: size for path, size in sizes.items() if size > MODULE_LINES}


def test_functions_are_short() -> None:
    sizes = {
        f"{path.relative_to(ROOT)}:{name}": size
        for path, each in of_sources().items()
        for name, size in each.functions.items()
    }
    assert len(sizes) > 10_000
    assert not {name: size for name, size in sizes.items() if size > FUNCTION_LINES}


def test_lines_of_docstrings_do_not_count() -> None:
    found = facts('"""A.\n\nB."""\n\n\ndef f():\n    """C.\n    """\n    return 1\n')
    assert (found.lines, found.functions) == (4, {"6 f": 2})


def test_nothing_is_left_unfinished() -> None:
    assert not [place for place, line in lines() if UNFINISHED.search(line)]


def test_a_blanket_except_says_why() -> None:
    assert not [
        place for place, line in lines() if BLANKET.search(line) and "# because" not in line
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_is_complete(package: Path) -> None:
    table = project(package)
    assert table["name"] == distribution(package.name)
    assert (package / "src" / module(package.name) / "py.typed").is_file()
    assert (package / "README.md").read_text(encoding="utf-8").startswith(f"# {table['name']}\n")
    assert f"## {table['version']}" in (package / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["LICENSE", "hatch_build.py"])
def test_copies_are_equal(name: str) -> None:
    copies = [*ROOT.glob(f"packages/*/{name}"), *ROOT.glob(name)]
    assert len(copies) >= len(PACKAGES) - 4  # tensor, trace, lite and client require no siblings
    assert len({path.read_bytes() for path in copies}) == 1


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_tests_lie_where_the_sources_do(package: Path) -> None:
    sources, tests = package / "src" / module(package.name), ROOT / "tests" / package.name
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert folders, f"{package.name} has no tests"
    assert [folder for folder in sorted(folders) if not (sources / folder).is_dir()] == []


def test_loops_of_tests_have_a_bound() -> None:
    """One that waits for an error that never comes would hold the suite up until its timeout."""
    endless = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.glob("tests/**/test_*.py")
        if "while True" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant)
    ]
    assert endless == [], "use weft_testing.waiting.rounds"
