"""What anybody must know of an op is in its declaration: no tables of op names elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

import weft  # noqa: F401 - declares the ops
from weft_graph.ir.op_def import registered_ops

OPS = frozenset(registered_ops())

BESIDE = {"ops", "kernels", "grads"}
"""Folders in which op names belong: declarations, kernels and gradients."""

ALLOWED = {
    "autodiff/src/weft_autodiff/gradients/units.py": "it looks for the stacks that autodiff makes",
    "autodiff/src/weft_autodiff/gradients/walk.py": "it looks for the stacks that autodiff makes",
    "autodiff/src/weft_autodiff/recompute_grad.py": "it looks for the stacks that autodiff makes",
    "graph/src/weft_graph/freezing.py": "it makes of each reader the op that takes a value",
    "graph/src/weft_graph/graph_util.py": "TensorFlow names the ops that it removes",
    "graph/src/weft_graph/messages/function_reader.py": "it tells apart what it has just made",
    "graph/src/weft_graph/messages/variables.py": "a variable's own parts are looked for by name",
    "io/src/weft_io/meta_graphs/graph_def_edits.py": "ops of savers that weft does not declare",
    "io/src/weft_io/meta_graphs/tensorflow_ops.py": "what TensorFlow has instead of ops of ours",
    "io/src/weft_io/saving/saver_builder.py": "a saver's own node is looked for by name",
}
"""Sources that ask for names of ops, and why."""


def names_in(node: ast.AST) -> list[str]:
    """The op names among the words of a string."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return []
    words = node.value.split()
    return words if words and all(word in OPS for word in words) else []


def tables(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Where a source has several op names beside each other, or compares with one."""
    exported = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and "__all__" in map(ast.unparse, node.targets)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        found: list[str] = []
        if id(node) in exported:
            continue
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            found = [name for item in node.elts for name in names_in(item)]
        elif isinstance(node, ast.Dict):
            found = [name for key in node.keys if key is not None for name in names_in(key)]
        elif isinstance(node, ast.Constant):
            found = names_in(node)
        if len(found) > 1:
            yield node.lineno, found
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            inner = [item for side in sides for item in getattr(side, "elts", [side])]
            found = [name for item in inner for name in names_in(item)]
            if found and any(ast.unparse(side).endswith((".type", ".op", "op")) for side in sides):
                yield node.lineno, found


def findings() -> dict[str, list[tuple[int, list[str]]]]:
    found = {}
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        if not BESIDE & set(path.parts):
            here = sorted(tables(ast.parse(path.read_text(encoding="utf-8"))))
            if here:
                found[str(path.relative_to(ROOT / "packages"))] = here
    return found


FOUND = findings()


def test_no_tables_of_op_names() -> None:
    assert {path: here for path, here in FOUND.items() if path not in ALLOWED} == {}


@pytest.mark.parametrize("path", ALLOWED)
def test_exceptions_are_needed(path: str) -> None:
    assert path in FOUND and Path(ROOT / "packages" / path).exists()


@pytest.mark.parametrize(
    "text",
    ['node.type == "Softplus"', 'node.type in ("Tanh",)', 'X = {"Abs", "Neg"}', 'X = "Abs Neg"'],
)
def test_tables_are_found(text: str) -> None:
    assert list(tables(ast.parse(text)))


@pytest.mark.parametrize("text", ['out("Softplus", [x])', '__all__ = ["Variable", "Barrier"]'])
def test_names_of_what_is_made_are_fine(text: str) -> None:
    assert not list(tables(ast.parse(text)))
