"""No gradient flows through an accumulator of gradients."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _prefix in ("", "Resource"):
    for _op in (
        "AccumulatorApplyGradient",
        "AccumulatorNumAccumulated",
        "AccumulatorSetGlobalStep",
        "AccumulatorTakeGradient",
        "ConditionalAccumulator",
    ):
        NotDifferentiable(_prefix + _op)
NotDifferentiable("SparseAccumulatorApplyGradient")
NotDifferentiable("SparseAccumulatorTakeGradient")
NotDifferentiable("SparseConditionalAccumulator")
