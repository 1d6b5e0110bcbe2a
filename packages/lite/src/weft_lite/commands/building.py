"""`weft-lite build`: libraries for other machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from weft_lite import targets
from weft_lite.commands import extra, output
from weft_lite.errors import InvalidArgumentError


def add(actions: Any) -> None:
    """Add it to a parser."""
    made = actions.add_parser(
        "build",
        help="cross-compile the runtime, with the kernels that some files need alone, or a model",
    )
    made.add_argument("--models", type=Path, nargs="+", default=[], help="files it is to run")
    made.add_argument("--all", action="store_true", help="all kernels, instead of --models")
    made.add_argument("--compiled", type=Path, metavar="MODEL", help="a library of one model "
                      "in machine code: a .weftlite file, a graph, a SavedModel")  # fmt: skip
    made.add_argument("--shape", action="append", default=[], metavar="INPUT=1,224,224,3",
                      help="of an input of a compiled model whose sizes are open")  # fmt: skip
    made.add_argument(
        "--cpu", default="", help="of a compiled model, such as x86-64-v3 (the least)"
    )
    made.add_argument("--features", default="", help="of a compiled model, such as +dotprod")
    made.add_argument("--target", required=True, help="such as aarch64-linux-musl, wasm32-wasi, "
                      "aarch64-macos, x86_64-windows-gnu, aarch64-android")  # fmt: skip
    made.add_argument("-o", "--out", type=Path, required=True, help="the folder to write to")
    made.set_defaults(call=build)


def build(arguments: argparse.Namespace) -> int:
    """Build, and say how large it is."""
    if [bool(arguments.models), arguments.all, bool(arguments.compiled)].count(True) != 1:
        raise InvalidArgumentError("build takes one of --models, --all and --compiled")
    if arguments.compiled:
        return extra.of_the_extra("compiling", "weft_compiler")(arguments)
    if arguments.shape or arguments.cpu or arguments.features:
        raise InvalidArgumentError("--shape, --cpu and --features are for --compiled")
    targets.parts_of(arguments.target)
    kinds = None if arguments.all else targets.kinds_of(arguments.models)
    built = targets.build(arguments.target, arguments.out, kinds, _say)
    rows = [[path, output.size(path.stat().st_size)] for path in built.files]
    rows.append(["in a program, stripped", output.size(built.size)])
    rows.append(["kernels", " ".join(built.kernels)])
    output.table(["", "size"], rows)
    return 0


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
