"""Gradients of ops that exist for ordering or side effects."""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node
from weft_graph.ops.control import py_function_of


@RegisterGradient("RefIdentity", accepts_sparse=True)
def _ref_identity(op: Node, grad: Any) -> Any:
    return grad


@RegisterGradient("Print", accepts_sparse=True)
def _print(op: Node, grad: Any) -> list[Any]:
    return [grad] + [None] * (len(op.inputs) - 1)


@RegisterGradient("EagerPyFunc")
def _eager_py_func(op: Node, *grads: Any) -> Any:
    token = op.attrs["token"]
    call: Any = py_function_of(token.decode() if isinstance(token, bytes) else token)
    return call.gradient(op, grads)
