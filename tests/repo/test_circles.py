"""Import cycles of files, including imports in functions and for typing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from weft_testing.survey import Facts, facts, packages
from weft_testing.workspace import ROOT

MAX_FILES = 2
"""Largest circle without an entry in `EXCEPTIONS`."""

EXCEPTIONS: dict[frozenset[str], str] = {
    frozenset(
        {
            "weft_graph.ir.edits",
            "weft_graph.ir.graph",
            "weft_graph.ir.node",
            "weft_graph.ir.scopes",
        }
    ): (
        "A graph owns its nodes, inherits their edits and holds the scopes of new nodes; "
        "`Node.graph`, an import for type checkers, is the only one upwards."
    ),
}
"""Larger circles, with the reason that they are not divided; at most two."""


def modules() -> dict[str, Path]:
    """Return all modules of the packages by name."""
    files: dict[str, Path] = {}
    for source in ROOT.glob("packages/*/src"):
        for file in source.rglob("*.py"):
            parts = file.relative_to(source).with_suffix("").parts
            files[".".join(parts).removesuffix(".__init__")] = file
    return files


def imported_names(name: str, file: Path, module: Facts) -> Iterator[str]:
    """Yield the dotted names that a module imports, in any of its statements."""
    package = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    for level, target, names in module.imports:
        parents = package[: len(package) - level + 1] if level else []
        source = ".".join([*parents, target] if target else parents)
        yield from (f"{source}.{item}" for item in names) if names else [source]


def import_graph(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports, or imports a name from."""
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        names = imported_names(name, file, packages()[file])
        targets = {t if t in files else t.rpartition(".")[0] for t in names}
        graph[name] = (targets & files.keys()) - {name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Return the strongly connected components of more than one node."""
    back: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            back[target].add(name)
    components: list[frozenset[str]] = []
    visited: set[str] = set()
    for name in graph:
        if name not in visited:
            component = _reachable(graph, name) & _reachable(back, name)
            visited |= component
            components.append(frozenset(component))
    return [component for component in components if len(component) > 1]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    visited, stack = {start}, [start]
    while stack:
        for target in graph[stack.pop()]:
            if target not in visited:
                visited.add(target)
                stack.append(target)
    return visited


def test_no_circle_of_files_is_large() -> None:
    large = {circle for circle in circles(import_graph(modules())) if len(circle) > MAX_FILES}
    assert sorted(map(sorted, large - EXCEPTIONS.keys())) == []


def test_all_exceptions_are_circles_with_a_reason() -> None:
    present = set(circles(import_graph(modules())))
    assert [sorted(circle) for circle in EXCEPTIONS.keys() - present] == []
    assert len(EXCEPTIONS) <= 2
    assert all(EXCEPTIONS.values())


def test_circles_are_strongly_connected_components() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_imports_count_in_all_statements() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "from . import near\n"
        "from ..other.deep import Thing\n"
        "if TYPE_CHECKING:\n    import weft.typing_only\n"
        "def late():\n    from weft import inner\n"
    )
    names = set(imported_names("weft.package.module", Path("module.py"), facts(source)))
    assert {
        "weft.package.near",
        "weft.other.deep.Thing",
        "weft.typing_only",
        "weft.inner",
    } <= names
