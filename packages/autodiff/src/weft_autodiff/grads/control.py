"""Gradients of ops that exist for order and effects."""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node


@RegisterGradient("RefIdentity", accepts_sparse=True)
def _ref_identity(op: Node, grad: Any) -> Any:
    return grad


@RegisterGradient("Print", accepts_sparse=True)
def _print(op: Node, grad: Any) -> list[Any]:
    return [grad] + [None] * (len(op.inputs) - 1)
