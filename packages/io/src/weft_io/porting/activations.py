"""A sub-graph that is fed activations recorded in another system, compared node by node."""

from __future__ import annotations

__all__ = ["compare_activations", "record_activations", "upstream"]

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_exec.costs.work import cost_of
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_io.porting.parameter_files import Array, read_parameters
from weft_io.porting.tables import format_table
from weft_io.porting.tolerances import Difference, compare_arrays, rounding_tolerance
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims

_MAX_DEPTH: Final = 8
"""Largest factor of the tolerance of values that are computed through unrecorded nodes."""

_UNKNOWN_TERMS: Final = 1000.0
"""Assumed number of added terms of a node whose cost is unknown."""


class ActivationMatch(NamedTuple):
    """A recorded value, compared with the one computed from the recorded values before it.

    Attributes:
      tensor: the tensor of our graph.
      recorded: the name of the recorded value.
      difference: None if the shapes differ.
      shape: the recorded shape.
      axes: `np.transpose(recorded, axes)` has the axes of ours; () if the order is the same.
      tolerance: accepted relative difference.
      inputs: names of the recorded values that it was computed from.
    """

    tensor: Output
    recorded: str
    difference: Difference | None
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    tolerance: float
    inputs: Sequence[str]

    @property
    def agrees(self) -> bool:
        """Return True if rounding explains the difference."""
        return self.difference is not None and self.difference.relative <= self.tolerance


class ActivationComparison(NamedTuple):
    """The comparison of all recorded values.

    Attributes:
      matches: in the order of the graph.
    """

    matches: Sequence[ActivationMatch]

    @property
    def agrees(self) -> bool:
        """Return True if all values agree."""
        return all(match.agrees for match in self.matches)

    @property
    def differences(self) -> list[ActivationMatch]:
        """The values that differ although their inputs are the recorded ones: the faults."""
        return [match for match in self.matches if not match.agrees]

    def __str__(self) -> str:
        rows = [
            (
                "" if match.agrees else "✗",
                match.tensor.name,
                match.tensor.node.type,
                str(list(match.shape)),
                "shape" if match.difference is None else f"{match.difference.relative:.2e}",
                f"{match.tolerance:.2e}",
                match.tensor.node.line,
            )
            for match in self.matches
        ]
        header = ("", "tensor", "op", "shape", "difference", "accepted", "line")
        return format_table(header, rows)


def record_activations(
    session: Any, feed_dict: Mapping[Any, Any] | None = None, outputs: Sequence[Output] = ()
) -> dict[str, Array]:
    """Return the values of all tensors that `outputs` are computed from, by name.

    `np.savez(path, **values)` saves them for `compare_activations`.

    Args:
      session: a session.
      feed_dict: as for `Session.run`.
      outputs: by default all tensors of the graph that depend on a feed.

    Examples:
      >>> x = wf.placeholder(wf.float32, [], name="x")
      >>> y = wf.square(x, name="y")
      >>> wf.porting.record_activations(wf.Session(), {x: 3.0})
      {'x:0': np.float32(3.0), 'y:0': np.float32(9.0)}
    """
    fed = {session.graph.as_graph_element(key) for key in feed_dict or {}}
    tensors = upstream(outputs) if outputs else _downstream(session.graph, fed)
    fetchable = [t for t in tensors if session.graph.is_fetchable(t) and not t.dtype._is_ref_dtype]
    values = session.run(fetchable, feed_dict)
    return {tensor.name: value for tensor, value in zip(fetchable, values, strict=True)}


def compare_activations(
    session: Any,
    recorded: Mapping[str, Any] | str | os.PathLike[str],
    names: Mapping[str, str] | None = None,
    tolerance: float | Mapping[str, float] | None = None,
    layout: str = "NHWC",
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> ActivationComparison:
    """Compare nodes with values that another system recorded for the same inputs.

    Each recorded value is computed from the nearest recorded values before it, which are fed. So a
    fault shows at the node that has it, and not at those after it.

    Args:
      session: a session with the ported graph and its weights.
      recorded: values by name, or an npz file of them: of the inputs, and of the largest possible
        number of nodes. Sources: `record_activations`, or intermediate outputs of ONNX Runtime,
        TensorFlow or PyTorch.
      names: recorded names by the names of our tensors. Without an entry, a tensor `scope/op:0` is
        compared with a recorded `scope/op:0` or `scope/op`.
      tolerance: accepted relative difference, or differences by the names of our tensors; by
        default what rounding explains for the node's type and number of added terms.
      layout: "NCHW" if the other system has the channels before the spatial axes, and our graph
        behind them: recorded values are transposed if they then have our shape.
      ranges: the smallest and largest numbers that quantized recorded values can have, by the names
        of our tensors; our values are clipped to them.
    Raises:
      InvalidArgumentError: no recorded value belongs to a tensor of the graph, or the layout is
        unknown.
      NotFoundError: `names` has an unknown name.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2], name="x")
      >>> y = wf.nn.relu(wf.add(x, 1.0, name="sum"), name="relu")
      >>> theirs = {"x": [1.0, -3.0], "sum": [3.0, -1.0], "relu": [3.0, 0.0]}  # added 2
      >>> result = wf.porting.compare_activations(wf.Session(), theirs)
      >>> [match.tensor.name for match in result.differences]
      ['sum:0']
    """
    if layout not in ("NHWC", "NCHW"):
        raise errors.InvalidArgumentError(f'layout must be "NHWC" or "NCHW", got {layout!r}')
    values = {name: p.read() for name, p in read_parameters(recorded).items() if p.read}
    graph = session.graph
    recorded_values = _recorded_values(graph, values, names or {})
    feeds = _Feeds(session, recorded_values, layout)
    matches = []
    for tensor in list(recorded_values):
        accepted = tolerance.get(tensor.name) if isinstance(tolerance, Mapping) else tolerance
        match = feeds.compare(tensor, accepted, (ranges or {}).get(tensor.name))
        if match is not None:
            matches.append(match)
    return ActivationComparison(matches)


class _Recorded(NamedTuple):
    name: str
    value: Array


def _recorded_values(
    graph: Graph, values: Mapping[str, Array], names: Mapping[str, str]
) -> dict[Output, _Recorded]:
    """Return the recorded values by tensor, in the order of the graph."""
    names_by_tensor: dict[Output, str] = {}
    for ours, recorded in names.items():
        if recorded not in values:
            raise errors.NotFoundError(
                f"names has {recorded!r}, which is not among the {len(values)} recorded values"
            )
        tensor = graph.as_graph_element(ours if ":" in ours else f"{ours}:0")
        assert isinstance(tensor, Output)
        names_by_tensor[tensor] = recorded
    result = {}
    for node in graph.nodes:
        for tensor in node.outputs:
            short = node.name if tensor.index == 0 else tensor.name
            candidates = names_by_tensor.get(tensor), tensor.name, short
            name = next((n for n in candidates if n in values), None)
            if name is not None:
                result[tensor] = _Recorded(name, np.asarray(values[name]))
    if not result:
        examples = ", ".join(list(values)[:5])
        raise errors.InvalidArgumentError(
            f"no recorded value has the name of a tensor of the graph; recorded are {examples}; "
            "pass names"
        )
    return result


class _Feeds:
    """Computes tensors from recorded values, in the axes' order of our graph."""

    def __init__(
        self, session: Any, recorded_values: Mapping[Output, _Recorded], layout: str
    ) -> None:
        self._session = session
        self._layout = layout
        self._recorded_values = recorded_values
        self._values: dict[Output, Array] = {}

    def compare(
        self, tensor: Output, tolerance: float | None, limits: tuple[float, float] | None = None
    ) -> ActivationMatch | None:
        """Compare a tensor; return None if there is nothing to compute it from.

        That is so for inputs, and for users of a recorded value whose shape does not fit.
        """
        name, recorded = self._recorded_values[tensor]
        cut, nodes = _cut(tensor, self._recorded_values)
        if not tensor.node.inputs or not all(feed in self._values for feed in cut):
            value = recorded.transpose(_to_our_layout(recorded, tensor.dims, self._layout))
            if tensor.shape.is_compatible_with(value.shape):
                self._values[tensor] = value
            return None
        ours = np.asarray(self._session.run(tensor, {feed: self._values[feed] for feed in cut}))
        if limits is not None:
            ours = np.clip(ours, *limits)
        accepted = tolerance
        if accepted is None:
            terms = sum(_num_terms(node, self._values) for node in nodes)
            accepted = rounding_tolerance(ours.dtype, terms) * min(_MAX_DEPTH, len(nodes))
        axes = _to_our_layout(recorded, ours.shape, self._layout)
        value = recorded.transpose(axes)
        difference = None
        if value.shape == ours.shape:
            difference = compare_arrays(ours, value)
            self._values[tensor] = value
        order = () if axes == tuple(range(recorded.ndim)) else axes
        inputs = [self._recorded_values[feed].name for feed in cut]
        return ActivationMatch(tensor, name, difference, recorded.shape, order, accepted, inputs)


def _cut(tensor: Output, recorded_values: Mapping[Output, Any]) -> tuple[list[Output], list[Node]]:
    """Return the nearest recorded tensors before one, and the nodes between them and it."""
    feeds: dict[Output, None] = {}
    visited = {tensor.node: None}
    pending = [tensor.node]
    while pending:
        for source in pending.pop().inputs:
            if source in recorded_values:
                feeds[source] = None
            elif source.node not in visited:
                visited[source.node] = None
                pending.append(source.node)
    return list(feeds), [node for node in visited if node.inputs]


def _num_terms(node: Node, values: Mapping[Output, Array]) -> float:
    """Return the number of terms that are added for one element of a node's result."""
    shapes: list[tuple[int, ...]] = []
    for tensor in (*node.inputs, *node.outputs[:1]):
        dims = values[tensor].shape if tensor in values else tensor.dims
        known_sizes = [size for size in dims or () if size is not None]
        if dims is None or len(known_sizes) < len(dims):
            return _UNKNOWN_TERMS
        shapes.append(tuple(known_sizes))
    *operands, result = shapes
    try:
        work = float(cost_of(node, operands, [result] * len(node.outputs)).flops)
    except (errors.OpError, TypeError, ValueError, IndexError):
        return _UNKNOWN_TERMS  # a cost rule that needs more than the shapes
    return max(1.0, work / max(1, math.prod(result)))


def _to_our_layout(recorded: Array, dims: Dims, layout: str) -> tuple[int, ...]:
    """Return the order of axes in which a recorded value has our layout.

    Args:
      dims: the shape of our value, with unknown dimensions.
    """
    identity = tuple(range(recorded.ndim))
    channels_last = (*identity[:1], *identity[2:], *identity[1:2])
    shape = tuple([recorded.shape[i] for i in channels_last])
    return channels_last if layout == "NCHW" and compatible_dims(dims, shape) else identity


def upstream(outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs of all nodes that some tensors depend on, in the order of the graph."""
    visited: set[Node] = set()
    pending = [output.node for output in outputs]
    while pending:
        node = pending.pop()
        if node not in visited:
            visited.add(node)
            pending += [source.node for source in node.inputs]
    return [t for node in outputs[0].graph.nodes if node in visited for t in node.outputs]


def _downstream(graph: Graph, fed: set[Any]) -> list[Output]:
    reached: set[Output] = set(fed)
    for node in graph.nodes:
        if any(source in reached for source in node.inputs):
            reached.update(node.outputs)
    return [t for node in graph.nodes for t in node.outputs if t in reached]
