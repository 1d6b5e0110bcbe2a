"""What is known of elements, as specs that programs can look at."""

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
    """A `TensorSpec`.

    Args:
      dtype: element type.
      shape: what is known of the shape.

    Examples:
      >>> wf.data.experimental.TensorStructure(wf.int32, [3])
      TensorSpec(shape=[3], dtype=int32, name=None)
    """
    return TensorSpec(shape, dtype)


def SparseTensorStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, shape: Any
) -> SparseTensorSpec:
    """A `SparseTensorSpec`.

    Args:
      dtype: element type.
      shape: what is known of the dense shape.

    Examples:
      >>> wf.data.experimental.SparseTensorStructure(wf.int32, [3])
      SparseTensorSpec(shape=[3], dtype=int32)
    """
    return SparseTensorSpec(shape, dtype)


def RaggedTensorStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, shape: Any, ragged_rank: int
) -> RaggedTensorSpec:
    """A `RaggedTensorSpec` with splits of int64.

    Args:
      dtype: element type.
      shape: what is known of the shape, None for each ragged axis.
      ragged_rank: how many axes are ragged.
    Raises: InvalidArgumentError: `ragged_rank` is not below the rank.

    Examples:
      >>> wf.data.experimental.RaggedTensorStructure(wf.int32, [3, None], 1)
      RaggedTensorSpec([3,?], int32, 1, int64)
    """
    return RaggedTensorSpec(shape, dtype, ragged_rank)


def TensorArrayStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, element_shape: Any, dynamic_size: bool, infer_shape: bool
) -> TensorArraySpec:
    """A `TensorArraySpec`.

    Args:
      dtype: element type.
      element_shape: what is known of the shape of elements.
      dynamic_size: whether it may grow.
      infer_shape: whether all elements must have one shape.

    Examples:
      >>> wf.data.experimental.TensorArrayStructure(wf.int32, [3], False, True)
      TensorArraySpec([3], int32, False, True)
    """
    return TensorArraySpec(element_shape, dtype, dynamic_size, infer_shape)


def get_structure(dataset_or_iterator: Any) -> Any:
    """The specs of the tensors in an element, in its structure.

    Args:
      dataset_or_iterator: whose elements are asked about.
    Raises: InvalidTypeError: neither of them.

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
