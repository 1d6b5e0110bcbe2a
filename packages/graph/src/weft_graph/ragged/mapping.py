"""Ragged results of functions mapped over rows."""

from __future__ import annotations

from typing import Any

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.composite import makers
from weft_graph.ops import shapes
from weft_graph.ragged.encodings import splits_of
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.spec import RaggedTensorSpec
from weft_graph.ragged.tensor import RaggedTensor, ragged_or_tensor
from weft_tensor import errors


class RaggedResults:
    """Accumulator of a function's results for each row, as one ragged tensor.

    Args:
      spec: spec of a result; a tensor if its `ragged_rank` is 0.
      count: number of results.
    Attributes:
      arrays: TensorArrays of the results' flat values, numbers of rows, and row lengths of each
        level.
    """

    def __init__(self, spec: RaggedTensorSpec, count: Any) -> None:
        self._spec = spec
        levels = spec.ragged_rank

        def array(dtype: Any, dims: Any) -> TensorArray:
            return TensorArray(
                dtype, count, dynamic_size=False, infer_shape=False, element_shape=dims
            )

        self.arrays = [
            array(spec.dtype, spec.flat_dims),
            array(spec.row_splits_dtype, ()),
            *[array(spec.row_splits_dtype, (None,)) for _ in range(levels)],
        ]

    def parts(self, value: Any) -> list[Any]:
        """Return the values to store for a result.

        Raises: InvalidArgumentError: the number of its ragged axes differs.
        """
        converted, spec = ragged_or_tensor(value, self._spec.dtype), self._spec
        levels = converted.ragged_rank if isinstance(converted, RaggedTensor) else 0
        if levels != spec.ragged_rank:
            raise errors.InvalidArgumentError(
                f"fn must return a value compatible with {spec!r}, got {converted!r}"
            )
        if not isinstance(converted, RaggedTensor):
            rows = shapes.shape(converted, out_type=spec.row_splits_dtype)[0]
            return [converted, rows]
        ragged = converted.with_row_splits_dtype(spec.row_splits_dtype)
        return [ragged.flat_values, ragged.nrows(), *ragged.nested_row_lengths()]

    def joined(self, arrays: list[TensorArray]) -> Any:
        """Return all results as one ragged tensor."""
        flat, outer, *inner = arrays
        nested: Any = flat.concat()
        for lengths in reversed([outer.stack(), *[level.concat() for level in inner]]):
            nested = RaggedTensor(nested, Rows(splits_of(lengths), lengths=lengths))
        return nested


makers.register("results", RaggedResults)
