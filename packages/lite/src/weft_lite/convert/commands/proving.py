"""`weft prove`: one model on all backends, compared node by node."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from weft_graph.graph_util import graph_ends
from weft_graph.ir.node import Output as Tensor
from weft_io.commands.output import Output
from weft_io.porting.backends import (
    SKIPPED,
    Backend,
    BackendComparison,
    Compiled,
    Model,
    Onnx,
    Recording,
    compare_backends,
)
from weft_io.porting.parameter_files import Array, read_parameters
from weft_lite.commands import arrays
from weft_lite.commands.extra import CHECKPOINT, FROZEN, ONNX, SAVED_MODEL
from weft_lite.convert.backends import Emulated, Lite
from weft_lite.convert.commands.converting import kind_of, parse_values, read_calibration
from weft_lite.convert.machines import MACHINES
from weft_lite.convert.sources import (
    Source,
    import_definition,
    read_definition,
    source_of_checkpoint,
    source_of_frozen_graph,
    source_of_onnx,
    source_of_saved_model,
    specialize,
)
from weft_lite.errors import LiteError
from weft_tensor import errors

DEPARTS, TROUBLE = 1, 2

_BATCH: Final = 2
"""Size of an unknown first axis in generated inputs."""

_RECIPE: Final = (
    "standard normal numbers for floats, and zeros and ones in equal parts for integers and "
    "Booleans"
)


def add(parser: argparse.ArgumentParser) -> None:
    """Run one model on all backends, and compare them node by node."""
    parser.add_argument(
        "model", type=Path,
        help="frozen GraphDef, SavedModel, checkpoint prefix, or ONNX model (.onnx)",
    )  # fmt: skip
    parser.add_argument(
        "--inputs", metavar="FILE.npz", help=f"values of the inputs, by name (default: {_RECIPE})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of generated inputs (default: 0)")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE.npz",
        help="samples for int8, along the first axis (default: the inputs)",
    )  # fmt: skip
    parser.add_argument(
        "--backends",
        metavar="NAME,…",
        help=f"backends (default: all): {', '.join(_backends(None))}",
    )
    parser.add_argument("--outputs", metavar="NAME,…", help="outputs (default: unread nodes)")
    parser.add_argument("--signature", default="serving_default", help="signature of a SavedModel")
    parser.add_argument("--tags", default="serve", help="comma-separated tags of a SavedModel")
    parser.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE",
        help="constant for a placeholder, such as training=false",
    )  # fmt: skip
    parser.add_argument(
        "-s", "--shape", action="append", default=[], metavar="NAME=1,224,224,3",
        help="shape of a generated input that has unknown sizes",
    )  # fmt: skip
    parser.add_argument("--nodes", action="store_true", help="also show all nodes")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare the backends, print the result, and return the exit code."""
    try:
        result = _compare(arguments)
    except (LiteError, ImportError) as error:
        sys.stderr.write(f"weft: {error}\n")
        return TROUBLE
    if arguments.json:
        sys.stdout.write(json.dumps(result.as_dict(), indent=1) + "\n")
    else:
        _print(result, arguments.nodes)
    if not result.agrees:
        return DEPARTS
    skipped = any(outcome.status == SKIPPED for outcome in result.results)
    return TROUBLE if skipped and arguments.backends else 0


def _compare(arguments: argparse.Namespace) -> BackendComparison:
    source, feeds = _model(arguments)
    samples = read_calibration(arguments.calibration) if arguments.calibration else []
    known = _backends(samples)
    names = _names(arguments.backends) or list(known)
    if unknown := [name for name in names if name not in known]:
        raise errors.InvalidArgumentError(
            f"there is no backend {unknown[0]!r}; the backends are {', '.join(known)}"
        )
    backends = [_Announced(known[name]) for name in names]
    with source.session() as session:
        return compare_backends(session, source.inputs, source.outputs, feeds, backends)


def _backends(samples: Sequence[Mapping[str, Any]] | None) -> dict[str, Backend]:
    """Return all backends by name."""
    files = [Lite(), Lite(samples or [])]
    backends: list[Backend] = [Compiled(), Compiled(fused=True), Onnx(), *files]
    for machine in MACHINES.values():
        shared: dict[str, Any] = {}
        backends += [Emulated(machine, files, file, shared) for file in files]
    return {backend.name: backend for backend in backends}


class _Announced:
    """A backend that is announced on a terminal before it runs."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend

    def record(self, model: Model) -> Recording:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[Krunning {self.name}")
            sys.stderr.flush()
        try:
            return self._backend.record(model)
        finally:
            if sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")


def _print(result: BackendComparison, nodes: bool) -> None:
    output = Output()
    header, rows = result.summary()
    output.table(header, rows, "nodes largest/accepted outputs")
    if nodes:
        header, rows = result.nodes()
        output.table(header, rows)


# ------------------------------------------------------------------------------ the model


def _model(arguments: argparse.Namespace) -> tuple[Source, dict[str, Array]]:
    """Return the model with known shapes, and the values of its inputs."""
    values = None
    if arguments.inputs:
        read = read_parameters(arguments.inputs)
        values = {name: p.read() for name, p in read.items() if p.read}
    source = _source(arguments, list(values or ()))
    if values is None:
        shapes = arrays.shapes(arguments.shape)
        if unknown := sorted(shapes.keys() - source.inputs.keys()):
            raise errors.InvalidArgumentError(
                f"--shape: there is no input {unknown[0]!r}; the inputs are "
                f"{', '.join(source.inputs)}"
            )
        values = generate_inputs(source.inputs, shapes, arguments.seed)
    known = {name: value.shape for name, value in values.items() if name in source.inputs}
    return specialize(source.graph, source.inputs, source.outputs, None, known), values


def generate_inputs(
    inputs: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]], seed: int
) -> dict[str, Array]:
    """Return generated values of inputs, from one generator in the order of the inputs.

    Floats are standard normal numbers; integers and Booleans are 0 and 1 with equal probability,
    which are valid indices of any table with two rows.

    Args:
      shapes: shapes of inputs by name. Without one, an unknown first axis has size 2.
    Raises: InvalidArgumentError: an input has other unknown sizes, or is of another type.
    """
    generator = np.random.default_rng(seed)
    result = {}
    for name, tensor in inputs.items():
        known = tensor.dims if name not in shapes else tuple(shapes[name])
        if known is not None and known[:1] == (None,):
            known = (_BATCH, *known[1:])
        dims = [size for size in known or () if size is not None]
        if known is None or len(dims) < len(known):
            raise errors.InvalidArgumentError(
                f"input {name!r} has unknown sizes, {tensor.shape}: give --shape {name}=…, or "
                "values with --inputs"
            )
        dtype = np.dtype(tensor.dtype.as_numpy_dtype)
        if tensor.dtype.is_floating:
            result[name] = generator.standard_normal(dims).astype(dtype)
        elif dtype.kind in "iub":
            result[name] = generator.integers(0, 2, dims).astype(dtype)
        else:
            raise errors.InvalidArgumentError(
                f"input {name!r} is of type {tensor.dtype.name}: give its value with --inputs"
            )
    return result


def _source(arguments: argparse.Namespace, inputs: list[str]) -> Source:
    """Return the source of a model.

    Args:
      inputs: the names of the inputs, if values of them were given.
    """
    kind, path, values = kind_of(arguments.model), arguments.model, parse_values(arguments.value)
    outputs = _names(arguments.outputs)
    if kind == SAVED_MODEL:
        tags = _names(arguments.tags)
        return source_of_saved_model(str(path), arguments.signature, tags, (), values)
    if kind == ONNX:
        return source_of_onnx(str(path), values)
    if kind == CHECKPOINT:
        if not (inputs and outputs):
            raise errors.InvalidArgumentError("a checkpoint needs --inputs and --outputs")
        return source_of_checkpoint(str(path), inputs, outputs, (), values)
    assert kind == FROZEN
    definition = read_definition(path)
    ends = graph_ends(import_definition(definition))
    fed = [name for name in ends[0] if name not in values]
    return source_of_frozen_graph(definition, inputs or fed, outputs or ends[1], values)


def _names(text: str | None) -> list[str]:
    return [name for name in (text or "").split(",") if name]
