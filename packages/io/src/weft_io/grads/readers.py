"""No gradient flows through a reader."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "FixedLengthRecordReaderV2",
    "IdentityReaderV2",
    "ParquetReaderV2",
    "ReaderNumRecordsProducedV2",
    "ReaderNumWorkUnitsCompletedV2",
    "ReaderReadUpToV2",
    "ReaderReadV2",
    "ReaderResetV2",
    "ReaderRestoreStateV2",
    "ReaderSerializeStateV2",
    "TFRecordReaderV2",
    "TextLineReaderV2",
    "WholeFileReaderV2",
):
    NotDifferentiable(_op)
