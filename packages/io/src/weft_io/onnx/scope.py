"""Scopes: the values of names in a model, and the translation of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto

from weft_graph.ir.builder import constant_of, convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.variables.base import Variable
from weft_io.onnx import functions
from weft_io.onnx.context import ImportContext
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.model import add_location, normalize_domain, opsets, subgraphs
from weft_io.onnx.operation import Operation
from weft_io.onnx.registry import ImportRule, import_rule, is_elementwise
from weft_io.onnx.transpositions import Transpositions
from weft_tensor import dtypes, errors
from weft_tensor.shape import num_elements

_BROADCASTS: Final = 7
"""The first version whose ops broadcast as in NumPy."""

_ADDRESSES: Final = 1 << 47
"""The largest number of bytes that a process can address."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.\-/]+")


class Scope:
    """The values of names in a graph, its subgraphs and functions.

    Attributes:
      known: outputs by name; None for an omitted optional result.
      axes: the record of outputs that are transpositions of others.
    """

    def __init__(
        self,
        context: ImportContext,
        outer: Scope | None,
        versions: Mapping[str, int],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._context = context
        self._outer = outer
        self._versions = versions
        self._attributes = attributes or {}
        self._weights: dict[str, Any] = {}
        self._not_given: dict[str, NodeProto] = {}
        self.known: dict[str, Output | None] = {}
        self.axes: Transpositions = Transpositions(None if outer is None else outer.axes)

    # ------------------------------------------------------------------------- names

    def find(self, name: str, user: str) -> Output:
        """Return the output with a name.

        Raises: InvalidArgumentError: no earlier node defines the name.
        """
        result = self._look_up(name, user)
        if result is None:
            raise errors.InvalidArgumentError(f"{user} {name!r} is an omitted optional output")
        return result

    def _look_up(self, name: str, user: str) -> Output | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.known:
                if name in scope._not_given:
                    expected_name = (
                        f"{user} {name!r} is a result that is left out with these attributes"
                    )
                    raise add_location(
                        errors.InvalidArgumentError(expected_name), scope._not_given[name]
                    )
                return scope.known[name]
            if name in scope._weights:
                scope.known[name] = value = scope._constant(name)
                return value
            scope = scope._outer
        raise errors.InvalidArgumentError(f"{user} {name!r} is not produced by an earlier node")

    def _constant(self, name: str) -> Output:
        """Return a weight, which becomes a constant node at its first use."""
        weight = self._weights.pop(name)
        if isinstance(weight, onnx.SparseTensorProto):
            array = self._context.values.sparse(weight)
        elif isinstance(weight, np.ndarray):
            array = weight
        else:
            array = self._context.values.array(weight)
        with get_default_graph().control_dependencies(None):
            return constant_of(array, name=to_node_name(name) or "Const")

    def add_weights(self, graph: GraphProto) -> None:
        """Record the weights of a graph.

        Raises: InvalidArgumentError: two weights have the same name.
        """
        for item in graph.initializer:
            self._note(item.name, item)
        for sparse in graph.sparse_initializer:
            self._note(sparse.values.name, sparse)

    def add_variables(self, weights: Mapping[str, TensorProto]) -> None:
        """Create variables for the trainable weights."""
        for key, tensor in weights.items():
            array = self._context.values.array(tensor)
            if dtypes.from_numpy(array.dtype).is_floating and array.ndim:
                trains = key not in self._context.frozen
                weight = Variable(array, trains, name=to_node_name(key) or "Variable")
                self._context.variables[key] = weight
                self.known[key] = convert_to_tensor(weight)

    def add_arrays(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Add weights derived from those of the graph."""
        for name, array in weights.items():
            self._note(name, array)

    def _note(self, name: str, weight: Any) -> None:
        if not name or name in self._weights:
            raise errors.InvalidArgumentError(f"several weights have the name {name!r}")
        self._weights[name] = weight

    # ------------------------------------------------------------------------- nodes

    def add_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Add nodes in order.

        Raises: OpError: a node cannot be added; the message names it.
        """
        for node in nodes:
            try:
                self._context.limits.count_node()
                self._add(node)
            except errors.OpError as error:
                raise add_location(error, node) from error
            except MemoryError as error:
                raise add_location(errors.ResourceExhaustedError(str(error)), node) from error
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                # because rules compute with numbers of the file, which may contradict each other
                result = errors.InvalidArgumentError(f"its attributes are invalid: {error}")
                raise add_location(result, node) from error

    def add_main_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Add the nodes of the main graph in order, and record those that are not supported.

        Nodes that depend on unsupported nodes are skipped.

        Raises: OpError: a node cannot be added for another reason; the message names it.
        """
        missing: set[str] = set()
        for node in nodes:
            if missing and not missing.isdisjoint(_used_names(node)):
                missing.update(filter(None, node.output))
                continue
            try:
                self.add_nodes((node,))
            except errors.UnimplementedError as error:
                self._context.refusals.append(error)
                missing.update(filter(None, node.output))

    def _add(self, node: NodeProto) -> None:
        domain, op = normalize_domain(node.domain), node.op_type
        inputs = [self._look_up(name, "input") if name else None for name in node.input]
        attributes = self._read_attributes(node)
        with get_default_graph().name_scope(to_node_name(node.name) or op):
            results = self._results(domain, node, inputs, attributes)
        if len(results) < len(node.output):
            results = [*results, *[None] * (len(node.output) - len(results))]
        for name, result in zip(node.output, results, strict=False):
            if not name:
                continue
            if name in self.known or name in self._weights:
                raise errors.InvalidArgumentError(f"several values have the name {name!r}")
            self.known[name] = result
            if result is None:
                self._not_given[name] = node

    def _results(
        self,
        domain: str,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: dict[str, Any],
    ) -> Sequence[Output | None]:
        local = self._context.survey.functions.get((domain, node.op_type))
        if local is not None:
            return self._call(local, node, inputs, attributes)
        version = self._versions.get(domain, 1)
        rule = import_rule(domain, node.op_type)
        if rule is None and not functions.is_defined(domain, node.op_type, version):
            op = f"{domain}.{node.op_type}" if domain else node.op_type
            raise errors.UnimplementedError(f"{op} is an unknown op", details={"unknown_op": op})
        if rule is None:
            types = [TypeProto() if item is None else self.type_of(item) for item in inputs]
            body = functions.body(node, domain, version, types, attributes)
            return self._call(body, node, inputs, attributes)
        return self._apply_rule(rule, domain, node, inputs, attributes)

    def _apply_rule(
        self,
        rule: ImportRule,
        domain: str,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: dict[str, Any],
    ) -> Sequence[Output | None]:
        version = self._versions.get(domain, 1)
        if domain in self._versions:  # bodies of ONNX's own functions need not say
            functions.check_types(domain, node.op_type, version, attributes)
        all_attributes = {**functions.defaults(domain, node.op_type, version), **attributes}
        named = [index + 1 for index, name in enumerate(node.output) if name]
        untransposed = None
        if is_elementwise(domain, node.op_type) and version >= _BROADCASTS:
            untransposed = self.axes.find_untransposed(inputs)
        operation = Operation(
            node.op_type,
            version,
            inputs if untransposed is None else untransposed[0],
            all_attributes,
            max(named, default=0),
            self,
        )
        result = rule(operation)
        results = [result] if isinstance(result, Output) else list(result)
        if untransposed is not None:
            order = untransposed[1]
            results = [
                None if item is None else self.axes.transposed(item, order) for item in results
            ]
        for item in results:
            _check_size(item)
            self._pass_kind(item, inputs)
        return results

    def apply(
        self,
        user: str,
        op: str,
        inputs: Sequence[Output | None],
        version: int,
        attributes: Mapping[str, Any],
    ) -> Output:
        """Apply the rule of a standard op and return its first result.

        Args:
          user: the op whose rule calls this.
        Raises: InvalidArgumentError: the op has no rule.
        """
        rule = import_rule("", op)
        if rule is None:
            raise errors.InvalidArgumentError(f"{user} cannot contain {op!r}")
        functions.check_types("", op, version, attributes)
        all_attributes = {**functions.defaults("", op, version), **attributes}
        results = rule(Operation(op, version, inputs, all_attributes, 1, self))
        first = results if isinstance(results, Output) else results[0]
        assert first is not None, "the first result is never left out"
        return first

    # ------------------------------------------------------------------------- types

    def type_of(self, value: Output) -> TypeProto:
        """Return ONNX's type of a value; an empty type for a sequence of unknown elements."""
        if value.dtype is dtypes.variant:
            return self._context.kinds.get(value, TypeProto())
        return onnx.helper.make_tensor_type_proto(onnx_type(value.dtype), value.dims)

    @property
    def floats(self) -> dict[Output, Output]:
        """The integers that were computed in floats, mapped to these floats."""
        return self._context.floats

    def note_type(self, value: Output, kind: TypeProto) -> None:
        """Record the type of a sequence or optional value."""
        self._context.kinds[value] = kind

    def _pass_kind(self, result: Output | None, inputs: Sequence[Output | None]) -> None:
        """Record that a result, such as Identity's, has the type of its input."""
        if result is None or result.dtype is not dtypes.variant or result in self._context.kinds:
            return
        for item in inputs:
            if item is not None and item in self._context.kinds:
                self._context.kinds[result] = self._context.kinds[item]
                return

    def _read_attributes(self, node: NodeProto) -> dict[str, Any]:
        """Return attributes by name, with references replaced by the enclosing function's."""
        result = {}
        for item in node.attribute:
            if not item.ref_attr_name:
                result[item.name] = self._context.values.attribute(item)
            elif item.ref_attr_name in self._attributes:
                result[item.name] = self._attributes[item.ref_attr_name]
        return result

    def _call(
        self,
        function: FunctionProto,
        node: NodeProto,
        inputs: Sequence[Output | None],
        attributes: Mapping[str, Any],
    ) -> list[Output | None]:
        """Add a function's nodes, and return one result for each name in the node."""
        if len(inputs) > len(function.input):
            raise errors.InvalidArgumentError(
                f"{function.name} takes {len(function.input)} inputs, got {len(inputs)}"
            )
        defaults = {a.name: self._context.values.attribute(a) for a in function.attribute_proto}
        versions = opsets(function.opset_import, f"function {function.name!r}")
        scope = Scope(self._context, None, versions, {**defaults, **attributes})
        scope.axes = self.axes  # its nodes are in the same graph
        scope.known.update(dict.fromkeys(function.input))
        scope.known.update(zip(function.input, inputs, strict=False))
        self._context.limits.enter((normalize_domain(function.domain), function.name))
        scope.add_nodes(function.node)
        self._context.limits.leave()
        return [
            scope._look_up(name, "the function's result") if expected_name else None
            for name, expected_name in zip(function.output, node.output, strict=False)
        ]

    # --------------------------------------------------------------------- subgraphs

    def inner(self, graph: GraphProto, inputs: Sequence[Any]) -> list[Output]:
        """Add a subgraph's nodes, which can use the values of this scope.

        Raises: InvalidArgumentError: the number of its inputs differs.
        """
        weights = {item.name for item in graph.initializer}
        names = [item.name for item in graph.input if item.name not in weights]
        if len(names) != len(inputs):
            raise errors.InvalidArgumentError(
                f"the graph {graph.name!r} takes {len(names)} inputs, got {len(inputs)}"
            )
        scope = Scope(self._context, self, self._versions, self._attributes)
        scope.add_weights(graph)
        scope.known.update(zip(names, inputs, strict=True))
        scope.add_nodes(graph.node)
        return [scope.find(item.name, "the result") for item in graph.output]


def _used_names(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs use."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _used_names(inner)
        for output in graph.output:
            yield output.name


def _check_size(result: Output | None) -> None:
    """Check that a result fits the address space, before parts of it are built.

    Raises: ResourceExhaustedError: the known sizes exceed the address space.
    """
    count = None if result is None else num_elements(result.dims)
    if result is not None and count is not None and count * result.dtype.size > _ADDRESSES:
        raise errors.ResourceExhaustedError(
            f"its result of shape {list(result.dims or ())} and type {result.dtype.name} takes "
            f"{count * result.dtype.size} bytes, more than the address space"
        )


def to_node_name(name: str) -> str:
    """Convert an ONNX name to a node name."""
    return _NOT_IN_NAMES.sub("_", name).lstrip("_/-")
