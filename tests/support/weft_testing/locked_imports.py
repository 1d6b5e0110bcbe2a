"""Blocks of weft's sources that hold a lock, and imports that begin in one of them."""

from __future__ import annotations

import ast
import bisect
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType
from typing import Any

from weft_graph.ir.gc_pause import pause_gc
from weft_testing.workspace import ROOT

_LOCKS = {"Lock", "RLock", "Condition"}
"""The classes of `threading` whose instances `with` holds."""


@cache
def _texts() -> dict[str, str]:
    """Return the sources of all packages, by file name."""
    return {str(path): path.read_text("utf-8") for path in ROOT.glob("packages/*/src/**/*.py")}


@cache
def _nodes(file: str) -> list[ast.With | ast.Assign | ast.AnnAssign | ast.FunctionDef]:
    """Return the nodes of a file that create locks, hold them, or may yield while holding one."""
    kinds = ast.With | ast.Assign | ast.AnnAssign | ast.FunctionDef
    with pause_gc():
        return [node for node in ast.walk(ast.parse(_texts()[file])) if isinstance(node, kinds)]


@cache
def lock_names() -> frozenset[str]:
    """Return the names of attributes, variables and context managers that are or hold locks."""
    makers = re.compile(rf"\b({'|'.join(_LOCKS)})\b")
    files = [file for file, text in _texts().items() if makers.search(text)]
    names = {name for file in files for name in _assigned_locks(_nodes(file))}
    while True:
        more = {name for file in _holding(names) for name in _managers(_nodes(file), names)}
        if more <= names:
            return frozenset(names)
        names |= more


def _holding(names: Iterable[str]) -> list[str]:
    """Return the files with a `with` statement that uses one of these names."""
    pattern = re.compile(rf"\bwith\b.*\b({'|'.join(names)})\b")
    return [file for file, text in _texts().items() if pattern.search(text)]


def _assigned_locks(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            else:
                pairs = [(target, value)]
            yield from (_last_name(name) for name, lock in pairs if _makes_lock(lock))


def _makes_lock(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute | ast.Name) and _last_name(node) in _LOCKS
        for node in ast.walk(value)
    )


def _managers(nodes: Sequence[ast.AST], names: set[str]) -> Iterator[str]:
    """Return the context managers that hold a lock while they yield."""
    for function in nodes:
        if isinstance(function, ast.FunctionDef):
            blocks = [node for node in ast.walk(function) if _holds(node, names)]
            if any(isinstance(inner, ast.Yield) for block in blocks for inner in ast.walk(block)):
                yield function.name


def _holds(node: ast.AST, names: Iterable[str]) -> bool:
    return isinstance(node, ast.With) and any(
        _last_name(item.context_expr) in names for item in node.items
    )


def _last_name(expression: ast.expr) -> str:
    """Return `c` for `a.b.c` and for `a.b.c(...)`; "" for other expressions."""
    if isinstance(expression, ast.Call):
        expression = expression.func
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


@cache
def locked_blocks() -> dict[str, list[ast.With]]:
    """Return all `with` statements that hold a lock, by file name, in order of their lines."""
    blocks = {}
    for file in _holding(lock_names()):
        nodes = _nodes(file)
        holding = [n for n in nodes if isinstance(n, ast.With) and _holds(n, lock_names())]
        blocks[file] = sorted(holding, key=lambda node: node.lineno)
    return blocks


@cache
def _locked_lines(file: str) -> list[tuple[int, int]]:
    """Return the first and last lines of the locked blocks of a file."""
    return [(node.body[0].lineno, node.end_lineno or 0) for node in locked_blocks().get(file, ())]


def holder(frame: FrameType | None) -> str:
    """Return the innermost line of weft that holds a lock, among the callers of a frame; or ""."""
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        lines = _locked_lines(file)
        index = bisect.bisect(lines, (line, sys.maxsize))
        if any(first <= line <= last for first, last in lines[:index]):
            return f"{Path(file).relative_to(ROOT)}:{line}"
        frame = frame.f_back
    return ""


class LockedImports(MetaPathFinder):
    """A finder that records imports that begin while a lock of weft is held; it finds no module.

    Attributes:
      noted: the modules, by the line that holds the lock.
    """

    def __init__(self) -> None:
        self.noted: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        line = holder(sys._getframe(1))
        if line:
            with self._lock:
                self.noted[line].add(fullname)
