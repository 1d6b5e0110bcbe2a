"""No gradient flows through sparse tensors that are kept aside."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

NotDifferentiable("AddManySparseToTensorsMap")
NotDifferentiable("AddSparseToTensorsMap")
NotDifferentiable("TakeManySparseFromTensorsMap")
