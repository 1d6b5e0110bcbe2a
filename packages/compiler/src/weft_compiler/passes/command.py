"""Command line of a pipeline, which runs passes on programs in text form."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.passes.framework import Pass
from weft_tensor import errors


def run_command(passes: Iterable[Pass], module: str, arguments: Sequence[str] | None = None) -> int:
    """Run passes over a program on standard input, and print the result.

    Remarks are printed to standard error.

    Args:
      passes: the available passes.
      module: the module that `python -m` runs; the help names it.
      arguments: the arguments of the command line; by default those of the process.
    Returns: the exit code: 0, or 1 if the program is invalid.
    """
    known_values = {item.name: item for item in passes}
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description="Run passes of the compiler over a program in its textual form.",
        epilog=f"Example: python -m {module} fuse < program.txt",
    )
    parser.add_argument("passes", nargs="*", metavar="PASS", help="passes to run in this order")
    parser.add_argument("--list", action="store_true", help="list the passes in their order")
    parser.add_argument(
        "--vector-bytes",
        type=int,
        default=64,
        metavar="N",
        help="size of a vector register of the processor (default: 64, that of AVX-512)",
    )
    options = parser.parse_args(arguments)
    if options.list:
        width = max(map(len, known_values))
        lines = [f"{item.name:{width}}  {item.summary}\n" for item in known_values.values()]
        sys.stdout.writelines(lines)
        return 0
    unknown = sorted(set(options.passes) - known_values.keys())
    if unknown or not options.passes:
        actual = f"got {', '.join(unknown)}" if unknown else "got none"
        parser.error(f"expected passes, {actual}; --list shows them")
    try:
        text, remarks = transform(
            [known_values[name] for name in options.passes], sys.stdin.read(), options.vector_bytes
        )
    except errors.OpError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 1
    sys.stdout.write(text)
    sys.stderr.writelines(f"{remark}\n" for remark in remarks)
    return 0


def transform(passes: Sequence[Pass], text: str, vector_bytes: int) -> tuple[str, list[str]]:
    """Run passes on a program in text form; return the text of the result, and the remarks.

    Raises:
      InvalidArgumentError: the text is not a program.
      InternalError: the program breaks a rule of the IR, before or after a pass.
    """
    program = parse(text)
    verify(program)
    remarks: list[str] = []
    for item in passes:
        result = item(program, vector_bytes)
        verify(result.program)
        program = result.program
        remarks += map(str, result.remarks)
    return str(program), remarks
