"""The graph: nodes by name, scopes that apply to new nodes, collections, and edits.

A graph only grows while programs build it. The edits at the end of the class are for passes, which
edit their own graphs. Nodes that a session already runs cannot be edited.
"""

from __future__ import annotations

__all__ = ["Graph"]

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import CodeType
from typing import Any

from weft_graph.ir import thread_stacks
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.edits import Edits
from weft_graph.ir.library import Library
from weft_graph.ir.message_conversions import readers, to_message
from weft_graph.ir.node import Context, Node, Output
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.origins import Origins
from weft_graph.ir.scopes import BuildScopes, ControlScope, check_inputs, check_scope_name
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.shape import Dims

DeviceRequest = str | DeviceSpec | Callable[[Node], Any] | None


class Graph(Edits):
    """A dataflow graph.

    Attributes:
      nodes: all nodes in the order of construction; append-only for callers.
      scopes: name, device, control and colocation scopes of the thread that is building.
      seed: the graph-level random seed, or None.
      functions: the library of named subgraphs.
      contexts: the branches and loops, by name, outer ones first.
      has_contexts: True if a node is in a branch or a loop.
      variable_stores: the variables of get_variable, and its scopes; used by weft_graph.variables.
      variable_updates: cache of the nodes that update variables; used by weft_graph.variables.
      variable_slices: the variables of slices; used by weft_graph.variables.
      versions: producer and consumer versions required by imported graphs, or None.
      origins: what nodes that passes have added or merged stand for.
      gradient_functions: gradients that belong to the graph, by the name that nodes refer to; used
        by weft_autodiff.

    Examples:
      >>> graph = wf.Graph()
      >>> with graph.as_default():
      ...     total = wf.add(1, 2, name="total")
      >>> [node.name for node in graph.get_operations()]
      ['total/x', 'total/y', 'total']
      >>> graph.get_tensor_by_name("total:0") is total
      True
    """

    def __init__(self) -> None:
        super().__init__()
        self.scopes = BuildScopes()
        self.seed: int | None = None
        self.functions = Library()
        self.origins = Origins()
        self.gradient_functions: dict[str, Any] = {}
        self.variable_stores: Any = None
        self.variable_updates: Any = None
        self.variable_slices: dict[Output, Any] = {}
        self._names: dict[str, int] = {}
        self._unfeedable: set[Output] = set()
        self._lock = threading.RLock()
        self._finalized = False
        self.versions: tuple[int, int] | None = None
        self.contexts: dict[str, Context] = {}
        self.has_contexts = False
        self._open: list[int] = []

    # ------------------------------------------------------------------ nodes

    @property
    def version(self) -> int:
        """A number that increases with every new node."""
        return len(self.nodes)

    @property
    def complete(self) -> int:
        """The number of complete nodes; a session runs only these."""
        with self._lock:
            return min([len(self.nodes), *self._open])

    @contextmanager
    def under_construction(self) -> Iterator[None]:
        """Hide nodes created inside the block from sessions until the block ends.

        A loop is incomplete until its back edges are added, and adding them edits nodes.
        """
        with self._lock:
            start = len(self.nodes)
            self._open.append(start)
        try:
            yield
        finally:
            with self._lock:
                self._open.remove(start)

    @contextmanager
    def undo_on_error(self, reason: str) -> Iterator[None]:
        """Remove the nodes, names and contexts that the block adds if it raises.

        Args:
          reason: for the error if a session already runs one of the nodes.
        """
        count, names, contexts = len(self.nodes), dict(self._names), dict(self.contexts)
        is_complete = False
        try:
            yield
            is_complete = True
        finally:
            if not is_complete:
                self.remove_nodes(self.nodes[count:], reason=reason)
                self._names, self.contexts = names, contexts

    @property
    def finalized(self) -> bool:
        """True if no more nodes may be added."""
        return self._finalized

    def finalize(self) -> None:
        """Forbid adding further nodes."""
        self._finalized = True

    def unfinalize(self) -> None:
        """Allow adding nodes again after `finalize`."""
        self._finalized = False

    def add_node(
        self,
        op_def: OpDef,
        name: str,
        inputs: tuple[Output, ...],
        attrs: dict[str, Any],
        types: Sequence[DType],
        shapes: Sequence[Dims] | None,
        code: CodeType | None = None,
        line: int = 0,
    ) -> Node:
        """Append a checked node; callers use `weft_graph.ir.builder.create`.

        Args:
          name: a unique name.
          inputs: outputs of this graph.
          types: one element type per output.
          shapes: one shape per output; None if all are unknown.
        Raises: FailedPreconditionError: the graph is finalized.
        """
        if self._finalized:
            raise errors.FailedPreconditionError(
                f"the graph is finalized, so {op_def.name} {name!r} cannot be added"
            )
        scopes = self.scopes
        controls = scopes.control_inputs(inputs) if scopes.controls else ()
        context = scopes.context
        if context is not None:
            inputs, controls, context = context.admit(op_def.name, name, inputs, controls)
        elif self.has_contexts:
            check_inputs(inputs, controls)
        node = Node(self, name, op_def, inputs, controls, attrs, "", code, line)
        if shapes is None:
            node.outputs = tuple([Output(node, i, t, None) for i, t in enumerate(types)])
        elif len(types) == 1:
            node.outputs = (Output(node, 0, types[0], shapes[0]),)
        else:
            node.outputs = tuple(
                [Output(node, i, t, s) for i, (t, s) in enumerate(zip(types, shapes, strict=True))]
            )
        if scopes.attrs or scopes.colocations or scopes.overrides or scopes.container:
            scopes.apply_attrs(node)
        if scopes.devices:
            node.device = scopes.device_for(node)
        if scopes.colocations:
            node.device = scopes.colocated_device(node.device)
        if context is not None:
            node.context = context
            self.has_contexts = True
        with self._lock:
            for source in inputs:
                source._add_use(node)
            for control in controls:
                control._add_control_output(node)
            node.index = len(self.nodes)
            self.nodes.append(node)
            self._by_name[name] = node
        if scopes.controls:
            scopes.saw(node)
        return node

    def add_copy(
        self,
        node: Node,
        name: str,
        inputs: tuple[Output, ...],
        attrs: dict[str, Any] | None = None,
    ) -> Node:
        """Append a copy of a node from this graph or another, with inputs of this graph.

        It has the element types, static shapes and source line of the node; everything else is
        determined by the current scopes.

        Args:
          name: a unique name.
          attrs: attributes; by default those of the node, shared with it.
        """
        return self.add_derived(
            node,
            node.op_def,
            name,
            inputs,
            node.attrs if attrs is None else attrs,
            [output.dtype for output in node.outputs],
            [output.dims for output in node.outputs],
        )

    def add_derived(
        self,
        origin: Node,
        op_def: OpDef,
        name: str,
        inputs: tuple[Output, ...] = (),
        attrs: dict[str, Any] | None = None,
        types: Sequence[DType] = (),
        shapes: Sequence[Dims] | None = (),
    ) -> Node:
        """Append a node on behalf of `origin`, whose source line errors show."""
        code, line = origin._code, origin._line
        attrs = {} if attrs is None else attrs
        self.origins.note_derived(name, origin.name)
        return self.add_node(op_def, name, inputs, attrs, types, shapes, code, line)

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """Return `name` in the current name scope, made unique by a suffix."""
        prefix = self.scopes.name_prefix
        full = prefix + name if prefix else name
        return self._unique(full, mark_as_used)

    def exact_name(self, full: str) -> str:
        """Reserve `full` as the exact name of a node, and return it.

        Raises:
          AlreadyExistsError: a node has this name.
          InvalidArgumentError: it is not a valid node name.
        """
        check_scope_name(full, top=False)
        if full in self._by_name:
            raise errors.AlreadyExistsError(f"the graph already has a node named {full!r}")
        with self._lock:
            self._names.setdefault(full.lower(), 1)
        return full

    def reserve_name(self, full: str) -> None:
        """Reserve the name of a frame, so that `unique_name` does not return it."""
        with self._lock:
            self._names.setdefault(full.lower(), 1)

    def _unique(self, full: str, mark_as_used: bool = True) -> str:
        key = full.lower()
        names = self._names
        with self._lock:
            count = names.get(key, 0)
            if mark_as_used:
                names[key] = count + 1
            if not count:
                return full
            while True:
                candidate = f"{full}_{count}"
                key_candidate = candidate.lower()
                if key_candidate not in names:
                    break
                count += 1
            if mark_as_used:
                names[key] = count + 1
                names[key_candidate] = 1
            return candidate

    def get_operations(self) -> list[Node]:
        """Return all nodes in the order of construction."""
        return list(self.nodes)

    def get_operation_by_name(self, name: str) -> Node:
        """Return the node of that name.

        Raises:
          InvalidTypeError: the name is not a string.
          NotFoundError: no node has this name.
        """
        _check_string(name)
        node = self._by_name.get(name)
        if node is None:
            raise errors.UnknownNameError(self._missing_node_message(name))
        return node

    def find_node(self, name: str) -> Node | None:
        """Return the node of that name, or None."""
        return self._by_name.get(name)

    def get_tensor_by_name(self, name: str) -> Output:
        """Return the output called `node:port`.

        Raises:
          InvalidTypeError: the name is not a string.
          InvalidArgumentError: the name has no port.
          NotFoundError: the node or port does not exist.
        """
        _check_string(name)
        node_name, _, port = name.rpartition(":")
        if not node_name or not port.isdecimal():
            example = name.partition(":")[0] or "x"
            raise errors.InvalidArgumentError(
                f"a tensor is named node:port, for example {example}:0; got {name!r}"
            )
        node = self.get_operation_by_name(node_name)
        if int(port) >= len(node.outputs):
            raise errors.UnknownNameError(
                f"{name!r}: node {node_name!r} ({node.type}) has {len(node.outputs)} outputs"
            )
        return node.outputs[int(port)]

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Output | Node:
        """Return the output or node for `obj`: itself, a name, or an object that converts.

        Raises:
          InvalidTypeError: it does not represent an element of a graph, or one of the wrong kind.
          InvalidArgumentError: it belongs to another graph.
          NotFoundError: the name is unknown.
        """
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            element: Any = self._element_by_name(obj, allow_tensor, allow_operation)
        else:
            convert = getattr(obj, "_as_graph_element", None)
            element = convert() if convert is not None else obj
        kind_ok = (allow_tensor and isinstance(element, Output)) or (
            allow_operation and isinstance(element, Node)
        )
        if not kind_ok:
            accepted = [
                w for w, ok in (("tensor", allow_tensor), ("operation", allow_operation)) if ok
            ]
            raise errors.InvalidTypeError(
                f"{format_value(obj)} of type {type(obj).__name__} is not a "
                f"{' or '.join(accepted)} of a graph"
            )
        if element.graph is not self:
            raise errors.InvalidArgumentError(f"{element!r} belongs to a different graph")
        return element  # type: ignore[no-any-return]

    def _element_by_name(self, name: str, tensor: bool, operation: bool) -> Output | Node:
        if ":" in name and tensor:
            return self.get_tensor_by_name(name)
        if not operation:
            return self.get_tensor_by_name(name)
        return self.get_operation_by_name(name)

    def _missing_node_message(self, name: str) -> str:
        import difflib

        close_matches = difflib.get_close_matches(name, self._by_name, n=3)
        hint = f"; similar names: {', '.join(close_matches)}" if close_matches else ""
        return f"the graph has no node named {name!r}{hint}"

    def is_feedable(self, tensor: Output) -> bool:
        """Return True if the output may be fed."""
        return tensor not in self._unfeedable

    def prevent_feeding(self, tensor: Output) -> None:
        """Forbid feeding the output."""
        self._unfeedable.add(tensor)

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        """Return True if an element may be fetched, which is so for all elements of the graph."""
        self.as_graph_element(tensor_or_op)
        return True

    def switch_to_thread_local(self) -> None:
        """Do nothing: scopes are always thread-local."""

    @property
    def building_function(self) -> bool:
        """True if the graph is the body of a function."""
        return self.outermost is not self

    @property
    def outermost(self) -> Graph:
        """The graph that encloses all function bodies: itself, unless it is a body."""
        return self

    def capture(self, output: Output) -> Output:
        """Return the output to use in nodes of this graph: for a function body, its argument."""
        return output

    def capture_inputs(self, op_def: OpDef, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs of a new node, with outputs of outer graphs replaced by captures."""
        return inputs

    # ----------------------------------------------------------------- scopes

    def as_default(self) -> AbstractContextManager[Graph]:
        """Make this graph the thread's default graph inside the block."""
        return thread_stacks.graph_as_default(self)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefix the names of nodes created inside; a name ending in "/" is used unchanged.

        Yields: the scope's name with its closing slash, or "" at the top.
        """
        scopes = self.scopes
        saved_prefix = scopes.name_prefix
        if not name:
            prefix = ""
        elif name.endswith("/"):
            check_scope_name(name, top=False)
            prefix = name
        else:
            check_scope_name(name, top=not saved_prefix)
            prefix = self.unique_name(name) + "/"
        scopes.name_prefix = prefix
        try:
            yield prefix
        finally:
            scopes.name_prefix = saved_prefix

    def get_name_scope(self) -> str:
        """Return the current name scope without its closing slash."""
        return self.scopes.name_prefix.rstrip("/")

    def device(self, device_name_or_function: DeviceRequest) -> AbstractContextManager[None]:
        """Request a full or partial device for nodes created inside; None clears outer requests.

        Args:
          device_name_or_function: a name, a DeviceSpec (which is copied), or a function from a node
            to either.
        """
        return self.scopes.device(device_name_or_function)

    def control_dependencies(
        self, control_inputs: Iterable[Any] | None
    ) -> AbstractContextManager[ControlScope | None]:
        """Make nodes created inside wait for `control_inputs`.

        None clears the outer ones, and leaves the current branches and loops.

        Args:
          control_inputs: operations, tensors, variables, IndexedSlices, or names of the first two.
        """
        if control_inputs is None:
            return self.scopes.control(None)
        nodes: list[Node] = []
        for item in control_inputs:
            element = self.as_graph_element(item.op if isinstance(item, CompositeTensor) else item)
            nodes.append(element.node if isinstance(element, Output) else element)
        return self.scopes.control(nodes)

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
        """Place nodes created inside on the device of `op`."""
        element = None if op is None else self.as_graph_element(op)
        node = element.node if isinstance(element, Output) else element
        return self.scopes.colocate(node, ignore_existing)

    def gradient_override_map(self, op_type_map: dict[str, str]) -> AbstractContextManager[None]:
        """Override the gradients of nodes created inside; maps op types to gradient names."""
        return self.scopes.override_gradients(op_type_map)

    def container(self, container_name: str) -> AbstractContextManager[None]:
        """Put the resources of nodes created inside into a container."""
        return self.scopes.in_container(container_name)

    # ------------------------------------------------------------ other forms

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> Any:
        """Return the graph as a `GraphDef` message."""
        return to_message("GraphDef", self, from_version or 0, add_shapes)

    @property
    def graph_def_versions(self) -> Any:
        """The versions that `as_graph_def` writes, as a `VersionDef` message."""
        return to_message("VersionDef", self)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<weft.{name} with {len(self.nodes)} operations at {id(self):#x}>"

    def create_op(
        self,
        op_type: str,
        inputs: Sequence[Any],
        dtypes: Sequence[Any] | None = None,
        input_types: Sequence[Any] | None = None,
        name: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        op_def: Any = None,
        compute_shapes: bool = True,
        compute_device: bool = True,
    ) -> Node:
        """Add a node by the name of its op, with its attributes.

        Args:
          op_type: type of a declared op.
          inputs: tensors; list arguments are flattened.
          dtypes: element types of the outputs; they must match the inferred ones.
          input_types, op_def, compute_shapes, compute_device: ignored; the op's declaration is
            used.
          name: name of the node; the op type by default.
          attrs: values or `AttrValue` messages; attributes inferred from inputs may be omitted.
        Raises: InvalidArgumentError, InvalidTypeError: inputs, attributes or types do not match
          the op.
        """
        del input_types, op_def, compute_shapes, compute_device
        with self.as_default():
            make = readers.lookup("NodeDef")
            node: Node = make(op_type, inputs, dtypes, name, attrs or {})
            return node


def _check_string(name: Any) -> None:
    if not isinstance(name, str):
        raise errors.InvalidTypeError(
            f"a name must be a string, got {name!r} of type {type(name).__name__}"
        )


def device_string(request: Any) -> str:
    """Return the canonical form of a device request, which is a string or a DeviceSpec."""
    if isinstance(request, DeviceSpec):
        return request.to_string()
    return DeviceSpec.from_string(request).to_string() if request else ""
