"""Writes in onnx.md which of ONNX's own tests pass.

    python docs/onnx_backend_page.py

It runs all of them, which takes some minutes. The suite checks that the page names what does not
pass, and the long run that it is those.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "onnx.md"
_PART = re.compile(r"(<!-- made by docs/onnx_backend_page.py -->\n).*?(<!-- end -->\n)", re.DOTALL)


def counted(version: str, kinds: Iterable[str], failed_kinds: Iterable[str]) -> str:
    """How many tests of each kind there are, and pass."""
    every, failed = Counter(kinds), Counter(failed_kinds)
    total, good = every.total(), every.total() - failed.total()
    lines = [
        f"Of {total:,} tests of onnx {version} {good:,} pass.\n",
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
    return "\n".join(["| Why not | Tests |", "|---|---|", *rows]) + "\n"


def main() -> None:
    """Run the tests and write the page."""
    sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "io" / "onnx")]
    import onnx
    import test_backend as suite

    cases = suite.cases()
    failed = {case.name: case.kind for case in cases if suite.failure(case) is not None}
    unknown = sorted(set(failed) ^ set(suite.NOT_PASSED))
    if unknown:
        raise SystemExit(f"tests/support/weft_testing/onnx_not_passed.py is not right on {unknown}")
    found = counted(onnx.__version__, [case.kind for case in cases], failed.values())
    parts = f"\n{found}\n{not_passed(suite.NOT_PASSED)}\n"
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_PART.sub(lambda m: m[1] + parts + m[2], text), "utf-8")


if __name__ == "__main__":
    main()
