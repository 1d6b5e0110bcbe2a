"""Run an example: `hatch run example NAME`, with its options behind the name."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))


def main(arguments: list[str]) -> None:
    """Run the example whose name is the first argument."""
    if not arguments or arguments[0] not in NAMES:
        raise SystemExit(f"usage: run.py NAME [OPTION...]; NAME is one of {', '.join(NAMES)}")
    program = EXAMPLES / arguments[0] / "train.py"
    sys.path[:0] = [str(program.parent), str(EXAMPLES)]
    sys.argv = [str(program), *arguments[1:]]
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
