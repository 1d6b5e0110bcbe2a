"""`weft port`: what a program of TensorFlow needs to run, and where a port departs from it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from weft._port.aids import add_actions
from weft._port.rewriting import rewrite_imports
from weft._port.source import Source, Use, read
from weft_tensor import errors

MISSING, TROUBLE = 1, 2
"""Exit codes if weft lacks a name, and if a file cannot be read."""


class _Actions(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Subparsers that take a first argument without a subparser as an argument of `names`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.choices = None  # type: ignore[assignment]  # all words are accepted

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values[0] not in self._name_parser_map:
            values = ["names", *values]
        super().__call__(parser, namespace, values, option_string)


def add(parser: argparse.ArgumentParser) -> None:
    """Report uses of TensorFlow's API that differ, and compare a port with its original."""
    _add_options(parser)
    actions = parser.add_subparsers(action=_Actions, metavar="ACTION", required=True)
    names = actions.add_parser(
        "names",
        help=(
            "report names of TensorFlow's API that weft lacks or that behave differently (default)"
        ),
    )
    names.add_argument("paths", nargs="+", metavar="PATH", help="a program, or a folder of them")
    _add_options(names)
    names.set_defaults(run=run)
    add_actions(actions)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `names`, which may also stand before the action."""
    parser.add_argument(
        "-w",
        "--write",
        action="store_true",
        default=argparse.SUPPRESS,
        help="with --write: change only the imports",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print only the summary",
    )


def run(arguments: argparse.Namespace) -> int:
    """Report on all files; return the exit code."""
    write = getattr(arguments, "write", False)
    uses: list[Use] = []
    trouble = changed = 0
    for path in _files(arguments.paths):
        try:
            source = read(path)
        except (OSError, SyntaxError, ValueError) as error:
            trouble += 1
            sys.stdout.write(f"{_format_location(path, error)}: {_parse_failure(error)}\n")
            continue
        file_uses = source.uses()
        uses += file_uses
        if not getattr(arguments, "quiet", False):
            for use in file_uses:
                if use.words:
                    sys.stdout.write(f"{path}:{use.line}: {use.words}\n")
        changed += write and _write(path, source)
    sys.stdout.write(_summary(uses, trouble, changed, write))
    return TROUBLE if trouble else MISSING if any(use.missing for use in uses) else 0


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        elif path.exists():
            yield path
        else:
            raise errors.NotFoundError(f"there is no file or folder {str(path)!r}")


def _format_location(path: Path, error: Exception) -> str:
    line = getattr(error, "lineno", None)
    return f"{path}:{line}" if line else str(path)


def _parse_failure(error: Exception) -> str:
    text = getattr(error, "msg", None) or str(error)
    if "print" in text or "Missing parentheses" in text or "multiple exception types" in text:
        return f"{text}; this is Python 2; convert it to Python 3 with 2to3"
    return f"cannot be read: {text}"


def _write(path: Path, source: Source) -> int:
    text = rewrite_imports(source)
    if text == source.text:
        return 0
    path.write_bytes(text.encode(source.encoding))
    return 1


def _summary(uses: Sequence[Use], trouble: int, changed: int, write: bool) -> str:
    names = {use.name for use in uses}
    missing = sorted({use.name for use in uses if use.missing})
    noted = [use for use in uses if use.words and use.name not in missing]
    private = sorted({use.name for use in noted if use.private})
    different = sorted({use.name for use in noted if not use.private})
    lines = [f"{_count(len(uses), 'use')} of {_count(len(names), 'name')}"]
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
