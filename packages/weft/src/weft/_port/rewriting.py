"""Rewriting of import lines from TensorFlow to weft; the rest of a file is unchanged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from weft._port.source import (
    Source,
    below_root,
    is_module,
    is_tensorflow,
    look_up,
    public_module,
    public_path,
)

Edit = tuple[int, int, str]
"""Start and end of a span of the text, and its replacement."""

_FROM = re.compile(r"from\s+(tensorflow[\w.]*)")


def rewrite_imports(source: Source) -> str:
    """Rewrite the imports of all names that weft has."""
    starts = _starts(source.text)
    edits: list[Edit] = []
    for statement in ast.walk(source.tree):
        if isinstance(statement, ast.Import):
            edits += _edit_import(statement, source.text, starts)
        elif isinstance(statement, ast.ImportFrom) and is_tensorflow(statement):
            edits += _edit_from_import(statement, source.text, starts)
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _starts(text: str) -> list[int]:
    """Return the offsets of the line starts, by Python's line endings."""
    return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]


def _offset(text: str, starts: list[int], line: int, column: int) -> int:
    """Return the offset of a column, which the syntax tree counts in bytes of UTF-8."""
    start = starts[line - 1]
    end = starts[line] if line < len(starts) else len(text)
    return start + len(text[start:end].encode()[:column].decode(errors="ignore"))


def _edit_import(statement: ast.Import, text: str, starts: list[int]) -> Iterator[Edit]:
    for alias in statement.names:
        path = below_root(alias.name)
        if path is not None and alias.asname is not None:
            path = public_module(path)
        if path is None or (path and look_up(0, path).missing):
            continue
        start = _offset(text, starts, alias.lineno, alias.col_offset)
        new = f"weft.{path}" if path else "weft"
        if alias.asname is None:  # which binds the package
            new = "weft as tensorflow"
        yield start, start + len(alias.name), new


def _edit_from_import(statement: ast.ImportFrom, text: str, starts: list[int]) -> Iterator[Edit]:
    namespace = _common_namespace(statement)
    start = _offset(text, starts, statement.lineno, statement.col_offset)
    match = _FROM.match(text, start)
    if namespace is not None and match is not None:
        yield match.start(1), match.end(1), f"weft.{namespace}" if namespace else "weft"
    elif (
        (replacement := _public_import(statement))
        and statement.end_lineno
        and statement.end_col_offset
    ):
        yield (
            start,
            _offset(text, starts, statement.end_lineno, statement.end_col_offset),
            replacement,
        )


def _public_import(statement: ast.ImportFrom) -> str:
    """Return an import of a private module's names from the public namespace, or "".

    A private module becomes its namespace, under the same name.
    """
    inner_path = below_root(statement.module or "") or ""
    parts = [_import_of(f"{inner_path}.{alias.name}", alias) for alias in statement.names]
    return "; ".join(parts) if all(parts) else ""


def _import_of(path: str, alias: ast.alias) -> str:
    public = public_path(path)
    if public is None or look_up(0, path).missing:
        return ""
    if is_module(public):
        return f"import weft{'.' if public else ''}{public} as {alias.asname or alias.name}"
    namespace, _, name = public.rpartition(".")
    suffix = f" as {alias.asname}" if alias.asname else ""
    return f"from weft{'.' if namespace else ''}{namespace} import {name}{suffix}"


def _common_namespace(statement: ast.ImportFrom) -> str | None:
    """Return the namespace that has all names that a statement imports, or None."""
    inner_path = below_root(statement.module or "") or ""
    namespaces = set()
    for alias in statement.names:
        path = f"{inner_path}.{alias.name}".lstrip(".")
        public = public_path(path)
        target = path if public is None else public
        if alias.name == "*":
            namespaces.add(inner_path)
        elif path == "compat.v1":
            return "compat" if len(statement.names) == 1 else None
        elif target.rpartition(".")[2] != alias.name or look_up(0, target).missing:
            return None
        else:
            namespaces.add(target.rpartition(".")[0])
    return namespaces.pop() if len(namespaces) == 1 else None
