"""Symbolic gradients: the chain rule, written into the graph (paper, section 4.1)."""

from __future__ import annotations

__all__ = ["AggregationMethod", "UnconnectedGradients", "gradients"]

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from weft_autodiff.gradients.conditionals import differentiate_conditional
from weft_autodiff.gradients.enclosing_graph import EnclosingGraph
from weft_autodiff.gradients.loops import differentiate_loop
from weft_autodiff.gradients.values import Grad, add_all, is_trainable, zeros_for, zeros_like
from weft_autodiff.gradients.walk import Rule, Walk
from weft_autodiff.registry import name_calls
from weft_graph.control_flow.context import (
    Conditional,
    WhileContext,
    current_context,
)
from weft_graph.ir import builder
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output, check_same_graph
from weft_graph.ir.scopes import check_visible
from weft_graph.ir.thread_stacks import tracing_depth
from weft_graph.ops import array
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims

_RULES: Final[Mapping[type, Rule]] = {
    WhileContext: differentiate_loop,
    Conditional: differentiate_conditional,
}


class UnconnectedGradients(Enum):
    """Option of `gradients` for an x that no y depends on: return None, or zeros of its shape.

    Args:
      value: "none" or "zero".

    Examples:
      >>> x = wf.constant(3.0)
      >>> wf.gradients(wf.constant(1.0), x, unconnected_gradients=wf.UnconnectedGradients.NONE)
      [None]
      >>> zeros = wf.gradients(wf.constant(1.0), x, unconnected_gradients="zero")
      >>> wf.Session().run(zeros)
      [np.float32(0.0)]
    """

    NONE = "none"
    ZERO = "zero"


class AggregationMethod:
    """TensorFlow's options for summing partial gradients; weft always uses one AddN.

    Examples:
      >>> x = wf.constant(3.0)
      >>> method = wf.AggregationMethod.EXPERIMENTAL_TREE
      >>> wf.Session().run(wf.gradients(x * x, x, aggregation_method=method))
      [np.float32(6.0)]
    """

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
      gate_gradients: delay the use of a node's gradients until all of them are computed.
      aggregation_method: accepted for compatibility and ignored.
      stop_gradients: outputs treated as constants.
      unconnected_gradients: "none" or "zero" (or `UnconnectedGradients`): the result for xs that ys
        do not depend on.
    Returns: one gradient per x, with its shape and dtype; IndexedSlices if only some rows were
      read. An x that is neither floating nor complex counts as unconnected.
    Raises:
      InvalidTypeError: a y is neither floating nor complex.
      InvalidArgumentError: `grad_ys` do not match `ys`, ys and xs are in different graphs, or one
        of them is inside a loop and `gradients` is called outside of it.
      NotFoundError: a node between ys and xs has no registered gradient; the message names it.
    Source: paper, section 4.1.

    Examples:
      >>> x = wf.constant([1.0, 2.0])
      >>> (slope,) = wf.gradients(x**3, [x])
      >>> wf.Session().run(slope)
      array([ 3., 12.], dtype=float32)
    """
    mode = _mode(unconnected_gradients)
    targets = [builder.convert_to_tensor(y) for y in _as_list(ys)]
    xs_outputs = [_source(x) for x in _as_list(xs)]
    sources = [_find_capture(x) for x in xs_outputs]
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
    stops = {_source(s) for s in _as_list([] if stop_gradients is None else stop_gradients)}
    enclosing = EnclosingGraph(graph, xs_outputs, stops)
    stops |= {_find_capture(s) for s in stops}
    with (
        pause_gc(),
        graph.as_default(),
        graph.name_scope(name or "gradients") as scope,
        name_calls(scope),
        graph.under_construction(),
    ):
        level = current_context(graph)
        for output in (*targets, *sources):
            if output.node.context is not None:
                check_visible(output, level)
        walk = Walk(graph, level, _RULES, colocate=colocate_gradients_with_ops, gate=gate_gradients)
        for y, start in zip(targets, starts, strict=True):
            walk.receive(y, _start(y, start))
        passed = list(enclosing.arguments) if enclosing.reaches_out else []
        walk.back(targets, [*[x for x in sources if is_trainable(x)], *passed], stops)
        grads = [walk.total(x) for x in sources]
        if passed:
            outer_grads = enclosing.back(walk)
            grads = [
                _sum(None if source in enclosing.arguments else grad, outer_grads.get(x))
                for grad, source, x in zip(grads, sources, xs_outputs, strict=True)
            ]
        return [_final(grad, x, mode) for grad, x in zip(grads, sources, strict=True)]


def _mode(unconnected_gradients: Any) -> Any:
    mode = getattr(unconnected_gradients, "value", unconnected_gradients)
    if mode not in ("none", "zero"):
        raise errors.InvalidArgumentError(
            f"unconnected_gradients must be 'none' or 'zero', got {unconnected_gradients!r}"
        )
    return mode


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _source(x: Any) -> Output:
    """Return the output that represents an x: for a variable, its reference or handle."""
    handle = getattr(x, "handle", None)
    if isinstance(handle, Output):
        return handle
    return x if isinstance(x, Output) else builder.convert_to_tensor(x)


def _find_capture(output: Output) -> Output:
    """Return an output's capture in the function body under construction, if there is one."""
    return get_default_graph().capture(output) if tracing_depth() else output


def _sum(a: Grad | None, b: Grad | None) -> Grad | None:
    if a is None or b is None:
        return b if a is None else a
    return add_all([a, b])


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
        return array.ones_like(y, optimize=True)
    if isinstance(grad, IndexedSlices):
        return grad
    start = builder.convert_to_tensor(grad, y.dtype.base_dtype)
    if not compatible_dims(start.dims, y.dims):
        raise errors.InvalidArgumentError(f"grad_ys: {start!r} does not have the shape of {y!r}")
    return start


def _final(grad: Grad | None, x: Output, mode: str) -> Grad | None:
    if grad is None and mode == "zero":
        return zeros_for(x) if x.dtype is dtypes.resource else zeros_like(x)
    return grad
