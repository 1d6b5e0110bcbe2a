"""Conversion of exceptions of kernels to OpErrors with location."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft_graph.ir.graph import Graph
from weft_graph.ir.op_def import NodeSpec, lookup_op
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.node import Node, Output

_BAD_INPUT = (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError)
_MOST_ELEMENTS = 1024
"""Maximum number of elements of an input whose value is passed to a shape rule."""


def describe(value: Any) -> str:
    """Return the type and shape of an array, `float32[2,3]`.

    For other objects, the name of the class.
    """
    if isinstance(getattr(value, "dtype", None), np.dtype) and hasattr(value, "shape"):
        name = "string" if value.dtype.hasobject else value.dtype.name
        return f"{name}[{','.join(map(str, value.shape))}]"
    return type(value).__name__


def to_op_error(
    error: BaseException, node: Node, device: str, inputs: Iterable[Any]
) -> errors.OpError:
    """Convert `error` to an OpError with op, node, device, inputs and the user's line.

    If the op's shape rule rejects the inputs, its message is used, because it states the
    requirement.
    Other exceptions of NumPy and Python become InvalidArgumentError, MemoryError becomes
    ResourceExhaustedError, anything else InternalError.
    """
    inputs = tuple(inputs)
    if isinstance(error, errors.OpError):
        argument_error = error
    elif isinstance(error, MemoryError):
        argument_error = errors.ResourceExhaustedError(f"out of memory: {error}")
    elif (refused := shape_rule_error(node, inputs)) is not None:
        argument_error = refused
    elif isinstance(error, np.linalg.LinAlgError):
        words = f"the matrices cannot be decomposed: {error}; are they finite?"
        argument_error = errors.InvalidArgumentError(words)
    elif isinstance(error, _BAD_INPUT):
        argument_error = errors.InvalidArgumentError(str(error))
    else:
        argument_error = errors.InternalError(f"the kernel raised {type(error).__name__}: {error}")
    if argument_error is not error:
        argument_error.__cause__ = error
    return argument_error.with_context(
        op=node.type,
        node=node.name,
        device=device,
        line=node.line or None,
        inputs=[describe(value) for value in inputs],
    )


def shape_rule_error(node: Node, inputs: Sequence[Any]) -> errors.OpError | None:
    """Return the error of the op's shape rule for the actual inputs of a kernel, if any.

    During graph construction, shapes and values may have been unknown to the rule. None if the rule
    accepts the inputs or the op has no rule.
    """
    rule = node.op_def.shape_rule
    if rule is None or node.traits.host_code or len(inputs) != len(node.inputs):
        return None
    graph = Graph()
    try:
        descriptions = [
            _describe_value(graph, source, value)
            for source, value in zip(node.inputs, inputs, strict=True)
        ]
        rule(NodeSpec(tuple(descriptions), node.attrs))
    except errors.OpError as error:
        return error
    except Exception:  # because the kernel's own error is then more useful
        return None
    return None


def _describe_value(graph: Graph, source: Output, value: Any) -> Output:
    """Return an output that tells shape rules all facts about a value."""
    dtype = source.dtype
    if dtype.is_ref or not dtype.is_numpy_compatible or not hasattr(value, "shape"):
        return source
    shape = tuple(value.shape)
    is_small = isinstance(value, np.ndarray | np.generic) and value.size <= _MOST_ELEMENTS
    op, attrs = "Placeholder", {"dtype": dtype, "shape": shape}
    if is_small:
        op, attrs = "Const", {"dtype": dtype, "value": np.asarray(value)}
    name = f"input_{len(graph.nodes)}"
    node = graph.add_node(lookup_op(op), name, (), attrs, (dtype,), (shape,))
    return node.outputs[0]


def raise_located(op_error: errors.OpError) -> NoReturn:
    """Raise the OpError of `to_op_error`, chained to its cause.

    No frame in the traceback may refer to the error, or the kernel's inputs would live until the
    next cyclic garbage collection.
    """
    try:
        raise op_error from op_error.__cause__
    finally:
        del op_error
