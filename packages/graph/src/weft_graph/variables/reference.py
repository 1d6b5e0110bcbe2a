"""Reference variables, and functions over all variables of a graph.

`Variable(...)` creates a `RefVariable` or, with `use_resource=True`, a `ResourceVariable`; both are
instances of `Variable`. Node names are those of TensorFlow: "W", "W/initial_value", "W/Assign",
"W/read".
"""

from __future__ import annotations

__all__ = [
    "all_variables",
    "assert_variables_initialized",
    "global_variables",
    "global_variables_initializer",
    "initialize_all_tables",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "is_variable_initialized",
    "local_variables",
    "local_variables_initializer",
    "model_variables",
    "moving_average_variables",
    "report_uninitialized_variables",
    "tables_initializer",
    "trainable_variables",
    "variables_initializer",
]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.message_conversions import readers
from weft_graph.ir.node import Node, Output
from weft_graph.ir.scopes import check_scope_name
from weft_graph.ops import state
from weft_graph.variables import reads
from weft_graph.variables.base import ExistingVariable, Variable, makers
from weft_graph.variables.initial_values import guard_initial_value
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_function
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims, is_fully_defined

# --------------------------------------------------------------------------- construction


@contextmanager
def variable_scope_of_nodes(graph: Graph, name: str | None) -> Iterator[str]:
    """Open the scope of a new variable's nodes, without control inputs and contexts.

    Yields: the variable's full name, which is unused.
    """
    preferred = name or "Variable"
    if preferred.endswith("/"):
        full = preferred[:-1]
    else:
        check_scope_name(preferred, top=not graph.scopes.name_prefix)
        full = graph.unique_name(preferred, mark_as_used=False)
    with graph.control_dependencies(None), graph.name_scope(full + "/"):
        yield full


def convert_initial_value(graph: Graph, full_name: str, initial_value: Any, dtype: Any) -> Output:
    """Convert the initial value to a tensor; a function is called in the variable's scope."""
    if not callable(initial_value):
        if initial_value is None:
            raise errors.InvalidArgumentError("a variable needs an initial_value")
        return builder.convert_to_tensor(initial_value, dtype, name="initial_value")
    check_function(initial_value, "initial_value", 0)
    colocated = {"_class": (f"loc:@{full_name}",)}
    with graph.scopes.with_attrs(colocated), graph.name_scope("Initializer"), graph.device(None):
        return builder.convert_to_tensor(initial_value(), dtype, name="initial_value")


def variable_dims(initial_value: Output, validate_shape: bool, shape: Any) -> Dims:
    """Return the static shape of a variable from its initial value.

    Raises: InvalidArgumentError: the shape must be static and is not.
    """
    if shape is not None:
        return as_dims(shape)
    if not validate_shape:
        return None
    if not is_fully_defined(initial_value.dims):
        raise errors.InvalidArgumentError(
            f"initial_value must have a known shape, got {initial_value!r}; "
            "pass validate_shape=False for a variable of any shape"
        )
    return initial_value.dims


class RefVariable(Variable):
    """A variable over a reference: the node VariableV2, its Assign, and a snapshot `read`."""

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
            dims = variable_dims(initial, validate_shape, shape)
            self._variable = state.variable_op_v2(
                dims, initial.dtype.base_dtype, name=full_name + "/"
            )
            self._build_rest(validate_shape and shape is None)
        self._collect(collections)

    def _adopt_existing(self, existing: ExistingVariable) -> None:
        super()._adopt_existing(existing)
        self._variable, self._snapshot = existing.variable, existing.read

    def _build_rest(self, validate_shape: bool) -> None:
        assert self._initial_value is not None
        value = guard_initial_value(self._graph, self.op, self._initial_value)
        self._initializer = state.assign(self._variable, value, validate_shape=validate_shape).node
        self._snapshot = self._read()

    def _read(self) -> Output:
        graph, caching = self._graph, self._caching_device
        placement = graph.colocate_with(self.op) if caching is None else graph.device(caching)
        with placement, graph.name_scope(self.op.name + "/"):
            return builder.out("Identity", [self._variable], None, "read")

    @property
    def op(self) -> Node:
        """The VariableV2 node."""
        return self._variable.node

    @property
    def handle(self) -> Output:
        """The reference to the variable: the output of its node."""
        return self._variable

    @property
    def dtype(self) -> DType:
        """The reference type, as in TensorFlow; `dtype.base_dtype` is the element type."""
        return self._variable.dtype

    @property
    def _dims(self) -> Dims:
        return self._variable.dims

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape."""
        self._variable.set_shape(shape)
        self._snapshot.set_shape(shape)

    def value(self) -> Output:
        """Return the snapshot that all readers share: the output of the node `read`.

        Inside `control_dependencies` it is a separate snapshot, read after these nodes, if one of
        them may follow an update of the variable.
        """
        current_graph = get_default_graph()
        graph = (
            current_graph if current_graph.outermost is self._graph else self._graph
        )  # a body has its own scopes
        controls = [node for scope in graph.scopes.controls for node in scope.nodes]
        return self._read() if controls and self._can_follow_update(controls) else self._snapshot

    def _can_follow_update(self, nodes: Sequence[Node]) -> bool:
        if any(node.graph is not self._graph for node in nodes):
            return True
        return bool(reads.filter_following(nodes, reads.updates(self._variable)))

    def read_value(self) -> Output:
        """Return a new snapshot, ordered by control dependencies."""
        return builder.out("Identity", [self._variable], None, "read")

    def _ref(self) -> Output:
        return self._variable

    def _shared_reads(self) -> list[Output]:
        return [self._snapshot]

    def _as_output(self, as_ref: bool = False) -> Output:
        return self._variable if as_ref else self.value()

    def _as_graph_element(self) -> Output:
        return self._variable

    def is_initialized(self, name: str | None = None) -> Output:
        """Return True if the variable has a value: bool, shape ()."""
        return state.is_variable_initialized(self._variable, name)

    def _read_or_initial(self, initial: Output) -> Output:
        return builder.out("InitializedValue", [self, initial])

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Replace the value; return the reference, or the node if `read_value` is False."""
        # One that was made with another shape than its value's may change it.
        validate = self._variable.dims is not None
        ref = state.assign(self._variable, value, validate, use_locking, name)
        return ref if read_value else ref.node

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add `delta`; return the reference, or the node if `read_value` is False."""
        ref = state.assign_add(self._variable, delta, use_locking, name)
        return ref if read_value else ref.node

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract `delta`; return the reference, or the node if `read_value` is False."""
        ref = state.assign_sub(self._variable, delta, use_locking, name)
        return ref if read_value else ref.node


makers.register("reference", RefVariable)
VariableV1 = Variable


# --------------------------------------------------------------------------- of a graph


def _collection(key: str, scope: str | None) -> list[Any]:
    return get_default_graph().get_collection(key, scope)


def global_variables(scope: str | None = None) -> list[Any]:
    """Return the variables shared by all workers, the default collection of Variable.

    Args:
      scope: regular expression; return only variables whose name it matches at the start.
    Returns: a list.

    Examples:
      >>> x = wf.Variable(3.0, name="x")
      >>> [variable.name for variable in wf.global_variables()]
      ['x:0']
    """
    return _collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables() -> list[Any]:
    """Deprecated name of `global_variables`.

    Examples:
      >>> w = wf.Variable(0.0, name="w")
      >>> [variable.name for variable in wf.all_variables()]
      ['w:0']
    """
    return global_variables()


def local_variables(scope: str | None = None) -> list[Any]:
    """Return the variables of one process, which are not saved.

    Args:
      scope: regular expression; return only variables whose name it matches at the start.

    Examples:
      >>> wf.local_variables()
      []
    """
    return _collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Any]:
    """Return the variables that inference uses.

    Args:
      scope: regular expression; return only variables whose name it matches at the start.
    Returns: the collection MODEL_VARIABLES of the default graph.

    Examples:
      >>> w = wf.Variable(0.0, name="w", collections=[wf.GraphKeys.MODEL_VARIABLES])
      >>> [variable.name for variable in wf.model_variables()]
      ['w:0']
    """
    return _collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Any]:
    """Return the variables that optimizers update by default.

    Args:
      scope: regular expression; return only variables whose name it matches at the start.
    Returns: a list.

    Examples:
      >>> x = wf.Variable(3.0, name="x")
      >>> step = wf.Variable(0, trainable=False)
      >>> [variable.name for variable in wf.trainable_variables()]
      ['x:0']
    """
    return _collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """Return the variables that have moving averages.

    Args:
      scope: regular expression; return only variables whose name it matches at the start.
    Returns: the collection MOVING_AVERAGE_VARIABLES of the default graph.

    Examples:
      >>> w = wf.Variable(0.0, name="w")
      >>> averaged = wf.train.ExponentialMovingAverage(0.9).apply([w])
      >>> [variable.name for variable in wf.moving_average_variables()]
      ['w:0']
    """
    return _collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list: Sequence[Any], name: str = "init") -> Node:
    """Return a node that runs the initializers of `var_list`, in parallel.

    Args:
      var_list: variables.
    Returns: a node.

    Examples:
      >>> x = wf.Variable(3.0)
      >>> with wf.Session() as session:
      ...     session.run(wf.variables_initializer([x]))
      ...     session.run(x)
      np.float32(3.0)
    """
    nodes = [variable.initializer for variable in var_list]
    graph = nodes[0].graph if nodes else get_default_graph()
    with graph.as_default(), graph.control_dependencies(nodes):
        return builder.create("NoOp", (), None, name)


def initialize_variables(var_list: Sequence[Any], name: str = "init") -> Node:
    """Deprecated name of `variables_initializer`.

    Args:
      var_list: variables.

    Examples:
      >>> w = wf.Variable(3.0)
      >>> with wf.Session() as session:
      ...     session.run(wf.initialize_variables([w]))
      ...     session.run(w)
      np.float32(3.0)
    """
    return variables_initializer(var_list, name)


def global_variables_initializer() -> Node:
    """Return a node that initializes all global variables.

    Examples:
      >>> x = wf.Variable(3.0)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(x)
      np.float32(3.0)
    """
    return variables_initializer(global_variables())


def initialize_all_variables() -> Node:
    """Deprecated name of `global_variables_initializer`, which the white paper uses.

    Examples:
      >>> w = wf.Variable(3.0)
      >>> with wf.Session() as session:
      ...     session.run(wf.initialize_all_variables())
      ...     session.run(w)
      np.float32(3.0)
    """
    return global_variables_initializer()


def local_variables_initializer() -> Node:
    """Return a node that initializes all local variables.

    Examples:
      >>> wf.Session().run(wf.local_variables_initializer())
    """
    return variables_initializer(local_variables())


def initialize_local_variables() -> Node:
    """Deprecated name of `local_variables_initializer`.

    Examples:
      >>> w = wf.Variable(3.0, collections=[wf.GraphKeys.LOCAL_VARIABLES])
      >>> with wf.Session() as session:
      ...     session.run(wf.initialize_local_variables())
      ...     session.run(w)
      np.float32(3.0)
    """
    return local_variables_initializer()


def tables_initializer(name: str = "init_all_tables") -> Node:
    """Return a node that initializes all lookup tables of the default graph.

    Examples:
      >>> with wf.Session() as session:
      ...     session.run(wf.tables_initializer())
    """
    graph = get_default_graph()
    with graph.control_dependencies(_collection(GraphKeys.TABLE_INITIALIZERS, None)):
        return builder.create("NoOp", (), None, name)


def initialize_all_tables(name: str = "init_all_tables") -> Node:
    """Deprecated name of `tables_initializer`.

    Examples:
      >>> with wf.Session() as session:
      ...     session.run(wf.initialize_all_tables())
    """
    return tables_initializer(name)


def is_variable_initialized(variable: Any) -> Output:
    """Return True if `variable` has a value: bool, shape ().

    Args:
      variable: a variable.

    Examples:
      >>> x = wf.Variable(3.0)
      >>> wf.Session().run(wf.is_variable_initialized(x))
      np.False_
    """
    return state.is_variable_initialized(variable)


def report_uninitialized_variables(
    var_list: Sequence[Any] | None = None, name: str = "report_uninitialized_variables"
) -> Output:
    """Return the names of the uninitialized variables in `var_list`.

    Args:
      var_list: variables; global and local ones by default.
    Returns: string, shape (number of uninitialized variables,).

    Examples:
      >>> x = wf.Variable(1.0, name="x")
      >>> wf.Session().run(wf.report_uninitialized_variables())
      array([b'x'], dtype=object)
    """
    if var_list is None:
        var_list = global_variables() + local_variables()
    graph = var_list[0].graph if var_list else get_default_graph()
    with graph.name_scope(name):
        if not var_list:
            return builder.constant([], dtypes.string, shape=[0])
        flags = [state.is_variable_initialized(variable) for variable in var_list]
        missing = builder.out("LogicalNot", [builder.out("Pack", [flags], {"axis": 0})])
        names = builder.constant([variable.op.name for variable in var_list], dtypes.string)
        rows = builder.out("Where", [missing])
        indices = builder.out("Squeeze", [rows], {"squeeze_dims": [1]})
        return builder.out("GatherV2", [names, indices, 0], {"batch_dims": 0})


def assert_variables_initialized(var_list: Sequence[Any] | None = None) -> Node | None:
    """Return a node that fails with FailedPreconditionError if a variable is uninitialized.

    Args:
      var_list: variables; all global and local ones by default.
    Returns: the node; None if there are no variables.

    Examples:
      >>> w = wf.Variable(3.0)
      >>> check = wf.assert_variables_initialized([w])
      >>> with wf.Session() as session:
      ...     session.run(w.initializer)
      ...     session.run(check)
    """
    if var_list is None:
        var_list = global_variables() + local_variables()
    if not var_list:
        return None
    reads = [variable.read_value() for variable in var_list]
    with var_list[0].graph.control_dependencies(reads):
        return builder.create("NoOp", (), None, "assert_variables_initialized")
