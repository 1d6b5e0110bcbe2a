"""No gradient flows through a barrier."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "Barrier",
    "BarrierClose",
    "BarrierIncompleteSize",
    "BarrierInsertMany",
    "BarrierReadySize",
    "BarrierTakeMany",
):
    NotDifferentiable(_op)
