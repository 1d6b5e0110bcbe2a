"""The actions of `weft port` that compare a port with the model that it was ported from."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph

DIFFERENT = 1
"""The exit code when a comparison finds a difference."""

_MODEL = "GraphDef (.pb, .pbtxt) or ONNX model"
_PARAMETERS = "checkpoint, .onnx, .safetensors, .npz or GraphDef file"


def add_actions(actions: Any) -> None:
    """Add the actions to the subparsers of `weft port`."""
    result = actions.add_parser(
        "parameters", help="compare parameters by scope: missing, extra, transposed, different"
    )
    result.add_argument("ours", help=_PARAMETERS)
    result.add_argument(
        "theirs", help="parameters of the other implementation, in the same kinds of files"
    )
    result.add_argument(
        "--names",
        metavar="FILE.json",
        help="JSON file that maps names of this implementation to names of the other one",
    )
    result.set_defaults(run=_parameters)

    result = actions.add_parser(
        "activations", help="compare each node with values that another system recorded"
    )
    result.add_argument("model", help=_MODEL)
    result.add_argument("recorded", metavar="FILE.npz", help="recorded inputs and activations")
    result.add_argument(
        "--names",
        metavar="FILE.json",
        help="JSON file that maps names of tensors to recorded names",
    )
    result.add_argument("--tolerance", type=float, help="accepted relative difference")
    result.add_argument(
        "--layout",
        choices=["NHWC", "NCHW"],
        default="NHWC",
        help="layout of recorded images (default: NHWC)",
    )
    result.set_defaults(run=_activations)

    result = actions.add_parser(
        "runs",
        help="feed the same batches to two implementations; report the first value that differs",
    )
    result.add_argument("first", metavar="FILE.py:NAME", help="function from a batch to values")
    result.add_argument("second", metavar="FILE.py:NAME", help="the other implementation")
    _add_batches(result)
    result.set_defaults(run=_runs)

    result = actions.add_parser(
        "targets", help="compare a program on one task and on a cluster, step by step"
    )
    result.add_argument(
        "build", metavar="FILE.py:NAME", help="function from a target to a wf.porting.Program"
    )
    result.add_argument("target", help="target of the cluster, such as grpc://host:2222")
    _add_batches(result)
    result.set_defaults(run=_targets)

    result = actions.add_parser(
        "growth", help="run a model at several sizes; report unexpected time, memory and loss"
    )
    result.add_argument(
        "build", metavar="FILE.py:NAME", help="function from a size to a wf.porting.Program"
    )
    result.add_argument(
        "batch", metavar="FILE.py:NAME", help="function from a size to the feeds of a step"
    )
    result.add_argument("sizes", nargs="+", type=int, metavar="SIZE", help="from small to large")
    result.add_argument("--steps", type=int, default=20, help="steps of each size (default: 20)")
    result.add_argument(
        "--tolerance",
        type=float,
        default=1.6,
        help="factor by which growth may differ from the expected range (default: 1.6)",
    )
    result.set_defaults(run=_growth)


def _add_batches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "batches",
        metavar="FILE.npz",
        help="file of arrays named like the inputs, with batches along the first axis",
    )
    parser.add_argument("--exact", action="store_true", help="require equal bits")


def _parameters(arguments: argparse.Namespace) -> int:
    from weft_io.porting import compare_parameters

    names = _read_names(arguments.names)
    return _report(compare_parameters(arguments.ours, arguments.theirs, names))


def _activations(arguments: argparse.Namespace) -> int:
    from weft_exec.session.session import Session
    from weft_io.porting import compare_activations

    graph = _import(arguments.model)
    with Session(graph=graph) as session:
        names = _read_names(arguments.names)
        return _report(
            compare_activations(
                session, arguments.recorded, names, arguments.tolerance, arguments.layout
            )
        )


def _runs(arguments: argparse.Namespace) -> int:
    from weft_io.porting import compare_runs

    first, second = _function(arguments.first), _function(arguments.second)
    return _report(compare_runs(first, second, _batches(arguments.batches), arguments.exact))


def _targets(arguments: argparse.Namespace) -> int:
    from weft_io.porting import compare_targets

    targets = "", arguments.target
    batches = _batches(arguments.batches)
    return _report(compare_targets(_function(arguments.build), targets, batches, arguments.exact))


def _growth(arguments: argparse.Namespace) -> int:
    from weft_io.porting import measure_growth

    build, batch = _function(arguments.build), _function(arguments.batch)
    growth = measure_growth(build, batch, arguments.sizes, arguments.steps, arguments.tolerance)
    sys.stdout.write(f"{growth}\n")
    return DIFFERENT if growth.departures else 0


def _report(comparison: Any) -> int:
    sys.stdout.write(f"{comparison}\n")
    return 0 if comparison.agrees else DIFFERENT


def _read_names(path: str | None) -> Mapping[str, str] | None:
    if path is None:
        return None
    try:
        names = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise errors.InvalidArgumentError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        raise errors.InvalidArgumentError(
            f"{path} must have a JSON object that maps names to names"
        )
    return names


def _function(reference: str) -> Callable[..., Any]:
    """Return a function of a program, given as FILE.py:NAME. Runs the file."""
    path, colon, name = reference.rpartition(":")
    if not colon or not path:
        raise errors.InvalidArgumentError(
            f"a function must have the form FILE.py:NAME, got {reference!r}"
        )
    if not Path(path).is_file():
        raise errors.NotFoundError(f"there is no file {path!r}")
    function = runpy.run_path(path).get(name)
    if not callable(function):
        raise errors.NotFoundError(f"{path} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def _batches(path: str) -> list[dict[str, Any]]:
    from weft_io.porting import read_parameters

    arrays = {name: p.read() for name, p in read_parameters(path).items() if p.read}
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        raise errors.InvalidArgumentError(
            f"all arrays of {path} must have the same first axis, one entry for each batch; got "
            + ", ".join(f"{name}: {count}" for name, count in counts.items())
        )
    number = next(iter(counts.values()))
    return [{name: array[i] for name, array in arrays.items()} for i in range(number)]


def _import(path: str) -> Graph:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.messages.import_graph_def import import_graph_def
    from weft_io.files.message_files import read_message

    graph = Graph()
    with graph.as_default():
        if path.endswith(".onnx"):
            from weft_io.onnx import import_model

            import_model(path)
        else:
            import_graph_def(read_message(path, proto.GraphDef), name="")
    return graph
