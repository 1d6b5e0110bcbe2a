"""Algebraic simplification with bit-exact results for every input."""

from __future__ import annotations

import numpy as np

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import Replacements, StepGraph
from weft_graph.ir.traits import Role
from weft_graph.ir.transfers import LOSSY
from weft_graph.passes.certain_shapes import CertainShapes
from weft_tensor.dtypes import DType


def simplify(step: StepGraph) -> int:
    """Apply every rule once to every node, inputs first.

    Returns: the number of replaced nodes.
    """
    replaced: list[Node] = []
    shapes = CertainShapes()
    with Replacements(step) as replacements:
        for node in step.graph.nodes:
            replacements.visit(node)
            replacement = None if node.controls else _equal_value(node, shapes)
            if replacement is None or any(
                source.node.controls for source in node.inputs if source is not replacement
            ):
                continue
            if replacement is not node.outputs[0]:
                replacements.add(node.outputs[0], replacement, reason=f"simplify {node.type}")
                replaced.append(node)
    step.drop_unused(replaced)
    return len(replaced)


def _equal_value(node: Node, shapes: CertainShapes) -> Output | None:
    """Return an existing value that always equals the only output of a node, or None."""
    traits = node.traits
    if traits.identity:
        return _identity(node)
    if traits.involution:
        return _involution(node)
    if traits.reshapes:
        return _reshape(node, shapes)
    if traits.stacks:
        return _stack(node, shapes)
    return _cast(node) if traits.casts else None


def _identity(node: Node) -> Output | None:
    source = node.inputs[0]
    return None if source.dtype.is_ref or LOSSY in node.attrs else source


def _involution(node: Node) -> Output | None:
    inner = node.inputs[0].node
    if inner.type == node.type and not inner.controls:
        return _identity(inner)
    return None


def _reshape(node: Node, shapes: CertainShapes) -> Output | None:
    source = node.inputs[0]
    dims = node.outputs[0].dims
    if dims is None or None in dims or source.dims != dims or source.dtype.is_ref:
        return None
    if any([operand.node.role is not Role.CONSTANT for operand in node.inputs[1:]]):
        return None  # the static shape may follow from the source's; what is given need not fit
    return source if shapes.hold_for(node) else None


def _cast(node: Node) -> Output | None:
    source, dtype = node.inputs[0], node.outputs[0].dtype
    if source.dtype is dtype:
        return source
    inner = source.node
    if inner.traits.casts and not inner.controls and inner.inputs[0].dtype is dtype:
        return inner.inputs[0] if _can_represent(source.dtype, dtype) else None
    return None


def _can_represent(wide: DType, narrow: DType) -> bool:
    """Return True if a dtype has all values of an integer dtype."""
    if not narrow.is_integer or not (wide.is_integer or wide.is_floating):
        return False
    if wide.is_floating:
        return wide.size > 2 and 8 * narrow.size <= int(np.finfo(wide.as_numpy_dtype).nmant)
    return bool(wide.min <= narrow.min and narrow.max <= wide.max)


def _stack(node: Node, shapes: CertainShapes) -> Output | None:
    """Return the value whose unstacked slices a node stacks, or None."""
    parts = node.inputs[0].node
    if not parts.traits.unstacks or parts.inputs[0].dtype.is_ref:
        return None
    is_inverse = node.attrs["axis"] == parts.attrs["axis"] and list(node.inputs) == list(
        parts.outputs
    )
    dims = parts.inputs[0].dims
    is_static = dims is not None and None not in dims and node.outputs[0].dims == dims
    return parts.inputs[0] if is_inverse and is_static and shapes.hold_for(parts) else None
