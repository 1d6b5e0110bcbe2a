"""No gradient flows through a pipeline: what comes out is data."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "BatchDatasetV2",
    "CacheDataset",
    "ConcatenateDataset",
    "FilterDataset",
    "FixedLengthRecordDatasetV2",
    "FlatMapDataset",
    "InterleaveDataset",
    "IteratorFromStringHandleV2",
    "IteratorGetNext",
    "IteratorRestoreState",
    "IteratorSerializeState",
    "IteratorToStringHandle",
    "IteratorV2",
    "MakeIterator",
    "MapDataset",
    "OneShotIterator",
    "PaddedBatchDatasetV2",
    "ParallelInterleaveDatasetV2",
    "ParallelMapDataset",
    "PrefetchDataset",
    "PythonGeneratorDataset",
    "RangeDataset",
    "RepeatDataset",
    "ShardDataset",
    "ShuffleDataset",
    "SkipDataset",
    "TFRecordDataset",
    "TakeDataset",
    "TensorDataset",
    "TensorSliceDataset",
    "TextLineDataset",
    "UnbatchDataset",
    "ZipDataset",
):
    NotDifferentiable(_op)
