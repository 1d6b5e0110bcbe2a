"""Build hook: compiles the routines that the wheel brings as machine code.

A wheel has objects for all levels of instruction sets, an editable install those of this machine.
A source distribution has them too: what is built from one, without the sibling packages beside it,
compiles nothing.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = Path(__file__).parent
_Siblings: Any = runpy.run_path(str(_HERE / "hatch_build.py"))["SiblingsHook"]


class ObjectsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the objects into the package; then does what the hook of all packages does."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the objects if the sources of the sibling packages are here."""
        siblings = [_HERE.parent / name / "src" for name in ("graph", "tensor")]
        if all(path.is_dir() for path in siblings):
            # The interpreter of a build finds what it requires by its own path.
            path = os.pathsep.join(map(str, [_HERE / "src", *siblings, *filter(None, sys.path)]))
            levels = ["--host"] if version == "editable" else []
            subprocess.run(
                [sys.executable, "-m", "weft_compiler.native.wheel_objects", *levels],
                env={**os.environ, "PYTHONPATH": path},
                check=True,
            )
        if self.target_name == "wheel":
            hook = _Siblings(
                self.root,
                self.config,
                self.build_config,
                self.metadata,
                self.directory,
                self.target_name,
                self.app,
            )
            hook.initialize(version, build_data)


def get_build_hook() -> type[BuildHookInterface]:  # type: ignore[type-arg]
    """Return the hook of this file, not the one that it calls."""
    return ObjectsHook
