"""One model run by several backends, compared node by node with kernels."""

from __future__ import annotations

__all__ = ["compare_backends"]

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ir.step_graph import sort_nodes
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow
from weft_io.porting.activations import ActivationMatch, compare_activations, upstream
from weft_io.porting.loop_probes import FLOWS, LoopProbes, insert_probes
from weft_io.porting.parameter_files import Array
from weft_io.porting.tables import format_table
from weft_io.porting.tolerances import compare_arrays
from weft_tensor import errors

AGREES: Final = "agrees"
DEPARTS: Final = "departs"
SKIPPED: Final = "skipped"
"""The backend is not installed, or cannot run the model."""


class Model(NamedTuple):
    """A model with values of its inputs.

    Attributes:
      graph: a graph without variables.
      inputs, outputs: tensors by name.
      feeds: values of the inputs, by name.
      tensors: the tensors to record: those that depend on an input, in the order of the graph.
    """

    graph: Graph
    inputs: Mapping[str, Output]
    outputs: Mapping[str, Output]
    feeds: Mapping[str, Array]
    tensors: Sequence[Output]


class Recording(NamedTuple):
    """The values that a backend computed.

    Attributes:
      values: by the names of tensors; except those that a backend fuses.
      tolerances: accepted relative differences by the names of tensors, where the element type does
        not determine them, such as for quantized values.
      ranges: the smallest and largest numbers that quantized values can have.
      alternatives: values before quantization, which the backend also uses.
      output_limit: the accepted difference of the model's outputs from the outputs of kernels,
        relative to the largest value; None for no limit.
      detail: a short description of the backend, such as the processor that it emulates.
    """

    values: Mapping[str, Array]
    tolerances: Mapping[str, float] = {}
    ranges: Mapping[str, tuple[float, float]] = {}
    alternatives: Mapping[str, Array] = {}
    output_limit: float | None = None
    detail: str = ""


class Backend(Protocol):
    """One way to run a model."""

    name: str

    def record(self, model: Model) -> Recording:
        """Run a model once.

        Raises:
          ImportError: a package or program that the backend requires is missing.
          OpError: the backend cannot run the model.
        """
        ...


class BackendResult(NamedTuple):
    """The comparison of one backend with kernels.

    Attributes:
      name: the name of the backend.
      status: "agrees", "departs" or "skipped".
      matches: each recorded value, compared with the one that kernels compute from the backend's
        own inputs of the node; in the order of the graph.
      output_difference: the largest relative difference of a model output from the output of
        kernels.
      detail: the backend's own description, or the reason for skipping it.
    """

    name: str
    status: str
    matches: Sequence[ActivationMatch] = ()
    output_difference: float = 0.0
    detail: str = ""

    @property
    def first(self) -> ActivationMatch | None:
        """The first value that departs, or None."""
        return next((match for match in self.matches if not match.agrees), None)


class BackendComparison(NamedTuple):
    """The comparison of a model on several backends.

    Attributes:
      tensors: all tensors of the model that depend on an input.
      results: one for each backend.
    """

    tensors: Sequence[Output]
    results: Sequence[BackendResult]

    @property
    def agrees(self) -> bool:
        """Return True if no backend departs."""
        return all(result.status != DEPARTS for result in self.results)

    def summary(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table of the backends."""
        header = ["backend", "result", "nodes", "largest/accepted", "outputs", "first departure"]
        rows = []
        for result in self.results:
            if result.status == SKIPPED:
                rows.append([result.name, SKIPPED, "", "", "", result.detail.partition("\n")[0]])
                continue
            nodes = f"{len(result.matches)}/{len(self.tensors)}"
            ratio = max((_excess(match) for match in result.matches), default=0.0)
            outputs = f"{result.output_difference:.2e}"
            departure = "" if result.first is None else describe(result.first)
            if result.status == DEPARTS and not departure:
                departure = "none; the outputs differ by the sum of all errors"
            rows.append([result.name, result.status, nodes, f"{ratio:.2g}", outputs, departure])
        return header, rows

    def nodes(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of a table of all nodes: relative differences."""
        shown = [result for result in self.results if result.status != SKIPPED]
        by_name = [{match.tensor.name: match for match in result.matches} for result in shown]
        rows = [
            [
                tensor.name,
                tensor.node.type,
                *[_cell(matches.get(tensor.name)) for matches in by_name],
            ]
            for tensor in self.tensors
        ]
        return ["tensor", "op", *[result.name for result in shown]], rows

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as values of JSON."""
        return {
            "agrees": self.agrees,
            "num_tensors": len(self.tensors),
            "backends": [_result_as_dict(result) for result in self.results],
        }

    def __str__(self) -> str:
        return format_table(*self.summary())


def compare_backends(
    session: Any,
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    feeds: Mapping[str, Any],
    backends: Sequence[Backend] | None = None,
) -> BackendComparison:
    """Run a model by several backends, and compare each node with kernels.

    Each value of a backend is compared with the one that kernels compute from the *backend's*
    values of the node's inputs. Rounding errors therefore do not accumulate, and the first value
    that departs belongs to the node with the fault.

    Args:
      session: a session with the model, whose variables have become constants.
      inputs, outputs: the model's inputs and outputs by name.
      feeds: values of the inputs, by name.
      backends: by default compiled code and the ONNX export. `weft prove` adds lite and its
        targets.
    Raises:
      InvalidArgumentError: the model has variables or random nodes, or an input has no value.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2, 3], name="x")
      >>> y = wf.nn.softmax(x + 1.0, name="y")
      >>> session = wf.Session()
      >>> result = wf.porting.compare_backends(session, {"x": x}, {"y": y}, {"x": np.ones([2, 3])})
      >>> result.agrees
      True
    """
    graph = session.graph
    arrays = _feeds(inputs, feeds)
    tensors = _recorded_tensors(inputs, outputs)
    model = Model(graph, inputs, outputs, arrays, tensors)
    loops = _loops(model)
    backends = [Compiled(), Onnx()] if backends is None else backends
    with kernels_only(), Session(graph=graph, config=_unoptimized()) as reference:
        expected = reference.run(dict(outputs), {inputs[name]: arrays[name] for name in inputs})
        results = [_compare(backend, model, reference, expected) for backend in backends]
        if loops is not None:
            results = _compare_loops(backends, loops, results)
            tensors = _in_order([*tensors, *loops.probes.tensors])
    return BackendComparison(tensors, results)


def describe(match: ActivationMatch) -> str:
    """Return a sentence about a value that departs."""
    name = f"{match.tensor.name} ({match.tensor.node.type})"
    if match.difference is None:
        return f"{name}: shape {list(match.shape)}"
    place = list(match.difference.position)
    return f"{name}: {match.difference.relative:.2e} at {place}, accepted {match.tolerance:.2e}"


# --------------------------------------------------------------------------- the comparison


def _compare(
    backend: Backend, model: Model, reference: Session, expected: Mapping[str, Array]
) -> BackendResult:
    """Record the values of a backend, and compare them."""
    try:
        with _default_compilation():
            recording = backend.record(model)
    except (ImportError, errors.OpError) as error:
        reason = error.message if isinstance(error, errors.OpError) else str(error)
        return BackendResult(backend.name, SKIPPED, detail=reason or type(error).__name__)
    feeds = {model.inputs[name].name: value for name, value in model.feeds.items()}
    matches = [
        _compare_input(tensor, recording, model.feeds[name])
        for name, tensor in model.inputs.items()
        if tensor.name in recording.values
    ]
    recorded = {**feeds, **recording.values}
    matches += _compare_values(reference, recorded, recording)
    difference = max(
        (
            _relative(recorded[tensor.name], expected[name])
            for name, tensor in model.outputs.items()
            if tensor.name in recorded
        ),
        default=math.inf,
    )
    limit = math.inf if recording.output_limit is None else recording.output_limit
    agrees = all(match.agrees for match in matches) and difference <= limit
    status = AGREES if agrees else DEPARTS
    return BackendResult(backend.name, status, matches, difference, recording.detail)


def _compare_values(
    reference: Session, recorded: Mapping[str, Array], recording: Recording
) -> list[ActivationMatch]:
    """Compare recorded values; one that departs may have been computed from the alternatives."""
    tolerances, ranges = recording.tolerances, recording.ranges
    comparison = compare_activations(reference, recorded, tolerance=tolerances, ranges=ranges)
    if comparison.agrees or not recording.alternatives:
        return list(comparison.matches)
    values = {**recorded, **recording.alternatives}
    alternatives = compare_activations(reference, values, tolerance=tolerances).matches
    agreeing = {
        match.tensor: match
        for match in alternatives
        if match.agrees and match.tensor.name not in recording.alternatives
    }
    return [
        match if match.agrees else agreeing.get(match.tensor, match) for match in comparison.matches
    ]


class _Loops(NamedTuple):
    """The loops of a model.

    Attributes:
      probes: the probes of their values.
      model: the model whose outputs these are.
      num_iterations: the numbers of iterations by kernels, by the names of the conditions.
    """

    probes: LoopProbes
    model: Model
    num_iterations: Mapping[str, Array]


def _loops(model: Model) -> _Loops | None:
    """Return the loops of a model; None if it has none whose values could be recorded."""
    ends = [*model.inputs.values()], [*model.outputs.values()], model.tensors
    draft = insert_probes(*ends)
    if draft is None:
        return None
    values, counts = _run_probes(draft, model)
    shapes = {
        tensor: values[tensor.name].shape
        for tensor in draft.probed
        if counts[draft.frames[tensor.name]]
    }
    probes = insert_probes(*ends, shapes)
    if probes is None:
        return None
    named = probes.graph.get_tensor_by_name
    inputs = {name: named(tensor.name) for name, tensor in model.inputs.items()}
    needed = set(upstream(probes.ends))
    outside = [tensor for tensor in (named(t.name) for t in model.tensors) if tensor in needed]
    outputs = _by_name(probes.ends)
    probed = Model(probes.graph, inputs, outputs, model.feeds, [*outside, *probes.ends])
    return _Loops(probes, probed, counts)


def _run_probes(probes: LoopProbes, model: Model) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the values and the numbers of iterations that kernels compute."""
    feeds = {tensor.name: model.feeds[name] for name, tensor in model.inputs.items()}
    with kernels_only(), Session(graph=probes.graph, config=_unoptimized()) as session:
        values, counts = session.run((dict(probes.outputs), dict(probes.counts)), feeds)
    return {name: np.asarray(value) for name, value in values.items()}, counts


def _compare_loops(
    backends: Sequence[Backend], loops: _Loops, results: Sequence[BackendResult]
) -> list[BackendResult]:
    """Add the comparison of the values in loops to the results of backends."""
    with Session(graph=loops.probes.flat, config=_unoptimized()) as reference:
        return [
            result if result.status == SKIPPED else _with_loops(backend, loops, reference, result)
            for backend, result in zip(backends, results, strict=True)
        ]


def _with_loops(
    backend: Backend, loops: _Loops, reference: Session, result: BackendResult
) -> BackendResult:
    """Record the values in loops, and compare them."""
    probes = loops.probes
    try:
        with _default_compilation():
            recording = backend.record(loops.model)
    except (ImportError, errors.OpError) as error:
        reason = error.message if isinstance(error, errors.OpError) else str(error)
        return result._replace(detail=f"{result.detail}; no values in loops: {reason}".strip("; "))
    counts = probes.num_iterations(recording.values)
    matches = [
        _compare_count(loops, name, count)
        for name, count in counts.items()
        if count != loops.num_iterations[name]
    ]
    running = {name for name, count in counts.items() if count}
    tables = [probes.in_flat_graph(table) for table in recording[:4]]
    feeds = {loops.model.inputs[name].name: value for name, value in loops.model.feeds.items()}
    flat = recording._replace(
        values={**feeds, **tables[0]},
        tolerances=tables[1],
        ranges=tables[2],
        alternatives=tables[3],
    )
    originals = {tensor.name: tensor for tensor in probes.tensors}
    matches += [
        match._replace(tensor=originals[match.tensor.name])
        for match in _compare_values(reference, flat.values, flat)
        if match.tensor.name in originals and probes.frames[match.tensor.name] in running
    ]
    by_tensor = {match.tensor: match for match in [*matches, *result.matches]}
    ordered = [by_tensor[tensor] for tensor in _in_order(by_tensor)]
    agrees = result.status == AGREES and all(match.agrees for match in matches)
    return result._replace(status=AGREES if agrees else DEPARTS, matches=ordered)


def _compare_count(loops: _Loops, name: str, count: Array) -> ActivationMatch:
    """Return the difference of a number of iterations, as that of the loop's condition."""
    difference = compare_arrays(count, loops.num_iterations[name])
    condition = loops.probes.conditions[name]
    return ActivationMatch(condition, name, difference, (), (), 0.0, [])


def _in_order(tensors: Iterable[Output]) -> list[Output]:
    return sorted(tensors, key=lambda tensor: (tensor.node.index, tensor.index))


def _compare_input(tensor: Output, recording: Recording, fed: Array) -> ActivationMatch:
    """Compare an input, as a backend saw it, with its value."""
    value = recording.values[tensor.name]
    difference = compare_arrays(value, fed) if value.shape == fed.shape else None
    accepted = recording.tolerances.get(tensor.name, 0.0)
    return ActivationMatch(tensor, tensor.name, difference, value.shape, (), accepted, [])


def _relative(value: Array, expected: Array) -> float:
    same_shape = np.shape(value) == np.shape(expected)
    return compare_arrays(value, expected).relative if same_shape else math.inf


def _excess(match: ActivationMatch) -> float:
    """Return the difference of a value over the accepted one."""
    if match.difference is None:
        return math.inf
    if match.difference.relative == 0:
        return 0.0
    return match.difference.relative / match.tolerance if match.tolerance else math.inf


def _cell(match: ActivationMatch | None) -> str:
    if match is None:
        return "–"
    mark = "" if match.agrees else "✗ "
    return mark + ("shape" if match.difference is None else f"{match.difference.relative:.1e}")


def _result_as_dict(result: BackendResult) -> dict[str, Any]:
    head: dict[str, Any] = {"name": result.name, "status": result.status, "detail": result.detail}
    if result.status == SKIPPED:
        return head
    return {
        **head,
        "output_difference": _number(result.output_difference),
        "first_departure": None if result.first is None else result.first.tensor.name,
        "tensors": [
            {
                "tensor": match.tensor.name,
                "op": match.tensor.node.type,
                "agrees": match.agrees,
                "difference": None if match.difference is None else _number(_relative_of(match)),
                "accepted": match.tolerance,
            }
            for match in result.matches
        ],
    }


def _relative_of(match: ActivationMatch) -> float:
    assert match.difference is not None
    return match.difference.relative


def _number(value: float) -> float | str:
    """Return a number as JSON can express it."""
    return value if math.isfinite(value) else str(value)


# --------------------------------------------------------------------------- the model


def _feeds(inputs: Mapping[str, Output], feeds: Mapping[str, Any]) -> dict[str, Array]:
    missing, unknown = sorted(inputs.keys() - feeds), sorted(feeds.keys() - inputs.keys())
    if missing or unknown:
        problem = f"no value for {missing[0]!r}" if missing else f"an unknown input {unknown[0]!r}"
        raise errors.InvalidArgumentError(
            f"the inputs' values have {problem}; the inputs are {', '.join(inputs)}"
        )
    result = {}
    for name, tensor in inputs.items():
        value = np.asarray(feeds[name], tensor.dtype.as_numpy_dtype)
        if not tensor.shape.is_compatible_with(value.shape):
            raise errors.InvalidArgumentError(
                f"input {name!r} has shape {tensor.shape}, got a value of shape {value.shape}"
            )
        result[name] = value
    return result


def _recorded_tensors(inputs: Mapping[str, Output], outputs: Mapping[str, Output]) -> list[Output]:
    """Return the tensors that depend on an input, except those inside of branches and loops.

    Raises: InvalidArgumentError: there are nodes that two runs may compute differently.
    """
    fed, last = set(inputs.values()), set(outputs.values())
    tensors = [tensor for tensor in upstream(list(outputs.values())) if tensor not in fed]
    nodes = {tensor.node for tensor in tensors}
    for node in nodes:
        if node.traits.random or node.role is Role.VARIABLE:
            kind = "random node" if node.traits.random else "variable"
            raise errors.InvalidArgumentError(
                f"the model must be frozen and without random nodes, but has the {kind} "
                f"{node.name!r} ({node.type})"
            )
    reached = _dependents(tensors, fed)
    flow = Flow(sort_nodes(nodes | {tensor.node for tensor in fed}))
    return [
        tensor
        for tensor in tensors
        if tensor in reached
        and (tensor.consumers() or tensor in last)
        and flow.frame[tensor.node] is flow.root
        and not flow.guard(tensor.node)
        and _is_value(tensor)
    ]


def _dependents(tensors: Sequence[Output], sources: set[Output]) -> set[Output]:
    """Return the tensors that depend on some, also through the next iterations of loops."""
    reached, count = set(sources), 0
    while len(reached) > count:
        count = len(reached)
        reached.update(
            tensor for tensor in tensors if any(item in reached for item in tensor.node.inputs)
        )
    return reached


def _is_value(tensor: Output) -> bool:
    """Return True if a tensor outside of loops and branches is fully described by its value.

    Excluded are the flows of TensorArrays, and results of loops, which may be such flows.
    """
    node = tensor.node
    is_result = node.role is Role.MERGE and tensor.index == 0
    return node.type not in FLOWS and (is_result or not node.traits.routes)


def _unoptimized() -> proto.ConfigProto:
    """Return a configuration without graph passes."""
    config = proto.ConfigProto()
    config.graph_options.optimizer_options.opt_level = -1
    return config


@contextmanager
def _environment(value: str | None) -> Iterator[None]:
    saved_value = os.environ.get("WEFT_JIT")
    try:
        if value is None:
            os.environ.pop("WEFT_JIT", None)
        else:
            os.environ["WEFT_JIT"] = value
        yield
    finally:
        if saved_value is None:
            os.environ.pop("WEFT_JIT", None)
        else:
            os.environ["WEFT_JIT"] = saved_value


@contextmanager
def kernels_only() -> Iterator[None]:
    """Return a context that disables compilation in all sessions of this process."""
    with _environment("off"):
        yield


@contextmanager
def _default_compilation() -> Iterator[None]:
    with _environment(None):
        yield


# --------------------------------------------------------------------------- backends


class Compiled:
    """Compiled code: all nodes at once, and the outputs alone, so that more nodes are fused.

    Args:
      fused: fetch only the outputs.
    """

    def __init__(self, fused: bool = False) -> None:
        self.name = "compiled-fused" if fused else "compiled"
        self._fused = fused

    def record(self, model: Model) -> Recording:
        """Run the model once. Raises: ImportError: weftml-compiler is not installed."""
        if find_spec("weft_compiler") is None:
            raise ImportError(
                "compiled code requires weftml-compiler: pip install 'weftml[compiler]'"
            )
        fetches = list(model.outputs.values()) if self._fused else list(model.tensors)
        feeds = {model.inputs[name]: value for name, value in model.feeds.items()}
        with _environment("now"), Session(graph=model.graph) as session:
            report = session.explain(fetches, list(feeds))
            values = session.run(fetches, feeds)
        count = sum(map(len, report.compiled))
        recorded = {t.name: np.asarray(v) for t, v in zip(fetches, values, strict=True)}
        return Recording(recorded, detail=f"{count} compiled nodes")


class Onnx:
    """The ONNX export, evaluated by ONNX Runtime if it is installed, else by ONNX's evaluator."""

    name = "onnx"

    def record(self, model: Model) -> Recording:
        """Export and run the model. Raises: ImportError: onnx is not installed."""
        from weft_io.onnx import export

        inputs = {f"feed/{name}": tensor for name, tensor in model.inputs.items()}
        with kernels_only(), Session(graph=model.graph) as session:
            try:
                exported, scope = export(_by_name(model.tensors), inputs, session), ""
            except errors.UnimplementedError:  # of a value that ONNX has in another form
                exported = export(_by_name(model.outputs.values()), inputs, session)
                scope = "outputs only, "
        feeds = {f"feed/{name}": value for name, value in model.feeds.items()}
        evaluate = _by_runtime if find_spec("onnxruntime") else _by_reference
        values, evaluator = evaluate(exported, feeds)
        return Recording(values, detail=f"{scope}{evaluator}")


def _by_name(tensors: Iterable[Output]) -> dict[str, Output]:
    return {tensor.name: tensor for tensor in tensors}


def _by_runtime(exported: Any, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    import onnxruntime  # type: ignore[import-not-found, unused-ignore]

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        exported.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(names, dict(feeds)), strict=True))
    return values, f"ONNX Runtime {onnxruntime.__version__}"


def _by_reference(exported: Any, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = [output.name for output in exported.graph.output]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            values = ReferenceEvaluator(exported).run(names, dict(feeds))
        except (RuntimeError, NotImplementedError) as error:
            raise errors.UnimplementedError(f"ONNX's reference evaluator: {error}") from error
    recorded = {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
    return recorded, f"reference evaluator of onnx {onnx.__version__}"
