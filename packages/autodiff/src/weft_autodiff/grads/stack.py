"""Gradients of stacks.

The gradient of a loop handles the stacks that it needs. Outside of that, a push and a pop are
connected only by the handle, through which no gradient flows, so the gradient of a popped value
cannot reach its push.
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
