"""Functions of the compiler's output are written by a Writer, or in C, and not as LLVM text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from weft_testing.workspace import ROOT

SOURCES = ROOT / "packages" / "compiler" / "src" / "weft_compiler"
MAX_LINES = 20
IS_LLVM = re.compile(
    r"\s*([%@]\S+ = |(define|declare|br|ret|store|call|tail call|unreachable)\b|[\w.]+:\s*$|}+$)"
)


def literals(text: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module with their lines; the holes of f-strings are empty."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [each.value for each in node.values if isinstance(each, ast.Constant)]
            yield node.lineno, "0".join(map(str, parts))


def num_llvm_lines(text: str) -> int:
    return sum(bool(IS_LLVM.match(line)) for line in text.splitlines())


def test_no_literal_is_a_long_llvm_text() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{line}: {num_llvm_lines(text)} lines of LLVM"
        for path in sorted(SOURCES.rglob("*.py"))
        for line, text in literals(path.read_text(encoding="utf-8"))
        if num_llvm_lines(text) > MAX_LINES
    ]
    assert not long, "write it in C (weft_compiler/runtime), or by a Writer"


@pytest.mark.parametrize("prefix", ["", "f"])
def test_a_long_literal_is_counted(prefix: str) -> None:
    body = "  %x = add i32 {y}, 1\n" * 21
    ((_, text), *_) = literals(f'TEXT = {prefix}"""define i32 @f() {{{{\n{body}}}}}\n"""')
    assert num_llvm_lines(text) > MAX_LINES
