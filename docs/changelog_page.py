"""Put the changelogs of all packages on the page of changes.

The build of the pages calls it as a hook. The entries are those of `packages/*/CHANGELOG.md`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = "changelog.md"
LIST = "<!-- changelogs -->"
"""Place of the changelogs on the page."""

HEADING = re.compile(r"^#(?=#+ )", re.M)


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Put the changelogs into the page."""
    return markdown.replace(LIST, "\n".join(sections())) if page.file.src_uri == PAGE else markdown


def sections() -> Iterator[str]:
    """Yield the section of each package, the umbrella first."""
    paths = ROOT.glob("packages/*/CHANGELOG.md")
    texts = {distribution(path.parent): path.read_text(encoding="utf-8") for path in paths}
    for name in sorted(texts):
        yield section(name, texts[name])


def section(name: str, changelog: str) -> str:
    """Return a changelog as a section of the page: its title replaced, its headings a level lower.

    Raises: ValueError: the changelog does not begin with a title.
    """
    title, _, entries = changelog.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"the changelog of {name} must begin with a title, got {title!r}")
    return f"## {name}\n{HEADING.sub('##', entries)}"


def distribution(package: Path) -> str:
    """Return the name of a package on a package index."""
    table = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    return str(table["project"]["name"])
