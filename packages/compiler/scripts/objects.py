"""Builds the objects of routines that the wheel brings: run it before `hatch build`.

hatch run compiler-objects
"""

from __future__ import annotations

import sys

from weft_compiler.native.shared_objects import FOLDER
from weft_compiler.native.wheel_objects import build


def main() -> None:
    """Write the objects into the package."""
    total = build(FOLDER)
    files = len(list(FOLDER.glob("*.o")))
    sys.stdout.write(f"{files} objects, {total:,} bytes in {FOLDER}\n")


if __name__ == "__main__":
    main()
