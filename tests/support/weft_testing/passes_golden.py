"""Golden files of the compiler's passes: a program before each pass, and after it with remarks.

`hatch run golden:passes` writes the files `after` anew; look at what it changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from weft_compiler.gpu.pipeline import PIPELINE as GPU_PIPELINE
from weft_compiler.passes.command import transform
from weft_compiler.passes.pipeline import PIPELINE
from weft_testing.workspace import ROOT

FOLDER = ROOT / "tests" / "compiler" / "passes_golden"
PASSES = {each.name: each for each in (*GPU_PIPELINE, *PIPELINE)}
VECTOR_BYTES = 64


def cases() -> Iterator[Path]:
    """Yield the programs before passes: the name of a folder is that of its pass."""
    yield from sorted(FOLDER.glob("*/*.before.txt"))


def golden_file(case: Path) -> Path:
    """Return the file with the program after a pass."""
    return case.with_name(case.name.replace(".before.", ".after."))


def golden_text(case: Path) -> str:
    """Return a program after its pass, with the remarks as comments."""
    chosen = [PASSES[case.parent.name]]
    text, remarks = transform(chosen, case.read_text(encoding="utf-8"), VECTOR_BYTES)
    return "".join([text, *[f"# {remark}\n" for remark in remarks]])


def main() -> None:
    """Write the files anew."""
    for case in cases():
        golden_file(case).write_text(golden_text(case), encoding="utf-8")


if __name__ == "__main__":
    main()
