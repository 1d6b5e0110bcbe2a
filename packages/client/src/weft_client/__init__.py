"""Sources of the client library in C and C++, for build systems that look for them.

cmake -S "$(weft-client --source)" -B build && cmake --build build
"""

from __future__ import annotations

__all__ = ["include_directory", "main", "source_directory"]

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent


def source_directory() -> Path:
    """Return the directory with `CMakeLists.txt` and the sources.

    Examples:
      >>> from weft_client import source_directory
      >>> (source_directory() / "CMakeLists.txt").is_file()
      True
    """
    return _HERE


def include_directory() -> Path:
    """Return the directory with `weft_client.h` and the headers for C++.

    Examples:
      >>> from weft_client import include_directory
      >>> (include_directory() / "weft_client.h").is_file()
      True
    """
    return _HERE / "include"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the directory that the arguments name; the `weft-client` command."""
    parser = argparse.ArgumentParser(
        prog="weft-client", description="Print where the client library in C and C++ is."
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--source", action="store_true", help="directory of CMakeLists.txt")
    choice.add_argument("--include", action="store_true", help="directory of the headers")
    arguments = parser.parse_args(argv)
    directory = source_directory() if arguments.source else include_directory()
    sys.stdout.write(f"{directory}\n")
    return 0
