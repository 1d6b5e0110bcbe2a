"""Ranges and counts have no gradients."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in ("Range", "LinSpace", "Bincount", "HistogramFixedWidth"):
    NotDifferentiable(_op)
