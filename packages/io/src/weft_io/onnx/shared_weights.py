"""Merging of products of several slices of a tensor with the same weights into one product.

Unrolled recurrent networks multiply the input of each step separately, so they read the weights
from memory in every step. A merged product reads them once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper

from weft_io.onnx.context import ImportContext, Rewrites
from weft_io.onnx.values import Values

Array = np.ndarray[Any, Any]

_TYPES: Final = (TensorProto.FLOAT, TensorProto.DOUBLE)


class _Slice:
    """A matrix that is a slice of a tensor of rank 3.

    Attributes:
      source: the name of the tensor.
      axis: 0 or 1.
      place: the position along the axis.
    """

    def __init__(self, source: str, axis: int, start: int) -> None:
        self.source, self.axis, self.start = source, axis, start


def join_products(
    nodes: Sequence[NodeProto], context: ImportContext, fixed: Mapping[str, TensorProto]
) -> None:
    """Merge the products with slices of the same tensor, as rewrites of the context.

    Args:
      nodes: nodes of the main graph, in order.
      fixed: arrays of weights and constants that never change, by name.
    """
    survey, values, rewrites = context.survey, context.values, context.rewrites
    slices: dict[str, _Slice] = {}
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in sorted(survey.positions["Gather"] + survey.positions["Gemm"]):
        node = nodes[index]
        if node.op_type == "Gather":
            if (part := _slice(node, values, fixed)) is not None:
                slices[node.output[0]] = part
        elif node.input and node.input[0] in slices and _fits(node, fixed):
            source = slices[node.input[0]]
            transposed = str(_attribute(node, "transB", 0))
            groups[source.source, str(source.axis), transposed, *node.input[1:]].append(index)
    groups_of_several = [members for members in groups.values() if len(members) > 1]
    for members in groups_of_several:
        prefix = nodes[members[0]].output[0] + "/joined"
        names = (*fixed, *survey.producers, *survey.num_uses)
        if not any(name.startswith(prefix) for name in names):
            _join(prefix, members, nodes, slices, rewrites)
            starts = [slices[nodes[index].input[0]].start for index in members]
            arrays = {f"{prefix}/{k}": np.array(k, np.int64) for k in range(len(members))}
            arrays[f"{prefix}/places"] = np.array(starts, np.int64)
            arrays[f"{prefix}/weights"] = _weights(nodes[members[0]], values, fixed)
            rewrites.weights.update(arrays)


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _slice(node: NodeProto, values: Values, fixed: Mapping[str, TensorProto]) -> _Slice | None:
    """Return the slice that a node extracts; a Gemm shows that the tensor has rank 3."""
    axis = _attribute(node, "axis", 0)
    start = fixed.get(node.input[1]) if len(node.input) == 2 else None
    if start is None or start.dims or axis not in (0, 1, -3, -2) or len(node.output) != 1:
        return None
    if start.data_type not in (TensorProto.INT32, TensorProto.INT64):
        return None
    if any(item.name != "axis" or item.ref_attr_name for item in node.attribute):
        return None
    return _Slice(node.input[0], axis, int(values.array(start)))


def _fits(node: NodeProto, fixed: Mapping[str, TensorProto]) -> bool:
    """Return True if a Gemm multiplies by constant weights, and adds at most a constant vector."""
    if len(node.input) not in (2, 3) or len(node.output) != 1:
        return False
    if not all(map(_is_plain, node.attribute)):
        return False
    weights = [fixed.get(name) for name in node.input[1:] if name]
    kinds = {None if item is None else item.data_type for item in weights}
    if len(kinds) != 1 or kinds.isdisjoint(_TYPES):
        return False
    ranks = [len(item.dims) for item in weights if item is not None]
    return ranks[0] == 2 and all(rank <= 1 for rank in ranks[1:])


def _is_plain(attribute: AttributeProto) -> bool:
    """Return True if an attribute of a Gemm affects at most the weights."""
    if attribute.ref_attr_name:
        return False
    if attribute.name in ("alpha", "beta"):
        return bool(attribute.f == 1.0)
    return attribute.name == "transB" or (attribute.name == "transA" and not attribute.i)


def _weights(node: NodeProto, values: Values, fixed: Mapping[str, TensorProto]) -> Array:
    weights = values.array(fixed[node.input[1]])
    return np.ascontiguousarray(weights.T) if _attribute(node, "transB", 0) else weights


def _join(
    prefix: str,
    members: Sequence[int],
    nodes: Sequence[NodeProto],
    slices: Mapping[str, _Slice],
    rewrites: Rewrites,
) -> None:
    """Insert the merged product before its first member, and slices of it in place of all members.

    The first member remains with an unused result, because its rule validates the operands.
    """
    first = nodes[members[0]]
    checked = NodeProto()
    checked.CopyFrom(first)
    checked.output[0] = f"{prefix}/first"
    source = slices[first.input[0]]
    rows, product = f"{prefix}/rows", f"{prefix}/product"
    result = product
    new = [
        checked,
        helper.make_node("Gather", [source.source, f"{prefix}/places"], [rows], axis=source.axis),
        helper.make_node("MatMul", [rows, f"{prefix}/weights"], [product], name=first.name),
    ]
    if len(first.input) > 2 and first.input[2]:
        result = f"{prefix}/sum"
        new.append(helper.make_node("Add", [product, first.input[2]], [result], name=first.name))
    for k, index in enumerate(members):
        part = [result, f"{prefix}/{k}"]
        node = helper.make_node("Gather", part, list(nodes[index].output), axis=source.axis)
        node.name = nodes[index].name
        rewrites.nodes[index] = (*(new if k == 0 else ()), node)
