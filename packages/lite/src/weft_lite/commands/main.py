"""The parser of `weft-lite`, and the format of its errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from weft_lite.commands import building, extra, looking, report, running
from weft_lite.commands.output import printable
from weft_lite.errors import LiteError

BROKEN_PIPE = 141


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    argument_parser = argparse.ArgumentParser(
        prog="weft-lite", description="Create, run and inspect frozen graphs for small devices."
    )
    actions = argument_parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (extra, running, looking, report, building):
        module.add(actions)
    return argument_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
      arguments: the command line without the program's name; by default that of the process.
    Returns: 0; 1 if a file is damaged or two files differ; 2 for other errors.
    """
    options = parser().parse_args(arguments)
    try:
        return int(options.call(options))
    except LiteError as error:
        return _describe_refusal(error, 1 if error.code == 15 else 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (OSError, RuntimeError) as error:
        return _describe_refusal(error, 2)


def _describe_refusal(error: Exception, status: int) -> int:
    lines = [printable(line) for line in str(error).splitlines()] or [type(error).__name__]
    sys.stderr.write("weft-lite: " + "\n".join(lines) + "\n")
    return status
