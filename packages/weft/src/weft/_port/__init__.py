"""`weft port`: report uses of TensorFlow's API that weft lacks or that behave differently."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft._port.rewriting import rewritten
from weft._port.source import Source, Use, read
from weft_tensor import errors

MISSING, TROUBLE = 1, 2
"""The exit codes when something is missing, and when a file cannot be read."""


def add(parser: argparse.ArgumentParser) -> None:
    """Report uses of TensorFlow's API that weft lacks or that behave differently."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a program, or a folder of them")
    parser.add_argument(
        "-w", "--write", action="store_true", help="change the imports, and nothing else"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="the summary alone")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Report on all files; returns the exit code."""
    uses: list[Use] = []
    trouble = changed = 0
    for path in _files(arguments.paths):
        try:
            source = read(path)
        except (OSError, SyntaxError, ValueError) as error:
            trouble += 1
            sys.stdout.write(f"{_place(path, error)}: {_why(error)}\n")
            continue
        file_uses = source.uses()
        uses += file_uses
        if not arguments.quiet:
            for use in file_uses:
                if use.words:
                    sys.stdout.write(f"{path}:{use.line}: {use.words}\n")
        changed += arguments.write and _write(path, source)
    sys.stdout.write(_summary(uses, trouble, changed, arguments.write))
    return TROUBLE if trouble else MISSING if any(use.missing for use in uses) else 0


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        elif path.exists():
            yield path
        else:
            raise errors.NotFoundError(f"there is no file or folder {str(path)!r}")


def _place(path: Path, error: Exception) -> str:
    line = getattr(error, "lineno", None)
    return f"{path}:{line}" if line else str(path)


def _why(error: Exception) -> str:
    text = getattr(error, "msg", None) or str(error)
    if "print" in text or "Missing parentheses" in text or "multiple exception types" in text:
        return f"{text}; this is Python 2; convert it to Python 3 with 2to3"
    return f"cannot be read: {text}"


def _write(path: Path, source: Source) -> int:
    text = rewritten(source)
    if text == source.text:
        return 0
    path.write_bytes(text.encode(source.encoding))
    return 1


def _summary(uses: Sequence[Use], trouble: int, changed: int, write: bool) -> str:
    names = {use.name for use in uses}
    missing = sorted({use.name for use in uses if use.missing})
    others = [use for use in uses if use.words and use.name not in missing]
    private = sorted({use.name for use in others if use.private})
    different = sorted({use.name for use in others if not use.private})
    lines = [f"{len(uses)} uses of {len(names)} names"]
    if missing:
        lines.append(f"  missing: {', '.join(missing)}")
    if private:
        advice = "" if write else " (--write imports the public names)"
        lines.append(f"  private{advice}: {', '.join(private)}")
    if different:
        lines.append(f"  different: {', '.join(different)}")
    if not missing and not trouble:
        lines.append("  nothing is missing")
    if trouble:
        lines.append(f"  files that could not be read: {trouble}")
    if write:
        lines.append(f"  files changed: {changed}")
    return "\n".join(lines) + "\n"
