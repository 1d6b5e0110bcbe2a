"""Circles of files: modules that import each other, at import time, late, or for typing alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from weft_testing.survey import Facts, facts, packages
from weft_testing.workspace import ROOT

MOST = 5
"""Files that may import each other in a circle: a graph, edits, nodes, declarations, scopes."""


def modules() -> dict[str, Path]:
    """All modules of the packages by name."""
    found: dict[str, Path] = {}
    for source in ROOT.glob("packages/*/src"):
        for file in source.rglob("*.py"):
            parts = file.relative_to(source).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported(name: str, file: Path, found: Facts) -> Iterator[str]:
    """What the statements of a module import, wherever they stand in it."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for level, module, names in found.imports:
        around = package[: len(package) - level + 1] if level else []
        source = ".".join([*around, module] if module else around)
        yield from (f"{source}.{each}" for each in names) if names else [source]


def arrows(files: dict[str, Path]) -> dict[str, set[str]]:
    """For each module those that it imports, or imports something from."""
    result: dict[str, set[str]] = {}
    for name, file in files.items():
        names = imported(name, file, packages()[file])
        targets = {t if t in files else t.rpartition(".")[0] for t in names}
        result[name] = (targets & files.keys()) - {name}
    return result


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes that lead to each other: what is reached both ways from one of them."""
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    found: list[set[str]] = []
    seen: set[str] = set()
    for name in graph:
        if name not in seen:
            circle = _reached(graph, name) & _reached(back, name)
            seen |= circle
            found.append(circle)
    return [circle for circle in found if len(circle) > 1]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found, stack = {start}, [start]
    while stack:
        for target in graph[stack.pop()]:
            if target not in found:
                found.add(target)
                stack.append(target)
    return found


def test_no_circle_of_files_is_large() -> None:
    large = [sorted(circle) for circle in circles(arrows(modules())) if len(circle) > MOST]
    assert not large


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "from . import near\n"
        "from ..other.deep import Thing\n"
        "if TYPE_CHECKING:\n    import weft.typing_only\n"
        "def late():\n    from weft import inner\n"
    )
    found = set(imported("weft.package.module", Path("module.py"), facts(source)))
    assert {
        "weft.package.near",
        "weft.other.deep.Thing",
        "weft.typing_only",
        "weft.inner",
    } <= found
