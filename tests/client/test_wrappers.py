"""Wrappers of all ops are generated from the present declarations."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import pytest
from weft_testing.workspace import ROOT

from weft_distrib.commands import ops as ops_command
from weft_graph.ir.op_def import lookup_op, registered_ops


def generator() -> dict[str, Any]:
    scripts = ROOT / "packages" / "client" / "scripts"
    sys.path.insert(0, str(scripts))
    try:
        return runpy.run_path(str(scripts / "generate.py"))
    finally:
        sys.path.remove(str(scripts))


def test_the_wrappers_are_current() -> None:
    described = [ops_command.describe(lookup_op(name)) for name in registered_ops()]
    module = generator()
    files = module["generated"]({"format": ops_command.FORMAT, "ops": described})
    assert module["stale"](files) == [], "run packages/client/scripts/generate.py"


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 1, got 2"):
        generator()["generated"]({"format": 2, "ops": []})
