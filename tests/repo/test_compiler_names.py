"""Modules, classes, routines and passes of the compiler have the glossary's names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from weft_testing.workspace import ROOT

from weft_compiler.gpu.pipeline import PIPELINE as GPU_PIPELINE
from weft_compiler.passes.pipeline import PIPELINE
from weft_compiler.routines.registry import ROUTINES

SOURCES = ROOT / "packages" / "compiler" / "src" / "weft_compiler"
TERMS, _, REPLACED = (
    (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Replaced names")
)

# Participles and adverbs, which are no names of things.
VAGUE = frozenset(
    """
    again alike alone apart around asked done early found given held it kept known late made making
    mine others own rest seen taken that there these told turn turned turns wanted what where who
    whole
    """.split()  # noqa: SIM905 - a list would be a word a line
)


def modules() -> Iterator[str]:
    """Yield the stems of modules and the names of folders."""
    for path in SOURCES.rglob("*"):
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
            yield path.stem


def classes() -> Iterator[str]:
    """Yield the names of public classes."""
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


NAMES = {*modules(), *classes(), *[each.routine for each in ROUTINES]}


def identifiers(text: str, column: int) -> set[str]:
    """Return the identifiers in a column of the glossary's tables, without suffixes of files."""
    rows = re.findall(r"^\|(.*)\|$", text, re.M)
    cells = [row.split("|")[column] for row in rows]
    return {name.removesuffix(".py") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_names_of_the_compiler_are_found() -> None:
    assert {"fuse", "sparse_attention", "Mutator", "gemm"} <= NAMES


def test_replaced_names_do_not_come_back() -> None:
    rows = [row for row in REPLACED.splitlines() if row.rstrip(" |").endswith("compiler")]
    replaced = identifiers("\n".join(rows), 0)
    assert {"again", "UnfitError", "turns"} <= replaced
    assert NAMES & replaced == set(), "see docs/glossary.md"


def test_names_are_nouns_of_the_field() -> None:
    vague = {name for name in NAMES if name.lower() in VAGUE}
    assert vague == set(), "see docs/glossary.md"


def test_the_glossary_has_a_term_for_each_pass() -> None:
    known = identifiers(TERMS, 3)
    missing = []
    for each in (*PIPELINE, *GPU_PIPELINE):
        function = each.run.func if isinstance(each.run, partial) else each.run
        module = function.__module__.rpartition(".")[2]
        if not {module, function.__name__} & known:
            missing.append(each.name)
    assert missing == []


def test_a_pass_says_what_it_does_in_a_line() -> None:
    for each in (*PIPELINE, *GPU_PIPELINE):
        assert re.fullmatch(r"[A-Z][^\n]{20,99}\.", each.summary), each.name
