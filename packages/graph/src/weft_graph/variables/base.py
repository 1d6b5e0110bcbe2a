"""Base class of all variables."""

from __future__ import annotations

__all__ = [
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
]

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from weft_graph.ir import thread_stacks
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.ir.message_conversions import to_message
from weft_graph.ir.node import Node, Operators, Output
from weft_graph.ir.registry import Registry
from weft_graph.ops import state
from weft_graph.ops.batch_scatter import batch_scatter_update
from weft_graph.ops.gather import gather, gather_nd
from weft_graph.variables.slices import VariableSlice, note_slice
from weft_tensor import errors
from weft_tensor.arguments import check_optional_function, unknown_argument
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape


class VariableSynchronization(IntEnum):
    """Modes of synchronizing the replicas of a variable.

    A variable with ON_READ is not trainable unless `trainable` is passed.

    Args:
      value: number of a member: 0 for AUTO, 1 NONE, 2 ON_WRITE, 3 ON_READ.

    Examples:
      >>> w = wf.get_variable("w", [2], synchronization=wf.VariableSynchronization.ON_WRITE)
      >>> w.shape
      TensorShape([Dimension(2)])
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(IntEnum):
    """Modes of combining the updates of a variable's replicas.

    Args:
      value: the number of a member: 0 for NONE, 1 SUM, 2 MEAN, 3 ONLY_FIRST_REPLICA.

    Examples:
      >>> w = wf.get_variable("w", [2], aggregation=wf.VariableAggregation.MEAN)
      >>> w.shape
      TensorShape([Dimension(2)])
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = 3


M = TypeVar("M", bound=IntEnum)


def _member(kind: type[M], value: int | None, label: str) -> M:
    """Return a member of an enumeration; the first one for None."""
    try:
        return kind(value or 0)
    except ValueError:
        raise errors.InvalidArgumentError(
            f"{label} must be one of {kind.__name__}, got {value!r}"
        ) from None


def is_trainable(trainable: bool | None, synchronization: int | None) -> bool:
    """Return `trainable`; None means False for variables synchronized on read."""
    if trainable is None:
        return synchronization != VariableSynchronization.ON_READ
    return bool(trainable)


makers: Registry[Callable[..., Any]] = Registry("maker of variables", "weft_graph.variables")
"""Constructors of variables by kind: "any" (calls the creators), "reference" and "resource"."""


class _VariableMeta(type):
    """Metaclass: `Variable(...)` calls the variable creators; subclasses do not."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Variable:
            return super().__call__(*args, **kwargs)
        if len(args) > len(_ARGUMENTS):
            raise TypeError(
                f"Variable accepts at most {len(_ARGUMENTS)} arguments, got {len(args)}"
            )
        for key, value in zip(_ARGUMENTS, args, strict=False):
            if key in kwargs:
                raise TypeError(f"Variable got {key} twice")
            kwargs[key] = value
        unknown = kwargs.keys() - set(_ARGUMENTS)
        if unknown:
            raise unknown_argument("Variable", sorted(unknown)[0], _ARGUMENTS)
        return makers.lookup("any")(**kwargs)


_ARGUMENTS = (
    "initial_value",
    "trainable",
    "collections",
    "validate_shape",
    "caching_device",
    "name",
    "variable_def",
    "dtype",
    "expected_shape",
    "import_scope",
    "constraint",
    "use_resource",
    "synchronization",
    "aggregation",
    "shape",
)


class SaveSliceInfo:
    """The position of a part in its partitioned variable.

    Attributes:
      full_name: name of the partitioned variable.
      full_shape: shape of the partitioned variable.
      var_offset: offset of the part along each axis.
      var_shape: shape of the part.
    """

    def __init__(
        self,
        full_name: str | None = None,
        full_shape: Sequence[int] | None = None,
        var_offset: Sequence[int] | None = None,
        var_shape: Sequence[int] | None = None,
    ) -> None:
        self.full_name = full_name
        self.full_shape = list(full_shape or ())
        self.var_offset = list(var_offset or ())
        self.var_shape = list(var_shape or ())

    @property
    def spec(self) -> str:
        """TensorFlow's text form: sizes, then "start,length" per axis."""
        sizes = " ".join(map(str, self.full_shape)) + " "
        pairs = zip(self.var_offset, self.var_shape, strict=True)
        return sizes + ":".join(f"{start},{size}" for start, size in pairs)


_SliceInfo = SaveSliceInfo


@dataclass(frozen=True)
class ExistingVariable:
    """The existing nodes of a variable, which a new object adopts.

    Attributes:
      is_resource: True for a resource variable.
      variable: the reference or the handle.
      read: the value shared by readers; for a resource variable, the value that is fetched.
      initializer: the node that assigns the initial value.
      initial_value: None if unknown.
      trainable, synchronization, aggregation: as in `Variable`.
      save_slice_info: save slice of a part of a partitioned variable.
    """

    is_resource: bool
    variable: Output
    read: Output
    initializer: Node
    initial_value: Output | None
    trainable: bool
    synchronization: int
    aggregation: int
    save_slice_info: SaveSliceInfo | None


class Variable(Operators, metaclass=_VariableMeta):
    """A tensor that keeps its value between steps and can be updated by ops.

    Args:
      initial_value: value that converts to a tensor, or a function without arguments that returns
        one. Its shape becomes that of the variable, unless `validate_shape` is False.
      trainable: True if optimizers update it by default; True by default, unless `synchronization`
        is ON_READ.
      collections: collections to add it to; [GraphKeys.GLOBAL_VARIABLES] by default.
      validate_shape: False to leave the variable's shape unknown.
      caching_device: device where reads of the value are cached.
      name: name of the node; "Variable" by default, made unique.
      variable_def: a VariableDef to rebuild the object from, instead of everything else.
      dtype: element type; defaults to that of the initial value.
      expected_shape: deprecated and ignored, as in TensorFlow.
      import_scope: name scope of the imported graph of `variable_def`.
      constraint: function that optimizers apply to the value after an update.
      use_resource: create a resource variable instead of a reference variable.
      synchronization, aggregation: options for replicas.
      shape: static shape, if it is less specific than that of the initial value.
    Raises:
      InvalidArgumentError: the initial value is missing, or its shape is unknown.
      InvalidTypeError: the initial value cannot be converted to `dtype`.

    Examples:
      >>> step = wf.Variable(0, name="step", trainable=False)
      >>> count = step.assign_add(1)
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     session.run([count, count])
      ...     session.run(step)
      [np.int32(1), np.int32(1)]
      np.int32(1)
    """

    SaveSliceInfo: ClassVar[Any] = SaveSliceInfo

    _graph: Graph
    _initial_value: Output | None
    _initializer: Node
    _caching_device: Any
    _constraint: Any
    _trainable: bool
    _synchronization: VariableSynchronization
    _aggregation: VariableAggregation
    _save_slice_info: _SliceInfo | None = None

    if TYPE_CHECKING:

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
            use_resource: bool | None = None,
            synchronization: int | None = None,
            aggregation: int | None = None,
            shape: Any = None,
        ) -> None: ...

    # ------------------------------------------------------------- what it is

    @property
    def op(self) -> Node:
        """The node of the variable."""
        raise NotImplementedError

    @property
    def handle(self) -> Output:
        """The output that identifies the variable: its reference or its handle."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """Element type; a reference type for reference variables."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """`node:0`."""
        return f"{self.op.name}:0"

    @property
    def graph(self) -> Graph:
        """The graph of the variable."""
        return self._graph

    @property
    def device(self) -> str:
        """The device requested for it."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape(self._dims)

    @property
    def _dims(self) -> Dims:
        raise NotImplementedError

    def get_shape(self) -> TensorShape:
        """Return the static shape."""
        return self.shape

    @property
    def initializer(self) -> Node:
        """The node that assigns the initial value."""
        return self._initializer

    def replace_initializer(self, initializer: Node, initial_value: Output) -> None:
        """Replace the initializer; existing nodes keep using the old one.

        Args:
          initializer: node that assigns the initial value.
          initial_value: the assigned value.
        """
        self._initializer = initializer
        self._initial_value = initial_value

    @property
    def initial_value(self) -> Output | None:
        """The tensor that the initializer assigns; None if the variable was rebuilt without it."""
        return self._initial_value

    @property
    def trainable(self) -> bool:
        """True if optimizers update the variable by default."""
        return self._trainable

    @property
    def constraint(self) -> Any:
        """The function passed as `constraint`, or None."""
        return self._constraint

    @property
    def synchronization(self) -> VariableSynchronization:
        """The `synchronization` passed to the constructor."""
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        """The `aggregation` passed to the constructor."""
        return self._aggregation

    # ------------------------------------------------------------- its value

    def value(self) -> Output:
        """Return the value as a tensor: a snapshot that may be shared and cached."""
        raise NotImplementedError

    def read_value(self) -> Output:
        """Return a new node that reads the value, ordered by control dependencies."""
        raise NotImplementedError

    def _as_output(self, as_ref: bool = False) -> Output:
        raise NotImplementedError

    def _shared_reads(self) -> list[Output]:
        raise NotImplementedError

    def _as_graph_element(self) -> Output:
        raise NotImplementedError

    def is_initialized(self, name: str | None = None) -> Output:
        """Return True if the variable has a value: bool, shape ()."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> VariableSlice | Output:
        return note_slice(self, key, super().__getitem__(key))

    def initialized_value(self) -> Output:
        """Return the value, or the initial value if the variable is uninitialized.

        It is for initial values of other variables, which may run before this variable's
        initializer.
        """
        initial = self._initializer.inputs[1]  # guarded itself, unlike `initial_value`
        with self._graph.as_default(), self._graph.control_dependencies(None):
            return self._read_or_initial(initial)

    def _read_or_initial(self, initial: Output) -> Output:
        """Return the variable's value, or `initial` if it is uninitialized."""
        raise NotImplementedError

    def eval(self, session: Any = None) -> Any:
        """Return the value in `session`, or in the default session."""
        return thread_stacks.session_for(self._graph, session, f"{self.name}.eval()").run(self)

    def load(self, value: Any, session: Any = None) -> None:
        """Assign `value` immediately, without a new node.

        Raises: FailedPreconditionError: there is no default session.
        """
        used_session = thread_stacks.session_for(self._graph, session, f"{self.name}.load()")
        used_session.run(self._initializer, {self._initializer.inputs[1]: value})

    # ------------------------------------------------------------- updates

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Replace the value; return the new value, or the node if `read_value` is False."""
        raise NotImplementedError

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Add `delta`; return the same as `assign`."""
        raise NotImplementedError

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Any:
        """Subtract `delta`; return the same as `assign`."""
        raise NotImplementedError

    def _scatter_slices(
        self, op: Callable[..., Any], slices: Any, use_locking: bool, name: str | None
    ) -> Any:
        if not (hasattr(slices, "indices") and hasattr(slices, "values")):
            raise errors.InvalidTypeError(f"requires IndexedSlices, got {slices!r}")
        return op(self, slices.indices, slices.values, use_locking=use_locking, name=name)

    def scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace the rows at the indices of `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_update, sparse_delta, use_locking, name)

    def scatter_add(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Add to the rows at the indices of `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_add, sparse_delta, use_locking, name)

    def scatter_sub(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Subtract from the rows at the indices of `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_sub, sparse_delta, use_locking, name)

    def scatter_mul(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Multiply the rows at the indices of `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_mul, sparse_delta, use_locking, name)

    def scatter_div(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Divide the rows at the indices of `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_div, sparse_delta, use_locking, name)

    def scatter_min(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows by their minimum with `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_min, sparse_delta, use_locking, name)

    def scatter_max(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows by their maximum with `sparse_delta`, an IndexedSlices."""
        return self._scatter_slices(state.scatter_max, sparse_delta, use_locking, name)

    def batch_scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows in each batch; see `batch_scatter_update`."""
        return self._scatter_slices(batch_scatter_update, sparse_delta, use_locking, name)

    def sparse_read(self, indices: Any, name: str | None = None) -> Output:
        """Return the rows at `indices`."""
        return gather(self.value(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Output:
        """Return the slices at `indices`."""
        return gather_nd(self.value(), indices, name=name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Replace the slices at `indices`."""
        return state.scatter_nd_update(self, indices, updates, name=name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Add to the slices at `indices`; repeated indices accumulate."""
        return state.scatter_nd_add(self, indices, updates, name=name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtract from the slices at `indices`; repeated indices accumulate."""
        return state.scatter_nd_sub(self, indices, updates, name=name)

    def count_up_to(self, limit: int) -> Output:
        """Increment the value and return the old one; OutOfRangeError at run time at `limit`."""
        return state.count_up_to(self, limit)

    # ------------------------------------------------------------- other forms

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return the variable as a `VariableDef`, or None if it is outside `export_scope`."""
        return to_message("VariableDef", self, export_scope)

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Variable:
        """Return the variable of a `VariableDef`, whose nodes are in the default graph."""
        make = makers.lookup("resource" if variable_def.is_resource else "reference")
        variable: Variable = make(variable_def=variable_def, import_scope=import_scope)
        return variable

    def _set_save_slice_info(self, save_slice_info: _SliceInfo | None) -> None:
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> _SliceInfo | None:
        return self._save_slice_info

    def __iter__(self) -> Iterator[Any]:
        raise errors.InvalidTypeError("a variable cannot be iterated; use unstack(variable)")

    def __len__(self) -> int:
        raise errors.InvalidTypeError("a variable has no len(); use variable.shape")

    def __repr__(self) -> str:
        return f"<weft.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def _init_common(
        self,
        trainable: bool | None,
        caching_device: Any,
        constraint: Any,
        synchronization: int | None,
        aggregation: int | None,
    ) -> None:
        self._synchronization = _member(VariableSynchronization, synchronization, "synchronization")
        self._aggregation = _member(VariableAggregation, aggregation, "aggregation")
        self._trainable = is_trainable(trainable, synchronization)
        self._caching_device = caching_device
        self._constraint = check_optional_function(constraint, "constraint")

    def _adopt_existing(self, existing: ExistingVariable) -> None:
        """Adopt the nodes of an existing variable."""
        self._init_common(
            existing.trainable, None, None, existing.synchronization, existing.aggregation
        )
        self._graph = existing.variable.graph
        self._initializer = existing.initializer
        self._initial_value = existing.initial_value
        self._save_slice_info = existing.save_slice_info

    def _collect(self, collections: Sequence[str] | None) -> None:
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        if not isinstance(collections, list | tuple | set):
            raise errors.InvalidTypeError(
                f"collections must be a list, tuple or set of names, got {collections!r}"
            )
        names = list(collections)
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in names:
            names.append(GraphKeys.TRAINABLE_VARIABLES)
        self._graph.add_to_collections(names, self)


def shared_reads(variable: Variable) -> list[Output]:
    """Return the shared reads of a variable, which represent its value."""
    return variable._shared_reads()
