"""No lock is held across an import, and imports form no cycle (docs/internals/concurrency.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from weft_testing.locked_imports import lock_names, locked_blocks
from weft_testing.survey import packages
from weft_testing.workspace import ROOT, module_name

_LOADERS = frozenset(("import_module", "__import__", "load_near", "load_modules", "load_plain"))
"""Functions that import."""


def imports_in(block: ast.With) -> Iterator[ast.AST]:
    for statement in block.body:
        for node in ast.walk(statement):
            function = node.func if isinstance(node, ast.Call) else None
            name = getattr(function, "attr", getattr(function, "id", ""))
            if isinstance(node, ast.Import | ast.ImportFrom) or name in _LOADERS:
                yield node


def test_the_locks_of_all_kinds_are_recognized() -> None:
    """Attributes, module variables, conditions, and context managers that hold a lock."""
    assert {"_lock", "_LOCK", "_changed", "_planning", "pulling", "locked"} <= lock_names()
    assert sum(map(len, locked_blocks().values())) > 200


def test_no_block_that_holds_a_lock_imports() -> None:
    imports = [
        f"{Path(file).relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for file, blocks in locked_blocks().items()
        for block in blocks
        for node in imports_in(block)
    ]
    assert imports == []


# ------------------------------------------------------------------- cycles


def with_parents(name: str) -> set[str]:
    """A module and the packages that Python imports before it."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


def test_module_level_imports_have_no_cycle() -> None:
    """Two threads that begin a cycle at different modules would each get half of a module."""
    graph: dict[str, set[str]] = {}
    for path, facts in packages().items():
        name = module_name(path)
        needed = {module for other in facts.first for module in with_parents(other)}
        graph[name] = needed - with_parents(name)  # its own packages are there before it
    known = {name: needed & graph.keys() for name, needed in graph.items()}
    assert len(known) > 1000
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


# ------------------------------------------------------------------- lookups


_PROGRAM = """
import importlib, sys
from weft_graph.ir.lazy_modules import LazyModules

def importing(frame):
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if frame.f_code.co_name == "<module>" and getattr(spec, "_initializing", False):
            return spec.name
        frame = frame.f_back

def load(self, plain=LazyModules.load):
    name = None if self.is_complete else importing(sys._getframe(1))
    if name is not None:
        print(name, "loads", vars(self))
    plain(self)

LazyModules.load = load
for name in sys.stdin.read().split():
    importlib.import_module(name)
"""


def test_no_module_looks_anything_up_while_it_is_imported() -> None:
    """A lookup may import modules that depend on the module being imported."""
    names = sorted(name for name in map(module_name, packages()) if not name.endswith("__main__"))
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input="\n".join(names),
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
