"""No gradient flows through formats of bytes."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "DecodeCSV",
    "DecodeCompressed",
    "DecodeJSONExample",
    "ParseExample",
    "ParseSequenceExample",
    "ParseSingleExample",
    "ParseSingleSequenceExample",
    "ParseTensor",
    "SerializeTensor",
):
    NotDifferentiable(_op)
