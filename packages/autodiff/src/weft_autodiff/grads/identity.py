"""Gradients of ops that return their input."""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


def _pass_gradient(op: Node, grad: Any) -> Any:
    return grad


for _op in ("Identity", "Snapshot", "EnsureShape"):
    RegisterGradient(_op, accepts_sparse=True)(_pass_gradient)


@RegisterGradient("IdentityN", accepts_none=True, accepts_sparse=True)
def _identity_n(op: Node, *grads: Any) -> list[Any]:
    return list(grads)


@RegisterGradient("PreventGradient", accepts_sparse=True)
def _prevent_gradient(op: Node, grad: Any) -> Any:
    message = op.get_attr("message").decode(errors="replace")
    raise LookupError(f"Gradient explicitly disabled at {op.name!r}. Reason: {message!r}")


@RegisterGradient("CheckNumerics")
def _check_numerics(op: Node, grad: Output) -> Output:
    message = f"Not a number (NaN) or infinity (Inf) values detected in gradient. {op.name}"
    return out("CheckNumerics", [grad], {"message": message})
