"""Gradients of calls: calls of functions that compute them.

The gradient of a call is another function of the library, built when it is first asked for. It
takes the inputs of the call, gradients of its outputs, and further outputs of the call: the values
that a second run could not compute again. It computes the rest of the body once more;
where both are inlined, merging of common subexpressions leaves one of the two computations.
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
        return _by_python(op, function, grads)
    if function.gradient_name is not None:
        return _by_function(op, function, grads)
    made = gradient_function(function, kinds_of(op, grads))
    return _called(op, made, grads)


def _called(op: Node, made: GradientFunction, grads: Sequence[Grad | None]) -> list[Grad | None]:
    called = made.function
    if isinstance(called, Function):
        if not called.outputs:
            return [None] * len(op.inputs)
        op.graph.functions.add(called)
    inputs = [source.of(op, grads, op.graph) for source in made.takes]
    _, results = call_node(called, inputs)
    values = iter(results)
    found: list[Grad | None] = []
    for source, kind in zip(op.inputs, made.gives, strict=True):
        if kind is None:
            found.append(None)
        elif kind is Output:
            found.append(next(values))
        else:
            found.append(IndexedSlices(next(values), next(values), shape_for(source)))
    return found


def _dense_or_zeros(op: Node, grads: Sequence[Grad | None], count: int) -> list[Output | None]:
    return [
        zeros_for(output) if grad is None and needs_zeros(output) else as_dense(grad)
        for output, grad in zip(op.outputs[:count], grads[:count], strict=True)
    ]


def _by_python(op: Node, function: Function, grads: Sequence[Grad | None]) -> list[Any]:
    """The gradient that the function's author builds."""
    answer = function.python_gradient(op, *_dense_or_zeros(op, grads, function.results))
    results = list(answer) if isinstance(answer, list | tuple) else [answer]
    missing = len(op.inputs) - len(results)
    if 0 < missing <= function.captured_count:
        results += [None] * missing
    return results


def _by_function(op: Node, function: Function, grads: Sequence[Grad | None]) -> list[Any]:
    """The gradient that a function of the library computes: one result for each input."""
    assert function.gradient_name is not None
    other = op.graph.functions[function.gradient_name]
    given = _dense_or_zeros(op, grads, function.results)
    wanted = other.input_types[len(op.inputs) :]
    starts = [grad for grad in given if grad is not None]
    starts = starts[: len(wanted)]
    _, results = call_node(other, [*op.inputs, *starts])
    found: list[Any] = []
    values = iter(results)
    for source in op.inputs[: len(op.inputs) - function.captured_count]:
        value = next(values, None)
        found.append(value if is_trainable(source) else None)
    return found + [None] * function.captured_count
