"""The arguments of `weft-lite convert` and `compare`, whose work comes with the extra `convert`."""

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
"""Options that say what to convert, by the kind of source."""


def add(actions: Any) -> None:
    """Add the two to a parser."""
    _add_convert(actions)
    made = actions.add_parser(
        "compare", help="run lite beside the full runtime: the first node that differs; exit code 1"
    )
    running.common(made, of_the_extra("comparing"))
    made.add_argument("graph", type=Path, help="the frozen GraphDef that the file was made of")
    made.add_argument("--limit", type=float, default=1e-3, help="of a value's largest (1e-3)")
    made.add_argument("--all", action="store_true", help="show all nodes, not only the first")


def of_the_extra(name: str, *more: str) -> Callable[[argparse.Namespace], int]:
    """The function `call` of a module beside the converter, which a device lacks.

    Args:
      more: packages that it needs besides those of the extra.
    """

    def call(arguments: argparse.Namespace) -> int:
        for package in ("weft_io", "numpy", *more):
            if find_spec(package) is None:
                wanted = _EXTRAS.get(package, "convert")
                raise LiteError(
                    f"this needs the extra: pip install 'weftml-lite[{wanted}]' (no {package})"
                )
        return int(import_module(f"weft_lite.convert.commands.{name}").call(arguments))

    return call


def _add_convert(actions: Any) -> None:
    made = actions.add_parser(
        "convert", help="make a .weftlite file of what was saved",
        description="A directory is a SavedModel, a name that ends in .onnx an ONNX model, one "
        "with a .meta file beside it a checkpoint, and everything else a frozen GraphDef.",
    )  # fmt: skip
    made.add_argument("source", type=Path, help="a file, a directory, or a checkpoint's prefix")
    made.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    made.add_argument("--from", dest="kind", choices=TAKES, help="what the source is")
    _add_ends(made.add_argument_group("what to convert"))
    _add_forms(made.add_argument_group("smaller weights, and int8"))
    made.set_defaults(call=of_the_extra("converting"))


def _add_ends(group: Any) -> None:
    group.add_argument("--inputs", help="names with commas; of a frozen graph all placeholders "
                       "without a default")  # fmt: skip
    group.add_argument("--outputs", help="names with commas; of a frozen graph what nobody reads")
    group.add_argument("--signature", help="of a SavedModel (serving_default)")
    group.add_argument("--tags", help="of a SavedModel's graph, with commas (serve)")
    group.add_argument("--variable", action="append", metavar="NAME",
                       help="keeps its value from one invocation to the next")  # fmt: skip
    group.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE",
        help="of a placeholder that becomes a constant, such as training=false, keep_prob=1.0 or "
        "mask=@FILE.npy; others that are no inputs have their default",
    )  # fmt: skip
    group.add_argument(
        "-s", "--shape", action="append", default=[], metavar="NAME=1,3,224,224",
        help="the only shape of an input whose sizes are open; what depends on them is computed",
    )  # fmt: skip
    group.add_argument(
        "-b", "--bound", action="append", default=[], metavar="NAME=16,8,8,3",
        help="the largest shape of an input whose sizes are open, or of what grows in a loop",
    )  # fmt: skip


def _add_forms(group: Any) -> None:
    forms = ("float32", "float16", "int8", "dynamic")
    group.add_argument("--weights", choices=forms, default="float32",
                       help="how weights are held that floats are computed with")  # fmt: skip
    group.add_argument(
        "--calibration", type=Path, metavar="FILE.npz",
        help="compute in int8: an array for each input, by name, whose first axis counts samples",
    )  # fmt: skip
    group.add_argument("--ranges", choices=("extremes", "percentile", "average", "trained"),
                       help="how calibration finds them (extremes); `trained` computes in int8 "
                       "without it, as fake-quant ops say")  # fmt: skip
    group.add_argument("--activations", choices=("int8", "int16"), default="int8",
                       help="the type of values between int8 weights (int8)")  # fmt: skip
    group.add_argument("--keep-float", action="append", default=[], metavar="NAME",
                       help="a result that stays in float")  # fmt: skip
    group.add_argument("--limit", type=float, help="how far outputs may be from the graph's")
