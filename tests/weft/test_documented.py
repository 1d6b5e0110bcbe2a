"""Public functions have described arguments and an example; the list of exceptions shrinks."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

docs: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("write_undocumented.py")))
LISTED: dict[str, set[str]] = docs["read"]()


@pytest.mark.parametrize("what", ["arguments", "example"])
def test_public_callables_are_documented(what: str) -> None:
    assert sorted(docs["missing"]()[what] - LISTED[what]) == []


@pytest.mark.parametrize("what", ["arguments", "example"])
def test_the_list_of_exceptions_shrinks(what: str) -> None:
    there = docs["missing"]()[what]
    assert sorted(LISTED[what] - there) == [], "run tests/weft/write_undocumented.py"


def test_a_docstring_without_arguments_is_seen() -> None:
    def bare(x: int, name: str) -> None:
        """Do a thing."""

    def described(x: int) -> None:
        """Do a thing.

        Args:
          x: a number.

        Examples:
          >>> 1
        """

    takes = docs["_takes_arguments"]
    assert takes(bare) and "Args:" not in docs["own_doc"](bare)
    assert takes(described) and "Args:" in docs["own_doc"](described)


def test_namespaces_within_namespaces_are_looked_at() -> None:
    names = {name for name, _ in docs["callables"]()}
    assert {"wf.io.gfile.copy", "wf.config.threading.get_inter_op_parallelism_threads"} <= names
