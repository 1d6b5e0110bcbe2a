"""Generates the wrappers of all ops from `weft ops --json`, or checks that they are current.

    weft ops --json | python packages/client/scripts/generate.py [--check]

A language is a module with `SUFFIXES` and `generate(ops) -> {path: text}`; paths are relative to
the package. Generated folders have no other files.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import cpp
import typescript

LANGUAGES = (cpp, typescript)
PACKAGE = Path(__file__).parents[1]
FORMAT = 1
OWN_PACKAGES = frozenset({"weft_graph", "weft_io", "weft_distrib"})


def selected(described: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ops of weft's own packages that programs may use.

    Raises: ValueError: the JSON has another format.
    """
    if described["format"] != FORMAT:
        raise ValueError(f"the JSON must have format {FORMAT}, got {described['format']}")
    return [
        op
        for op in described["ops"]
        if op["package"] in OWN_PACKAGES and not op["name"].startswith("_")
    ]


def generated(described: dict[str, Any]) -> dict[Path, str]:
    """Return the generated files of all languages with their text."""
    ops = selected(described)
    return {
        PACKAGE / path: text
        for language in LANGUAGES
        for path, text in language.generate(ops).items()
    }


def stale(files: dict[Path, str]) -> list[Path]:
    """Return the files that differ, are missing, or are no longer generated."""
    different = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    folders = {path.parent for path in files}
    present = {path for folder in folders if folder.name == "ops" for path in folder.iterdir()}
    return sorted([*different, *(present - set(files))])


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if stale")
    arguments = parser.parse_args()
    files = generated(json.load(sys.stdin))
    paths = stale(files)
    for path in paths:
        print(("stale: " if arguments.check else "writes ") + str(path.relative_to(PACKAGE)))
        if arguments.check:
            continue
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
        else:
            path.unlink()
    return 1 if arguments.check and paths else 0


if __name__ == "__main__":
    sys.exit(main())
