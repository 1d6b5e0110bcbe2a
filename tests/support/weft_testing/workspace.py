"""The packages of this checkout, and the one rule that names them.

`packages/<directory>` is distributed as `weftml-<directory>` and imported as `weft_<directory>`;
the umbrella `packages/weft` as `weftml` and `weft`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
UMBRELLA = "weft"
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))


def distribution(directory: str) -> str:
    """Return the name of a package on a package index."""
    return "weftml" if directory == UMBRELLA else f"weftml-{directory}"


def module(directory: str) -> str:
    """Return the import name of a package."""
    return UMBRELLA if directory == UMBRELLA else f"weft_{directory}"


def project(package: Path) -> dict[str, Any]:
    """Return the table [project] of a package."""
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def module_name(path: Path) -> str:
    """Return the full name of a module from its path."""
    parts = path.relative_to(ROOT).with_suffix("").parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
