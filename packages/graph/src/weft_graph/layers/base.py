"""The base class of layers, which create their variables at the first call."""

from __future__ import annotations

__all__ = ["InputSpec", "Layer"]

import copy
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Self

from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph, graph_for
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import reachable
from weft_graph.variables.base import VariableSynchronization
from weft_graph.variables.scope import (
    VariableScope,
    get_variable,
    get_variable_scope,
    variable_scope,
)
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_optional_function, unknown_argument
from weft_tensor.shape import Dims, TensorShape, as_dims, format_dims

_INTERNAL: Final = {
    "_trainable_weights",
    "_non_trainable_weights",
    "_weights_by_name",
    "_losses",
    "_updates",
}
"""Attributes of every layer that contain variables, but are not tracked by name."""

_numbers: weakref.WeakKeyDictionary[Graph, dict[str, int]] = weakref.WeakKeyDictionary()


class InputSpec:
    """Requirements of a layer on an input.

    Args:
      ndim: exact rank.
      min_ndim: least rank.
      axes: mapping from axis to exact size.
      dtype: element type.

    Examples:
      >>> layer = wf.layers.Layer()
      >>> layer.input_spec = wf.layers.InputSpec(ndim=2)
      >>> layer(wf.zeros([2, 3])).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int] | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.ndim = ndim
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = axes or {}

    def check(self, layer: str, dims: Dims) -> None:
        """Raise InvalidArgumentError unless a shape meets the requirements."""
        if dims is None:
            if self.ndim is not None or self.min_ndim is not None or self.axes:
                raise errors.InvalidArgumentError(
                    f"layer {layer} requires an input of known rank, got an unknown one"
                )
            return
        rank = len(dims)
        requirement = None
        if self.ndim is not None and rank != self.ndim:
            requirement = f"rank {self.ndim}"
        elif self.min_ndim is not None and rank < self.min_ndim:
            requirement = f"rank at least {self.min_ndim}"
        elif self.max_ndim is not None and rank > self.max_ndim:
            requirement = f"rank at most {self.max_ndim}"
        else:
            for axis, size in self.axes.items():
                if dims[axis] is not None and dims[axis] != size:
                    requirement = f"size {size} along axis {axis}"
        if requirement is not None:
            raise errors.InvalidArgumentError(
                f"layer {layer} requires an input of {requirement}, got shape {format_dims(dims)}"
            )


def snake_case(name: str) -> str:
    """Return a class name in snake case: "MaxPooling2D" to "max_pooling2d"."""
    spaced = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", spaced).lower()


class Layer:
    """A function with variables.

    The variables are created in the layer's variable scope at the first call, and shared by all
    later calls.  A subclass overrides `build`, `call`, and `compute_output_shape`.

    Args:
      trainable: True if its variables are trainable.
      name: name of the layer and its scope; by default a unique name derived from the class.
      dtype: element type of the variables; defaults to that of the first input.
    Attributes:
      built: True if the variables exist.

    Examples:
      >>> class Scale(wf.layers.Layer):
      ...     def build(self, _):
      ...         self.scale = self.add_weight("scale", [], initializer=wf.ones_initializer())
      ...
      ...     def call(self, inputs):
      ...         return inputs * self.scale
      >>> layer = Scale()
      >>> layer(wf.ones([2])).shape, len(layer.variables)
      (TensorShape([Dimension(2)]), 1)
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        *,
        activity_regularizer: Callable[[Output], Any] | None = None,
        _scope: Any = None,
        _reuse: Any = None,
        **unknown: Any,
    ) -> None:
        for argument in unknown:
            raise unknown_argument(type(self).__name__, argument, _arguments_of(type(self)))
        self.built = False
        self.trainable = trainable
        self.input_spec: InputSpec | None = None
        self._activity_regularizer = check_optional_function(
            activity_regularizer, "activity_regularizer"
        )
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._reuse = _reuse
        self._graph: Graph | None = None
        self._scope: VariableScope | None = None
        self._call_takes_scope = "scope" in inspect.signature(self.call).parameters
        self._trainable_weights: list[Any] = []
        self._non_trainable_weights: list[Any] = []
        self._weights_by_name: dict[str, Any] = {}
        self._updates: list[tuple[Any, Any]] = []
        self._losses: list[tuple[Any, Any]] = []
        self._set_name(name)
        if _scope:
            with variable_scope(_scope) as captured:
                self._scope = captured

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a layer with the same settings that shares variables, tensors and the graph."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        memo[id(self._graph)] = self._graph
        for name, value in vars(self).items():
            make = copy.copy(value) if name == "_scope" else copy.deepcopy(value, memo)
            setattr(copied, name, make)
        return copied

    def _set_name(self, name: Any) -> None:
        if isinstance(name, VariableScope):
            self._base_name = name.name
            self._name = _unique_name(snake_case(type(self).__name__))
        elif name:
            self._base_name = self._name = name
        else:
            self._base_name = snake_case(type(self).__name__)
            self._name = _unique_name(self._base_name)

    def _set_scope(self, scope: Any) -> VariableScope:
        if self._scope is None:
            if self._reuse:
                opened = variable_scope(self._base_name if scope is None else scope)
            else:
                opened = variable_scope(scope, default_name=self._base_name)
            with opened as captured:
                self._scope = captured
        return self._scope

    # ------------------------------------------------------------------- to override

    def build(self, input_shape: TensorShape) -> None:
        """Create the variables for inputs of a shape."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of the layer; subclasses override it."""
        return inputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """Return the output shape for an input shape."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not compute its output shape")

    # ---------------------------------------------------------------------- calling

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer; the first call creates its variables."""
        scope = self._set_scope(kwargs.pop("scope", None))
        inputs = _to_outputs(inputs)
        graph = self._check_graph(inputs)
        reuse = True if self.built else self._reuse
        with (
            graph.as_default(),
            variable_scope(scope, reuse=reuse, auxiliary_name_scope=False) as var_scope,
            graph.name_scope(scope.original_name_scope),
        ):
            if not self.built:
                self._build_for(inputs)
            self._check_input(inputs)
            if self._call_takes_scope:
                kwargs["scope"] = var_scope
            outputs = self.call(inputs, *args, **kwargs)
            if self._activity_regularizer is not None:
                self.add_loss(self._activity_regularizer(outputs), inputs)
        return outputs

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        return self(inputs, *args, **kwargs)

    def _check_graph(self, inputs: Any) -> Graph:
        first = _first_input(inputs)
        graph = graph_for(first) if isinstance(first, Output) else get_default_graph()
        if self._graph is None:
            self._graph = graph.outermost
        elif self._graph is not graph.outermost:
            raise errors.InvalidArgumentError(
                f"layer {self.name} was built in a graph other than that of its input {first!r}"
            )
        return graph

    def _check_input(self, inputs: Any) -> None:
        if self.input_spec is not None and isinstance(inputs, Output):
            self.input_spec.check(self.name, inputs.dims)

    def _build_for(self, inputs: Any) -> None:
        first = _first_input(inputs)
        if self._dtype is None and isinstance(first, Output):
            self._dtype = first.dtype.base_dtype
        self._check_input(inputs)
        self.build(nest.map_structure(lambda tensor: tensor.shape, inputs))
        self.built = True

    # -------------------------------------------------------------------- variables

    def add_weight(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        trainable: bool | None = None,
        constraint: Any = None,
        use_resource: bool | None = None,
        partitioner: Any = None,
        **settings: Any,
    ) -> Any:
        """Create or reuse a variable of the layer; arguments as for `get_variable`.

        Raises: InvalidArgumentError: it is trainable although its synchronization is ON_READ.
        """
        if settings.get("synchronization") == VariableSynchronization.ON_READ:
            if trainable:
                raise errors.InvalidArgumentError(
                    f"the weight {name!r} cannot be trainable with synchronization=ON_READ; pass "
                    "trainable=False"
                )
            trainable = False
        is_trained = self.trainable if trainable is None else self.trainable and trainable
        earlier_losses = set(get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES))
        with self._layer_scope():
            variable = get_variable(
                name,
                shape=as_dims(shape),
                dtype=dtypes.as_dtype(dtype or self._dtype or dtypes.float32),
                initializer=initializer,
                regularizer=regularizer,
                trainable=is_trained,
                constraint=constraint,
                use_resource=use_resource,
                partitioner=partitioner,
                **settings,
            )
        if regularizer is not None:
            losses = get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES)
            self._losses.extend((loss, None) for loss in losses if loss not in earlier_losses)
        # A custom getter of the scope may have made it otherwise than it was asked for.
        declared = is_trainable(variable) if is_trained else trainable is None or trainable
        weights = self._trainable_weights if declared else self._non_trainable_weights
        weights.append(variable)
        self._weights_by_name[name] = variable
        return variable

    def _trackable_items(self) -> Iterator[tuple[str, Any]]:
        """Yield the objects that a checkpoint may contain, by name."""
        yield from self._weights_by_name.items()
        for name, value in sorted(vars(self).items()):
            if name not in _INTERNAL and name not in self._weights_by_name:
                yield name, value

    def _layer_scope(self) -> AbstractContextManager[Any]:
        """Return the layer's variable scope, already open unless `build` is called directly."""
        scope, current = self._set_scope(None), get_variable_scope().name
        if not scope.name or f"{current}/".startswith(f"{scope.name}/"):
            return nullcontext()
        return variable_scope(scope, reuse=self._reuse, auxiliary_name_scope=False)

    def add_variable(self, *args: Any, **kwargs: Any) -> Any:
        """Deprecated name of `add_weight`."""
        return self.add_weight(*args, **kwargs)

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Record update ops to run with a training step, in GraphKeys.UPDATE_OPS too."""
        for update in updates if isinstance(updates, list | tuple) else [updates]:
            self._updates.append((update, inputs))
            get_default_graph().add_to_collection(GraphKeys.UPDATE_OPS, update)

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Record losses, in GraphKeys.REGULARIZATION_LOSSES too."""
        for loss in losses if isinstance(losses, list | tuple) else [losses]:
            if loss is not None:
                self._losses.append((loss, inputs))
                get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    def get_updates_for(self, inputs: Any) -> list[Any]:
        """Return the updates that depend on `inputs`; with None, those that depend on no input."""
        return _filter_dependent(self._updates, inputs)

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """Return the losses that depend on `inputs`; with None, those that depend on no input."""
        return _filter_dependent(self._losses, inputs)

    def count_params(self) -> int:
        """Return the number of elements of all variables.

        Raises: FailedPreconditionError: the layer has not been called yet.
        """
        if not self.built:
            raise errors.FailedPreconditionError(
                f"layer {self.name} has no variables before its first call"
            )
        return sum(weight.shape.num_elements() or 0 for weight in self.weights)

    @property
    def activity_regularizer(self) -> Callable[[Output], Any] | None:
        """The function from the output to a loss."""
        return self._activity_regularizer

    @activity_regularizer.setter
    def activity_regularizer(self, regularizer: Callable[[Output], Any] | None) -> None:
        self._activity_regularizer = check_optional_function(regularizer, "activity_regularizer")

    @property
    def name(self) -> str:
        """The layer's name."""
        return self._name

    @property
    def dtype(self) -> Any:
        """Element type of the variables; None before it is known."""
        return self._dtype

    @property
    def graph(self) -> Graph | None:
        """The graph in which the layer was built."""
        return self._graph

    @property
    def scope_name(self) -> str:
        """The name of the variable scope.

        Raises: FailedPreconditionError: the layer has not been called yet.
        """
        if self._scope is None:
            raise errors.FailedPreconditionError(
                f"layer {self.name} has no scope before its first call"
            )
        return self._scope.name

    @property
    def trainable_weights(self) -> list[Any]:
        """The trainable variables."""
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        """The variables that are not trainable."""
        frozen = [] if self.trainable else self._trainable_weights
        return [*frozen, *self._non_trainable_weights]

    @property
    def weights(self) -> list[Any]:
        """All variables."""
        return [*self.trainable_weights, *self.non_trainable_weights]

    variables = weights
    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    @property
    def updates(self) -> list[Any]:
        """Update ops to run with a training step."""
        return [update for update, _ in self._updates]

    @property
    def losses(self) -> list[Any]:
        """Regularization losses."""
        return [loss for loss, _ in self._losses]


def unbuilt_copy(layer: Any) -> Any:
    """Return a deep copy of a layer that creates its own variables at its first call."""
    copied = copy.deepcopy(layer)
    _undo_build(copied)
    return copied


def _undo_build(value: Any) -> None:
    """Undo the build of a layer and of the layers in its attributes."""
    if isinstance(value, list | tuple):
        for item in value:
            _undo_build(item)
    elif isinstance(value, Layer):
        value.built, value._graph, value._scope = False, None, None
        value._trainable_weights, value._non_trainable_weights = [], []
        value._weights_by_name, value._updates, value._losses = {}, [], []
        _undo_build(list(vars(value).values()))


def is_trainable(variable: Any) -> bool:
    """Return True if a variable, or the first part of a partitioned one, is trainable."""
    parts = getattr(variable, "_get_variable_list", None)
    return bool(getattr(variable if parts is None else parts()[0], "trainable", False))


def _unique_name(base: str) -> str:
    graph = get_default_graph()
    counts = _numbers.get(graph)
    if counts is None:
        counts = _numbers.setdefault(graph, {})
    number = counts.get(base, 0)
    counts[base] = number + 1
    return base if number == 0 else f"{base}_{number}"


def _to_outputs(inputs: Any) -> Any:
    """Convert the inputs of a layer to tensors.

    A structure that contains a tensor is kept; one of plain numbers becomes a single tensor.
    """
    if isinstance(inputs, Output):
        return inputs
    if nest.is_nested(inputs) and any(hasattr(leaf, "graph") for leaf in nest.flatten(inputs)):
        return nest.map_structure(convert_to_tensor, inputs)
    return convert_to_tensor(inputs)


def _arguments_of(layer: type) -> set[str]:
    """Return the names of all arguments of a layer, including those passed to base classes."""
    names: set[str] = set()
    for base in layer.__mro__[:-1]:
        parameters = inspect.signature(base.__init__).parameters  # type: ignore[misc]  # of a class
        names |= {p.name for p in parameters.values() if p.kind is not p.VAR_KEYWORD}
    return {name for name in names if name[0] != "_"} - {"self"}


def _filter_dependent(items: list[tuple[Any, Any]], inputs: Any) -> list[Any]:
    """Return the items that depend on `inputs`; with None, those that depend on no input."""
    if inputs is None:
        return [item for item, on in items if on is None]
    input_nodes = {_node_of(value) for value in nest.flatten(inputs)}
    return [
        item for item, on in items if on is not None and input_nodes & reachable([_node_of(item)])
    ]


def _node_of(value: Any) -> Node:
    return value if isinstance(value, Node) else convert_to_tensor(value).node


def _first_input(inputs: Any) -> Any:
    return inputs if isinstance(inputs, Output) else next(iter(nest.flatten(inputs)), None)
