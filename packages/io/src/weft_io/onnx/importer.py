"""From an ONNX model to nodes of the default graph."""

from __future__ import annotations

__all__ = ["ImportedModel", "import_model"]

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

from weft_graph.ir.builder import constant_of, convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.gc_pause import paused_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.array import placeholder
from weft_graph.ops.identity import identity
from weft_graph.variables.base import Variable
from weft_io.onnx import functions
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.model import all_nodes, opsets, plain_domain, read, subgraphs
from weft_io.onnx.operation import Operation
from weft_io.onnx.registry import ImportRule, import_rule, is_elementwise
from weft_io.onnx.transpositions import Transpositions
from weft_io.onnx.values import Values, type_and_shape
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

_MOST_NODES: Final = 1_000_000
"""Nodes that functions which call functions may unfold to."""

_BROADCASTS: Final = 7
"""The first version whose ops broadcast as NumPy's do."""

_DEEPEST: Final = 50
"""Calls of functions in functions, each of which takes some of Python's stack."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.\-/]+")

_STATISTICS: Final = {"BatchNormalization": (3, 4)}
"""Inputs that training does not change by gradients."""

_PARAMETERS: Final = frozenset(
    """Clip DequantizeLinear Dropout NonMaxSuppression OneHot Pad QLinearConv QLinearMatMul
    QuantizeLinear Range Resize TopK Upsample""".split()  # noqa: SIM905  # a table to be read
)
"""Ops whose inputs after the first are no weights."""


@dataclass(frozen=True)
class ImportedModel:
    """What `import_model` added to a graph, as attributes.

    Args:
      graph: where it was added.
      inputs: by ONNX's names, placeholders or what was given in their place.
      outputs: by ONNX's names.
      variables: weights that can be trained, by ONNX's names.
      metadata: what the model says of itself: producer, description, version, properties.

    Examples:
      >>> from onnx import helper
      >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
      >>> model = wf.onnx.import_model(helper.make_model(graph, producer_name="me"))
      >>> list(model.inputs), list(model.outputs), model.metadata
      (['x'], ['y'], {'producer_name': 'me'})
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    variables: dict[str, Variable] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def import_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    trainable: bool = False,
    name: str | None = None,
) -> ImportedModel:
    """Add an ONNX model to the default graph.

    Args:
      model: path, bytes or ModelProto. Data outside the file must be in its folder.
      inputs: tensors in place of some inputs, by ONNX's names; placeholders are made for the rest.
      trainable: make variables of floating-point weights, not constants.
      name: of the scope of its nodes.
    Raises:
      NotFoundError: there is no such file.
      InvalidArgumentError: the file is damaged, or an op was given what it does not take.
      UnimplementedError: the model has ops that weft lacks; the message lists all of them.

    Examples:
      >>> from onnx import helper
      >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
      >>> model = wf.onnx.import_model(helper.make_model(graph))
      >>> with wf.Session() as session:
      ...     session.run(model.outputs["y"], {model.inputs["x"]: [-1.0, 2.0]})
      array([0., 2.], dtype=float32)
    """
    message, folder = read(model)
    with paused_gc(), name_scope(name or _plain(message.graph.name) or "onnx"):
        return _Import(message, folder, trainable).run(inputs or {})


class _Import:
    """One call of `import_model`."""

    def __init__(self, model: ModelProto, folder: Path | None, trainable: bool) -> None:
        self.model = model
        self.values = Values(folder)
        self.trainable = trainable
        self.variables: dict[str, Variable] = {}
        self.functions = {(plain_domain(each.domain), each.name): each for each in model.functions}
        self.left = _MOST_NODES
        self.calls: list[tuple[str, str]] = []
        self.kinds: dict[Output, TypeProto] = {}

    def run(self, given: Mapping[str, Any]) -> ImportedModel:
        """Add the model."""
        graph = self.model.graph
        versions = opsets(self.model.opset_import, "the model") or {"": 1}
        _refuse_unknown(self.model)
        self._weigh()
        scope = Scope(self, None, versions)
        weights = {each.name for each in graph.initializer}
        weights |= {each.values.name for each in graph.sparse_initializer}
        wanted = [each for each in graph.input if each.name not in weights]
        if len({each.name for each in wanted}) < len(wanted):
            raise errors.InvalidArgumentError(
                f"the model has two inputs of one name: {[each.name for each in wanted]}"
            )
        if unknown := sorted(set(given) - weights - {each.name for each in graph.input}):
            raise errors.InvalidArgumentError(
                f"the model has inputs {[each.name for each in wanted]}, got {unknown}"
            )
        scope.add_weights(graph, self._trainable_names(graph), skip=given)
        inputs = {each.name: self._input(each, given.get(each.name)) for each in wanted}
        inputs.update({key: convert_to_tensor(given[key]) for key in given if key in weights})
        scope.known.update(inputs)
        scope.add_nodes(graph.node)
        outputs = {}
        for each in graph.output:
            found = scope.find(each.name, "the model's output")
            outputs[each.name] = identity(found, name=_plain(each.name) or None)
        return ImportedModel(
            get_default_graph(), inputs, outputs, self.variables, _metadata(self.model)
        )

    def _input(self, info: ValueInfoProto, given: Any) -> Output:
        dtype, dims = type_and_shape(info.type)
        if given is not None:
            found = convert_to_tensor(given, dtype=dtype)
        else:
            found = placeholder(dtype, dims, name=_plain(info.name) or None)
        if dtype is dtypes.variant:
            self.kinds[found] = info.type
        return found

    def _trainable_names(self, graph: GraphProto) -> set[str]:
        """The weights that become variables, statistics among them."""
        if not self.trainable:
            return set()
        parameters = {
            name
            for node in all_nodes(graph)
            if node.op_type in _PARAMETERS
            for name in node.input[1:]
        }
        return {each.name for each in graph.initializer} - parameters

    def statistics(self) -> set[str]:
        """The weights that gradients do not change."""
        return {
            node.input[index]
            for node in all_nodes(self.model.graph)
            for index in _STATISTICS.get(node.op_type, ())
            if index < len(node.input)
        }

    # --------------------------------------------------------------------- functions

    def _weigh(self) -> None:
        """Raise ResourceExhaustedError where functions unfold to too much, before they do."""
        sizes: dict[tuple[str, str], int] = {}

        def size(nodes: Iterable[NodeProto], depth: int) -> int:
            total = 0
            for node in nodes:
                total += 1 + sum(size(graph.node, depth) for graph in subgraphs(node))
                key = plain_domain(node.domain), node.op_type
                if key in self.functions and depth <= _DEEPEST:
                    if key not in sizes:
                        sizes[key] = 0  # of one that calls itself, which is refused by its name
                        sizes[key] = size(self.functions[key].node, depth + 1)
                    total += sizes[key]
            return total

        if size(self.model.graph.node, 0) > _MOST_NODES:
            raise _too_many()

    def enter(self, domain: str, op: str) -> None:
        """Begin to add a function's nodes.

        Raises: InvalidArgumentError: it calls itself.
        """
        if (domain, op) in self.calls:
            raise errors.InvalidArgumentError(f"the function {op!r} calls itself")
        if len(self.calls) == _DEEPEST:
            raise errors.ResourceExhaustedError(f"functions call others {_DEEPEST} deep: {op!r}")
        self.calls.append((domain, op))

    def count(self) -> None:
        """Count one more node.

        Raises: ResourceExhaustedError: there are too many.
        """
        self.left -= 1
        if self.left < 0:
            raise _too_many()


def _too_many() -> errors.ResourceExhaustedError:
    return errors.ResourceExhaustedError(
        f"the model's functions unfold to more than {_MOST_NODES} nodes"
    )


# --------------------------------------------------------------------------- unknown ops


def unknown_ops(model: ModelProto) -> dict[str, list[str]]:
    """The ops that there is no rule for, with the names of their nodes."""
    local = {(plain_domain(each.domain), each.name) for each in model.functions}
    bodies = [(list(all_nodes(model.graph)), opsets(model.opset_import, "the model"))]
    for each in model.functions:
        nodes = list(each.node)
        for node in each.node:
            for graph in subgraphs(node):
                nodes += all_nodes(graph)
        bodies.append((nodes, opsets(each.opset_import, f"function {each.name!r}")))
    places: dict[str, list[str]] = {}
    for nodes, versions in bodies:
        for node in nodes:
            domain, op = plain_domain(node.domain), node.op_type
            if (domain, op) in local or import_rule(domain, op) is not None:
                continue
            if not functions.is_defined(domain, op, versions.get(domain, 1)):
                name = f"{domain}.{op}" if domain else op
                places.setdefault(name, []).append(node.name or ", ".join(node.output))
    return places


def _refuse_unknown(model: ModelProto) -> None:
    """Raise UnimplementedError with all ops that there is no rule for."""
    if places := unknown_ops(model):
        raise errors.UnimplementedError(
            "the model has ops that are not known: "
            + "; ".join(f"{op} ({_some(names)})" for op, names in sorted(places.items()))
        )


# ------------------------------------------------------------------------------- scopes


class Scope:
    """Names of values in a graph, its subgraphs and functions, and what they stand for.

    Attributes:
      known: outputs by name; None for an optional result that is left out.
      axes: which of them are transpositions of others.
    """

    def __init__(
        self,
        run: _Import,
        around: Scope | None,
        versions: Mapping[str, int],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._run = run
        self._around = around
        self._versions = versions
        self._attributes = attributes or {}
        self._weights: dict[str, Any] = {}
        self.known: dict[str, Output | None] = {}
        self.axes: Transpositions = Transpositions(None if around is None else around.axes)

    # ------------------------------------------------------------------------- names

    def find(self, name: str, user: str) -> Output:
        """What a name stands for.

        Raises: InvalidArgumentError: nothing before has this name.
        """
        found = self._look_up(name, user)
        if found is None:
            raise errors.InvalidArgumentError(f"{user} {name!r} was left out")
        return found

    def _look_up(self, name: str, user: str) -> Output | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.known:
                return scope.known[name]
            if name in scope._weights:
                scope.known[name] = value = scope._constant(name)
                return value
            scope = scope._around
        raise errors.InvalidArgumentError(f"{user} {name!r} is made by no node before it")

    def _constant(self, name: str) -> Output:
        """A weight, which becomes a node when it is first used."""
        weight = self._weights.pop(name)
        if isinstance(weight, onnx.SparseTensorProto):
            array = self._run.values.sparse(weight)
        else:
            array = self._run.values.array(weight)
        with get_default_graph().control_dependencies(None):
            return constant_of(array, name=_plain(name) or "Const")

    def add_weights(self, graph: GraphProto, variables: set[str], skip: Mapping[str, Any]) -> None:
        """Note the weights of a graph, and make variables of some.

        Raises: InvalidArgumentError: two have one name.
        """
        frozen = self._run.statistics() if variables else set()
        for each in graph.initializer:
            self._note(each.name, each)
            if each.name in variables and each.name not in skip:
                array = self._run.values.array(each)
                if dtypes.from_numpy(array.dtype).is_floating and array.ndim:
                    weight = Variable(
                        array, each.name not in frozen, name=_plain(each.name) or "Variable"
                    )
                    self._run.variables[each.name] = weight
                    self.known[each.name] = convert_to_tensor(weight)
        for sparse in graph.sparse_initializer:
            self._note(sparse.values.name, sparse)

    def _note(self, name: str, weight: Any) -> None:
        if not name or name in self._weights:
            raise errors.InvalidArgumentError(f"two weights have the name {name!r}")
        self._weights[name] = weight

    # ------------------------------------------------------------------------- nodes

    def add_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Add nodes in their order.

        Raises: OpError: one cannot be added; the message names it.
        """
        for node in nodes:
            self._run.count()
            try:
                self._add(node)
            except errors.OpError as error:
                raise _placed(error, node) from error
            except MemoryError as error:
                raise _placed(errors.ResourceExhaustedError(str(error)), node) from error
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # because rules compute with numbers of the file, which may contradict each other
                found = errors.InvalidArgumentError(f"its attributes do not fit: {error}")
                raise _placed(found, node) from error

    def _add(self, node: NodeProto) -> None:
        domain, op = plain_domain(node.domain), node.op_type
        inputs = [self._look_up(name, "input") if name else None for name in node.input]
        attributes = self._read_attributes(node)
        with name_scope(_plain(node.name) or op):
            results = self._results(domain, node, inputs, attributes)
        if len(results) < len(node.output):
            results = [*results, *[None] * (len(node.output) - len(results))]
        for name, result in zip(node.output, results, strict=False):
            if not name:
                continue
            if name in self.known or name in self._weights:
                raise errors.InvalidArgumentError(f"two values have the name {name!r}")
            self.known[name] = result

    def _results(
        self,
        domain: str,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: dict[str, Any],
    ) -> Sequence[Output | None]:
        local = self._run.functions.get((domain, node.op_type))
        if local is not None:
            return self._call(local, node, inputs, attributes)
        version = self._versions.get(domain, 1)
        rule = import_rule(domain, node.op_type)
        if rule is None:
            types = [TypeProto() if each is None else self.type_of(each) for each in inputs]
            body = functions.body(node, domain, version, types, attributes)
            return self._call(body, node, inputs, attributes)
        return self._ruled(rule, domain, node, inputs, attributes)

    def _ruled(
        self,
        rule: ImportRule,
        domain: str,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: dict[str, Any],
    ) -> Sequence[Output | None]:
        version = self._versions.get(domain, 1)
        given = {**functions.defaults(domain, node.op_type, version), **attributes}
        named = [index + 1 for index, name in enumerate(node.output) if name]
        before = None
        if is_elementwise(domain, node.op_type) and version >= _BROADCASTS:
            before = self.axes.before(inputs)
        operation = Operation(
            node.op_type,
            version,
            inputs if before is None else before[0],
            given,
            max(named, default=0),
            self,
        )
        found = rule(operation)
        results = [found] if isinstance(found, Output) else list(found)
        if before is not None:
            order = before[1]
            results = [
                None if each is None else self.axes.transposed(each, order) for each in results
            ]
        for each in results:
            self._pass_kind(each, inputs)
        return results

    # ------------------------------------------------------------------------- types

    def type_of(self, value: Output) -> TypeProto:
        """ONNX's type of a value; no type where nothing says what a sequence is made of."""
        if value.dtype is dtypes.variant:
            return self._run.kinds.get(value, TypeProto())
        return onnx.helper.make_tensor_type_proto(onnx_type(value.dtype), value.dims)

    def note_type(self, value: Output, kind: TypeProto) -> None:
        """Note what a sequence or an optional value is made of."""
        self._run.kinds[value] = kind

    def _pass_kind(self, result: Output | None, inputs: Sequence[Output | None]) -> None:
        """Take what is handed on, such as by Identity, for what it was."""
        if result is None or result.dtype is not dtypes.variant or result in self._run.kinds:
            return
        for each in inputs:
            if each is not None and each in self._run.kinds:
                self._run.kinds[result] = self._run.kinds[each]
                return

    def _read_attributes(self, node: NodeProto) -> dict[str, Any]:
        """Attributes by name; those of the function around it in the place of references."""
        found = {}
        for each in node.attribute:
            if not each.ref_attr_name:
                found[each.name] = self._run.values.attribute(each)
            elif each.ref_attr_name in self._attributes:
                found[each.name] = self._attributes[each.ref_attr_name]
        return found

    def _call(
        self,
        function: FunctionProto,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: Mapping[str, Any],
    ) -> list[Output | None]:
        """Add a function's nodes; its results are looked for as far as the node names them."""
        if len(inputs) > len(function.input):
            raise errors.InvalidArgumentError(
                f"{function.name} takes {len(function.input)} inputs, got {len(inputs)}"
            )
        defaults = {a.name: self._run.values.attribute(a) for a in function.attribute_proto}
        versions = opsets(function.opset_import, f"function {function.name!r}")
        scope = Scope(self._run, None, versions, {**defaults, **attributes})
        scope.known.update(dict.fromkeys(function.input))
        scope.known.update(zip(function.input, inputs, strict=False))
        self._run.enter(plain_domain(function.domain), function.name)
        scope.add_nodes(function.node)
        self._run.calls.pop()
        return [
            scope._look_up(name, "the function's result") if wanted else None
            for name, wanted in zip(function.output, node.output, strict=False)
        ]

    # --------------------------------------------------------------------- subgraphs

    def inner(self, graph: GraphProto, inputs: Sequence[Any]) -> list[Output]:
        """Add a subgraph's nodes, which see the values of this scope.

        Raises: InvalidArgumentError: it takes another number of inputs.
        """
        weights = {each.name for each in graph.initializer}
        names = [each.name for each in graph.input if each.name not in weights]
        if len(names) != len(inputs):
            raise errors.InvalidArgumentError(
                f"the graph {graph.name!r} takes {len(names)} inputs, got {len(inputs)}"
            )
        scope = Scope(self._run, self, self._versions, self._attributes)
        scope.add_weights(graph, set(), {})
        scope.known.update(zip(names, inputs, strict=True))
        scope.add_nodes(graph.node)
        return [scope.find(each.name, "the result") for each in graph.output]

    def declared(self, info: ValueInfoProto) -> tuple[DType | None, list[int | None] | None]:
        """The type and shape that a value is said to have, None for what is not said."""
        if not info.HasField("type") or info.type == TypeProto():
            return None, None
        return type_and_shape(info.type)


def _plain(name: str) -> str:
    """An ONNX name as one of a node."""
    return _NOT_IN_NAMES.sub("_", name).lstrip("_/-")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(each) for each in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _placed(error: errors.OpError, node: NodeProto) -> errors.OpError:
    """The same error, which names the ONNX node; the innermost one where they are nested."""
    if "onnx_node" not in error.details:
        name = node.name or ", ".join(node.output)
        error.details["onnx_node"] = name
        error.message = f"ONNX node {name!r} ({node.op_type}): {error.message}"
        error.args = (error.message,)
    return error


def _metadata(model: ModelProto) -> dict[str, str]:
    found = {each.key: each.value for each in model.metadata_props}
    for key in ("producer_name", "producer_version", "domain", "doc_string"):
        if value := getattr(model, key):
            found.setdefault(key, value)
    if model.model_version:
        found.setdefault("model_version", str(model.model_version))
    return found
