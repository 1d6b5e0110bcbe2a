"""Variable scopes: variables by name, which are created once and shared with `reuse`.

Names of variables depend only on variable scopes. Names of nodes that use them depend on name
scopes; each variable scope also opens a name scope.
"""

from __future__ import annotations

__all__ = [
    "AUTO_REUSE",
    "VariableScope",
    "create_partitioned_variables",
    "get_local_variable",
    "get_variable",
    "get_variable_scope",
    "no_regularizer",
    "variable_op_scope",
    "variable_scope",
]

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.variables.base import is_trainable
from weft_graph.variables.store import VariableStore
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_optional_function, check_text


class _ReuseMode:
    """The class of AUTO_REUSE."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_ReuseMode.AUTO_REUSE"


AUTO_REUSE = _ReuseMode()
"""Reuse a variable if it exists, and create it otherwise."""

_DEFAULTS = (
    "initializer",
    "regularizer",
    "caching_device",
    "partitioner",
    "custom_getter",
    "dtype",
    "use_resource",
    "constraint",
)


class VariableScope:
    """The settings that get_variable inherits from the enclosing scopes.

    Args:
      reuse, name, initializer, regularizer, caching_device, partitioner, custom_getter, dtype,
        use_resource, constraint: values of these attributes.
        name_scope: value of `original_name_scope`.
    Attributes:
      name: prefix of the variables' names; "" at the top level.
      original_name_scope: the name scope opened with it, with its closing slash.
      reuse: False, True or AUTO_REUSE.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: the defaults of get_variable's arguments.

    Examples:
      >>> with wf.variable_scope("model") as scope:
      ...     pass
      >>> scope.name
      'model'
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self.name = name
        self.reuse = reuse or False
        self.original_name_scope = name_scope
        self.initializer = initializer
        self.regularizer = regularizer
        self.caching_device = caching_device
        self.partitioner = partitioner
        self.custom_getter = custom_getter
        self.dtype = dtypes.as_dtype(dtype)
        self.use_resource = use_resource
        self.constraint = constraint

    def reuse_variables(self) -> None:
        """Reuse variables from now on, in this scope and inner ones."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Set the default initializer."""
        self.initializer = initializer

    def set_dtype(self, dtype: Any) -> None:
        """Set the default element type."""
        self.dtype = dtypes.as_dtype(dtype)

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Set the default of `use_resource`."""
        self.use_resource = use_resource

    def set_regularizer(self, regularizer: Any) -> None:
        """Set the default regularizer."""
        self.regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Set the default caching device."""
        self.caching_device = caching_device

    def cache_reads(self) -> None:
        """Read variables created in it once, outside of loops, instead of in each iteration.

        It has no effect inside a conditional or a loop, where the read could be older than the last
        update, or if there is a caching device.
        """
        if get_default_graph().scopes.context is None and self.caching_device is None:
            self.caching_device = lambda node: node.device

    def set_partitioner(self, partitioner: Any) -> None:
        """Set the default partitioner."""
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the default custom getter."""
        self.custom_getter = custom_getter

    def get_collection(self, name: str) -> list[Any]:
        """Return the items of a collection whose names are in this scope."""
        scope = self.name + "/" if self.name else None
        return get_default_graph().get_collection(name, scope)

    def trainable_variables(self) -> list[Any]:
        """Return the trainable variables of this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """Return the global variables of this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """Return the local variables of this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        **settings: Any,
    ) -> Any:
        """Get a variable in this scope; see `weft_graph.variables.scope.get_variable`."""
        full_name = (
            f"{self.name}/{check_text(name, 'name')}" if self.name else check_text(name, "name")
        )
        arguments: dict[str, Any] = {
            "initializer": initializer,
            "regularizer": regularizer,
            **settings,
        }
        for key in ("caching_device", "partitioner", "constraint", "custom_getter", "use_resource"):
            arguments.setdefault(key, None)
        for key, value in arguments.items():
            if value is None and key in _DEFAULTS:
                arguments[key] = getattr(self, key)
        dtype = self._check_dtype(dtype, initializer)
        with get_default_graph().name_scope(None):
            return store.get_variable(
                full_name, shape, dtype, reuse=self.reuse if reuse is None else reuse, **arguments
            )

    def _check_dtype(self, dtype: Any, initializer: Any) -> Any:
        constant = initializer is not None and not callable(initializer)
        if dtype is None:
            return None if constant else self.dtype
        dtype = dtypes.as_dtype(dtype)
        if constant and hasattr(initializer, "dtype"):
            initializer_type = builder.convert_to_tensor(initializer).dtype.base_dtype
            if initializer_type is not dtype.base_dtype:
                raise errors.InvalidTypeError(
                    f"the initializer has type {initializer_type.name}, but dtype={dtype.name} "
                    "was given"
                )
        return dtype


class _ScopeStore(threading.local):
    """The current variable scope of one graph and thread, and the number of uses of each scope."""

    def __init__(self) -> None:
        self.current = VariableScope(False)
        self.counts: dict[str, int] = {}
        self._children: dict[str, set[str]] = {}

    def open(self, name: str) -> None:
        self.set_count(name, self.counts.get(name, 0) + 1)

    def set_count(self, name: str, count: int) -> None:
        self.counts[name] = count
        while name:
            parent = name.rpartition("/")[0]
            siblings = self._children.setdefault(parent, set())
            if name in siblings:
                break
            siblings.add(name)
            name = parent

    def inner(self, name: str) -> dict[str, int]:
        """Return the counts of all scopes inside one."""
        counts_inside: dict[str, int] = {}
        stack = list(self._children.get(name, ()))
        while stack:
            child = stack.pop()
            counts_inside[child] = self.counts.get(child, 0)
            stack.extend(self._children.get(child, ()))
        return counts_inside

    def close_inner(self, name: str) -> None:
        """Reset the counts of all scopes inside one."""
        for child in self._children.pop(name, ()):
            self.counts.pop(child, None)
            self.close_inner(child)


class _Stores:
    __slots__ = ("scopes", "variables")

    def __init__(self) -> None:
        self.scopes = _ScopeStore()
        self.variables = VariableStore()


def stores_of(graph: Graph) -> _Stores:
    """Return the stores of a graph, created at first use."""
    if graph.variable_stores is None:
        with graph._lock:
            if graph.variable_stores is None:
                graph.variable_stores = _Stores()
    stores: _Stores = graph.variable_stores
    return stores


def _current_stores() -> _Stores:
    return stores_of(get_default_graph())


def get_variable_scope() -> VariableScope:
    """Return the innermost variable scope.

    Examples:
      >>> with wf.variable_scope("model"):
      ...     wf.get_variable_scope().name
      'model'
    """
    return _current_stores().scopes.current


def variable_scope_store() -> VariableStore:
    """Return the variables of get_variable in the default graph, by name."""
    return _current_stores().variables


# --------------------------------------------------------------------------- get_variable


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: int | None = None,
    aggregation: int | None = None,
) -> Any:
    """Create or reuse the variable with a name in the current variable scope.

    Args:
      name: name of the variable, without the prefix of the scope.
      shape: required unless `initializer` is a value or a function without arguments.
      dtype: element type; float32 by default.
      initializer: `initializer(shape, dtype=...)`, a class of such, a function without arguments,
        or a value; by default GlorotUniform for floats and zeros for other types.
      regularizer: function from the variable to a loss, which is added to
        GraphKeys.REGULARIZATION_LOSSES, or None.
      trainable: True if optimizers update it by default; True by default, unless `synchronization`
        is ON_READ.
      collections: collections to add it to; [GraphKeys.GLOBAL_VARIABLES] by default.
      caching_device: device where reads of the value are cached.
      partitioner: function from shape and dtype to the number of parts per axis.
      validate_shape: False to leave the variable's shape unknown.
      use_resource: create a resource variable instead of a reference variable.
      custom_getter: called as `custom_getter(getter, name, ...)` instead of the default getter.
      constraint: function that optimizers apply to the value after an update.
      synchronization, aggregation: options for replicas.
    Raises:
      InvalidArgumentError: the variable exists but `reuse` is not set, or vice versa; or the shape
        differs from that of the reused variable.
      InvalidTypeError: the dtype differs from that of the reused variable.

    Examples:
      >>> with wf.variable_scope("layer"):
      ...     weights = wf.get_variable("weights", [2, 3], initializer=wf.ones_initializer())
      >>> with wf.variable_scope("layer", reuse=True):
      ...     again = wf.get_variable("weights", [2, 3])
      >>> again is weights, weights.name
      (True, 'layer/weights:0')
    """
    stores = _current_stores()
    return stores.scopes.current.get_variable(
        stores.variables,
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=is_trainable(trainable, synchronization),
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        custom_getter=custom_getter,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Any:
    """Create or reuse a local variable, which is neither trainable nor saved.

    Args:
      name, *args, **kwargs: as for `get_variable`.

    Examples:
      >>> count = wf.get_local_variable("count", [], initializer=wf.zeros_initializer())
      >>> len(wf.local_variables()), len(wf.trainable_variables())
      (1, 0)
    """
    kwargs["trainable"] = False
    kwargs["collections"] = [*(kwargs.get("collections") or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(name, *args, **kwargs)


def no_regularizer(_: Any) -> None:
    """Regularizer without a loss, to override the scope's regularizer.

    Args:
      _: the variable.

    Examples:
      >>> with wf.variable_scope("model", regularizer=wf.nn.l2_loss):
      ...     w = wf.get_variable("w", [2], regularizer=wf.no_regularizer)
      >>> wf.losses.get_regularization_losses()
      []
    """
    return None


# --------------------------------------------------------------------------- scopes


class variable_scope:  # noqa: N801 - TensorFlow's public name
    """Context manager that prefixes the names of variables and sets get_variable's defaults.

    Args:
      name_or_scope: name to append to that of the outer scope, or a VariableScope to re-enter.
      default_name: name to use if `name_or_scope` is None, made unique.
      values: accepted for compatibility.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, use_resource,
        constraint: defaults of get_variable inside.
      reuse: True, AUTO_REUSE, or None to inherit.
      auxiliary_name_scope: also open a name scope.
    Yields: the VariableScope.
    Raises: InvalidTypeError, InvalidArgumentError: `name_or_scope` and `default_name` are both
      None, or `reuse` is set with a default name.

    Examples:
      >>> with wf.variable_scope("model", reuse=wf.AUTO_REUSE):
      ...     bias = wf.get_variable("bias", [4], initializer=wf.zeros_initializer())
      >>> bias.name
      'model/bias:0'
    """

    def __init__(
        self,
        name_or_scope: Any,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if name_or_scope is None and default_name is None:
            raise errors.InvalidTypeError("variable_scope needs name_or_scope or default_name")
        if name_or_scope is not None and not isinstance(name_or_scope, str | VariableScope):
            raise errors.InvalidTypeError(
                f"name_or_scope must be a string or a VariableScope, got {name_or_scope!r}"
            )
        check_optional_function(regularizer, "regularizer")
        check_optional_function(partitioner, "partitioner")
        check_optional_function(custom_getter, "custom_getter")
        check_optional_function(constraint, "constraint")
        if reuse not in (None, False, True, AUTO_REUSE):
            raise errors.InvalidTypeError(
                f"reuse must be True, False, None or AUTO_REUSE, got {reuse!r}"
            )
        if reuse and name_or_scope is None:
            raise errors.InvalidArgumentError("reuse=True needs a name_or_scope")
        if not isinstance(auxiliary_name_scope, bool):
            raise errors.InvalidTypeError(
                f"auxiliary_name_scope must be True or False, got {auxiliary_name_scope!r}"
            )
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._graph = _graph_of(values)
        self._auxiliary = auxiliary_name_scope
        self._settings = {
            "initializer": initializer,
            "regularizer": regularizer,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "custom_getter": custom_getter,
            "reuse": reuse or None,
            "dtype": dtype,
            "use_resource": use_resource,
            "constraint": constraint,
        }
        self._open_scopes: list[Any] = []

    def __enter__(self) -> VariableScope:
        entered = self._open()
        scopes = stores_of(self._graph or get_default_graph()).scopes
        scope: VariableScope = entered.__enter__()
        self._open_scopes.append((entered, scopes, scope))
        return scope

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered, scopes, scope = self._open_scopes[-1]
        if kind is None and scopes.current is not scope:
            raise errors.FailedPreconditionError(
                "nesting violated: variable scopes must be left in the reverse order of entering, "
                f"but {scopes.current.name!r} is inside of {scope.name!r}"
            )
        self._open_scopes.pop()
        entered.__exit__(kind, value, traceback)

    @contextmanager
    def _open(self) -> Iterator[VariableScope]:
        graph = self._graph or get_default_graph()
        name_or_scope = self._name_or_scope
        with graph.as_default():
            if name_or_scope is None:
                assert self._default_name is not None
                name_scope = self._default_name
            elif isinstance(name_or_scope, str):
                name_scope = name_or_scope
            else:
                name_scope = name_or_scope.name.split("/")[-1]
            if not self._auxiliary or not name_scope:
                name_scope = graph.scopes.name_prefix
            with graph.name_scope(name_scope or None) as original_name_scope:
                if name_or_scope is None:
                    assert self._default_name is not None
                    name_or_scope = _unique_scope(graph, self._default_name)
                elif not isinstance(name_or_scope, str):
                    original_name_scope = name_or_scope.original_name_scope
                with pure_variable_scope(
                    name_or_scope, original_name_scope, **self._settings
                ) as scope:
                    yield scope


def _graph_of(values: Any) -> Graph | None:
    for value in values or ():
        graph = getattr(value, "graph", None)
        if graph is not None:
            return graph  # type: ignore[no-any-return]
    return None


def _unique_scope(graph: Graph, prefix: str) -> str:
    store = stores_of(graph).scopes
    full = f"{store.current.name}/{prefix}" if store.current.name else prefix
    if not store.counts.get(full):
        return prefix
    number = 1
    while store.counts.get(f"{full}_{number}"):
        number += 1
    return f"{prefix}_{number}"


@contextmanager
def pure_variable_scope(
    name_or_scope: str | VariableScope, name_scope: str | None = None, **settings: Any
) -> Iterator[VariableScope]:
    """Open a variable scope without a name scope; arguments as for `variable_scope`."""
    store = _current_stores().scopes
    outer_scope = store.current
    if isinstance(name_or_scope, VariableScope):
        parent, name = name_or_scope, name_or_scope.name
        reuse = settings.get("reuse") or parent.reuse
        original = parent.original_name_scope
    else:
        parent = outer_scope
        name = f"{outer_scope.name}/{name_or_scope}" if outer_scope.name else name_or_scope
        reuse = settings.get("reuse") or outer_scope.reuse
        original = name_or_scope if name_scope is None else name_scope
    store.open(name)
    outer = store.inner(name) if isinstance(name_or_scope, VariableScope) else {}
    store.current = _derive_scope(parent, name, reuse, original, settings)
    try:
        yield store.current
    finally:
        store.close_inner(name)
        for inner_name, count in outer.items():
            store.set_count(inner_name, count)
        store.current = outer_scope


def _derive_scope(
    parent: VariableScope, name: str, reuse: Any, name_scope: str, settings: dict[str, Any]
) -> VariableScope:
    scope_settings = {
        key: getattr(parent, key) if settings.get(key) is None else settings[key]
        for key in _DEFAULTS
    }
    if settings.get("custom_getter") is not None and parent.custom_getter is not None:
        scope_settings["custom_getter"] = _nest_getters(
            settings["custom_getter"], parent.custom_getter
        )
    return VariableScope(reuse, name=name, name_scope=name_scope, **scope_settings)


def _nest_getters(inner: Callable[..., Any], outer: Callable[..., Any]) -> Callable[..., Any]:
    def getter(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def call_outer(*inner_args: Any, **inner_kwargs: Any) -> Any:
            return outer(getter, *inner_args, **inner_kwargs)

        return inner(call_outer, *args, **kwargs)

    return getter


def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, **kwargs: Any
) -> variable_scope:
    """Open a `variable_scope`, with the deprecated order of arguments.

    Args:
      values: tensors used in the block.
      name_or_scope, default_name, **kwargs: as for `variable_scope`.

    Examples:
      >>> with wf.variable_op_scope([], None, "model") as scope:
      ...     scope.name
      'model'
    """
    return variable_scope(name_or_scope, default_name, values, **kwargs)


def create_partitioned_variables(
    shape: Sequence[int],
    slicing: Sequence[int],
    initializer: Any,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: Sequence[str] | None = None,
    name: str | None = None,
    reuse: Any = None,
) -> list[Any]:
    """Create the parts of a partitioned variable; `slicing` is the number of parts per axis.

    Args:
      shape: list of ints, shape of the whole variable.
      slicing: list of ints of the same length, only one of them more than 1.
      initializer: an initializer, or a value of shape `shape`.
      dtype: element type; that of `initializer` if it is a value.
      trainable, collections, reuse: as for `get_variable`.
      name: name of the whole variable; "PartitionedVariable" by default, made unique.
    Returns: the parts, in order.
    Raises: InvalidArgumentError: an axis has fewer elements than parts.

    Examples:
      >>> parts = wf.create_partitioned_variables([6, 2], [3, 1], wf.zeros_initializer())
      >>> [part.shape.as_list() for part in parts]
      [[2, 2], [2, 2], [2, 2]]
    """
    sizes = list(shape)
    if any([count > size for count, size in zip(slicing, sizes, strict=False)]):
        raise errors.InvalidArgumentError(
            f"slicing must leave every part an element of the shape {sizes}, got {list(slicing)}"
        )
    if not callable(initializer):
        initializer = builder.convert_to_tensor(initializer)
        dtype = initializer.dtype.base_dtype
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        variable = get_variable(
            "",
            sizes,
            dtype,
            initializer,
            trainable=trainable,
            collections=collections,
            partitioner=lambda **_: slicing,
        )
    return list(variable)
