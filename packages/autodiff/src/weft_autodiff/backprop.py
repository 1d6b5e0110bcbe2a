"""Symbolic gradients: the chain rule, written into the graph (paper, section 4.1)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import Enum
from typing import Any

from weft_autodiff.registry import Gradient, gradient_of, naming_calls
from weft_graph import builder
from weft_graph.gc_pause import paused_gc
from weft_graph.graph import Graph
from weft_graph.indexed_slices import IndexedSlices
from weft_graph.node import Node, Output, check_same_graph
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims

Grad = Output | IndexedSlices

_log = logging.getLogger("weft")
_DENSE_WARNING_BYTES = 1 << 26


class UnconnectedGradients(Enum):
    """What `gradients` returns for an x that no y depends on: None, or zeros of its shape."""

    NONE = "none"
    ZERO = "zero"


class AggregationMethod:
    """How partial gradients are summed, in TensorFlow; here the sum is one AddN for all of them."""

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
) -> list[Grad | None]:
    """Add nodes that compute the derivatives of the sum of `ys` with respect to each of `xs`.

    Args:
      ys: output or list of outputs, floating or complex, any shape.
      xs: output, variable, or list of these, in the graph of `ys`.
      grad_ys: gradients to start from, each of the shape of its y; ones by default.
      name: name scope of the new nodes.
      colocate_gradients_with_ops: request the forward node's device for its gradient.
      gate_gradients: let no gradient of a node be used before all of them are computed.
      aggregation_method: accepted for TensorFlow's sake; sums are always one AddN.
      stop_gradients: outputs through which nothing flows back, taken as constants.
      unconnected_gradients: "none" or "zero" (or `UnconnectedGradients`): what stands for xs
        that ys do not depend on.
    Returns: one per x, with its shape and dtype; IndexedSlices where only some rows are touched;
      as for one that ys do not depend on, where x is neither floating nor complex.
    Raises:
      InvalidTypeError: a y is neither floating nor complex.
      InvalidArgumentError: `grad_ys` do not fit `ys`, or ys and xs are not in one graph.
      NotFoundError: a node on the way has no registered gradient; the message names it.
    Source: paper, section 4.1.
    """
    mode = getattr(unconnected_gradients, "value", unconnected_gradients)
    if mode not in ("none", "zero"):
        raise errors.InvalidArgumentError(
            f"unconnected_gradients must be 'none' or 'zero', got {unconnected_gradients!r}"
        )
    targets = [builder.convert_to_tensor(y) for y in _as_list(ys)]
    sources = [_source(x) for x in _as_list(xs)]
    starts = _as_list(grad_ys) if grad_ys is not None else [None] * len(targets)
    if len(starts) != len(targets):
        raise errors.InvalidArgumentError(
            f"grad_ys must have one entry per y: required {len(targets)}, got {len(starts)}"
        )
    if not targets:
        return [None] * len(sources)
    graph = targets[0].graph
    _check(targets)
    check_same_graph([*targets, *sources])
    stops = {_source(s) for s in _as_list(stop_gradients or [])}
    with (
        paused_gc(),
        graph.as_default(),
        graph.name_scope(name or "gradients") as scope,
        naming_calls(scope),
    ):
        walk = _Walk(graph, colocate_gradients_with_ops, gate_gradients)
        for y, start in zip(targets, starts, strict=True):
            walk.receive(y, _start(y, start))
        walk.back(targets, [x for x in sources if is_trainable(x)], stops)
        return [_final(walk, x, mode) for x in sources]


class _Walk:
    """One backward pass: the gradients received so far, by output."""

    def __init__(self, graph: Graph, colocate: bool, gate: bool) -> None:
        self.graph = graph
        self.colocate = colocate
        self.gate = gate
        self.received: dict[Output, list[Grad]] = {}
        self.summed: dict[Output, Grad] = {}

    def receive(self, output: Output, grad: Grad) -> None:
        """Note that `grad` flows back into `output`."""
        found = self.received.get(output)
        if found is None:
            self.received[output] = [grad]
        else:
            found.append(grad)

    def total(self, output: Output) -> Grad | None:
        """The sum of all that flowed back into `output`."""
        done = self.summed.get(output)
        if done is None:
            found = self.received.get(output)
            if found is None:
                return None
            done = self.summed[output] = found[0] if len(found) == 1 else add_all(found)
        return done

    def back(
        self, targets: Sequence[Output], sources: Sequence[Output], stops: set[Output]
    ) -> None:
        """Visit the nodes between sources and targets from the last to the first."""
        path = _Path(targets, sources, stops)
        for node in reversed(path.nodes):
            grads = [None if o in stops else self.total(o) for o in node.outputs]
            if all(grad is None for grad in grads):
                continue
            entry = gradient_of(node)
            start = len(self.graph.nodes)
            with self._scope(node):
                results = self._apply(node, entry, grads, path)
            for added in self.graph.nodes[start:]:
                if added.forward is None:
                    added.forward = node
            for source, grad in zip(node.inputs, results, strict=True):
                if grad is not None:
                    self.receive(source, grad)

    @contextmanager
    def _scope(self, node: Node) -> Iterator[None]:
        scopes = self.graph.scopes
        before = scopes.name_prefix
        scopes.name_prefix = f"{before}{node.name}_grad/"
        try:
            with self.graph.colocate_with(node) if self.colocate else nullcontext():
                yield
        finally:
            scopes.name_prefix = before

    def _apply(
        self, node: Node, entry: Gradient, grads: list[Grad | None], path: _Path
    ) -> Sequence[Grad | None]:
        if not entry.accepts_none:
            grads = [
                zeros_like(o) if grad is None and _needs_zeros(o) else grad
                for o, grad in zip(node.outputs, grads, strict=True)
            ]
        if not entry.accepts_sparse:
            grads = [as_dense(grad) for grad in grads]
        results = entry.function(node, *grads)
        if not isinstance(results, list | tuple):
            results = [results]
        if len(results) != len(node.inputs):
            raise errors.InvalidArgumentError(
                f"the gradient of {node.type} must return one gradient per input: required "
                f"{len(node.inputs)}, got {len(results)}",
                op=node.type,
                node=node.name,
                line=node.line,
            )
        for i, (source, grad) in enumerate(zip(node.inputs, results, strict=True)):
            _check_result(node, i, source, grad)
        wanted = [
            grad if path.leads_to(source) else None
            for source, grad in zip(node.inputs, results, strict=True)
        ]
        return _gated(wanted) if self.gate else wanted


def _check_result(node: Node, position: int, source: Output, grad: Any) -> None:
    if grad is None or source.dtype is dtypes.resource:
        return
    if type(grad) is Output:
        if grad.dtype is source.dtype.base_dtype and (
            grad.dims == source.dims or compatible_dims(grad.dims, source.dims)
        ):
            return
    elif isinstance(grad, IndexedSlices) and grad.dtype is source.dtype.base_dtype:
        return
    raise errors.InvalidArgumentError(
        f"the gradient of {node.type} for input {position} must fit {source!r}, got {grad!r}",
        op=node.type,
        node=node.name,
        line=node.line,
    )


def _gated(results: Sequence[Grad | None]) -> list[Grad | None]:
    from weft_graph.ops import control

    present = [grad for grad in results if grad is not None]
    if len(present) < 2:
        return list(results)
    gated = iter(control.tuple(present))
    return [None if grad is None else next(gated) for grad in results]


class _Path:
    """The nodes on a path from a source to a target.

    Inputs come before their users in the order of construction, so one sweep each way finds them.

    Attributes:
      nodes: in the order of construction.
    """

    def __init__(
        self, targets: Sequence[Output], sources: Sequence[Output], stops: set[Output]
    ) -> None:
        self._sources = set(sources)
        self._stops = stops
        self._reached: set[Node] = set()
        needed: set[Node] = set()
        stack = [target.node for target in targets]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend([i.node for i in node.inputs if i not in stops])
        self.nodes: list[Node] = []
        for node in sorted(needed, key=_by_index):
            for source in node.inputs:
                if self.leads_to(source):
                    self._reached.add(node)
                    self.nodes.append(node)
                    break

    def leads_to(self, output: Output) -> bool:
        """Whether a gradient of `output` is of use to some source."""
        if output in self._sources:
            return True
        return output.node in self._reached and output not in self._stops


def _by_index(node: Node) -> int:
    return node.index


# ------------------------------------------------------------------------ values


def is_trainable(output: Output) -> bool:
    """Whether gradients flow through an output's element type."""
    dtype = output.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype is dtypes.resource


def _needs_zeros(output: Output) -> bool:
    return is_trainable(output) and output.dtype is not dtypes.resource


def zeros_like(output: Output) -> Output:
    """Zeros of the shape of an output."""
    from weft_graph.ops import array

    return array.zeros_like(output, optimize=False)


def as_dense(grad: Grad | None) -> Output | None:
    """`grad` as one output; says so when much memory is spent on it."""
    if grad is None or type(grad) is Output:
        return grad
    _warn_dense(grad)
    return builder.convert_to_tensor(grad)


_warned: set[str] = set()


def _warn_dense(grad: Any) -> None:
    from weft_graph.constant_value import constant_value_as_dims

    dims = None if grad.dense_shape is None else constant_value_as_dims(grad.dense_shape)
    size = 1
    for d in dims or ():
        size *= d or 1
    if size * grad.dtype.size >= _DENSE_WARNING_BYTES and "dense" not in _warned:
        _warned.add("dense")
        _log.warning(
            "a sparse gradient of shape %s is made dense, which may take much memory", dims
        )


def add_all(grads: Sequence[Grad]) -> Grad:
    """The sum of gradients for one output; sparse ones stay sparse when all are."""
    if all(isinstance(grad, IndexedSlices) for grad in grads):
        return _concatenate(grads)  # type: ignore[arg-type]
    return builder.out("AddN", [[as_dense(grad) for grad in grads]])


def _concatenate(grads: Sequence[IndexedSlices]) -> IndexedSlices:
    from weft_graph.ops import array

    return IndexedSlices(
        array.concat([grad.values for grad in grads], 0),
        array.concat([grad.indices for grad in grads], 0),
        grads[0].dense_shape,
    )


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _source(x: Any) -> Output:
    """The output that stands for x: for a variable its reference or handle, not a snapshot."""
    handle = getattr(x, "handle", None)
    if isinstance(handle, Output):
        return handle
    convert = getattr(x, "_as_output", None)
    if convert is not None:
        output: Output = convert(True)
        return output
    return builder.convert_to_tensor(x)


def _check(targets: Iterable[Output]) -> None:
    for output in targets:
        if not is_trainable(output):
            raise errors.InvalidTypeError(
                f"gradients requires each y to be floating or complex, got {output!r}",
                op=output.node.type,
                node=output.node.name,
                line=output.node.line,
            )


def _start(y: Output, grad: Any) -> Grad:
    if grad is None:
        from weft_graph.ops import array

        return array.ones_like(y, optimize=True)
    if isinstance(grad, IndexedSlices):
        return grad
    given = builder.convert_to_tensor(grad, y.dtype.base_dtype)
    if not compatible_dims(given.dims, y.dims):
        raise errors.InvalidArgumentError(f"grad_ys: {given!r} does not have the shape of {y!r}")
    return given


def _final(walk: _Walk, x: Output, mode: str) -> Grad | None:
    grad = walk.total(x)
    if grad is None and mode == "zero":
        if x.dtype is dtypes.resource:
            return zeros_like(builder.out("ReadVariableOp", [x], {"dtype": x.node.attrs["dtype"]}))
        return zeros_like(x)
    return grad
