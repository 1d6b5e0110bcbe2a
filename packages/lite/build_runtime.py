"""Build hook: compiles the runtime for the machine that the wheel is built on.

An editable install compiles nothing: there the library is built when it is first used.
"""

from __future__ import annotations

import os
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the shared library to the wheel, and the machine to its name."""

    def dependencies(self) -> list[str]:
        """A compiler from the package index, only where the system has none."""
        return [] if _compile(self.root).system_compiler() else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the install is editable."""
        if version == "editable":
            return
        made, tag = os.environ.get("WEFT_LITE_MADE"), os.environ.get("WEFT_LITE_TAG")
        if made and tag:  # for another machine, by scripts/wheels.py
            build_data["force_include"][made] = f"weft_lite/{Path(made).name}"
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{tag}"
            return
        compile_ = _compile(self.root)
        library = Path(self.directory) / compile_.LIBRARY
        compile_.build(library)
        build_data["force_include"][str(library)] = f"weft_lite/{compile_.LIBRARY}"
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _compile(root: str) -> Any:
    """The module that compiles, of a package that is not installed yet."""
    path = Path(root) / "src" / "weft_lite" / "compiling.py"
    spec = spec_from_file_location("compiling", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
