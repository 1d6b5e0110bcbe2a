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
    """Add the subcommand `build` to a parser."""
    parser = actions.add_parser(
        "build",
        help="cross-compile the runtime with the kernels that given files need, or a model",
    )
    parser.add_argument(
        "--models", type=Path, nargs="+", default=[], help="files that the runtime must run"
    )
    parser.add_argument(
        "--all", action="store_true", help="include all kernels, instead of --models"
    )
    parser.add_argument("--compiled", type=Path, metavar="MODEL", help="compile a model to a "
                      "library: a .weftlite file, a graph or a SavedModel")  # fmt: skip
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1,224,224,3",
                      help="shape of an input that has unknown sizes (--compiled)")  # fmt: skip
    parser.add_argument("--cpu", default="", help="minimum CPU, such as x86-64-v3 (--compiled)")
    parser.add_argument(
        "--features", default="", help="CPU features, such as +dotprod (--compiled)"
    )
    parser.add_argument("--target", required=True, help="such as aarch64-linux-musl, wasm32-wasi, "
                      "aarch64-macos, x86_64-windows-gnu, aarch64-android")  # fmt: skip
    parser.add_argument("-o", "--out", type=Path, required=True, help="output directory")
    parser.set_defaults(call=build)


def build(arguments: argparse.Namespace) -> int:
    """Build the libraries, and print their sizes."""
    if [bool(arguments.models), arguments.all, bool(arguments.compiled)].count(True) != 1:
        raise InvalidArgumentError("pass exactly one of --models, --all and --compiled")
    if arguments.compiled:
        return extra.call_extra("compiling", "weft_compiler")(arguments)
    if arguments.shape or arguments.cpu or arguments.features:
        raise InvalidArgumentError("--shape, --cpu and --features require --compiled")
    targets.parts_of(arguments.target)
    kinds = None if arguments.all else targets.kinds_of(arguments.models)
    built = targets.build(arguments.target, arguments.out, kinds, _print_progress)
    rows = [[path, output.size(path.stat().st_size)] for path in built.files]
    rows.append(["in a program, stripped", output.size(built.size)])
    rows.append(["kernels", " ".join(built.kernels)])
    output.table(["", "size"], rows)
    return 0


def _print_progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")
