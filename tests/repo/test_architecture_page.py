"""The internals pages: drawings are current, and paths and names exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from weft_testing.survey import packages

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SOURCES = sorted(ROOT.glob("packages/*/src"))
PACKAGES = [path for source in SOURCES for path in source.iterdir() if path.is_dir()]
draw: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "draw.py"))
PATHS = sorted(set(re.findall(r"`([\w./]+(?:/|\.\w+))`|`(\w+(?:/\w+)+)`", PAGE)))
PLACES = sorted(set(re.findall(r"`(weft\w*/[\w/]+\.py)`\s+`([\w.]+)`", PAGE)))


def found(path: str) -> Path | None:
    """A path from the root, from a package's sources or from inside a package."""
    for folder in (ROOT, *SOURCES, *PACKAGES):
        if (folder / path).exists():
            return folder / path
    return None


def test_every_path_is_there() -> None:
    named = [one or other for one, other in PATHS]
    looked_at = [name for name in named if "/" in name or name.endswith((".py", ".fbs"))]
    assert len(looked_at) > 60
    beside = {path.name for package in PACKAGES for path in package.rglob("*.py")}
    missing = [name for name in looked_at if not found(name) and name not in beside]
    assert missing == []


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda item: str(item))
def test_every_name_is_in_its_file(path: str, name: str) -> None:
    file = found(path)
    assert file is not None
    source = file.read_text(encoding="utf-8")
    for part in name.split("."):
        named = rf"^\s*(def|class) {part}\b|^{part}(: [^=]+)? = "
        assert re.search(named, source, re.M), f"no {name} in {path}"


@pytest.mark.parametrize("name", sorted(draw["DRAWINGS"]))
def test_a_drawing_is_of_this_code(name: str) -> None:
    drawn = (ROOT / "docs" / "drawings" / name).read_text(encoding="utf-8")
    assert draw["DRAWINGS"][name]() == drawn, "run docs/draw.py"
    assert f"../drawings/{name}" in PAGE


def test_all_entry_point_groups_are_named() -> None:
    read = set().union(*[each.groups for each in packages().values()])
    assert len(read) > 8
    assert read == set(re.findall(r"^\| `(weft\w*\.\w+)` \|", PAGE, re.M))


def test_walks_name_places() -> None:
    assert len(PLACES) > 30
