"""`weft-lite convert`: conversion of a saved model to a `.weftlite` file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from weft_graph.graph_util import graph_ends
from weft_lite.commands import arrays, output
from weft_lite.commands.extra import CHECKPOINT, FROZEN, ONNX, SAVED_MODEL, TAKES
from weft_lite.convert.commands.errors import plain_errors
from weft_lite.convert.converter import Converter
from weft_lite.convert.sources import import_definition, read_definition
from weft_lite.errors import InvalidArgumentError

_SCALARS: Final = {"true": True, "false": False, "True": True, "False": False}


def call(arguments: argparse.Namespace) -> int:
    """Convert and check a model, and write the file."""
    if arguments.calibration is None and arguments.ranges not in (None, "trained"):
        raise InvalidArgumentError(f"--ranges {arguments.ranges} needs --calibration")
    kind = arguments.kind or kind_of(arguments.source)
    _require_fit(arguments, kind)
    with plain_errors():
        _print_progress(f"reading {arguments.source}")
        converter = _converter(arguments, kind)
        samples = read_calibration(arguments.calibration) if arguments.calibration else None
        _print_progress("converting, then trying the file beside the graph")
        content = converter.convert(
            limit=arguments.limit, calibration=samples, keep_float=arguments.keep_float,
            weights=arguments.weights, ranges=arguments.ranges or "extremes",
            activations=arguments.activations,
        )  # fmt: skip
    arguments.output.write_bytes(content)
    output.table(["file", "size"], [[arguments.output, output.size(len(content))]])
    return 0


def kind_of(source: Path) -> str:
    """Return the kind of a source, from its name and the files next to it."""
    if source.is_dir():
        return SAVED_MODEL
    if source.suffix == ".onnx":
        return ONNX
    return CHECKPOINT if Path(f"{source}.meta").exists() else FROZEN


def _require_fit(arguments: argparse.Namespace, kind: str) -> None:
    """Check that all options apply to the kind of source."""
    for option in sorted(set().union(*TAKES.values()) - TAKES[kind]):
        if getattr(arguments, option) is not None:
            raise InvalidArgumentError(
                f"{arguments.source} is read as {kind}, which does not support --{option}"
            )
    if kind == CHECKPOINT and not (arguments.inputs and arguments.outputs):
        raise InvalidArgumentError("a checkpoint needs --inputs and --outputs")


def _converter(arguments: argparse.Namespace, kind: str) -> Converter:
    """Return the converter of the source that the arguments describe."""
    path, bounds = str(arguments.source), arrays.shapes(arguments.bound)
    variables, values = arguments.variable or (), parse_values(arguments.value)
    states = arrays.assignments(arguments.state)
    initial = {name: values.pop(name) for name in states if name in values}
    converter = _converter_of(arguments, kind, path, bounds, variables, values)
    return converter.keep_states(states, initial) if states else converter


def _converter_of(
    arguments: argparse.Namespace,
    kind: str,
    path: str,
    bounds: Any,
    variables: Sequence[str],
    values: dict[str, Any],
) -> Converter:
    """Return the converter of a source of some kind."""
    shapes = arrays.shapes(arguments.shape)
    if kind == SAVED_MODEL:
        key, tags = arguments.signature or "serving_default", _names(arguments.tags or "serve")
        return Converter.from_saved_model(path, key, tags, bounds, variables, values, shapes)
    if kind == ONNX:
        return Converter.from_onnx(path, bounds, values, shapes)
    inputs, outputs = _names(arguments.inputs), _names(arguments.outputs)
    if kind == CHECKPOINT:
        return Converter.from_checkpoint(path, inputs, outputs, bounds, variables, values, shapes)
    definition = read_definition(path)
    if not (inputs and outputs):
        graph_inputs, graph_outputs = graph_ends(import_definition(definition))
        inputs, outputs = inputs or graph_inputs, outputs or graph_outputs
    return Converter.from_frozen_graph(definition, inputs, outputs, bounds, values, shapes)


def _names(text: str | None) -> list[str]:
    """Split a list of names at commas."""
    return [name for name in (text or "").split(",") if name]


def parse_values(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the options `--value`: Booleans, numbers, numbers with commas, or files of NumPy."""
    return {name: _value(name, text) for name, text in arrays.assignments(texts).items()}


def _value(name: str, text: str) -> Any:
    """Parse the value of an option `--value NAME=VALUE`."""
    if text.startswith("@"):
        return np.load(text[1:], allow_pickle=False)
    try:
        items = [_SCALARS[part] if part in _SCALARS else _number(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidArgumentError(
            f"--value {name}= must be true, false, a number, numbers with commas, or @FILE.npy, "
            f"got {text!r}"
        ) from error
    return items if "," in text else items[0]


def _number(text: str) -> int | float:
    """Parse an integer or a float."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _print_progress(text: str) -> None:
    """Print a line to stderr if it is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(text + "\n")


def read_calibration(path: Path) -> list[dict[str, Any]]:
    """Return samples of all inputs, one for each index of the first axis.

    Raises: InvalidArgumentError: the arrays differ in length.
    """
    with np.load(path, allow_pickle=False) as file:
        result = {name: file[name] for name in file.files}
    counts = {name: len(value) if value.ndim else 0 for name, value in result.items()}
    if len(set(counts.values())) != 1:
        raise InvalidArgumentError(
            f"{path} has different numbers of samples for its inputs: {counts}"
        )
    count = next(iter(counts.values()))
    return [{name: value[i : i + 1] for name, value in result.items()} for i in range(count)]
