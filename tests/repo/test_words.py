"""House rules of language: the glossary, docstrings' first lines, commit subjects."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml
from weft_testing.survey import facts, packages
from weft_testing.workspace import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS, _, REPLACED = PAGE.partition("## Replaced names")
GENERATED = ("_pb2.py", "_generated.py")
SOURCES = {path: each for path, each in packages().items() if not path.name.endswith(GENERATED)}

# Docstrings that open with "What", "How", "Whether" and the like, by package. May only shrink.
FREE_CLAUSES = {
    "autodiff": 0,
    "compiler": 0,
    "contrib": 0,
    "distrib": 0,
    "exec": 0,
    "graph": 0,
    "io": 0,
    "lite": 0,
    "tensor": 0,
    "weft": 0,
}

# Parameters and variables called "given", "there" and the like, by package. May only shrink.
VAGUE = {
    "autodiff": 0,
    "compiler": 3,
    "contrib": 0,
    "distrib": 5,
    "exec": 4,
    "graph": 3,
    "io": 3,
    "lite": 0,
    "tensor": 0,
    "trace": 0,
    "weft": 0,
}


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of all tables, without headings."""
    lines = re.findall(r"^\|(.*)\|$", text, re.M)
    table = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [row for row in table if row[0] not in {"Term", "Replaced"} and set(row[0]) != {"-"}]


def quoted(cell: str) -> list[str]:
    """Return the identifiers that a cell names."""
    return re.findall(r"`([^`]+)`", cell)


def test_a_term_is_defined_once() -> None:
    terms = Counter(row[0] for row in rows(TERMS))
    assert len(terms) > 100
    assert [term for term, count in terms.items() if count > 1] == []


def test_identifiers_of_the_glossary_exist() -> None:
    known = set().union(*[each.defined for each in SOURCES.values()])
    for path in SOURCES:
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts[3:])
        known |= {path.name, dotted.removesuffix(".__init__")}
    named = [name for row in rows(TERMS) for name in quoted(row[-1])]
    assert [name for name in named if name not in known and not (ROOT / name).exists()] == []


def test_replaced_names_do_not_come_back() -> None:
    for row in rows(REPLACED):
        folder = ROOT / "packages" / row[-1] / "src"
        for name in quoted(row[0]):
            users = [
                path
                for path, each in SOURCES.items()
                if folder in path.parents and (name in each.defined or path.name == name)
            ]
            assert users == [], f"{name} is called {row[1]}: see docs/glossary.md"


@pytest.mark.parametrize("package", sorted(FREE_CLAUSES))
def test_docstrings_open_with_a_verb_or_a_noun(package: str) -> None:
    clauses = [
        f"{path.relative_to(ROOT)}:{line} {opening}"
        for path, each in SOURCES.items()
        if path.relative_to(ROOT).parts[1] == package
        for line, opening in each.free_clauses
    ]
    assert len(clauses) <= FREE_CLAUSES[package], clauses


@pytest.mark.parametrize("package", sorted(VAGUE))
def test_variables_are_named_by_what_they_hold(package: str) -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, each in SOURCES.items()
        if path.relative_to(ROOT).parts[1] == package
        for line, name in each.vague
    ]
    assert len(vague) <= VAGUE[package], vague


def test_a_vague_name_is_recognized() -> None:
    assert facts("def f(given, x):\n    kept = other = x\n").vague == [(1, "given"), (2, "kept")]


def test_a_free_clause_is_recognized() -> None:
    source = (
        '"""Sums."""\n\ndef f():\n    """Whether it is odd."""\n\nclass A:\n    """Whatever."""\n'
    )
    assert facts(source).free_clauses == [(3, "Whether it is odd.")]


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("graph: hold no lock across an import\n\nWhy.\n", True),
        ("exec,io: name the task in errors\n", True),
        ("exec, io: name the task in errors\n", False),
        ("docs/lite.md: show --shape\n", True),
        ("Columns of attention are left out\n", False),
        ("graph: Hold no lock\n", False),
        ("no scope\n\ngraph: hold no lock\n", False),
        ("graph: " + "x" * 66 + "\n", False),
    ],
)
def test_commit_subjects_are_checked(message: str, accepted: bool) -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook for repo in config["repos"] for hook in repo["hooks"]}
    hook = hooks["commit-subject"]
    assert hook["stages"] == ["commit-msg"] and hook["args"] == ["--multiline", "--negate"]
    assert bool(re.search(hook["entry"], message, re.M)) == accepted
