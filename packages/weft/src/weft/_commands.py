"""The `weft` command. Packages declare its subcommands in the entry-point group `weft.commands`.

The name of an entry point is that of the subcommand. Its object is a function `add(parser)`, which
adds arguments to an `argparse` parser and sets the default `run`, a function from the parsed
arguments to the exit code. The first line of its docstring is the help text.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points

from weft_tensor import errors

GROUP = "weft.commands"
TROUBLE = 2
"""Exit code if a command fails, such as for an invalid argument."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; return the exit code."""
    from weft.version import VERSION

    parser = argparse.ArgumentParser(
        prog="weft", description="Tools for weft's files and programs."
    )
    parser.add_argument("--version", action="version", version=f"weft {VERSION}")
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        _add(subcommands, entry)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        code = run(arguments)
        sys.stdout.flush()
    except errors.OpError as error:
        sys.stderr.write(f"weft: {error}\n")
        return TROUBLE
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except OSError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 128 + 2
    return code


def _add(
    subcommands: argparse._SubParsersAction[argparse.ArgumentParser], entry: EntryPoint
) -> None:
    try:
        add = entry.load()
        text = (add.__doc__ or "").partition("\n")[0]
    except Exception as cause:  # because one package's mistake must not hide the others
        text = f"cannot be loaded: {cause!r}"

        def add(parser: argparse.ArgumentParser, message: str = text) -> None:
            parser.set_defaults(run=lambda _: _fail(f"{entry.name} = {entry.value} {message}"))

    add(subcommands.add_parser(entry.name, help=text, description=text))


def _fail(reason: str) -> int:
    sys.stderr.write(f"weft: {reason}\n")
    return TROUBLE
