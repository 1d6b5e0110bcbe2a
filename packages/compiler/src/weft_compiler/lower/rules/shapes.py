"""Sizes and axes, which are known wherever the shapes of operands are."""

from __future__ import annotations

from weft_compiler.lower.registry import Operation, Unsupported, lowers
from weft_compiler.lower.values import Value


@lowers("Shape", "ShapeN", "Size", "Rank")
@lowers("BroadcastArgs", "BroadcastGradientArgs", known=(0, 1))
def _sizes(op: Operation) -> Value:
    """Nothing is left to compute: what is known becomes a constant before any rule is asked."""
    raise Unsupported(f"what {op.name} gives depends on values")
