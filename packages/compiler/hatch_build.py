"""Build hook: a package that pip builds inside this repository finds its siblings beside it.

`pip install ./packages/graph` has to get weftml-tensor from `./packages/tensor`. What is published
names a version range only, because release builds (`hatch build`) do not pass through pip.
Every package with siblings carries this same file: a source distribution has to contain it.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SiblingsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Names the place of each sibling that lies in the same checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Rewrites the wheel's requirements, unless it is editable: a workspace holds them all."""
        if version == "editable" or "PIP_BUILD_TRACKER" not in os.environ:
            return
        siblings = {
            name(path): path.parent for path in Path(self.root).parent.glob("*/pyproject.toml")
        }
        located = []
        for text, requirement in self.metadata.core.dependencies_complex.items():
            if requirement.name in siblings:
                located.append(f"{requirement.name} @ {siblings[requirement.name].as_uri()}")
                # pip has to meet the place first, and then holds it to the range.
                build_data["dependencies"].append(text)
            else:
                located.append(text)
        self.metadata.core.dependencies[:] = located


def name(project: Path) -> str:
    """What a pyproject.toml calls its distribution."""
    return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"])
