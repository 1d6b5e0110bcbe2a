"""The body graph of a function under construction, which captures outer values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from weft_graph.functions.state import is_handle, origin
from weft_graph.ir import builder, thread_stacks
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import ArgDef, OpDef
from weft_graph.ir.scopes import BuildScopes, ControlScope
from weft_graph.ir.traits import Role
from weft_graph.variables import reads
from weft_graph.variables.scope import stores_of
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

_OF_VARIABLES = frozenset(
    {
        GraphKeys.GLOBAL_VARIABLES,
        GraphKeys.LOCAL_VARIABLES,
        GraphKeys.TRAINABLE_VARIABLES,
        GraphKeys.MODEL_VARIABLES,
        GraphKeys.GLOBAL_STEP,
    }
)


class _BodyScopes(BuildScopes):
    """Scopes of a body; nodes lifted out of it are added to the outer graph."""

    def __init__(self, body: FunctionGraph, outer: Graph | None) -> None:
        super().__init__()
        self._body = body
        self._outer = outer
        if outer is not None:
            self.variable_creators = outer.scopes.variable_creators

    @contextmanager
    def leave_contexts(self) -> Iterator[None]:
        """Leave the body, for nodes that are created once instead of once per call.

        Names are formed as inside the body, without the scopes around the function.
        """
        if self._outer is None:
            with super().leave_contexts():
                yield
            return
        self._body.variables_made += 1
        scopes = self._outer.scopes
        saved_prefix, scopes.name_prefix = scopes.name_prefix, self.name_prefix
        try:
            with self._outer.as_default(), scopes.leave_contexts():
                yield
        finally:
            scopes.name_prefix = saved_prefix


class FunctionGraph(Graph):
    """The body of a function.

    Args:
      name: name of the function.
      outer: the enclosing graph, whose values the body may use; None if it was read from a file.
    Attributes:
      inputs: the arguments, followed by one for each captured value.
      captures: mapping from values of the outer graph to their arguments.
      control_captures: nodes of the outer graph that calls must wait for.
      sources: graphs of other functions whose nodes were copied to the body, with the copies.
      instead: reads that were replaced by captured values.
      variables_made: number of variables that were created outside while the body was built.
    """

    def __init__(self, name: str, outer: Graph | None) -> None:
        super().__init__()
        self.name = name
        self.outer = outer
        self.scopes = _BodyScopes(self, outer)
        self.inputs: list[Output] = []
        self.captures: dict[Output, Output] = {}
        self._imported: dict[Output, Output] = {}
        self._snapshots: dict[Output, Output] = {}
        self.instead: dict[Output, Output] = {}
        self.control_captures: dict[Node, None] = {}
        self.sources: dict[Graph, Mapping[Output, Output]] = {}
        self.variables_made = 0
        if outer is not None:
            self._share_with(outer)

    def _share_with(self, outer: Graph) -> None:
        self.seed = outer.seed
        self.functions = outer.functions
        self.variable_stores = stores_of(outer)

    @property
    def outermost(self) -> Graph:
        """The graph that encloses all bodies."""
        graph: Graph = self
        while isinstance(graph, FunctionGraph) and graph.outer is not None:
            graph = graph.outer
        return graph

    def is_inside(self, graph: Graph) -> bool:
        """Return True if `graph` is this body or encloses it."""
        graph_or_outer: Graph | None = self
        while graph_or_outer is not None and graph_or_outer is not graph:
            graph_or_outer = (
                graph_or_outer.outer if isinstance(graph_or_outer, FunctionGraph) else None
            )
        return graph_or_outer is not None

    # ------------------------------------------------------------------ arguments

    def add_input(self, dtype: DType, dims: Dims, name: str) -> Output:
        """Return a new argument."""
        return self._argument("Placeholder", {"dtype": dtype, "shape": dims}, name, dims)

    def add_input_like(self, value: Output, name: str) -> Output:
        """Return a new argument for `value`; variables keep their static information."""
        source = origin(value).node
        if is_handle(value) and source.role is Role.VARIABLE:
            attrs = {key: source.attrs[key] for key in source.op_def.attrs}
            attrs["shared_name"] = attrs["shared_name"] or source.name
            return self._argument(source.type, attrs, name, value.dims)
        return self.add_input(value.dtype.base_dtype, value.dims, name)

    def _argument(self, op: str, attrs: dict[str, Any], name: str, dims: Dims) -> Output:
        with self._without_scopes():
            output = builder.create(op, (), attrs, name).outputs[0]
        output.dims = dims
        self.inputs.append(output)
        return output

    @contextmanager
    def _without_scopes(self) -> Iterator[None]:
        """Create nodes inside the block without any scopes."""
        saved_scopes, self.scopes = self.scopes, _BodyScopes(self, self.outer)
        try:
            with thread_stacks.building_body(self):
                yield
        finally:
            self.scopes = saved_scopes

    def infer_handles(self) -> None:
        """Infer which arguments are handles of variables, and their element types."""
        unknown = {
            value: None
            for value in self.inputs
            if value.dtype is dtypes.resource and value.node.role is Role.PLACEHOLDER
        }
        if not unknown:
            return
        for node in self.nodes:
            dtype = node.attrs.get(node.traits.variable_type)
            if not isinstance(dtype, DType):
                continue
            argument = origin(node.inputs[0])
            if argument in unknown:
                del unknown[argument]
                holder = argument.node
                attrs = {"dtype": dtype, "shape": None, "shared_name": holder.name}
                holder.set_op(lookup_op("VarHandleOp"))
                holder.attrs = {"container": "", **attrs}
                argument.dims = ()

    # ------------------------------------------------------------------ captures

    def capture(self, output: Output) -> Output:
        """Return the argument of the body that captures `output`, created on first use.

        Raises: InvalidArgumentError: `output` is neither in the body nor in an enclosing graph.
        """
        if output.node.graph is self:
            return output
        captured = self._imported.get(output)
        if captured is None:
            captured = self.copy_of(output)
        if captured is None:
            captured = self._capture_outer(output)
        self._imported[output] = captured
        return captured

    def _capture_outer(self, output: Output) -> Output:
        if self._finalized or self.outer is None or not self._can_see(output):
            raise errors.InvalidArgumentError(
                f"{output!r} does not belong to the function {self.name!r} or an enclosing graph"
                f"{_whose(output.node.graph)}"
            )
        capture = self.outer.capture(output)
        variable = reads.reference_of(capture)
        if variable is not None:
            return self._snapshot(capture, variable)
        argument = self.captures.get(capture)
        if argument is None:
            name = capture.name.removesuffix(":0").replace("/", "_").replace(":", "_")
            argument = self.captures[capture] = self.add_input_like(capture, name.lstrip("_"))
        return argument

    def _snapshot(self, output: Output, variable: Output) -> Output:
        """Return a read inside the body of the reference variable behind an outer value."""
        reference = self.capture(variable)
        with self._without_scopes(), self.name_scope(reference.node.name + "/"):
            snapshot = builder.out("Identity", [reference], None, "read")
        self._snapshots[snapshot] = output
        return snapshot

    def take_values(self) -> None:
        """Capture values instead of reference variables for those that the body only reads."""
        for captured, argument in list(self.captures.items()):
            readers = [user.outputs[0] for user in argument.consumers() if user.outputs]
            if not argument.dtype.is_ref or len(readers) != len(argument.consumers()):
                continue
            if not all(reader in self._snapshots for reader in readers):
                continue
            del self.captures[captured]
            self.inputs.remove(argument)
            for reader in readers:
                value = self._snapshots[reader]
                value_input = self.captures.get(value)
                if value_input is None:
                    name = value.name.removesuffix(":0").replace("/", "_").lstrip("_")
                    value_input = self.captures[value] = self.add_input_like(value, name)
                self.replace_uses(reader, value_input, reason="captured value")
                self._imported[value] = self.instead[reader] = value_input

    def _can_see(self, output: Output) -> bool:
        outer = self.outer
        if isinstance(outer, FunctionGraph):
            return outer.is_inside(output.node.graph) or outer.copy_of(output) is not None
        return output.node.graph is outer

    def copy_of(self, output: Output) -> Output | None:
        """Return this body's counterpart of a value that another body captured, or None."""
        for graph, copies in self.sources.items():
            current: Output | None = output
            if isinstance(graph, FunctionGraph) and output.node.graph is not graph:
                current = graph._imported.get(output)
                current = graph.copy_of(output) if current is None else current
            if current is not None and current in copies:
                return copies[current]
        return None

    def capture_inputs(self, op_def: OpDef, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return a new node's inputs with outer outputs and variables replaced by captures."""
        if len(inputs) != len(op_def.inputs):
            return inputs
        return [
            self._import_argument(op_def, arg, value)
            for arg, value in zip(op_def.inputs, inputs, strict=True)
        ]

    def _import_argument(self, op_def: OpDef, arg: ArgDef, value: Any) -> Any:
        if arg.is_list and isinstance(value, list | tuple):
            return [self._import_one(op_def, arg, item) for item in value]
        return self._import_one(op_def, arg, value)

    def _import_one(self, op_def: OpDef, arg: ArgDef, value: Any) -> Any:
        output = builder.output_of(value, arg.is_ref)
        if output is None:
            return value
        inner_value = self.capture(output)
        takes_any = arg.is_ref or op_def.traits.identity or op_def.traits.role is Role.CALL
        if inner_value.dtype.is_ref and not takes_any:
            return builder.out("Identity", [inner_value])
        return inner_value

    # ------------------------------------------------------------------ scopes

    def control_dependencies(
        self, control_inputs: Iterable[Any] | None
    ) -> AbstractContextManager[ControlScope | None]:
        """See the base class; calls wait for nodes of outer graphs."""
        if control_inputs is None:
            return super().control_dependencies(None)
        own_inputs: list[Any] = []
        for item in control_inputs:
            node = _node_of(item)
            if node is None or node.graph is self:
                own_inputs.append(item)
            elif self.is_inside(node.graph):
                self.control_captures[node] = None
            else:
                own_inputs.append(item)
        return super().control_dependencies(own_inputs)

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
        """See the base class; nodes of outer graphs have no static values inside the body."""
        node = _node_of(op)
        if node is not None and node.graph is not self and self.is_inside(node.graph):
            return nullcontext()
        return super().colocate_with(op, ignore_existing)

    # ------------------------------------------------------------------ collections

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """See the base class; adds the outer graph's prefix."""
        collection = [] if self.outer is None else self.outer.get_collection(name, scope)
        return collection + super().get_collection(name, scope)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """See the base class; collections of variables belong to the outer graph."""
        if name in _OF_VARIABLES and self.outer is not None:
            return self.outer.get_collection_ref(name)
        return super().get_collection_ref(name)

    def get_all_collection_keys(self) -> list[Any]:
        """See the base class; includes those of the outer graph."""
        all_collection_keys = [] if self.outer is None else self.outer.get_all_collection_keys()
        return list(dict.fromkeys([*all_collection_keys, *super().get_all_collection_keys()]))

    # ------------------------------------------------------------------ nodes

    def add_node(self, *args: Any, **kwargs: Any) -> Node:
        """See the base class.

        Raises: FailedPreconditionError: the function is finished.
        """
        if self._finalized:
            raise errors.FailedPreconditionError(
                f"the function {self.name!r} is finished, so its tensors cannot be used outside "
                "of it; return them from the function"
            )
        return super().add_node(*args, **kwargs)


def _node_of(item: Any) -> Node | None:
    node = getattr(item, "op", item)
    return node if isinstance(node, Node) else None


def _whose(graph: Graph) -> str:
    if isinstance(graph, FunctionGraph):
        return f": it belongs to the function {graph.name!r}; return it from there"
    return ""


def is_variable(output: Output) -> bool:
    """Return True if an argument is a variable's reference or handle."""
    return output.dtype.is_ref or (
        output.dtype is dtypes.resource and output.node.role is Role.VARIABLE
    )
