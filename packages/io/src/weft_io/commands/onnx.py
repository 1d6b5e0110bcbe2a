"""`weft onnx`: show the content of a model, or run it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_io.commands.output import Output
from weft_tensor import errors
from weft_tensor.shape import format_dims

if TYPE_CHECKING:
    from onnx import ValueInfoProto

    from weft_io.onnx.model_tables import Survey

_MAX_RANDOM_ELEMENTS: Final = 10**8
"""Largest number of elements of a randomly generated input."""


def add(parser: argparse.ArgumentParser) -> None:
    """Inspect and run ONNX models."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    result = actions.add_parser(
        "inspect", help="show inputs, outputs, ops, parameters and unsupported ops"
    )
    result.add_argument("path", help="model file")
    result.add_argument(
        "--plain", action="store_true", help="print tab-separated fields instead of a table"
    )
    result.set_defaults(run=inspect)

    result = actions.add_parser("run", help="run a model once; show or save its outputs")
    result.add_argument("path", help="model file")
    result.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of an input: a number, numbers such as 1,2,3, or @FILE.npy (default: random)",
    )
    result.add_argument("-o", "--output", metavar="FILE.npz", help="file to save the outputs in")
    result.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")
    result.set_defaults(run=run)


def inspect(arguments: argparse.Namespace) -> int:
    """Show the content of a model; return exit code 1 if it has unknown ops."""
    from weft_io.onnx.model import read
    from weft_io.onnx.model_tables import Survey
    from weft_io.onnx.values import type_and_shape

    model, _ = read(arguments.path)
    survey = Survey(model)
    output = Output(arguments.plain)
    weights = {item.name for item in model.graph.initializer}

    def describe_values(kind: str, values: Sequence[ValueInfoProto]) -> list[list[str]]:
        rows = []
        for value in values:
            if value.name not in weights:
                dtype, dims = type_and_shape(value.type)
                form = format_dims(None if dims is None else tuple(dims))
                rows.append([kind, value.name, f"{dtype.name} {form}"])
        return rows

    versions = ", ".join(f"{i.domain or 'ai.onnx'} {i.version}" for i in model.opset_import)
    rows = [["file", "", f"{Path(arguments.path).stat().st_size:,} bytes, {versions}"]]
    rows += describe_values("input", model.graph.input) + describe_values(
        "output", model.graph.output
    )
    rows.append(["parameters", "", f"{_num_parameters(survey):,}"])
    counts = Counter({op: len(nodes) for op, nodes in survey.nodes.items()})
    rows += [["op", op, str(count)] for op, count in counts.most_common()]
    unknown = sorted(survey.unknown_ops.items())
    rows += [["not known", op, ", ".join(names)] for op, names in unknown]
    output.table(["", "name", "value"], rows)
    return 1 if unknown else 0


def _num_parameters(survey: Survey) -> int:
    """Count the elements of all weights, including those of subgraphs and of Constant nodes."""
    tensors = [item for body in survey.bodies for item in getattr(body, "initializer", ())]
    constants = [node for body in survey.bodies for node in body.node if node.op_type == "Constant"]
    tensors += [item.t for node in constants for item in node.attribute if item.name == "value"]
    return sum(int(np.prod(tensor.dims, dtype=object)) for tensor in tensors)


def run(arguments: argparse.Namespace) -> int:
    """Run a model once."""
    from weft_io.onnx.backend import Backend

    prepared = Backend.prepare(arguments.path)
    inputs = dict(_select_named(item) for item in arguments.input)
    random = np.random.default_rng(arguments.seed)
    feeds: dict[str, Any] = {}
    for name, input_ in prepared.model.inputs.items():
        if name in inputs:
            feeds[name] = _value(inputs.pop(name), input_)
        else:
            feeds[name] = _random(name, input_, random)
    if inputs:
        raise errors.InvalidArgumentError(
            f"the model has inputs {sorted(prepared.model.inputs)}, got {sorted(inputs)}"
        )
    with prepared.session:
        result = dict(zip(prepared.model.outputs, prepared.run(feeds), strict=True))
    _show(result)
    if arguments.output:
        np.savez(arguments.output, **result)
    return 0


def _select_named(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise errors.InvalidArgumentError(f"an input must be NAME=VALUE, got {text!r}")
    return name, value


def _value(text: str, spec: Any) -> Any:
    if text.startswith("@"):
        try:
            return np.load(text[1:], allow_pickle=False)
        except (OSError, ValueError) as error:
            raise errors.InvalidArgumentError(f"cannot read {text[1:]!r}: {error}") from error
    parts = text.split(",")
    try:
        if spec.dtype.is_integer:
            values = np.array([_parse_integer(part) for part in parts], spec.dtype.numpy)
        else:
            values = np.array(parts if spec.dtype.numpy.kind == "O" else [*map(float, parts)])
    except OverflowError:
        raise errors.InvalidArgumentError(
            f"an input of {spec.dtype.name} must be integers from {spec.dtype.min} to "
            f"{spec.dtype.max}, got {text!r}"
        ) from None
    except ValueError:
        kind = "whole numbers" if spec.dtype.is_integer else "numbers"
        raise errors.InvalidArgumentError(
            f"an input of {spec.dtype.name} must be {kind}, got {text!r}"
        ) from None
    values = values.astype(spec.dtype.numpy) if values.dtype.kind == "f" else values
    if spec.dims is None:
        return values
    if values.size == 1 and None not in spec.dims:
        return np.full(spec.dims, values[0])
    try:
        return values.reshape([-1 if size is None else size for size in spec.dims])
    except ValueError:
        raise errors.InvalidArgumentError(
            f"an input of shape {format_dims(spec.dims)} must be one number, as many as it has "
            f"elements, or @FILE.npy, got {values.size}"
        ) from None


def _parse_integer(text: str) -> int:
    """Parse an integer exactly, including forms such as 1e3.

    Raises: ValueError: it is not an integer. OverflowError: it is infinite.
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number != round(number):
        raise ValueError(text)
    return int(number)


def _random(name: str, spec: Any, random: np.random.Generator) -> Any:
    """Return random values for an omitted input; unknown sizes are 1.

    Raises: InvalidArgumentError: random values of its type are not supported.
    """
    if spec.dims is None or spec.dtype.numpy.kind == "O":
        raise errors.InvalidArgumentError(f"the input {name!r} must be given: --input {name}=…")
    sizes = [1 if size is None else size for size in spec.dims]
    if prod(sizes) > _MAX_RANDOM_ELEMENTS:
        raise errors.InvalidArgumentError(
            f"the input {name!r} of shape {format_dims(spec.dims)} must be passed with --input: "
            "it is too large for random values"
        )
    if spec.dtype.is_integer or spec.dtype.is_bool:
        return random.integers(0, 2, sizes).astype(spec.dtype.numpy)
    return random.standard_normal(sizes).astype(spec.dtype.numpy)


def _show(result: Mapping[str, Any]) -> None:
    for name, value in result.items():
        text = np.array2string(
            np.asarray(value, object if isinstance(value, list) else None),
            threshold=20,
            precision=5,
        )
        kind = f"{value.dtype} {list(value.shape)}" if hasattr(value, "dtype") else "sequence"
        print(f"{name}: {kind}\n{text}")  # noqa: T201  # what the command is for
