"""No gradient flows through files."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

NotDifferentiable("MatchingFiles")
NotDifferentiable("ReadFile")
NotDifferentiable("WriteFile")
