"""What `import weft` loads, when the rest loads, and what a misspelt name is told."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import weft as wf

PACKAGE = Path(wf.__file__).parent
HEAVY = (
    "absl",
    "flatbuffers",
    "fsspec",
    "google.protobuf",
    "importlib.metadata",
    "safetensors",
    "unittest",
    "weft_io",
)


def child(program: str) -> str:
    """What the program prints in a process of its own."""
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
        "weft._operations",
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


@pytest.mark.parametrize(
    ("misspelt", "near"), [("Sesion", "Session"), ("reduce_men", "reduce_mean"), ("trian", "train")]
)
def test_a_misspelt_name_is_told_near_misses(misspelt: str, near: str) -> None:
    with pytest.raises(AttributeError, match=f"'weft' has no attribute '{misspelt}'.*{near}"):
        getattr(wf, misspelt)


def test_a_misspelt_name_in_a_namespace() -> None:
    with pytest.raises(AttributeError, match="'Exmaple'; near misses are Example"):
        wf.train.Exmaple  # noqa: B018
    with pytest.raises(AttributeError, match="relo"):
        wf.nn.relo  # noqa: B018


@pytest.mark.parametrize("module", ["__init__", "train"])
def test_checkers_are_told_of_the_names_that_load_late(module: str) -> None:
    """The names under `if TYPE_CHECKING` are those given to `attach`."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    (choice,) = [node for node in tree.body if isinstance(node, ast.If)]
    told: dict[str | None, list[str]] = {}
    for line in choice.body:
        assert isinstance(line, ast.ImportFrom)
        told[line.module] = [alias.asname or "" for alias in line.names]
    given: dict[str | None, list[str]] = {}
    for call in ast.walk(choice):
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            value = ast.literal_eval(keyword.value)
            given.update({"weft": value} if keyword.arg == "namespaces" else value)
    assert told == given


def test_every_module_is_a_namespace() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py") if path.stem[0] != "_"}
    assert modules <= set(dir(wf))
