"""Facts about ops are in their declarations, not in tables of op names."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

import weft  # noqa: F401 - declares the ops
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.op_def import registered_ops

OPS = frozenset(registered_ops())

BESIDE = {"ops", "kernels", "grads"}
"""Folders in which op names belong, each to its family: declarations, kernels and gradients."""

TRANSLATIONS = {"rules", "reading"}
"""Folders of rules that take ops to other formats and back: names are what they are about."""

ALLOWED = {
    "graph/src/weft_graph/ragged/rearranging.py": "rules of ops for ragged tensors",
    "graph/src/weft_graph/ragged/reductions.py": "rules of ops for ragged tensors",
    "graph/src/weft_graph/ragged/shaping.py": "rules of ops for ragged tensors",
    "contrib/src/weft_contrib/layers/summaries.py": "activations whose zeros are worth counting",
    "distrib/src/weft_distrib/training/device_setter.py": "TensorFlow names what servers keep",
    "graph/src/weft_graph/freezing.py": "it makes of each reader the op that takes a value",
    "graph/src/weft_graph/ir/later_attrs.py": "attributes that TensorFlow gave to its ops later",
    "compiler/src/weft_compiler/lower/complex_numbers.py": "ops that do the same to both parts",
    "compiler/src/weft_compiler/lower/unique_rows.py": "how optimizers add up equal indices",
    "graph/src/weft_graph/messages/deprecated_ops.py": "replacements of deprecated ops",
    "graph/src/weft_graph/raw_ops.py": "arguments that TensorFlow's raw ops call otherwise",
    "graph/src/weft_graph/graph_util.py": "TensorFlow names the ops that it removes",
    "distrib/src/weft_distrib/collective/arithmetic.py": "TensorFlow's names of ways to merge",
    "lite/src/weft_lite/convert/backends.py": "ops that pass errors of operands on unchanged",
    "lite/src/weft_lite/convert/shapes.py": "what a TensorArray is written by tells its shapes",
    "graph/src/weft_graph/passes/partitioned_lookups.py": "ops of partitioned lookups",
    "graph/src/weft_graph/passes/mixed_precision.py": "TensorFlow's lists of ops for 16 bits",
    "graph/src/weft_graph/passes/inference.py": "ops that dropout and moving averages are made of",
    "io/src/weft_io/onnx/older_forms.py": "ONNX's ops as its older versions have them",
    "io/src/weft_io/onnx/symbolic_integers.py": "ONNX's ops by which sizes are computed from "
    "shapes",
    "io/src/weft_io/onnx/stacking.py": "ONNX's ops that counters, rows and sequences are made by",
    "io/src/weft_io/meta_graphs/foreign_savers.py": "it takes savers in a message apart",
    "io/src/weft_io/meta_graphs/graph_def_edits.py": "ops of savers that weft does not declare",
    "io/src/weft_io/meta_graphs/tensorflow_ops.py": "what TensorFlow has instead of ops of ours",
    "io/src/weft_io/saving/saver_builder.py": "a saver's own node is looked for by name",
}
"""Sources that ask for names of ops, and why."""

ALLOWED_BESIDE = {
    "distrib/src/weft_distrib/ops/collective.py": "TensorFlow's names of ways to merge",
    "exec/src/weft_exec/kernels/rows.py": "updates of scatters, named as in ResourceScatterMul",
}
"""Declarations, kernels and gradients that list names of other families' ops, and why."""

DECLARED_WHERE = """
import json
from weft_graph.ir import op_def
found, register = {}, op_def.register_op
def recorded(name, *args, **keywords):
    import sys
    frame = sys._getframe(1)
    found.setdefault(name, frame.f_code.co_filename)
    register(name, *args, **keywords)
op_def.register_op = recorded
import weft
op_def.registered_ops()
print(json.dumps(found))
"""


def names_in(node: ast.AST) -> list[str]:
    """The op names among the words of a string."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return []
    words = node.value.split()
    return words if words and all(word in OPS for word in words) else []


def tables(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Return the places where a source lists several op names, or compares with one."""
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


Tables = list[tuple[int, list[str]]]


@cache
def sources() -> dict[Path, tuple[Tables, set[str]]]:
    """The tables in each source, and the ops that it registers kernels and gradients of."""
    found = {}
    with pause_gc():  # parsing takes a quarter of the time
        for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            registered = registered_in(tree) if BESIDE & set(path.parts) else set()
            found[path] = sorted(tables(tree)), registered
    return found


def findings() -> dict[str, Tables]:
    return {
        str(path.relative_to(ROOT / "packages")): here
        for path, (here, _) in sources().items()
        if here and not (BESIDE | TRANSLATIONS) & set(path.relative_to(ROOT).parts)
    }


@cache
def families() -> dict[str, set[str]]:
    """File stem to the ops that are declared, have kernels or gradients in files of that stem."""
    command = [sys.executable, "-c", DECLARED_WHERE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = defaultdict(set)
    for name, source in json.loads(done.stdout).items():
        found[Path(source).stem].add(name)
    for path, (_, registered) in sources().items():
        found[path.stem] |= registered
    return found


def registered_in(tree: ast.AST) -> set[str]:
    """The ops that a source names where it registers kernels and gradients."""
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in ("kernel", "RegisterGradient")
        for argument in node.args
        for name in names_in(argument)
    }


def foreign(here: Tables, own: set[str]) -> Tables:
    """Return tables that name ops outside of their family, ignoring parts of names."""
    found = []
    for line, names in here:
        others = [name for name in names if not any(name in mine for mine in own)]
        if others:
            found.append((line, others))
    return found


def foreign_findings() -> dict[str, Tables]:
    found = {}
    for path, (tables_here, _) in sources().items():
        inside = set(path.relative_to(ROOT).parts)
        if BESIDE & inside and (here := foreign(tables_here, families()[path.stem])):
            found[str(path.relative_to(ROOT / "packages"))] = here
    return found


def test_no_tables_of_op_names() -> None:
    assert {path: here for path, here in findings().items() if path not in ALLOWED} == {}


def test_families_name_only_their_own_ops() -> None:
    found = foreign_findings()
    assert {path: here for path, here in found.items() if path not in ALLOWED_BESIDE} == {}
    assert set(ALLOWED_BESIDE) <= set(found), "an exception is no longer needed"


def test_declarations_are_found() -> None:
    assert "Softplus" in families()["nn"] and "VarHandleOp" in families()["resource_state"]


def test_foreign_tables_are_found() -> None:
    own = {"SegmentSum", "Relu"}
    source = 'X = {"Sum": 1, "Relu": 2}\nY = node.type in ("Relu", "Tanh")'
    assert foreign(sorted(tables(ast.parse(source))), own) == [(2, ["Tanh"])] * 2


@pytest.mark.parametrize("path", ALLOWED)
def test_exceptions_are_needed(path: str) -> None:
    assert path in findings() and Path(ROOT / "packages" / path).exists()


@pytest.mark.parametrize(
    "text",
    ['node.type == "Softplus"', 'node.type in ("Tanh",)', 'X = {"Abs", "Neg"}', 'X = "Abs Neg"'],
)
def test_tables_are_found(text: str) -> None:
    assert list(tables(ast.parse(text)))


@pytest.mark.parametrize("text", ['out("Softplus", [x])', '__all__ = ["Variable", "Barrier"]'])
def test_names_of_what_is_made_are_fine(text: str) -> None:
    assert not list(tables(ast.parse(text)))
