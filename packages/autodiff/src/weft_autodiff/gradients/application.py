"""Calls of the registered gradient of a node, and checks of the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_autodiff.gradients.values import Grad, as_dense, needs_zeros, zeros_for
from weft_autodiff.registry import gradient_of
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes, errors
from weft_tensor.shape import compatible_dims


def apply_gradient(
    node: Node, grads: Sequence[Grad | None], needed: Sequence[bool]
) -> Sequence[Grad | None]:
    """Return the gradients of a node's inputs.

    Args:
      grads: gradients of its outputs.
      needed: for each input, whether its gradient is used; unused gradients may be omitted.
    Raises:
      NotFoundError: its op has no gradient.
      InvalidArgumentError: its gradient returns too many or too few values, or one that does not
        fit an input.

    Args:
      grads: gradients of its outputs.
      needed: for each input, True if its gradient is used; it may be left out where not.
    Raises:
      NotFoundError: its op has no gradient.
      InvalidArgumentError: its gradient function returns too many or too few values, or a value
        that does not match an input.
    """
    entry = gradient_of(node)
    output_grads = list(grads)
    if not entry.accepts_none:
        output_grads = [
            zeros_for(output) if grad is None and needs_zeros(output) else grad
            for output, grad in zip(node.outputs, output_grads, strict=True)
        ]
    if not entry.accepts_sparse:
        output_grads = [as_dense(grad) for grad in output_grads]
    options = {"needed": needed} if entry.accepts_needed else {}
    results: Any = entry.function(node, *output_grads, **options)
    if not isinstance(results, list | tuple):
        results = [results]
    if len(results) != len(node.inputs):
        raise _error(
            node,
            f"the gradient of {node.type} must return one gradient per input: required "
            f"{len(node.inputs)}, got {len(results)}",
        )
    for i, (source, grad) in enumerate(zip(node.inputs, results, strict=True)):
        if grad is not None and source.dtype is not dtypes.resource and not _fits(source, grad):
            raise _error(
                node,
                f"the gradient of {node.type} for input {i} must have the type and shape of "
                f"{source!r}, got {grad!r}",
            )
    return list(results)


def _fits(source: Output, grad: Any) -> bool:
    dtype = source.dtype.base_dtype
    if isinstance(grad, Output):
        return grad.dtype is dtype and (
            grad.dims == source.dims or compatible_dims(grad.dims, source.dims)
        )
    return isinstance(grad, IndexedSlices) and grad.dtype is dtype


def _error(node: Node, message: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(message, op=node.type, node=node.name, line=node.line)
