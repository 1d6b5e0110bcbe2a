"""Row partitions: one level of a ragged tensor.

A level has several encodings: the splits between rows, their lengths, the row of each value. The
splits always exist. Other encodings passed to the constructor are kept, to avoid computing them.
Encodings computed later are not cached, because their nodes may be in a branch or a loop.
"""

from __future__ import annotations

from weft_graph.ir.builder import out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops import casting, sequence, shapes
from weft_graph.ops.search import searchsorted
from weft_tensor.dtypes import DType


class Rows:
    """A partition of values into rows.

    Args:
      splits: int32 or int64, shape (nrows + 1,): row i is `values[splits[i]:splits[i + 1]]`.
      lengths: shape (nrows,), if it is known.
      value_rowids: shape (number of values,), if it is known.
      nrows: shape (), if it is known.
      uniform: shape (): the length of all rows, if they have one.
    """

    __slots__ = ("lengths", "rows", "splits", "uniform", "value_rowids")

    def __init__(
        self,
        splits: Output,
        *,
        lengths: Output | None = None,
        value_rowids: Output | None = None,
        nrows: Output | None = None,
        uniform: Output | None = None,
    ) -> None:
        self.splits = splits
        self.lengths = lengths
        self.value_rowids = value_rowids
        self.rows = nrows
        self.uniform = uniform

    @property
    def dtype(self) -> DType:
        """The element type of the encodings."""
        return self.splits.dtype.base_dtype

    @property
    def static_nrows(self) -> int | None:
        """The static number of rows, or None."""
        dims = self.splits.dims
        return dims[0] - 1 if dims and dims[0] is not None else None

    @property
    def static_uniform(self) -> int | None:
        """The static length of all rows, or None."""
        static = None if self.uniform is None else constant_value(self.uniform)
        return None if static is None else int(static)

    def nrows(self) -> Output:
        """Return the number of rows, shape ()."""
        if self.rows is not None:
            return self.rows
        return shapes.shape(self.splits, out_type=self.dtype)[0] - 1

    def starts(self) -> Output:
        """Return the index of the first value of each row."""
        return self.splits[:-1]

    def limits(self) -> Output:
        """Return the index after the last value of each row."""
        return self.splits[1:]

    def row_lengths(self) -> Output:
        """Return the length of each row."""
        return self.limits() - self.starts() if self.lengths is None else self.lengths

    def nvals(self) -> Output:
        """Return the number of values, shape ()."""
        return self.splits[-1]

    def ids(self) -> Output:
        """Return the row of each value."""
        return segment_ids(self.splits) if self.value_rowids is None else self.value_rowids

    def offsets(self) -> Output:
        """Return the index of each value within its row."""
        positions = sequence.range(self.nvals())
        return positions - out("GatherV2", [self.starts(), self.ids(), 0])

    def cast(self, dtype: DType) -> Rows:
        """Return the rows with encodings cast to an integer type."""
        if dtype is self.dtype:
            return self

        def cast_part(part: Output | None) -> Output | None:
            return None if part is None else casting.cast(part, dtype)

        return Rows(
            casting.cast(self.splits, dtype),
            lengths=cast_part(self.lengths),
            value_rowids=cast_part(self.value_rowids),
            nrows=cast_part(self.rows),
            uniform=cast_part(self.uniform),
        )


def segment_ids(splits: Output) -> Output:
    """Return the row of each value from row splits."""
    dtype = splits.dtype.base_dtype
    positions = sequence.range(splits[-1])
    return searchsorted(splits[1:], positions, "right", out_type=dtype)
