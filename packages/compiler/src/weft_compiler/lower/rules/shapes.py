"""Shape, size and rank ops, which are constants because shapes are known."""

from __future__ import annotations

from weft_compiler.lower.registry import Operation, Unsupported, lowers
from weft_compiler.lower.values import Value


@lowers("Shape", "ShapeN", "Size", "Rank")
@lowers("BroadcastArgs", "BroadcastGradientArgs", known_operands=(0, 1))
def _sizes(op: Operation) -> Value:
    """Raise: these results are constants, so no rule is called for them."""
    raise Unsupported(f"the results of {op.name} depend on values")
