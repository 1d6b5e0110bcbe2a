"""What the tests of the tree ask of the sources: each file is parsed once, and only facts are kept.

The trees of all files would be some hundred megabytes, which every collection of garbage walks.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weft_graph.ir.gc_pause import paused_gc
from weft_testing.workspace import ROOT

UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}


@dataclass
class Facts:
    """What stands in one source.

    Attributes:
      lines: how many there are, without those of docstrings.
      functions: line and name, to the number of lines without a docstring.
      imports: (level, module or "", names) of each `from … import`, (0, module, ()) of `import`.
      loaded: names that are given to `import_module`.
      groups: the entry-point groups that it reads.
      unsafe: lines that import or call what runs code from data.
    """

    lines: int
    functions: dict[str, int] = field(default_factory=dict)
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    unsafe: list[int] = field(default_factory=list)


@cache
def packages() -> dict[Path, Facts]:
    """The facts of all sources of packages."""
    paths = ROOT.glob("packages/*/src/**/*.py")
    with paused_gc():  # parsing takes a quarter of the time
        return {path: facts(path.read_text("utf-8")) for path in paths}


def facts(source: str) -> Facts:
    """Those of one source."""
    tree = ast.parse(source)
    found = Facts(len(source.splitlines()))
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                found.imports += [(0, alias.name, ()) for alias in aliases]
                if any(alias.name.partition(".")[0] in UNSAFE_MODULES for alias in aliases):
                    found.unsafe.append(node.lineno)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                names = tuple(alias.name for alias in aliases)
                found.imports.append((level, module or "", names))
                if not level and (module or "").partition(".")[0] in UNSAFE_MODULES:
                    found.unsafe.append(node.lineno)
            case ast.Call():
                _call(found, node)
            case ast.Assign(targets=[ast.Name(id="GROUP")]):
                found.groups.add(str(ast.literal_eval(node.value)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                docs, whole = _doc_lines(node), (node.end_lineno or 0) - node.lineno + 1
                found.functions[f"{node.lineno} {node.name}"] = whole - docs
                found.lines -= docs
            case ast.Module() | ast.ClassDef():
                found.lines -= _doc_lines(node)
    return found


def _call(found: Facts, node: ast.Call) -> None:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first = node.args[0] if node.args else None
    if name in {"import_module", "__import__"} and isinstance(first, ast.Constant):
        found.loaded.append(str(first.value))
    if isinstance(node.func, ast.Name) and name in UNSAFE_CALLS:
        found.unsafe.append(node.lineno)
    if isinstance(node.func, ast.Name) and name in {"Registry", "entry_points"}:
        given = [each.value for each in node.keywords if each.arg == "group"] + node.args[2:3]
        found.groups |= {str(each.value) for each in given if isinstance(each, ast.Constant)}


def _doc_lines(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many lines the node's own docstring has."""
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())) as text, *_]:
            return (text.end_lineno or text.lineno) - text.lineno + 1
    return 0
