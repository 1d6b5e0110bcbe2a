"""Candidate samplers draw classes: no gradient flows through them."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "AllCandidateSampler",
    "ComputeAccidentalHits",
    "FixedUnigramCandidateSampler",
    "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler",
    "UniformCandidateSampler",
):
    NotDifferentiable(_op)
