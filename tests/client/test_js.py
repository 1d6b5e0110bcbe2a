"""The front end for Node: values of all types, and declarations for TypeScript."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from weft_testing.workspace import ROOT

from tests.client.conftest import PROGRAMS, call, command, page_blocks, run

TSC = shutil.which("tsc")
PACKAGE = ROOT / "packages" / "client" / "js"


def test_values(request: pytest.FixtureRequest, target: str) -> None:
    assert run(*command(request, "js", "suite"), "values", target) == "complete\n"


@pytest.mark.skipif(TSC is None, reason="tsc, the compiler of TypeScript, is not installed")
def test_the_declarations_for_typescript(tmp_path: Path) -> None:
    options = {"strict": True, "noEmit": True, "target": "es2022", "types": []}
    options |= {"module": "nodenext", "moduleResolution": "nodenext"}
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "weftml").symlink_to(PACKAGE)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
    shutil.copy(PROGRAMS / "typed.mts", tmp_path)
    ((_, program),) = page_blocks("js")
    (tmp_path / "line.mts").write_text(program, encoding="utf-8")
    assert TSC is not None
    call(TSC, "--project", tmp_path)
