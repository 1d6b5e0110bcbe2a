"""House rules that no linter checks: sizes, forbidden constructs, files every package has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_testing.workspace import PACKAGES, ROOT, distribution, module, project

SOURCES = sorted(
    path
    for path in ROOT.glob("packages/*/src/**/*.py")
    if not path.name.endswith(("_pb2.py", "_generated.py"))
)

MODULE_LINES = 600  # docstrings apart, which hold arguments and examples
FUNCTION_LINES = 80
UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
BLANKET = re.compile(r"^\s*except\s*(\(?\s*(Base)?Exception\b.*)?:")


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def lines() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield where(path, number), line


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def unsafe(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=aliases):
            return any(alias.name.partition(".")[0] in UNSAFE_MODULES for alias in aliases)
        case ast.ImportFrom(module=str(module), level=0):
            return module.partition(".")[0] in UNSAFE_MODULES
        case ast.Call(func=ast.Name(id=name)):
            return name in UNSAFE_CALLS
    return False


def test_no_pickle_eval_or_exec() -> None:
    assert not [where(path, node.lineno) for path, node in nodes() if unsafe(node)]


def doc_lines(node: ast.AST) -> int:
    """How many lines a function's, class's or module's own docstring has."""
    match node:
        case (
            ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
        ):
            return (text.end_lineno or text.lineno) - text.lineno + 1
    return 0


def test_modules_are_short() -> None:
    sizes = dict.fromkeys(SOURCES, 0)
    for path in SOURCES:
        sizes[path] = len(path.read_text("utf-8").splitlines())
    for path, node in nodes():
        sizes[path] -= doc_lines(node)
    assert not {path: size for path, size in sizes.items() if size > MODULE_LINES}


def test_functions_are_short() -> None:
    sizes = {
        f"{where(path, node.lineno)} {node.name}": (node.end_lineno or 0)
        - node.lineno
        + 1
        - doc_lines(node)
        for path, node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: size for name, size in sizes.items() if size > FUNCTION_LINES}


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
    assert len(copies) >= len(PACKAGES) - 2  # weftml-tensor and weftml-lite have no siblings
    assert len({path.read_bytes() for path in copies}) == 1


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_tests_lie_where_the_sources_do(package: Path) -> None:
    sources, tests = package / "src" / module(package.name), ROOT / "tests" / package.name
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert folders, f"{package.name} has no tests"
    assert [folder for folder in sorted(folders) if not (sources / folder).is_dir()] == []
