"""Removal of nodes that have no effect in inference.

    y = x * scale * cast(uniform(shape(x)) >= 0)   →   y = x * scale
    mean -= (mean - batch_mean) * 0                →   nothing

Programs feed 1 as the keep probability of dropout, or 0 as its rate, in evaluation.
Random numbers are in [0, 1), so the comparison is then true everywhere. Batch normalization in
inference weights the batch's statistics by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.control_inputs import release_controls

_REASON: Final = "inference"
_ADD: Final = frozenset({"Add", "AddV2"})
_UPDATES: Final = frozenset(
    {"AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp"}
)


def drop_masks(step: StepGraph) -> int:
    """Replace products with masks of ones by their other factor.

    A mask is `uniform >= rate`, or `floor(keep_prob + uniform)` in graphs of before TensorFlow
    1.13. If the mask may change the shape of a product, it is replaced by ones.

    Returns: the number of replaced masks.
    """
    masks = list(_find_all_ones_masks(step))
    for mask, noise in masks:
        for product in [user for user in mask.consumers() if user.type == "Mul"]:
            factor = product.inputs[1 if product.inputs[0] is mask else 0]
            if not product.controls and _covers(factor, noise):
                step.replace(product.outputs[0], factor, reason=_REASON)
        step.replace(mask, _ones(step, mask, noise.inputs[0]), reason=_REASON)
    if masks:
        step.remove_unreachable(reason=_REASON)
    return len(masks)


def _ones(step: StepGraph, mask: Output, shape: Output) -> Output:
    """Return ones of the dtype of a mask."""
    graph, dtype = step.graph, mask.dtype
    attrs = {"value": np.ones((), dtype.as_numpy_dtype), "dtype": dtype}
    name = graph.unique_name(f"{mask.node.name}/one")
    constant = graph.add_derived(mask.node, lookup_op("Const"), name, (), attrs, [dtype], [()])
    graph.set_control_inputs(constant, mask.node.controls, reason=_REASON)
    return graph.add_derived(
        mask.node,
        lookup_op("Fill"),
        graph.unique_name(f"{mask.node.name}/ones"),
        (shape, constant.outputs[0]),
        {"T": dtype, "index_type": shape.dtype},
        [dtype],
        [mask.dims],
    ).outputs[0]


def drop_null_updates(step: StepGraph) -> int:
    """Remove updates of variables that add or subtract zero or a product with zero.

    Returns: the number of removed updates; targets are kept.
    """
    nodes = [n for n in step.graph.nodes if n.type in _UPDATES and _is_zero(n.inputs[1])]
    nodes = [node for node in nodes if node not in step.targets]
    if not nodes:
        return 0
    sources: dict[Node, Output | None] = {}
    for node in nodes:
        sources[node] = step.resolve(node.inputs[0]) if node.outputs else None
        for output in node.outputs:
            step.replace(output, step.resolve(node.inputs[0]), reason=_REASON)
    release_controls(step, sources)
    step.remove_unreachable(reason=_REASON)
    return len(nodes)


def _is_zero(output: Output) -> bool:
    factors = [output, *(output.node.inputs if output.node.type == "Mul" else ())]
    return any(_is_constant(factor, lambda x: x == 0) for factor in factors)


def _find_all_ones_masks(step: StepGraph) -> Iterator[tuple[Output, Node]]:
    """Yield masks that are 1 everywhere, with the node that generates their random numbers."""
    for node in step.graph.nodes:
        if node.type == "GreaterEqual":
            noise = _uniform(node.inputs[0])
            if noise is not None and _is_constant(node.inputs[1], lambda rate: rate <= 0):
                for user in node.consumers:
                    if user.traits.casts:
                        yield user.outputs[0], noise
        elif node.type == "Floor" and node.inputs[0].node.type in _ADD:
            pair = node.inputs[0].node.inputs
            for keep, numbers in (pair, pair[::-1]):
                noise = _uniform(numbers)
                if noise is not None and _is_constant(keep, lambda keep_value: keep_value == 1):
                    yield node.outputs[0], noise


def _is_constant(output: Output, test: Callable[[Any], Any]) -> bool:
    """Return True if a value is static and a predicate is true for all its elements."""
    value = constant_value(output)
    return value is not None and bool(np.all(test(value)))


def _uniform(output: Output) -> Node | None:
    """Return the node that generates an output's uniform numbers, or None; `1 * x + 0` is x."""
    node = output.node
    for neutral, types in ((0, _ADD), (1, frozenset({"Mul"}))):
        if node.type in types and _is_constant(node.inputs[1], lambda x, n=neutral: x == n):  # type: ignore[misc]
            node = node.inputs[0].node
    return node if node.type == "RandomUniform" else None


def _covers(factor: Output, noise: Node) -> bool:
    """Return True if a mask made from `noise` broadcasts to the shape of `factor`."""
    shape = noise.inputs[0].node
    if shape.traits.tells_shape and shape.inputs[0] in (factor, _skip_scaling(factor)):
        return True
    dims, sizes = factor.dims, noise.outputs[0].dims
    if dims is None or sizes is None or None in dims or len(sizes) > len(dims):
        return False
    pairs = zip(sizes[::-1], dims[::-1], strict=False)
    return all(size == 1 or size == dim for size, dim in pairs)


def _skip_scaling(output: Output) -> Output:
    """Return the tensor that an output scales by a scalar, or the output itself."""
    node = output.node
    if node.type in ("Mul", "RealDiv", "Div") and node.inputs[1].dims == ():
        return node.inputs[0]
    return output
