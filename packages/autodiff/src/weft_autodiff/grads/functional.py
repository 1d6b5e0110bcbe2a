"""Gradients of function calls, as calls of gradient functions.

The gradient function of a call is added to the library at its first use. Its inputs are the inputs
of the call, the gradients of its outputs, and saved forward values that a second run could not
recompute. It recomputes the rest of the body. If both functions are inlined, common-subexpression
elimination removes one of the two computations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_autodiff.gradients.functions import GradientFunction, gradient_function, kinds_of
from weft_autodiff.gradients.values import (
    Grad,
    as_dense,
    is_trainable,
    needs_zeros,
    shape_for,
    zeros_for,
)
from weft_autodiff.registry import RegisterGradient
from weft_graph.functions.call import call_node
from weft_graph.functions.function import Function
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.passes.inline import function_of


@RegisterGradient("PartitionedCall", accepts_none=True, accepts_sparse=True)
@RegisterGradient("StatefulPartitionedCall", accepts_none=True, accepts_sparse=True)
def _call(op: Node, *grads: Grad | None) -> Sequence[Any]:
    function = function_of(op)
    if function.python_gradient is not None:
        return _apply_python_gradient(op, function, grads)
    if function.gradient_name is not None:
        return _apply_function_gradient(op, function, grads)
    gradient = gradient_function(function, kinds_of(op, grads))
    return _call_gradient(op, gradient, grads)


def _call_gradient(
    op: Node, gradient: GradientFunction, grads: Sequence[Grad | None]
) -> list[Grad | None]:
    function = gradient.function
    if isinstance(function, Function):
        if not function.outputs:
            return [None] * len(op.inputs)
        op.graph.functions.add(function)
    inputs = [source.of(op, grads, op.graph) for source in gradient.takes]
    _, results = call_node(function, inputs)
    values = iter(results)
    input_grads: list[Grad | None] = []
    for source, kind in zip(op.inputs, gradient.gives, strict=True):
        if kind is None:
            input_grads.append(None)
        elif kind is Output:
            input_grads.append(next(values))
        else:
            input_grads.append(IndexedSlices(next(values), next(values), shape_for(source)))
    return input_grads


def _dense_or_zeros(op: Node, grads: Sequence[Grad | None], count: int) -> list[Output | None]:
    return [
        zeros_for(output) if grad is None and needs_zeros(output) else as_dense(grad)
        for output, grad in zip(op.outputs[:count], grads[:count], strict=True)
    ]


def _apply_python_gradient(op: Node, function: Function, grads: Sequence[Grad | None]) -> list[Any]:
    """Return the gradient built by the function's custom gradient in Python."""
    answer = function.python_gradient(op, *_dense_or_zeros(op, grads, function.results))
    results = list(answer) if isinstance(answer, list | tuple) else [answer]
    missing = len(op.inputs) - len(results)
    if 0 < missing <= function.captured_count:
        results += [None] * missing
    return results


def _apply_function_gradient(
    op: Node, function: Function, grads: Sequence[Grad | None]
) -> list[Any]:
    """Return the gradient computed by a function of the library: one result for each input."""
    assert function.gradient_name is not None
    gradient_function = op.graph.functions[function.gradient_name]
    output_grads = _dense_or_zeros(op, grads, function.results)
    input_types = gradient_function.input_types[len(op.inputs) :]
    starts = [grad for grad in output_grads if grad is not None]
    starts = starts[: len(input_types)]
    _, results = call_node(gradient_function, [*op.inputs, *starts])
    input_grads: list[Any] = []
    values = iter(results)
    for source in op.inputs[: len(op.inputs) - function.captured_count]:
        value = next(values, None)
        input_grads.append(value if is_trainable(source) else None)
    return input_grads + [None] * function.captured_count
