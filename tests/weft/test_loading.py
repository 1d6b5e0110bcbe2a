"""Modules that `import weft` loads, lazy loading, and errors for misspelled names."""

from __future__ import annotations

import ast
import importlib
import operator
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import weft as wf
from weft._deprecated import ELSEWHERE, RENAMED

PACKAGE = Path(wf.__file__).parent
HEAVY = (
    "absl",
    "flatbuffers",
    "fsspec",
    "google.protobuf",
    "grpc",
    "importlib.metadata",
    "safetensors",
    "unittest",
    "weft_distrib",
    "weft_io",
)


def child(program: str) -> str:
    """Return the output of the program in a new process."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_import_leaves_heavy_modules_alone() -> None:
    loaded = child(
        "import numpy, sys; before = set(sys.modules); import weft;"
        "print(*sorted(set(sys.modules) - before))"
    ).split()
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert [name for name in loaded if name.startswith("weft.")] == [
        "weft._lazy",
        "weft.logging",
    ]


@pytest.mark.parametrize(
    "program",
    [
        "from weft import train; train.Saver",
        "import weft.train; weft.train.Saver",
        "import weft as wf; wf.train.Saver",
        "import weft.train as train; train.Example",
        "from weft.train import Example, AdamOptimizer",
        "from weft.layers import dense",
        "from weft.compat import v1 as tf; tf.compat.v1.Session",
        "from weft import *; Session, float32",
    ],
)
def test_forms_of_import(program: str) -> None:
    child(program)


def test_names_load_once() -> None:
    assert wf.ConfigProto is wf.ConfigProto
    assert "ConfigProto" in vars(wf)
    assert wf.train is sys.modules["weft.train"]


def test_dir_lists_what_has_not_loaded() -> None:
    listed = child("import weft; print(*dir(weft))").split()
    assert {"ConfigProto", "Session", "VERSION", "__version__", "nn", "train"} <= set(listed)
    assert "Example" in child("import weft.train; print(*dir(weft.train))").split()


def test_late_modules_show_what_their_all_names() -> None:
    from weft_distrib.launch import in_process

    assert "Any" in vars(in_process)
    assert callable(wf.test.create_local_cluster)
    assert "Any" not in dir(wf.test)
    assert not hasattr(wf.test, "Any")


@pytest.mark.parametrize(
    ("misspelt", "near"), [("Sesion", "Session"), ("reduce_men", "reduce_mean"), ("trian", "train")]
)
def test_a_misspelt_name_is_told_near_misses(misspelt: str, near: str) -> None:
    with pytest.raises(AttributeError, match=f"'weft' has no attribute '{misspelt}'.*{near}"):
        getattr(wf, misspelt)


@pytest.mark.parametrize(
    ("namespace", "name", "words"),
    [
        ("train", "Exmaple", "similar names: Example"),
        ("nn", "rellu", "similar names: relu"),
        ("nn", "sofmax", "similar names: softmax"),
        ("nn.rnn_cell", "GRUCel", "similar names: GRUCell"),
        ("layers", "dence", "similar names: dense"),
        ("data", "DataSet", "similar names: Dataset"),
        ("losses", "mean_square_error", "similar names: mean_squared_error"),
        ("io.gfile", "Exists", "similar names: exists"),
        ("errors", "OutOfRange", "similar names: OutOfRangeError"),
        ("", "pack", "use stack"),
        ("", "batch_matmul", "use matmul"),
        ("", "scalar_summary", "use summary.scalar"),
        ("train", "SummaryWriter", "use summary.FileWriter"),
        ("nn", "rnn", "use nn.static_rnn"),
        ("nn", "seq2seq", "write decoders as loops"),
        ("", "models", "cells are in nn.rnn_cell"),
        ("", "keras", "Keras is not supported"),
    ],
)
def test_a_name_that_is_not_there_is_told_what_is(namespace: str, name: str, words: str) -> None:
    module = importlib.import_module(f"weft.{namespace}".rstrip("."))
    with pytest.raises(AttributeError, match=f"'{name}'; {re.escape(words)}"):
        getattr(module, name)


def test_every_namespace_tells_near_misses() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name[0] != "_"]
    files += [path for path in PACKAGE.rglob("__init__.py")]
    for path in files:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if len(parts) > 1 and parts[0][0] == "_":
            continue  # no namespace
        if parts[0] in ("contrib", "lite") and find_spec(f"weft_{parts[0]}") is None:
            continue  # it needs an extra package
        module = importlib.import_module(".".join(["weft", *parts]).removesuffix(".__init__"))
        assert callable(vars(module).get("__getattr__")), path


def test_present_names_are_there_and_former_ones_are_not() -> None:
    for namespace, names in (RENAMED | ELSEWHERE).items():
        module = importlib.import_module(namespace)
        assert [name for name in names if name in vars(module)] == []
    for names in RENAMED.values():
        for present in names.values():
            operator.attrgetter(present)(wf)


def test_messages_load_without_the_rest() -> None:
    program = "import sys, weft; weft.{}; print('weft_io' in sys.modules)"
    assert child(program.format("ConfigProto")) == "False\n"
    assert child(program.format("__version__")) == "False\n"
    assert child(program.format("FIFOQueue")) == "True\n"


def test_names_that_tools_ask_for_load_nothing() -> None:
    program = "import sys, weft; hasattr(weft, '__wrapped__'); print('weft_io' in sys.modules)"
    assert child(program) == "False\n"


def test_checkers_are_told_of_every_namespace() -> None:
    """Type checkers see the submodules that are imported under `if TYPE_CHECKING`."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (choice,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = [
        alias.name
        for line in choice.body
        if isinstance(line, ast.ImportFrom) and line.module == "weft"
        for alias in line.names
    ]
    there = {path.stem for path in PACKAGE.glob("*") if path.suffix == ".py" or path.is_dir()}
    assert told == sorted(name for name in there if name[0] != "_")
    assert set(told) <= set(dir(wf))


def stars() -> set[str]:
    """The modules whose names the modules of `weft` show with `import *`."""
    return {
        str(node.module)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        if not str(node.module).startswith("weft.")  # those have nothing but names to show
    }


@pytest.mark.parametrize("module", sorted(stars()))
def test_what_is_shown_whole_says_what_it_shows(module: str) -> None:
    """Without `__all__`, a star import would include the module's own imports."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        assert set(loaded.__all__) <= set(vars(loaded))
        return
    assert loaded.__file__ is not None
    body = ast.parse(Path(loaded.__file__).read_text(encoding="utf-8")).body
    assert all(isinstance(statement, ast.ImportFrom) for statement in body[1:]), "imports alone"


def test_a_run_loads_the_kernels_of_its_ops() -> None:
    program = """
import sys
import weft as wf
x = wf.placeholder(wf.float32, [2, 2])
y = wf.reduce_sum(wf.tanh(wf.matmul(x, x)) + 1.0)
slope = wf.gradients(y, x)[0]
with wf.Session() as session:
    session.run([y, slope], {x: [[1.0, 2.0], [3.0, 4.0]]})
print(*(name for name in sys.modules if ".kernels." in name or ".grads." in name))
"""
    loaded = {name.rpartition(".")[2] for name in child(program).split()}
    assert {"matmul", "elementwise", "reduction", "trigonometry"} <= loaded
    assert not {"conv", "linalg", "training", "parsing", "dataset", "strings"} & loaded
