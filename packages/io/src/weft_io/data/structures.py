"""Functions that create the specs of elements."""

from __future__ import annotations

__all__ = [
    "DatasetStructure",
    "OptionalStructure",
    "RaggedTensorStructure",
    "SparseTensorStructure",
    "Structure",
    "TensorArrayStructure",
    "TensorStructure",
    "get_structure",
]

from typing import Any

from weft_graph.functions.type_spec import SparseTensorSpec, TensorArraySpec, TensorSpec, TypeSpec
from weft_graph.ragged.spec import RaggedTensorSpec
from weft_io.data.dataset import Dataset, DatasetSpec
from weft_io.data.iterator import Iterator
from weft_io.data.optional import OptionalSpec
from weft_tensor import errors

DatasetStructure = DatasetSpec
OptionalStructure = OptionalSpec
Structure = TypeSpec


def TensorStructure(dtype: Any, shape: Any) -> TensorSpec:  # noqa: N802 (TensorFlow's name)
    """Return a `TensorSpec`.

    Args:
      dtype: element type.
      shape: the static shape.
    Examples:
      >>> wf.data.experimental.TensorStructure(wf.int32, [3])
      TensorSpec(shape=[3], dtype=int32, name=None)
    """
    return TensorSpec(shape, dtype)


def SparseTensorStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, shape: Any
) -> SparseTensorSpec:
    """Return a `SparseTensorSpec`.

    Args:
      dtype: element type.
      shape: the static dense shape.

    Examples:
      >>> wf.data.experimental.SparseTensorStructure(wf.int32, [3])
      SparseTensorSpec(shape=[3], dtype=int32)
    """
    return SparseTensorSpec(shape, dtype)


def RaggedTensorStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, shape: Any, ragged_rank: int
) -> RaggedTensorSpec:
    """Return a `RaggedTensorSpec` with int64 row splits.

    Args:
      dtype: element type.
      shape: the static shape, None for each ragged axis.
      ragged_rank: number of ragged axes.
    Raises: InvalidArgumentError: `ragged_rank` is not below the rank.

    Examples:
      >>> wf.data.experimental.RaggedTensorStructure(wf.int32, [3, None], 1)
      RaggedTensorSpec([3,?], int32, 1, int64)
    """
    return RaggedTensorSpec(shape, dtype, ragged_rank)


def TensorArrayStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, element_shape: Any, dynamic_size: bool, infer_shape: bool
) -> TensorArraySpec:
    """Return a `TensorArraySpec`.

    Args:
      dtype: element type.
      element_shape: the static shape of elements.
      dynamic_size: True if the array may grow.
      infer_shape: True if all elements must have the same shape.

    Examples:
      >>> wf.data.experimental.TensorArrayStructure(wf.int32, [3], False, True)
      TensorArraySpec([3], int32, False, True)
    """
    return TensorArraySpec(element_shape, dtype, dynamic_size, infer_shape)


def get_structure(dataset_or_iterator: Any) -> Any:
    """Return the specs of the tensors in an element, in its structure.

    Args:
      dataset_or_iterator: a dataset or iterator.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]]})
      >>> wf.data.experimental.get_structure(dataset)
      {'a': TensorSpec(shape=[2], dtype=float32, name=None)}
    """
    if not isinstance(dataset_or_iterator, Dataset | Iterator):
        raise errors.InvalidTypeError(
            f"a Dataset or an Iterator is required, got {dataset_or_iterator!r}"
        )
    return dataset_or_iterator.element_spec
