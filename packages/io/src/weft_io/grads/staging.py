"""No gradient flows through a staging area."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in ("Stage", "StageClear", "StagePeek", "StageSize", "Unstage"):
    NotDifferentiable(_op)
for _prefix in ("Map", "OrderedMap"):
    for _op in ("Clear", "IncompleteSize", "Peek", "Size", "Stage", "Unstage", "UnstageNoKey"):
        NotDifferentiable(_prefix + _op)
