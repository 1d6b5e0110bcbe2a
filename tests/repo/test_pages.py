"""Tables of the pages are whole: a blank line inside one would show its rest as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("packages/*/README.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def torn_tables(text: str) -> list[int]:
    """Return the lines that begin with a bar after a blank line, and are no heads of tables."""
    lines = ["", *text.splitlines(), ""]
    return [
        number
        for number in range(1, len(lines) - 1)
        if lines[number].startswith("| ")
        and not lines[number - 1].startswith("|")
        and not lines[number + 1].startswith("|--")
        and not lines[number + 1].startswith("| --")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_is_torn(page: Path) -> None:
    assert torn_tables(page.read_text(encoding="utf-8")) == []


def test_a_torn_table_is_noticed() -> None:
    whole = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n"
    assert torn_tables(whole) == []
    assert torn_tables(whole.replace("| 3", "\n| 3")) == [5]
