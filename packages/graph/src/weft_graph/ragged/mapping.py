"""Ragged results of functions that are applied to each row."""

from __future__ import annotations

from typing import Any

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.composite import makers
from weft_graph.ops import shapes
from weft_graph.ragged.making import splits_of
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.spec import RaggedTensorSpec
from weft_graph.ragged.tensor import RaggedTensor, ragged_or_tensor
from weft_tensor import errors


class RaggedResults:
    """What a function gives for each row, as the rows of one ragged tensor.

    Args:
      spec: of a result: of a tensor, where its `ragged_rank` is 0.
      count: how many results there are.
    Attributes:
      arrays: what is written for each result: its flat values, how many rows it has, and the
        lengths of the rows of each level.
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
        """What is written for a result.

        Raises: InvalidArgumentError: it has another number of ragged axes.
        """
        found, spec = ragged_or_tensor(value, self._spec.dtype), self._spec
        levels = found.ragged_rank if isinstance(found, RaggedTensor) else 0
        if levels != spec.ragged_rank:
            raise errors.InvalidArgumentError(
                f"fn must return what {spec!r} describes, got {found!r}"
            )
        if not isinstance(found, RaggedTensor):
            rows = shapes.shape(found, out_type=spec.row_splits_dtype)[0]
            return [found, rows]
        ragged = found.with_row_splits_dtype(spec.row_splits_dtype)
        return [ragged.flat_values, ragged.nrows(), *ragged.nested_row_lengths()]

    def joined(self, arrays: list[TensorArray]) -> Any:
        """All results."""
        flat, outer, *inner = arrays
        found: Any = flat.concat()
        for lengths in reversed([outer.stack(), *[each.concat() for each in inner]]):
            found = RaggedTensor(found, Rows(splits_of(lengths), lengths=lengths))
        return found


makers.register("results", RaggedResults)
