"""Resource variables: a VarHandleOp, with a separate read for each use of the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.message_conversions import readers
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import resource_state
from weft_graph.variables.base import ExistingVariable, Variable, makers
from weft_graph.variables.initial_values import guard_initial_value
from weft_graph.variables.reference import (
    convert_initial_value,
    variable_dims,
    variable_scope_of_nodes,
)
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims


class ResourceVariable(Variable):
    """A variable accessed through a handle; each use reads the value in a defined order."""

    _handle: Output
    _cached: Output | None
    _graph_element: Output
    _is_initialized: Output

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Sequence[str] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Any = None,
        synchronization: int | None = None,
        aggregation: int | None = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None:
            self._adopt_existing(readers.lookup("VariableDef")(variable_def, import_scope))
            return
        self._init_common(trainable, caching_device, constraint, synchronization, aggregation)
        graph = self._graph = get_default_graph()
        with variable_scope_of_nodes(graph, name) as full_name:
            initial = convert_initial_value(graph, full_name, initial_value, dtype)
            self._initial_value = initial
            self._handle = resource_state.var_handle_op(
                initial.dtype.base_dtype,
                variable_dims(initial, validate_shape, shape),
                shared_name=full_name,
                name=full_name + "/",
            )
            self._build_rest(initial)
        self._collect(collections)

    def _adopt_existing(self, existing: ExistingVariable) -> None:
        handle, read = existing.variable, existing.read
        if not existing.is_resource:
            raise errors.InvalidArgumentError(
                f"{handle.name} is a reference variable, not a resource variable"
            )
        super()._adopt_existing(existing)
        self._handle = handle
        self._cached = None if read.node.role is Role.READ else read
        self._graph_element = read
        if self._cached is not None:
            name = f"{handle.node.name}/Read/ReadVariableOp:0"
            self._graph_element = self._graph.get_tensor_by_name(name)
        checks = [node for node in handle.consumers() if node.role is Role.IS_INITIALIZED]
        if checks:
            self._is_initialized = checks[0].outputs[0]

    def _build_rest(self, initial: Output) -> None:
        graph, handle = self._graph, self._handle
        with graph.name_scope("IsInitialized"):
            self._is_initialized = resource_state.var_is_initialized_op(handle)
        value = guard_initial_value(graph, handle.node, initial)
        with graph.device(handle.node.device):
            self._initializer = resource_state.assign_variable_op(handle, value, "Assign")
            with graph.name_scope("Read"):
                read = resource_state.read_variable_op(handle, self.dtype)
        self._graph_element = read
        self._cached = None
        if self._caching_device is not None:
            no_colocation = graph.colocate_with(None, ignore_existing=True)
            with no_colocation, graph.device(None), graph.device(self._caching_device):
                self._cached = builder.out("Identity", [read])

    @property
    def handle(self) -> Output:
        """The handle: dtype resource, shape ()."""
        return self._handle

    @property
    def op(self) -> Node:
        """The VarHandleOp node."""
        return self._handle.node

    @property
    def name(self) -> str:
        """The name `node:0` of the handle."""
        return self._handle.name

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._handle.node.attrs["dtype"]  # type: ignore[no-any-return]

    @property
    def create(self) -> Node:
        """The node that assigns the initial value; same as `initializer`."""
        return self._initializer

    @property
    def _dims(self) -> Dims:
        return self._handle.node.attrs["shape"]  # type: ignore[no-any-return]

    def is_initialized(self, name: str | None = None) -> Output:
        """Return True if the variable has a value: bool, shape ()."""
        return resource_state.var_is_initialized_op(self._handle, name)

    def _read_or_initial(self, initial: Output) -> Output:
        return builder.out("ResourceInitializedValue", [self._handle, initial])

    def value(self) -> Output:
        """Return a read of the value; the cached one if there is a caching device."""
        if self._cached is not None:
            return self._cached
        scopes = self._graph.scopes
        if not (scopes.devices or scopes.colocations or self.device):
            return resource_state.read_variable_op(self._handle, self.dtype)
        with self._graph.colocate_with(None, ignore_existing=True), self._graph.device(self.device):
            return resource_state.read_variable_op(self._handle, self.dtype)

    def read_value(self) -> Output:
        """Return a new read of the value, ordered by control dependencies."""
        with self._graph.name_scope("Read"):
            value = resource_state.read_variable_op(self._handle, self.dtype)
        return builder.out("Identity", [value])

    def sparse_read(self, indices: Any, name: str | None = None) -> Output:
        """Return rows of the value, without reading all: shape `indices.shape + shape[1:]`."""
        with self._graph.name_scope(name or "Gather"):
            value = resource_state.resource_gather(self._handle, indices, self.dtype)
        return builder.out("Identity", [value])

    def gather_nd(self, indices: Any, name: str | None = None) -> Output:
        """Return slices of the value, without reading all of it."""
        with self._graph.name_scope(name or "GatherNd"):
            attrs = {"dtype": self.dtype}
            value = builder.out("ResourceGatherNd", [self._handle, indices], attrs)
        return builder.out("Identity", [value])

    def _shared_reads(self) -> list[Output]:
        return [] if self._cached is None else [self._cached]

    def _as_output(self, as_ref: bool = False) -> Output:
        return self.value()

    def _as_graph_element(self) -> Output:
        return self._graph_element

    def _lazy_read(self, node: Node) -> UnreadVariable:
        return UnreadVariable(self, node)

    def _update(self, op: str, value: Any, name: str | None, read_value: bool) -> Any:
        attrs = {"dtype": self.dtype}
        node = builder.create(op, [self._handle, value], attrs, name)
        return self._lazy_read(node) if read_value else node

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Replace the value; return the updated variable, or the node."""
        return self._update("AssignVariableOp", value, name, read_value)

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add `delta`; return the updated variable, or the node."""
        return self._update("AssignAddVariableOp", delta, name, read_value)

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract `delta`; return the updated variable, or the node."""
        return self._update("AssignSubVariableOp", delta, name, read_value)


makers.register("resource", ResourceVariable)


class UnreadVariable(ResourceVariable):
    """A resource variable after an update: its reads run after the update.

    Attributes:
      op: the update.
    """

    def __init__(self, variable: ResourceVariable, update: Node) -> None:
        self.__dict__.update(variable.__dict__)
        self._update_node = update
        self._cached = None
        self._element = self.read_value()  # now, since a graph may be finalized when it is fetched

    @property
    def op(self) -> Node:
        """The node that updates the variable."""
        return self._update_node

    @property
    def device(self) -> str:
        """The device requested for the variable."""
        return self._handle.node.device

    def value(self) -> Output:
        """Return the value after the update."""
        with self._update_node.graph.control_dependencies([self._update_node]):
            return super().value()

    def read_value(self) -> Output:
        """Return a new read of the value after the update."""
        with self._update_node.graph.control_dependencies([self._update_node]):
            return super().read_value()

    def _as_graph_element(self) -> Output:
        return self._element


def is_resource_variable(variable: Any) -> bool:
    """Return True if `variable` is a resource variable."""
    return isinstance(variable, ResourceVariable)
