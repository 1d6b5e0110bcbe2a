"""Products of several slices of one tensor with the same weights, as one product.

Recurrent networks that were unrolled when they were written multiply the input of each step by
itself, so the weights come from memory as often as there are steps. As one product they come once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper

from weft_io.onnx.model import plain_domain
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

    def __init__(self, source: str, axis: int, place: int) -> None:
        self.source, self.axis, self.place = source, axis, place


def with_products_joined(
    nodes: Sequence[NodeProto], values: Values, fixed: Mapping[str, TensorProto]
) -> tuple[list[NodeProto], dict[str, Array]]:
    """Join the products with slices of one tensor into a single product.

    Args:
      nodes: of a graph, in order.
      values: reads tensors.
      fixed: weights and constants that never change, by name.
    Returns: nodes, and new constants by name.
    """
    slices: dict[str, _Slice] = {}
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at, node in enumerate(nodes):
        if plain_domain(node.domain):
            continue
        if node.op_type == "Gather" and (found := _slice(node, values, fixed)) is not None:
            slices[node.output[0]] = found
        elif node.op_type == "Gemm" and node.input[0] in slices and _fits(node, fixed):
            taken = slices[node.input[0]]
            turned = str(_attribute(node, "transB", 0))
            groups[taken.source, str(taken.axis), turned, *node.input[1:]].append(at)
    taken_names = {*fixed, *(name for node in nodes for name in (*node.input, *node.output))}
    result: list[list[NodeProto]] = [[node] for node in nodes]
    made: dict[str, Array] = {}
    for members in groups.values():
        prefix = nodes[members[0]].output[0] + "/joined"
        if len(members) > 1 and not any(name.startswith(prefix) for name in taken_names):
            _join(prefix, members, nodes, slices, result)
            places = [slices[nodes[at].input[0]].place for at in members]
            made[f"{prefix}/places"] = np.array(places, np.int64)
            made.update({f"{prefix}/{k}": np.array(k, np.int64) for k in range(len(members))})
            made[f"{prefix}/weights"] = _weights(nodes[members[0]], values, fixed)
    return [node for part in result for node in part], made


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _slice(node: NodeProto, values: Values, fixed: Mapping[str, TensorProto]) -> _Slice | None:
    """Return the slice that a node extracts from a tensor, whose rank 3 follows from a Gemm."""
    axis = _attribute(node, "axis", 0)
    place = fixed.get(node.input[1]) if len(node.input) == 2 else None
    if place is None or place.dims or axis not in (0, 1, -3, -2) or len(node.output) != 1:
        return None
    if place.data_type not in (TensorProto.INT32, TensorProto.INT64):
        return None
    if any(each.name != "axis" or each.ref_attr_name for each in node.attribute):
        return None
    return _Slice(node.input[0], axis, int(values.array(place)))


def _fits(node: NodeProto, fixed: Mapping[str, TensorProto]) -> bool:
    """Return True if a Gemm multiplies by constant weights, and adds at most a constant vector."""
    if len(node.input) not in (2, 3) or len(node.output) != 1:
        return False
    if not all(map(_is_plain, node.attribute)):
        return False
    weights = [fixed.get(name) for name in node.input[1:] if name]
    kinds = {None if each is None else each.data_type for each in weights}
    if len(kinds) != 1 or kinds.isdisjoint(_TYPES):
        return False
    ranks = [len(each.dims) for each in weights if each is not None]
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
    result: list[list[NodeProto]],
) -> None:
    """Insert the joint product before its first member, and slices of it in their places.

    The first member remains, with an unused result, since its rule validates the operands.
    """
    first = nodes[members[0]]
    checked = NodeProto()
    checked.CopyFrom(first)
    checked.output[0] = f"{prefix}/first"
    taken = slices[first.input[0]]
    rows, product = f"{prefix}/rows", f"{prefix}/product"
    found = product
    new = [
        checked,
        helper.make_node("Gather", [taken.source, f"{prefix}/places"], [rows], axis=taken.axis),
        helper.make_node("MatMul", [rows, f"{prefix}/weights"], [product], name=first.name),
    ]
    if len(first.input) > 2 and first.input[2]:
        found = f"{prefix}/sum"
        new.append(helper.make_node("Add", [product, first.input[2]], [found], name=first.name))
    for k, at in enumerate(members):
        part = [found, f"{prefix}/{k}"]
        node = helper.make_node("Gather", part, list(nodes[at].output), axis=taken.axis)
        node.name = nodes[at].name
        result[at] = [*(new if k == 0 else ()), node]
