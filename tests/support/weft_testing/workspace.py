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
    """What the package is called on a package index."""
    return "weftml" if directory == UMBRELLA else f"weftml-{directory}"


def module(directory: str) -> str:
    """What programs import."""
    return UMBRELLA if directory == UMBRELLA else f"weft_{directory}"


def project(package: Path) -> dict[str, Any]:
    """The table [project] of a package."""
    return tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def module_name(path: Path) -> str:
    """The full name of the module in a source of a package."""
    parts = path.relative_to(ROOT).with_suffix("").parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
