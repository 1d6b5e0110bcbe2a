"""No gradient flows through a checkpoint."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

NotDifferentiable("SaveV2")
NotDifferentiable("RestoreV2")
NotDifferentiable("HoldForSave")
