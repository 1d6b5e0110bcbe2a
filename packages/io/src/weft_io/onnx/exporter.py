"""Export of a part of a graph as an ONNX model."""

from __future__ import annotations

__all__ = ["export"]

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto, checker, helper, shape_inference

from weft_exec.session.feeds import arrays_by_tensor
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph, reachable, sort_nodes
from weft_graph.ir.traits import Role, State
from weft_graph.passes.inline import inline_calls
from weft_graph.passes.partitioned_lookups import is_partitioned_lookup
from weft_graph.passes.prune import prune
from weft_graph.passes.specialize import specialize
from weft_io.onnx import initializers
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.export_graph import Body, ExportedNode, Value, to_proto
from weft_io.onnx.flow_export import FlowExport
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.registry import export_rule
from weft_tensor import errors
from weft_tensor.nesting import format_value

Array = np.ndarray[Any, Any]

OLDEST: Final = 7
"""The first opset with broadcasting ops."""

_SEPARATE_CONSTANTS: Final = 4
"""The first format version in which constants need not also be inputs."""

_NO_RULE: Final = "there is no rule for it"
_OF_THE_MODEL: Final = ("producer_name", "producer_version", "domain", "doc_string")
_ROUTING: Final = frozenset(
    {Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION, Role.LOOP_COND}
)


def export(
    fetches: Any,
    feeds: Any,
    session: Any,
    path: str | os.PathLike[str] | None = None,
    opset: int = 21,
    *,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    metadata: Mapping[str, str] | None = None,
    external_data: bool = False,
    values: Mapping[Any, Any] | None = None,
) -> ModelProto:
    """Export a part of a session's graph as an ONNX model.

    Variables become constants with their current values. Placeholders that are not fed become
    constants of their default or of a value in `values`, and conditionals on these are folded: a
    batch normalization with `training = placeholder_with_default(False, [])` is exported in its
    inference form. Only data dependencies count: nodes that run through control inputs alone, such
    as assertions, are left out, and reading a variable after an update is rejected. The model is
    checked by `onnx.checker`, and the shapes of its values are inferred.

    Args:
      fetches: the outputs of the model: a tensor or its name, a list of them, or a dict from the
        names of the model's outputs; by default they have the names of the tensors, without ":0".
      feeds: the inputs of the model, in the same form: any tensors, mostly placeholders.
      session: the session with the values of the variables.
      path: the file to write.
      opset: the version of ONNX's standard ops, at least 7. Ops that an older version lacks are
        rejected; before version 14, a computed size of 0 has another meaning.
      dynamic_axes: names of unknown sizes, by input and axis; others are named like "x_0". Equal
        names mean equal sizes.
      metadata: metadata of the model: `producer_name`, `producer_version`, `domain`, `doc_string`,
        `model_version`, and properties of any other name.
      external_data: write large constants next to `path`, to a file of the same name with the
        suffix ".data". This is required for models of 2 GiB and more.
      values: values of tensors that are not inputs, by tensor or by name, such as `{"keep_prob":
        1.0}`. A feed in it is not an input of the model.
    Returns: the model, without the constants in a separate file.
    Raises:
      UnimplementedError: ONNX cannot express some nodes; the message lists them.
      NotFoundError: the graph lacks a tensor named in an argument.
      InvalidArgumentError: a required placeholder is not fed, or an argument is invalid.
      InvalidTypeError: an argument has another type.
      FailedPreconditionError: a variable has no value.
      ResourceExhaustedError: the model has 2 GiB or more, and no `external_data`.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None, 2], name="x")
      >>> y = wf.nn.relu(x @ wf.Variable([[1.0], [2.0]]), name="y")
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     model = wf.onnx.export(y, x, session)
      >>> [node.op_type for node in model.graph.node]
      ['MatMul', 'Relu']
      >>> model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
      'x_0'
    """
    newest = onnx.defs.onnx_opset_version()
    if not (isinstance(opset, int) and OLDEST <= opset <= newest):
        raise errors.InvalidArgumentError(
            f"opset must be {OLDEST} to {newest}, got {format_value(opset)}"
        )
    if external_data and path is None:
        raise errors.InvalidArgumentError("external_data requires a path")
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise errors.InvalidTypeError(f"path must be a path of a file, got {format_value(path)}")
    graph = getattr(session, "graph", None)
    if not isinstance(graph, Graph):
        raise errors.InvalidTypeError(f"a session is required, got {format_value(session)}")
    results = _select_named(fetches, graph, "fetches")
    inputs = _select_named(feeds, graph, "feeds")
    bound = arrays_by_tensor(values or {}, graph, inputs)
    inputs = {name: feed for name, feed in inputs.items() if feed not in bound}
    if common := sorted(set(results) & set(inputs)):
        raise errors.InvalidArgumentError(
            f"inputs and outputs must have different names, got {common} for both"
        )
    axes = _check_axes(dynamic_axes or {}, inputs)
    _check_metadata(metadata or {})
    node = _Export(results, inputs, bound, session, opset)
    node.run()
    return node.model(axes, metadata or {}, None if path is None else Path(path), external_data)


class _Export:
    """The state of one call of `export`.

    Args:
      results, inputs: outputs of the graph by their names in the model.
      values: values of further outputs, which become constants.
    """

    def __init__(
        self,
        results: dict[str, Output],
        inputs: dict[str, Output],
        values: dict[Output, Array],
        session: Any,
        opset: int,
    ) -> None:
        self.results = results
        self.inputs = inputs
        self.values = values
        self.session = session
        self.body = Body(opset)
        self.outputs: list[Value] = []
        self._live: set[Node] = set()
        self._unfed: list[Node] = []
        self._refused: dict[str, None] = {}  # once each: the test of a loop is written thrice

    def run(self) -> None:
        """Add all nodes."""
        fetches, feeds = list(self.results.values()), list(self.inputs.values())
        nodes = _collect_needed(fetches, [*feeds, *self.values])
        step: StepGraph | None = None
        if self.values or any(_needs_step(node) for node in nodes):
            step = prune([*feeds, *self.values], fetches, [])
            inline_calls(step, has_kernel=lambda op: export_rule(op) is not None)
            specialize(step, self.values)
            fetches, feeds = step.fetches, step.feeds
            nodes = _collect_needed(fetches, feeds)
        for name, feed in zip(self.inputs, feeds, strict=True):
            self.body.values[feed] = Value(feed.dtype.base_dtype, name, dims=feed.dims)
        self._live = set(nodes)
        self._freeze([node for node in nodes if node.role is Role.VARIABLE])
        if step is not None and any(node.role in _ROUTING for node in nodes):
            self._add_flow(step)
        else:
            for node in nodes:
                self._add(node)
        self._refuse()
        used_names = {self.body.values[feed] for feed in feeds}
        for name, fetch in zip(self.results, fetches, strict=True):
            value = self.body.values[fetch]
            if value in used_names or value.array is not None:
                copy = Value(value.dtype)
                self.body.nodes.append(
                    ExportedNode("Identity", [value], [copy], {}, fetch.node.name)
                )
                value = copy
            used_names.add(value)
            value.name = name
            self.outputs.append(value)

    def _add_flow(self, step: StepGraph) -> None:
        """Add all nodes of a step that has branches or loops."""
        flow = FlowExport(self.body, step.live_nodes(), self._live, self._add, self._note)
        if not flow.is_plain():  # nothing can be exported; report other unsupported nodes
            for node in self._live:
                if node.role is None and export_rule(node.type) is None:
                    self._note(node, _NO_RULE)
            return
        flow.run()

    def _freeze(self, variables: Sequence[Node]) -> None:
        """Convert variables to constants with their current values."""
        graph: Graph = self.session.graph
        readers = [_reader(graph.get_operation_by_name(node.name)) for node in variables]
        values = self.session.run(readers) if readers else []
        for node, reader, value in zip(variables, readers, values, strict=True):
            constant = self.body.constant(value, reader.dtype.base_dtype)
            self.body.values[node.outputs[0]] = constant

    def _add(self, node: Node) -> None:
        """Add the ONNX nodes of a node that is not control flow; record it if it is unsupported."""
        values = self.body.values
        missing = [output for output in node.outputs if output not in values]
        if not missing:
            return
        try:
            result = self._values_of(node)
        except errors.UnimplementedError as error:
            self._note(node, error.message)
            result = []
        for output in missing:
            value = result[output.index] if output.index < len(result) else None
            # A missing value has no type, but its users are examined all the same.
            values[output] = value or Value(output.dtype.base_dtype)
            if value is not None and value.dims is None and not value.sequence:
                value.dims = output.dims
            if value is not None and not value.name and value.array is None:
                value.name = _without_port(output)
        if result and (lost := self._find_lost_output(node, result)):
            self._note(node, f"ONNX cannot give its output {lost}")

    def _refuse(self) -> None:
        """Raise an error that lists all missing placeholders, or all unsupported nodes."""
        if self._unfed:
            names = ", ".join(repr(node.name) for node in self._unfed)
            verb = "is" if len(self._unfed) == 1 else "are"
            first = self._unfed[0]
            raise errors.InvalidArgumentError(
                f"the model requires {names}, which {verb} not fed: feed it, or pass its "
                f"value, values={{{first.name!r}: ...}}",
                op=first.type,
                node=first.name,
                line=first.line or None,
            )
        if self._refused:
            lines = "\n  ".join(self._refused)
            raise errors.UnimplementedError(
                f"{len(self._refused)} nodes cannot be exported to ONNX:\n  {lines}",
                details={"nodes": len(self._refused)},
            )

    def _values_of(self, node: Node) -> list[Value | None]:
        if node.role is Role.CONSTANT:
            return [self.body.constant(node.attrs["value"], node.outputs[0].dtype)]
        if node.role is Role.PLACEHOLDER and not node.inputs:
            self._unfed.append(node)
            return [Value(node.outputs[0].dtype.base_dtype)]
        if _follows_update(node):
            raise errors.UnimplementedError("it reads a variable after an update")
        if node.traits.identity or node.role is Role.READ:
            return [self.body.values[node.inputs[0]]]
        rule = export_rule(node.type)
        if rule is None:
            raise errors.UnimplementedError(_NO_RULE)
        result = rule(NodeExport(node, self.body))
        return [result] if isinstance(result, Value) else list(result)

    def _find_lost_output(self, node: Node, values: Sequence[Value | None]) -> str:
        """Return the name of an output that is used but that a rule could not export, or ""."""
        fetched = set(self.results.values())
        for output, value in zip(node.outputs, values, strict=False):
            if value is None and (output in fetched or self._is_read(output)):
                return output.node.op_def.outputs[min(output.index, len(values) - 1)].name
        return ""

    def _is_read(self, output: Output) -> bool:
        return any(user in self._live for user in output.consumers())

    def _note(self, node: Node, why: str) -> None:
        """Record that a node cannot be expressed in ONNX."""
        line = self.session.graph.find_node(node.name)
        source_line = (line or node).line
        result = f"{node.name} ({node.type}): {why}" + (
            f"; made at {source_line}" if source_line else ""
        )
        self._refused[result] = None

    # ------------------------------------------------------------------------- the message

    def model(
        self,
        axes: Mapping[str, Mapping[int, str]],
        metadata: Mapping[str, str],
        path: Path | None,
        external: bool,
    ) -> ModelProto:
        """Return the checked model; write it if there is a path."""
        nodes = self.body.live(self.outputs)
        constants = _name_all(nodes, [*self.inputs, *self.results])
        placement = initializers.assign_locations(constants, path if external else None)
        message = helper.make_graph(
            [to_proto(node) for node in nodes],
            "weft",
            [_info(name, output, axes.get(name, {})) for name, output in self.inputs.items()],
            [_info(name, output, None) for name, output in self.results.items()],
            [initializers.to_proto(value, placement) for value in constants],
        )
        imports = [helper.make_opsetid("", self.body.opset)]
        model = helper.make_model(message, opset_imports=imports, producer_name="weft")
        model.ir_version = max(helper.find_min_ir_version_for(imports), _SEPARATE_CONSTANTS)
        _describe(model, metadata)
        model = _infer(model)
        _check_ranks(model)
        if path is None:
            _check(model)
            return model
        data = model.SerializeToString()
        try:
            initializers.write(placement, path)
            path.write_bytes(data)
        except OSError as error:
            raise errors.InvalidArgumentError(f"cannot write {str(path)!r}: {error}") from error
        _check(str(path) if external else data)
        return model


# ------------------------------------------------------------------------------- arguments


def _select_named(requested: Any, graph: Graph, label: str) -> dict[str, Output]:
    """Return the outputs of a graph that an argument selects, by their names in the model."""
    if isinstance(requested, Mapping):
        result = {str(name): _output(item, graph) for name, item in requested.items()}
    else:
        items = requested if isinstance(requested, (list, tuple)) else [requested]
        outputs = [_output(item, graph) for item in items]
        result = {_without_port(item): item for item in outputs}
        if len(result) < len(outputs):
            raise errors.InvalidArgumentError(f"{label} must differ, got {format_value(requested)}")
    if label == "fetches" and not result:
        raise errors.InvalidArgumentError("fetches must name at least one tensor")
    if len(set(result.values())) < len(result) and label == "feeds":
        raise errors.InvalidArgumentError(f"{label} must differ, got {format_value(requested)}")
    return result


def _output(requested: Any, graph: Graph) -> Output:
    if isinstance(requested, str) and ":" not in requested:
        requested = f"{requested}:0"
    result = graph.as_graph_element(requested, allow_operation=False)
    assert isinstance(result, Output)
    return result


def _check_axes(
    axes: Mapping[str, Mapping[int, str]], inputs: Mapping[str, Output]
) -> Mapping[str, Mapping[int, str]]:
    if not isinstance(axes, Mapping) or not all(isinstance(v, Mapping) for v in axes.values()):
        raise errors.InvalidTypeError(
            f"dynamic_axes must map inputs to dicts of axes and names, got {format_value(axes)}"
        )
    for name, names in axes.items():
        if name not in inputs:
            raise errors.InvalidArgumentError(
                f"dynamic_axes must name inputs, which are {list(inputs)}, got {name!r}"
            )
        dims = inputs[name].dims
        for axis, text in names.items():
            if not isinstance(axis, int) or not isinstance(text, str):
                raise errors.InvalidTypeError(
                    f"dynamic_axes of {name!r} must map integers to names, got "
                    f"{format_value(names)}"
                )
            if dims is not None and not (0 <= axis < len(dims) and dims[axis] is None):
                raise errors.InvalidArgumentError(
                    f"dynamic_axes of {name!r} must be axes of unknown size of the shape "
                    f"{list(dims)}, got {axis}"
                )
    return axes


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if not isinstance(metadata, Mapping):
        raise errors.InvalidTypeError(f"metadata must be a mapping, got {format_value(metadata)}")
    wrong = {k: v for k, v in metadata.items() if not isinstance(k, str) or not isinstance(v, str)}
    if wrong:
        raise errors.InvalidArgumentError(
            f"metadata must map strings to strings, got {format_value(wrong)}"
        )
    version = metadata.get("model_version", "0")
    if not version.removeprefix("-").isdecimal() or not -(2**63) <= int(version) < 2**63:
        raise errors.InvalidArgumentError(f"model_version must be an integer, got {version!r}")


def _without_port(output: Output) -> str:
    return output.name.removesuffix(":0")


# ----------------------------------------------------------------------------- the graph


def _collect_needed(fetches: Sequence[Output], feeds: Sequence[Output]) -> list[Node]:
    """Return the nodes whose data the fetches need, in topological order."""
    fed = set(feeds)
    waiting = [output for output in fetches if output not in fed]
    result: set[Node] = set()
    while waiting:
        node = waiting.pop().node
        if node not in result:
            result.add(node)
            waiting += [source for source in node.inputs if source not in fed]
    return sort_nodes(result, fed)


def _needs_step(node: Node) -> bool:
    """Return True for nodes that are expanded or folded before rules see them."""
    has_default = node.role is Role.PLACEHOLDER and bool(node.inputs)
    is_expanded = node.role is Role.CALL or node.role in _ROUTING
    return has_default or is_expanded or is_partitioned_lookup(node)


def _follows_update(node: Node) -> bool:
    """Return True if a node reads a variable after an update, which ONNX cannot express."""
    read = {source.node for source in node.inputs if source.node.role is Role.VARIABLE}
    return bool(read and node.controls) and any(
        item.traits.state is State.WRITES and item.inputs and item.inputs[0].node in read
        for item in reachable(node.controls)
    )


def _reader(variable: Node) -> Output:
    """Return the tensor with a variable's value.

    Raises: NotFoundError: the graph has no such tensor.
    """
    output = variable.outputs[0]
    if output.dtype.is_ref:
        return output
    for user in output.consumers():
        if user.role is Role.READ:
            return user.outputs[0]
    raise errors.NotFoundError(f"the graph has no node that reads the variable {variable.name!r}")


# --------------------------------------------------------------------------- the message


def _name_all(nodes: Sequence[ExportedNode], used_names: Iterable[str]) -> list[Value]:
    """Give all values unique names; return the constants among them."""
    ends = set(used_names)
    used = set(ends)
    visited: set[Value] = set()
    constants: list[Value] = []
    for node, value in _values(nodes):
        if value in visited:
            continue
        visited.add(value)
        if value.name in ends:
            continue
        kind = node.op if value.array is None else "constant"
        value.name = _unused_name(value.name or f"{node.name}/{kind}", used)
        used.add(value.name)
        if value.array is not None:
            constants.append(value)
    return constants


def _values(nodes: Iterable[ExportedNode]) -> Iterator[tuple[ExportedNode, Value]]:
    """Yield the values of nodes and of their subgraphs, each with its node."""
    for node in nodes:
        for graph in node.subgraphs():
            yield from ((node, value) for value in graph.inputs)
            yield from _values(graph.nodes)
        yield from ((node, value) for value in (*node.inputs, *node.outputs) if value is not None)


def _unused_name(name: str, used: set[str]) -> str:
    if name not in used:
        return name
    return next(result for result in _number_tags(name) if result not in used)


def _number_tags(name: str) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{name}_{number}"


def _info(name: str, output: Output, names: Mapping[int, str] | None) -> ValueInfoProto:
    """Return the type of an input, or of a result if `names` for unknown sizes is None."""
    dims: list[int | str | None] | None = None
    if output.dims is not None:
        dims = list(output.dims)
        for axis, size in enumerate(dims):
            if size is None and names is not None:
                dims[axis] = names.get(axis, f"{name}_{axis}")
    return helper.make_tensor_value_info(name, onnx_type(output.dtype), dims)


def _describe(model: ModelProto, metadata: Mapping[str, str]) -> None:
    properties = dict(metadata)
    for key in _OF_THE_MODEL:
        if key in properties:
            setattr(model, key, properties.pop(key))
    if "model_version" in properties:
        model.model_version = int(properties.pop("model_version"))
    helper.set_model_props(model, properties)


def _check(model: ModelProto | str | bytes) -> None:
    """Raise UnimplementedError if a model is invalid for its opset."""
    try:
        checker.check_model(model)
    except checker.ValidationError as error:
        raise errors.UnimplementedError(f"ONNX cannot express the model: {error}") from error


def _check_ranks(model: ModelProto) -> None:
    """Raise UnimplementedError if a rank that ONNX requires is unknown."""
    ends = (*model.graph.input, *model.graph.output)
    if open_ones := [item.name for item in ends if not item.type.tensor_type.HasField("shape")]:
        raise errors.UnimplementedError(
            f"ONNX requires the ranks of inputs and outputs, but those of {open_ones} are "
            "unknown; set them with set_shape"
        )


def _infer(model: ModelProto) -> ModelProto:
    """Return the model with inferred shapes of its values."""
    check_types = is_strict = propagates_values = True
    try:
        return shape_inference.infer_shapes(model, check_types, is_strict, propagates_values)
    except shape_inference.InferenceError as error:
        raise errors.UnimplementedError(f"ONNX cannot express the model: {error}") from error
