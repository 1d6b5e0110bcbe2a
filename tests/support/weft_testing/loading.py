"""Loading of modules from files that cannot be imported by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from weft_testing.workspace import ROOT

CASES_FOLDER = ROOT / "tests" / "conformance" / "cases"


def load(path: Path) -> Any:
    """Execute a file as a new module and return it."""
    spec = importlib.util.spec_from_file_location(f"weft_file_{path.stem}", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_family(family: str) -> Any:
    """Return the module of a family's cases."""
    return load(CASES_FOLDER / f"{family}.py")
