"""Mutation operators: the small changes of a source file that a test should notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
}
_CHECK = re.compile(r"_?(require|check|verify|validate|ensure|refuse|raise)", re.IGNORECASE)


@dataclass(frozen=True)
class Mutation:
    """One change of a file.

    Attributes:
      operator: the kind of change.
      line: the line that it begins on, from 1.
      start, end: the bytes of the file that it replaces.
      text: the replacement.
    """

    operator: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


def mutations(source: str) -> list[Mutation]:
    """Return all mutations of a source file, in its order."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda mutation: (mutation.start, mutation.end))


class _Finder(ast.NodeVisitor):
    """Collects mutations of executed code: no annotations, docstrings or imports for types."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._data = source.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def visit(self, node: ast.AST) -> None:
        for operator, mutate in OPERATORS.items():
            for start, end, text in mutate(node, self):
                line = self._data[:start].count(b"\n") + 1
                self.found.append(Mutation(operator, line, start, end, text))
        for child in _children(node):
            self.visit(child)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """The bytes of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        start, end = self.span(node)
        return self._data[start:end].decode()

    def between(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """The bytes between two operands: the operator, with parentheses and space around it."""
        return self.span(left)[1], self.span(right)[0]

    def swapped(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Change]:
        """The replacement of an operator between two operands."""
        start, end = self.between(left, right)
        gap = self._data[start:end].decode()
        match = re.search(rf"(?<![\w<>=!*/]){re.escape(old)}(?![\w<>=*/])", gap)
        if match and "#" not in gap:
            yield (
                start + len(gap[: match.start()].encode()),
                start + len(gap[: match.end()].encode()),
                new,
            )


Change = tuple[int, int, str]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run when the program does."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from node.orelse
        return
    skipped = {"annotation", "returns", "type_params", "decorator_list"}
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        if name not in skipped:
            parts = value if isinstance(value, list) else [value]
            yield from (part for part in parts if isinstance(part, ast.AST))


def _negate_condition(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert) and not (
        isinstance(node.test, ast.Constant) or "TYPE_CHECKING" in ast.unparse(node.test)
    ):
        start, end = source.span(node.test)
        yield start, end, f"(not ({source.text(node.test)}))"


def _shift_comparison(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for i, operator in enumerate(node.ops):
            old, new = _symbol(operator), _COMPARISONS[type(operator)]
            yield from source.swapped(operands[i], operands[i + 1], old, new)


def _symbol(operator: ast.cmpop) -> str:
    probe = ast.Compare(ast.Name("x"), [operator], [ast.Name("y")])
    return ast.unparse(probe)[2:-2]


def _swap_and_or(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from source.swapped(left, right, old, new)


def _swap_arithmetic(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if (
        isinstance(node, ast.BinOp)
        and type(node.op) in _ARITHMETIC
        and not (_is_text(node.left) or _is_text(node.right))
    ):
        old, new = _ARITHMETIC[type(node.op)]
        yield from source.swapped(node.left, node.right, old, new)


def _shift_constant(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        start, end = source.span(node)
        yield start, end, str(node.value + 1)


def _drop_check(node: ast.AST, source: _Finder) -> Iterator[Change]:
    is_check = isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and _CHECK.match(ast.unparse(node.value.func).rpartition(".")[2])
    )
    if is_check:
        assert isinstance(node, ast.stmt)
        start, end = source.span(node)
        yield start, end, "pass"


def _return_operand(node: ast.AST, source: _Finder) -> Iterator[Change]:
    if isinstance(node, ast.Return) and node.value is not None:
        value = node.value
        start, end = source.span(value)
        if isinstance(value, ast.BinOp):
            yield start, end, source.text(value.left)
        elif isinstance(value, ast.BoolOp):
            yield start, end, source.text(value.values[0])
        elif isinstance(value, ast.Call) and value.args and not value.keywords:
            if not isinstance(value.args[0], ast.Starred | ast.GeneratorExp):
                yield start, end, source.text(value.args[0])
        elif isinstance(value, ast.Tuple) and len(value.elts) == 2:
            first, second = map(source.text, value.elts)
            yield start, end, f"({second}, {first})"


def _is_text(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.JoinedStr)


OPERATORS: dict[str, Callable[[ast.AST, _Finder], Iterator[Change]]] = {
    "negate a condition": _negate_condition,
    "shift a comparison": _shift_comparison,
    "swap and/or": _swap_and_or,
    "swap arithmetic": _swap_arithmetic,
    "shift a constant": _shift_constant,
    "drop a check": _drop_check,
    "return an operand": _return_operand,
}
"""The changes of one node, by the name of the operator."""
