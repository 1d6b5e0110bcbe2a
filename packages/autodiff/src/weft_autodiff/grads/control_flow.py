"""Gradients of control-flow primitives.

Whole conditionals and loops are differentiated in `conditionals.py` and `loops.py`. The functions
here differentiate single primitives: for gradients computed inside a branch or a body, and in
graphs that were built without contexts.
"""

from __future__ import annotations

from typing import Any

from weft_autodiff.gradients.units import manual_loop_error
from weft_autodiff.gradients.values import zeros_for
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.node import Node
from weft_graph.ops import control_flow as primitives


@RegisterGradient("Switch", accepts_none=True)
@RegisterGradient("RefSwitch", accepts_none=True)
def _switch(op: Node, *grads: Any) -> list[Any]:
    """Return the gradient of a Switch; inside a branch, only one output has a gradient."""
    present = [grad for grad in grads if grad is not None]
    if op.context is not None or len(present) == 0:
        return [present[0] if present else None, None]
    data, pred = op.inputs
    sides = [
        primitives.switch(zeros_for(data), pred)[i] if grad is None else grad
        for i, grad in enumerate(grads)
    ]
    return [primitives.merge(sides).output, None]


@RegisterGradient("Enter")
@RegisterGradient("RefEnter")
def _enter(op: Node, grad: Any) -> Any:
    """Return the gradient of an Enter inside the body, for this iteration."""
    return grad if op.attrs["is_constant"] else None


@RegisterGradient("Merge", accepts_none=True)
@RegisterGradient("RefMerge", accepts_none=True)
def _merge(op: Node, grad: Any, _: Any) -> list[Any]:
    """Return the gradient of a loop variable inside its loop, where it starts a new iteration."""
    if op.context is not None and op.context.repeats:
        return [None] * len(op.inputs)
    raise manual_loop_error(op)


@RegisterGradient("Exit")
@RegisterGradient("RefExit")
@RegisterGradient("NextIteration")
@RegisterGradient("RefNextIteration")
def _raise_manual_loop(op: Node, grad: Any) -> Any:
    raise manual_loop_error(op)
