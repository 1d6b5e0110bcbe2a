"""Gradients of collective ops."""

from __future__ import annotations

import hashlib

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_tensor import errors


@RegisterGradient("CollectiveReduce")
def _reduce(node: Node, grad: Output) -> Output:
    """Sum the gradients of all members, because each input is a term of every member's sum."""
    attrs = dict(node.attrs)
    if attrs["merge_op"] != "Add":
        raise errors.InvalidArgumentError(
            f"only sums are differentiable: merge_op must be Add, got {attrs['merge_op']}",
            op=node.type,
            node=node.name,
            line=node.line or None,
        )
    attrs["instance_key"] = _key_of_gradient(node)
    return out(node.type, [grad], {k: v for k, v in attrs.items() if not k.startswith("_")})


def _key_of_gradient(node: Node) -> int:
    """Return a unique instance key, which all members derive in the same way."""
    earlier_gradients = [n for n in node.graph.nodes if n.type == node.type and n.forward is node]
    text = f"gradient {len(earlier_gradients)} of {node.attrs['instance_key']}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 2
