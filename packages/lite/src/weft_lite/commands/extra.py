"""The arguments of `weft-lite convert` and `compare`, which require the extra `convert`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from weft_lite.commands import running
from weft_lite.errors import LiteError

FROZEN, SAVED_MODEL, CHECKPOINT, ONNX = "frozen", "saved-model", "checkpoint", "onnx"

_EXTRAS: Final = {"weft_compiler": "convert,compile"}

TAKES: Final = {
    FROZEN: {"inputs", "outputs"},
    SAVED_MODEL: {"signature", "tags", "variable"},
    CHECKPOINT: {"inputs", "outputs", "variable"},
    ONNX: set(),
}
"""The options that select the part of the graph to convert, by kind of source."""


def add(actions: Any) -> None:
    """Add the subcommands `convert` and `compare` to a parser."""
    _add_convert(actions)
    parser = actions.add_parser(
        "compare",
        help="compare a file with its graph node by node; exit code 1 at the first difference",
    )
    running.common(parser, call_extra("comparing"))
    parser.add_argument("graph", type=Path, help="frozen GraphDef that the file was converted from")
    parser.add_argument(
        "--limit",
        type=float,
        default=1e-3,
        help="largest accepted difference, relative to the largest value (default: 1e-3)",
    )
    parser.add_argument("--all", action="store_true", help="show all nodes, not only the first")


def call_extra(name: str, *more: str) -> Callable[[argparse.Namespace], int]:
    """Return the function `call` of a converter module; devices do not install these modules.

    Args:
      more: additional packages that the function requires.
    """

    def call(arguments: argparse.Namespace) -> int:
        for package in ("weft_io", "numpy", *more):
            if find_spec(package) is None:
                expected = _EXTRAS.get(package, "convert")
                raise LiteError(
                    f"this needs the extra: pip install 'weftml-lite[{expected}]' (no {package})"
                )
        return int(import_module(f"weft_lite.convert.commands.{name}").call(arguments))

    return call


def _add_convert(actions: Any) -> None:
    parser = actions.add_parser(
        "convert", help="convert a saved model to a .weftlite file",
        description="Convert a saved model. Without --from, a directory is read as a SavedModel, "
        "an .onnx file as an ONNX model, a prefix with a .meta file as a checkpoint, and "
        "anything else as a frozen GraphDef.",
    )  # fmt: skip
    parser.add_argument("source", type=Path, help="file, directory or checkpoint prefix")
    parser.add_argument("-o", "--output", type=Path, required=True, help="output file")
    parser.add_argument("--from", dest="kind", choices=TAKES, help="format of the source")
    _add_ends(parser.add_argument_group("parts of the graph to convert"))
    _add_forms(parser.add_argument_group("smaller weights, and int8"))
    parser.set_defaults(call=call_extra("converting"))


def _add_ends(group: Any) -> None:
    group.add_argument("--inputs", help="comma-separated input names (default for frozen graphs: "
                       "all placeholders without a default)")  # fmt: skip
    group.add_argument("--outputs", help="comma-separated output names (default: unread outputs)")
    group.add_argument("--signature", help="signature of a SavedModel (default: serving_default)")
    group.add_argument("--tags", help="comma-separated tags of a SavedModel (default: serve)")
    group.add_argument("--variable", action="append", metavar="NAME",
                       help="variable that keeps its value between invocations")  # fmt: skip
    group.add_argument(
        "--state", action="append", default=[], metavar="IN=OUT",
        help="input that the file keeps: the value of output OUT is that of IN in the next "
        "invocation; --value IN=... gives the first value (default: zeros)",
    )  # fmt: skip
    group.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE",
        help="constant for a placeholder, such as training=false, keep_prob=1.0 or mask=@FILE.npy; "
        "placeholders that are neither inputs nor given here use their default",
    )  # fmt: skip
    group.add_argument(
        "-s", "--shape", action="append", default=[], metavar="NAME=1,3,224,224",
        help="fixed shape of an input that has unknown sizes",
    )  # fmt: skip
    group.add_argument(
        "-b", "--bound", action="append", default=[], metavar="NAME=16,8,8,3",
        help="largest shape of an input with unknown sizes, or of a value that grows in a loop",
    )  # fmt: skip


def _add_forms(group: Any) -> None:
    forms = ("float32", "float16", "int8", "dynamic")
    group.add_argument("--weights", choices=forms, default="float32",
                       help="storage type of weights; computation stays in float")  # fmt: skip
    group.add_argument(
        "--calibration", type=Path, metavar="FILE.npz",
        help="samples for int8: one array per input, by name, with samples along the first axis",
    )  # fmt: skip
    group.add_argument("--ranges", choices=("extremes", "percentile", "average", "trained"),
                       help="method of calibration (default: extremes); trained: use the ranges "
                       "of fake-quant ops, without samples")  # fmt: skip
    group.add_argument("--activations", choices=("int8", "int16"), default="int8",
                       help="type of activations in int8 models (default: int8)")  # fmt: skip
    group.add_argument("--keep-float", action="append", default=[], metavar="NAME",
                       help="name of a value to keep in float")  # fmt: skip
    group.add_argument(
        "--limit",
        type=float,
        help="largest accepted difference from the graph's outputs, relative to the largest value",
    )
