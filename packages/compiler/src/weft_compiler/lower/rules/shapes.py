"""Shape, size and rank ops, which are constants where shapes are known."""

from __future__ import annotations

from weft_compiler.lower.registry import Operation, Unsupported, lowers
from weft_compiler.lower.values import Value


@lowers("Shape", "ShapeN", "Size", "Rank")
@lowers("BroadcastArgs", "BroadcastGradientArgs", known=(0, 1))
def _sizes(op: Operation) -> Value:
    """Raise: results that are known become constants before any rule is called."""
    raise Unsupported(f"the results of {op.name} depend on values")
