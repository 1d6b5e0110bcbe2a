"""Gradients of stacks.

A loop is differentiated as a whole, with the stacks of its gradient inside it. By themselves a push
and a pop are joined by the handle alone, along which no gradient flows: that of a value that was
popped could not find the push it belongs to.
"""

from __future__ import annotations

from typing import Any

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node
from weft_tensor import errors


@RegisterGradient("StackCopy")
def _copy(op: Node, grad: Any) -> Any:
    raise errors.UnimplementedError(
        f"the gradient of {op.name!r}: the gradient of a nested loop cannot be differentiated "
        "with respect to the initial values of the inner loop",
        op=op.type,
        node=op.name,
        line=op.line or None,
    )


@RegisterGradient("StackPushV2", accepts_sparse=True)
def _push(op: Node, grad: Any) -> list[Any]:
    return [None, grad]
