"""Gradients of random ops: none, on purpose."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "Multinomial",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "StatelessRandomNormal",
    "StatelessRandomUniform",
    "StatelessRandomUniformInt",
    "StatelessTruncatedNormal",
    "TruncatedNormal",
):
    NotDifferentiable(_op)
