"""Structures of fetches and feeds: flattening, and packing of results."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import (
    IndexedSlices,
    IndexedSlicesValue,
    SparseTensor,
    SparseTensorValue,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.nesting import format_value, too_deep_error

if TYPE_CHECKING:
    from weft_exec.session.tensor_handle import HandleStore

Rebuild = Callable[[Sequence[Any]], Any]


def structure_key(fetches: Any) -> Hashable:
    """Return a key that is equal for structures of equal types with the same fetches."""
    kind: Any = type(fetches)
    if kind is Output or kind is Node:
        return fetches  # type: ignore[no-any-return]
    try:
        if kind is list or kind is tuple or isinstance(fetches, list | tuple):
            return (kind, *map(structure_key, fetches))
        if isinstance(fetches, Mapping):
            keys = tuple([(type(key), key) for key in fetches])
            return (kind, keys, *[structure_key(item) for item in fetches.values()])
        if hasattr(kind, "__attrs_attrs__"):
            return (kind, *[structure_key(item) for item in _attrs_of(fetches)])
    except RecursionError:
        raise too_deep_error(fetches) from None
    try:
        hash(fetches)
    except TypeError:
        raise errors.InvalidTypeError(f"{fetches!r} cannot be fetched") from None
    return (kind, fetches)


def _attrs_of(value: Any) -> list[Any]:
    """Return the fields of an instance of a class of the package attrs."""
    return [getattr(value, field.name) for field in type(value).__attrs_attrs__]


class FetchPlan:
    """The outputs and nodes of a structure of fetches.

    Args:
      kept: returns the store of the values that the session keeps; it is needed to fetch handles.
    Attributes:
      outputs: the distinct outputs in order of first use.
      targets: the nodes that are fetched for their effects.
      plain: True if the result is the value of a single output.
      rebuild: packs the values into the caller's structure; nodes become None.
    """

    def __init__(
        self, graph: Graph, fetches: Any, get_store: Callable[[], HandleStore] | None = None
    ) -> None:
        self._graph = graph
        self._get_tensors = get_store
        self._positions: dict[Output, int] = {}
        self.targets: list[Node] = []
        self.plain = True
        self.rebuild = self._plan(fetches)

    @property
    def outputs(self) -> list[Output]:
        """The outputs to fetch."""
        return list(self._positions)

    def _plan(self, fetch: Any) -> Rebuild:
        try:
            if isinstance(fetch, list | tuple) and not hasattr(fetch, "_as_output"):
                return self._plan_sequence(fetch)
            if isinstance(fetch, Mapping):
                return self._plan_mapping(fetch)
        except RecursionError:
            raise too_deep_error(fetch) from None
        if isinstance(fetch, IndexedSlices):
            return self._plan_parts((fetch.values, fetch.indices, fetch.dense_shape), _slices)
        if isinstance(fetch, SparseTensor):
            parts = (fetch.indices, fetch.values, fetch.dense_shape)
            return self._plan_parts(parts, SparseTensorValue)
        if isinstance(fetch, CompositeTensor):
            return self._plan_value(fetch)
        if hasattr(type(fetch), "__attrs_attrs__"):
            return self._plan_attrs(fetch)
        if fetch is None:
            raise errors.InvalidTypeError("None cannot be fetched")
        try:
            element = self._graph.as_graph_element(fetch)
        except errors.OpError as error:
            message = f"fetch {fetch!r}: {error.message}"
            if not self._graph.nodes:
                raise errors.EmptyGraphError(f"the session's graph is empty; {message}") from error
            raise type(error)(message) from error
        if isinstance(element, Node):
            self.targets.append(element)
            return lambda values: None
        position = self._positions.setdefault(element, len(self._positions))
        if element.node.role is Role.KEEP and self._get_tensors is not None:
            return self._plan_handle(element, position, self._get_tensors)
        return itemgetter(position)

    def _plan_handle(
        self, output: Output, position: int, get_store: Callable[[], HandleStore]
    ) -> Rebuild:
        from weft_exec.session.tensor_handle import TensorHandle

        dtype = output.node.inputs[0].dtype.base_dtype
        self.plain = False
        return lambda values: TensorHandle(values[position], dtype, get_store())

    def _plan_sequence(self, fetch: Any) -> Rebuild:
        parts = [self._plan(item) for item in fetch]
        kind = type(fetch)
        if kind is list:
            return lambda values: [part(values) for part in parts]
        if hasattr(kind, "_make"):
            return lambda values: kind._make([part(values) for part in parts])
        return lambda values: kind([part(values) for part in parts])

    def _plan_attrs(self, fetch: Any) -> Rebuild:
        """Plan the fetches in an instance of a class of the package attrs, field by field."""
        kind = type(fetch)
        parts = [self._plan(item) for item in _attrs_of(fetch)]
        return lambda values: kind(*[part(values) for part in parts])

    def _plan_mapping(self, fetch: Mapping[Any, Any]) -> Rebuild:
        parts = {key: self._plan(item) for key, item in fetch.items()}
        kind: Any = type(fetch)
        if kind is dict:
            return lambda values: {key: part(values) for key, part in parts.items()}
        if isinstance(fetch, MutableMapping):
            empty = copy.copy(fetch)

            def fill(values: Sequence[Any]) -> Any:
                result = copy.copy(empty)
                for key, part in parts.items():
                    result[key] = part(values)
                return result

            return fill
        return lambda values: kind({key: part(values) for key, part in parts.items()})

    def _plan_value(self, fetch: CompositeTensor) -> Rebuild:
        plans = [self._plan(part) for part in fetch.parts]
        return lambda values: fetch.value_of([plan(values) for plan in plans])

    def _plan_parts(self, parts: Sequence[Any], make: Callable[..., Any]) -> Rebuild:
        plans = [None if part is None else self._plan(part) for part in parts]
        return lambda values: make(*[None if plan is None else plan(values) for plan in plans])


def _slices(values: Any, indices: Any, dense_shape: Any) -> IndexedSlicesValue:
    return IndexedSlicesValue(values, indices, dense_shape)


def expand_feed(graph: Graph, key: Any, value: Any) -> list[tuple[Output, Any]]:
    """Return the (output, value) pairs of one entry of a feed dictionary.

    Raises:
      InvalidTypeError: the key cannot be fed, or is of another graph.
      InvalidArgumentError: the output may not be fed.
      UnknownFeedError: the name is unknown.
    """
    if isinstance(key, SparseTensor):
        indices, values, shape = _sparse_parts(key, value)
        parts = [(key.indices, indices), (key.values, values)]
        if not _is_known(graph, key, shape):
            parts.append((key.dense_shape, shape))
        return [pair for k, v in parts for pair in expand_feed(graph, k, v)]
    if isinstance(key, IndexedSlices):
        outputs: list[Any] = [key.values, key.indices]
        expected = "values, indices"
        if key.dense_shape is not None:
            outputs.append(key.dense_shape)
            expected += ", dense_shape"
        if isinstance(value, IndexedSlicesValue):
            value = value[: len(outputs)]
        parts = list(zip(outputs, _parts_of(key, value, expected), strict=True))
        return [pair for k, v in parts for pair in expand_feed(graph, k, v)]
    if isinstance(key, CompositeTensor):
        parts = list(zip(key.parts, key.fed_parts(value), strict=True))
        return [pair for k, v in parts for pair in expand_feed(graph, k, v)]
    if isinstance(key, tuple | list):
        if not isinstance(value, Collection) or len(key) != len(value):
            raise errors.InvalidArgumentError(
                f"{format_value(key)} requires {len(key)} values, got {format_value(value)}"
            )
        return [p for k, v in zip(key, value, strict=True) for p in expand_feed(graph, k, v)]
    try:
        output = graph.as_graph_element(key, allow_operation=False)
    except errors.OpError as error:
        unknown = isinstance(error, errors.NotFoundError)
        kind = errors.UnknownFeedError if unknown else errors.InvalidTypeError
        raise kind(f"feed {format_value(key)}: {error.message}") from error
    assert isinstance(output, Output)
    if not graph.is_feedable(output):
        raise unfeedable_error(output)
    return [(output, value)]


def _parts_of(key: Any, value: Any, expected: str) -> Sequence[Any]:
    """Return the values of the components of a composite tensor, whose names are `expected`."""
    count = expected.count(",") + 1
    if not isinstance(value, list | tuple) or len(value) != count:
        raise errors.InvalidTypeError(
            f"{key!r} is fed {count} values ({expected}), or a value that a fetch returned, got "
            f"{value!r}"
        )
    return value


def _sparse_parts(key: SparseTensor, value: Any) -> Sequence[Any]:
    """Return indices, values and shape.

    The shape may be omitted from a feed if it is known statically.
    """
    if isinstance(value, list | tuple) and len(value) == 2:
        constant = constant_value(key.dense_shape)
        if constant is not None:
            return [*value, constant]
    return _parts_of(key, value, "indices, values, dense_shape")


def _is_known(graph: Graph, key: SparseTensor, shape: Any) -> bool:
    """Return True if the shape is a constant of the graph, so that it is not fed.

    Raises: InvalidArgumentError: `shape` differs from the constant.
    """
    if graph.is_feedable(key.dense_shape):
        return False
    constant = constant_value(key.dense_shape)
    if constant is None:
        return False
    if not np.array_equal(constant, shape):
        raise errors.InvalidArgumentError(
            f"{key!r} has the shape {constant.tolist()}, but is fed a value of shape {shape!r}: "
            f"{_describe_users(key.dense_shape)}"
        )
    return True


def unfeedable_error(output: Output) -> errors.InvalidArgumentError:
    """Return the error that says why an output cannot be fed."""
    constant = constant_value(output)
    if constant is None:
        reason = "branches and loops of the graph depend on it"
    else:
        reason = (
            f"the graph was built upon its value {format_value(constant.tolist())}. "
            f"{_describe_users(output)}; "
            "create values to be fed as placeholders"
        )
    return errors.InvalidArgumentError(f"{output!r} cannot be fed: {reason}")


def _describe_users(output: Output) -> str:
    """Describe the nodes whose static shapes may depend on an output's value, with lines."""
    users = [node for node in output.consumers() if not node.name.startswith("_")]
    if not users:
        return "Its value was read, for example as the shape of a SparseTensor"
    lines = [f"{node.name!r} made at {node.line}" for node in users[:3]]
    suffix = f", and {len(users) - 3} more" if len(users) > 3 else ""
    return f"It is used by {', '.join(lines)}{suffix}"
