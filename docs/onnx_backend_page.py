"""Writes in onnx.md which of ONNX's own tests pass.

    python docs/onnx_backend_page.py

It runs all of them, with kernels and compiled, which takes some minutes each. The suite checks that
the page names what does not pass, and the long run that it is those.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "onnx.md"
_PART = re.compile(r"(<!-- made by docs/onnx_backend_page.py -->\n).*?(<!-- end -->\n)", re.DOTALL)


def counted(version: str, kinds: Iterable[str], failed_kinds: Iterable[str]) -> str:
    """Return a table of the numbers of tests of each kind, and of those that pass."""
    every, failed = Counter(kinds), Counter(failed_kinds)
    total, good = every.total(), every.total() - failed.total()
    lines = [
        f"{good:,} of {total:,} tests of onnx {version} pass. The same tests pass if everything is",
        "compiled (`WEFT_JIT=now`).\n",
        "| Kind | Tests | Pass |",
        "|---|---:|---:|",
        *(f"| {kind} | {count:,} | {count - failed[kind]:,} |" for kind, count in every.items()),
    ]
    return "\n".join(lines) + "\n"


def not_passed(reasons: Mapping[str, str]) -> str:
    """The tests that do not pass, with the reason of each."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(f"`{name}`")
    rows = [f"| {reason} | {', '.join(each)} |" for reason, each in names.items()]
    return "\n".join(["| Reason for failure | Tests |", "|---|---|", *rows]) + "\n"


def failures() -> dict[str, str]:
    """The tests that do not pass here, with their kinds."""
    suite = _suite()
    return {case.name: case.kind for case in suite.cases() if suite.failure(case) is not None}


def compiled_failures() -> list[str]:
    """Return the failing tests if everything possible is compiled, from a new process."""
    command = [sys.executable, __file__, "--failures"]
    environment = {**os.environ, "WEFT_JIT": "now"}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    names: list[str] = json.loads(found.stdout.splitlines()[-1])
    return names


def _suite() -> ModuleType:
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "io" / "onnx")]
    return import_module("test_backend")


def main() -> None:
    """Run the tests and write the page."""
    if sys.argv[1:] == ["--failures"]:
        sys.stdout.write(f"\n{json.dumps(sorted(failures()))}\n")
        return
    import onnx

    suite, failed = _suite(), failures()
    for names in (failed, compiled_failures()):
        if unknown := sorted(set(names) ^ set(suite.NOT_PASSED)):
            place = "tests/support/weft_testing/onnx_not_passed.py"
            raise SystemExit(f"{place} is not right on {unknown}")
    found = counted(onnx.__version__, [case.kind for case in suite.cases()], failed.values())
    parts = f"\n{found}\n{not_passed(suite.NOT_PASSED)}\n"
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_PART.sub(lambda m: m[1] + parts + m[2], text), "utf-8")


if __name__ == "__main__":
    main()
