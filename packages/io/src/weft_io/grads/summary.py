"""No gradient flows through a summary."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "AudioSummaryV2",
    "HistogramSummary",
    "ImageSummary",
    "MergeSummary",
    "ScalarSummary",
    "TensorSummary",
    "TensorSummaryV2",
):
    NotDifferentiable(_op)
