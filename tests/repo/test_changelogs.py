"""Changelogs have one form, and the page of changes shows all of them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from weft_testing.workspace import PACKAGES, ROOT, distribution

page: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "changelog_page.py"))
GROUPS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
VERSION = re.compile(r"## \d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)")


def shown(name: str, markdown: str) -> str:
    source = SimpleNamespace(file=SimpleNamespace(src_uri=name))
    return str(page["on_page_markdown"](markdown, page=source))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_entries_are_grouped(package: Path) -> None:
    text = (package / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n\n## ")
    for version in re.split(r"^(?=## )", text, flags=re.M)[1:]:
        heading, *groups = re.split(r"^(?=### )", version, flags=re.M)
        assert VERSION.fullmatch(heading.strip()), heading
        titles = [group.split("\n")[0].removeprefix("### ") for group in groups]
        assert titles == [title for title in GROUPS if title in titles]
        for group in groups:
            entries = group.split("\n", 1)[1].strip("\n").split("\n")
            assert entries[0].startswith("- ")
            assert all(line.startswith(("- ", "  ")) for line in entries), group


def test_the_page_has_the_changelog_of_every_package() -> None:
    text = shown("changelog.md", (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8"))
    for package in PACKAGES:
        assert f"\n## {distribution(package.name)}\n\n### 0." in text
    assert len(re.findall(r"^# ", text, re.M)) == 1
    assert "- `Saver` writes safetensors shards" in text


def test_the_navigation_has_the_page_and_the_build_its_hook() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "- Changelog: changelog.md" in config
    assert "- docs/changelog_page.py" in config


def test_headings_are_a_level_lower() -> None:
    section = page["section"]("weftml-x", "# Changelog\n\n## 1.0.0\n\n### Added\n\n- `#` is one.\n")
    assert section == "## weftml-x\n\n### 1.0.0\n\n#### Added\n\n- `#` is one.\n"


def test_other_pages_stay_as_they_are() -> None:
    assert shown("index.md", "<!-- changelogs -->") == "<!-- changelogs -->"


def test_a_changelog_without_a_title_is_refused() -> None:
    with pytest.raises(ValueError, match="weftml-x must begin with a title"):
        page["section"]("weftml-x", "## 1.0.0\n")
