"""Attributes that TensorFlow added to ops after 1.15, and their values without effect.

Nodes and calls written for a newer TensorFlow may have them. weft does not implement them; it
accepts the values that select the behavior of 1.15.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final

from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_NEUTRAL: Final[dict[str, Any]] = {
    "Tk": dtypes.int32,
    "Tsegmentids": dtypes.int32,
    "exponential_avg_factor": 1.0,
    "incompatible_shape_error": True,
    "index_type": dtypes.int32,
    "shape_type": dtypes.int32,
}
"""Values that select the behavior of 1.15, if these are not zero, False or empty."""

_INFORMATIVE: Final = frozenset({"debug_name", "grad_a", "grad_b", "grad_x", "grad_y"})
"""Attributes without effect for any value."""

_INFORMATIVE_OF: Final = frozenset({("AssignVariableOp", "validate_shape")})
"""Attributes without effect for any value, by op type: known shapes are always compared."""

_DATASETS: Final = (
    "BatchDatasetV2",
    "CacheDataset",
    "ConcatenateDataset",
    "FilterDataset",
    "FixedLengthRecordDatasetV2",
    "FlatMapDataset",
    "GroupByWindowDataset",
    "InterleaveDataset",
    "MapDataset",
    "PaddedBatchDatasetV2",
    "ParallelInterleaveDatasetV2",
    "ParallelMapDataset",
    "PrefetchDataset",
    "RandomDataset",
    "RangeDataset",
    "ReduceDataset",
    "RepeatDataset",
    "ScanDataset",
    "ShardDataset",
    "ShuffleDataset",
    "SkipDataset",
    "TFRecordDataset",
    "TakeDataset",
    "TakeWhileDataset",
    "TensorDataset",
    "TensorSliceDataset",
    "TextLineDataset",
    "UnbatchDataset",
    "UniqueDataset",
    "WindowDataset",
    "ZipDataset",
)

_OPS: Final[dict[str, tuple[str, ...]]] = {
    "allowed_devices": ("VarHandleOp",),
    "bad_indices_policy": ("GatherNd", "*ScatterNd*", "TensorScatter*"),
    "buffer_size_min": ("PrefetchDataset",),
    "cardinality_options": ("DatasetCardinality",),
    "debug_name": ("VarHandleOp",),
    "explicit_paddings": ("MaxPool", "MaxPoolGrad"),
    "exponential_avg_factor": ("FusedBatchNorm", "FusedBatchNormV?"),
    "force_synchronous": ("MapDataset",),
    "grad_a": ("MatMul",),
    "grad_b": ("MatMul",),
    "grad_x": ("BatchMatMul*",),
    "grad_y": ("BatchMatMul*",),
    "incompatible_shape_error": ("Equal", "NotEqual"),
    "index_type": ("TopKV2",),
    "is_files": ("TensorSliceDataset",),
    "metadata": ("DatasetToSingleElement", *_DATASETS),
    "multiply_linear_by_lr": ("*ApplyFtrl*",),
    "replicate_on_split": ("RangeDataset", "TensorSliceDataset"),
    "sparse_gradient": tuple(
        f"SparseSegment{kind}{end}"
        for kind in ("Mean", "SqrtN", "Sum")
        for end in ("", "WithNumSegments")
    ),
    "validate_shape": ("AssignVariableOp",),
}
"""The attributes by patterns of op types."""


def later_attrs(op: str) -> dict[str, Any]:
    """Return the later attributes that ops of this type may have, with their defaults."""
    return {
        name: _NEUTRAL.get(name)
        for name, patterns in _OPS.items()
        if any(fnmatchcase(op, pattern) for pattern in patterns)
    }


def informative(op: str, name: str) -> bool:
    """Return True if an undeclared attribute of `op` has no effect for any value."""
    return name in _INFORMATIVE or (op, name) in _INFORMATIVE_OF


def has_no_effect(op: str, name: str, value: Any) -> bool:
    """Return True if an undeclared attribute of `op` has a value without effect.

    Args:
      value: a plain value; a type is a DType or its number.
    """
    if informative(op, name) or not value:
        return True
    neutral = _NEUTRAL.get(name)
    if isinstance(neutral, DType):
        return value in (neutral, neutral.as_datatype_enum)
    return neutral is not None and bool(value == neutral)
