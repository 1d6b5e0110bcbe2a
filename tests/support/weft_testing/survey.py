"""Facts of the sources, for the tests of the tree; each file is parsed once.

Only facts are kept: the trees of all files would be some hundred megabytes, and every collection of
garbage would walk them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weft_graph.ir.gc_pause import pause_gc
from weft_testing.workspace import ROOT

UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}
VAGUE_NAMES = frozenset(
    """
    again alike alone along among apart aside asked at behind beside beyond both by each enough
    everything few found given got held here how its kept many meant mine most much my of off over
    own rest said same seen since taken than that there these through to together told under until
    wanted what when where which who whole whose within
    """.split()  # noqa: SIM905 - a list would be a word a line
)
"""Prepositions, adverbs, participles and pronouns, which do not say what a variable holds."""
FREE_CLAUSE = re.compile(r"(What|Who|Whose|Whom|How|Whether|Where|That|Those|All that)\b")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Facts:
    """Facts of one source file.

    Attributes:
      lines: how many there are, without those of docstrings.
      functions: line and name, to the number of lines without a docstring.
      imports: (level, module or "", names) of each `from … import`, (0, module, ()) of `import`.
      first: the modules, and what may be one, that importing it imports, except inside functions.
      loaded: names that are given to `import_module`.
      groups: the entry-point groups that it reads.
      unsafe: lines that import or call what runs code from data.
      defined: names of the module's classes and functions, nested ones too.
      free_clauses: line and first line of docstrings that open with a free clause ("Whether …").
      vague: line and name of the parameters and variables with one of `VAGUE_NAMES`.
    """

    lines: int
    functions: dict[str, int] = field(default_factory=dict)
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    first: set[str] = field(default_factory=set)
    loaded: list[str] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    unsafe: list[int] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    free_clauses: list[tuple[int, str]] = field(default_factory=list)
    vague: list[tuple[int, str]] = field(default_factory=list)


@cache
def packages() -> dict[Path, Facts]:
    """Return the facts of all sources of packages, by path."""
    paths = ROOT.glob("packages/*/src/**/*.py")
    with pause_gc():  # parsing takes a quarter of the time
        return {path: facts(path.read_text("utf-8")) for path in paths}


def facts(source: str) -> Facts:
    """Return the facts of one source."""
    tree = ast.parse(source)
    found = Facts(len(source.splitlines()), first=set(_imported(tree.body)))
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            _docstring(found, node)
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
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) if name in VAGUE_NAMES:
                found.vague.append((node.lineno, name))
            case ast.Call():
                _call(found, node)
            case ast.Assign(targets=[ast.Name(id="GROUP")]):
                found.groups.add(str(ast.literal_eval(node.value)))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size = (node.end_lineno or 0) - node.lineno + 1 - _num_docstring_lines(node)
                found.functions[f"{node.lineno} {node.name}"] = size
    return found


def _docstring(found: Facts, node: Documented) -> None:
    """Record the docstring of a module, class or function, and its name."""
    found.lines -= _num_docstring_lines(node)
    if not isinstance(node, ast.Module):
        found.defined.add(node.name)
    opening = (ast.get_docstring(node) or "").partition("\n")[0]
    if FREE_CLAUSE.match(opening):
        found.free_clauses.append((getattr(node, "lineno", 1), opening))


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that statements outside functions import, except under `TYPE_CHECKING`."""
    for node in body:
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from (module, *(f"{module}.{alias.name}" for alias in aliases))
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                yield from _imported(node.orelse)
            case ast.Try():
                handled = [statement for handler in node.handlers for statement in handler.body]
                yield from _imported([*node.body, *handled, *node.orelse, *node.finalbody])
            case ast.If() | ast.With() | ast.ClassDef():
                nested = ast.iter_child_nodes(node)
                yield from _imported([child for child in nested if isinstance(child, ast.stmt)])


_GROUP_ARGUMENT = {"Registry": 2, "EntryPointModules": 0, "entry_points": 2}
"""Functions that take an entry-point group, and its position among their arguments."""


def _call(found: Facts, node: ast.Call) -> None:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first = node.args[0] if node.args else None
    if name in {"import_module", "__import__"} and isinstance(first, ast.Constant):
        found.loaded.append(str(first.value))
    if isinstance(node.func, ast.Name) and name in UNSAFE_CALLS:
        found.unsafe.append(node.lineno)
    if isinstance(node.func, ast.Name) and name in _GROUP_ARGUMENT:
        given = [each.value for each in node.keywords if each.arg == "group"]
        given += node.args[_GROUP_ARGUMENT[name] :][:1]
        found.groups |= {str(each.value) for each in given if isinstance(each, ast.Constant)}


def _num_docstring_lines(node: Documented) -> int:
    """Return the number of lines of the node's own docstring."""
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str())) as text, *_]:
            return (text.end_lineno or text.lineno) - text.lineno + 1
    return 0
