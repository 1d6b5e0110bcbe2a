"""`weft-lite convert`: from what was saved to a `.weftlite` file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft_lite.commands import arrays, output
from weft_lite.commands.extra import plain_errors, read_graph
from weft_lite.errors import InvalidArgumentError

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph
    from weft_lite.convert import Converter

Bounds = Mapping[str, tuple[int, ...]]

FROZEN, SAVED_MODEL, CHECKPOINT, ONNX = "frozen", "saved-model", "checkpoint", "onnx"

TAKES: Final = {
    FROZEN: {"inputs", "outputs"},
    SAVED_MODEL: {"signature", "tags", "variable"},
    CHECKPOINT: {"inputs", "outputs", "variable"},
    ONNX: set(),
}
"""Options that say what to convert, by the kind of source."""


def add(actions: Any) -> None:
    """Add it to a parser."""
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
    made.set_defaults(call=convert)


def _add_ends(group: Any) -> None:
    group.add_argument("--inputs", help="names with commas; of a frozen graph all placeholders")
    group.add_argument("--outputs", help="names with commas; of a frozen graph what nobody reads")
    group.add_argument("--signature", help="of a SavedModel (serving_default)")
    group.add_argument("--tags", help="of a SavedModel's graph, with commas (serve)")
    group.add_argument("--variable", action="append", metavar="NAME",
                       help="keeps its value from one invocation to the next")  # fmt: skip
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
    group.add_argument("--keep-float", action="append", default=[], metavar="NAME",
                       help="a result that stays in float")  # fmt: skip
    group.add_argument("--limit", type=float, help="how far outputs may be from the graph's")


def convert(arguments: argparse.Namespace) -> int:
    """Convert, with the trial that every conversion ends with, and write the file."""
    if arguments.calibration is None and arguments.ranges not in (None, "trained"):
        raise InvalidArgumentError(f"--ranges {arguments.ranges} needs --calibration")
    kind = arguments.kind or kind_of(arguments.source)
    _require_fit(arguments, kind)
    with plain_errors():
        _say(f"reading {arguments.source}")
        converter = _converter(arguments, kind)
        samples = _calibration(arguments.calibration) if arguments.calibration else None
        _say("converting, then trying the file beside the graph")
        content = converter.convert(
            limit=arguments.limit, calibration=samples, keep_float=arguments.keep_float,
            weights=arguments.weights, ranges=arguments.ranges or "extremes",
        )  # fmt: skip
    arguments.output.write_bytes(content)
    output.table(["file", "size"], [[arguments.output, output.size(len(content))]])
    return 0


def kind_of(source: Path) -> str:
    """What a source is, by its name and what lies beside it."""
    if source.is_dir():
        return SAVED_MODEL
    if source.suffix == ".onnx":
        return ONNX
    return CHECKPOINT if Path(f"{source}.meta").exists() else FROZEN


def _require_fit(arguments: argparse.Namespace, kind: str) -> None:
    """Refuse options that the kind of source has no use for."""
    for option in sorted(set().union(*TAKES.values()) - TAKES[kind]):
        if getattr(arguments, option) is not None:
            raise InvalidArgumentError(f"{arguments.source} is read as {kind}: no --{option}")
    if kind == CHECKPOINT and not (arguments.inputs and arguments.outputs):
        raise InvalidArgumentError("a checkpoint needs --inputs and --outputs")


def _converter(arguments: argparse.Namespace, kind: str) -> Converter:
    from weft_lite.convert import Converter

    path, bounds = str(arguments.source), arrays.shapes(arguments.bound)
    variables = arguments.variable or ()
    if kind == SAVED_MODEL:
        key, tags = arguments.signature or "serving_default", _names(arguments.tags or "serve")
        return Converter.from_saved_model(path, key, tags, bounds, variables)
    if kind == ONNX:
        return Converter.from_onnx(path, bounds)
    inputs, outputs = _names(arguments.inputs), _names(arguments.outputs)
    if kind == CHECKPOINT:
        return Converter.from_checkpoint(path, inputs, outputs, bounds, variables)
    if not (inputs and outputs):
        given, computed = ends(read_graph(arguments.source))
        inputs, outputs = inputs or given, outputs or computed
    return Converter.from_frozen_graph(path, inputs, outputs, bounds)


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]


def ends(graph: Graph) -> tuple[list[str], list[str]]:
    """The names of all placeholders, and of what nobody reads."""
    from weft_graph.ir.traits import Role

    nodes = graph.get_operations()
    read = {source.node for node in nodes for source in node.inputs}
    placeholders = [node.name for node in nodes if node.role is Role.PLACEHOLDER]
    last = [n.name for n in nodes if n not in read and n.outputs and n.role is not Role.CONSTANT]
    return placeholders, last


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")


def _calibration(path: Path) -> list[dict[str, Any]]:
    """Samples of all inputs, one for each entry of the first axis.

    Raises: InvalidArgumentError: arrays are not of one length.
    """
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    counts = {name: len(value) if value.ndim else 0 for name, value in found.items()}
    if len(set(counts.values())) != 1:
        raise InvalidArgumentError(f"{path} has other numbers of samples for inputs: {counts}")
    count = next(iter(counts.values()))
    return [{name: value[i : i + 1] for name, value in found.items()} for i in range(count)]
